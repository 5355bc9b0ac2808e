"""``roofline recommend``: the answer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from roofline.cli.listing import emit_text
from roofline.errors import InputError, did_you_mean
from roofline.units import parse_size

if TYPE_CHECKING:
    from enum import StrEnum

    from roofline.quantization import DType
    from roofline.workload import Routing

__all__ = ["recommend"]

_DTYPES = "fp32, bf16, fp16, fp8, fp8-block, int8, int4-g128, nvfp4, mxfp4, or a GGUF type (q4_k_m)"
_SUFFIXES = {".csv": "csv", ".json": "json", ".md": "markdown", ".txt": "table"}


def recommend(
    model: Annotated[
        str,
        typer.Argument(help="A bundled id, or a path: config.json, its folder, GGUF, YAML spec."),
    ],
    gpu: Annotated[str, typer.Option(help="A bundled id, or a path to a profile.")] = "h100-sxm",
    tp: Annotated[int, typer.Option(help="Tensor-parallel GPUs.")] = 1,
    ep: Annotated[int, typer.Option(help="Groups of those GPUs that experts are placed on.")] = 1,
    batch: Annotated[str, typer.Option(help="Sequences decoded together: 1 or 1,8,32.")] = "1",
    context: Annotated[str, typer.Option(help="Tokens in the KV cache: 4k or 1k,8k.")] = "4k",
    drafter: Annotated[
        str | None,
        typer.Option(
            help="none, ngram, suffix, mtp, a kind of head (eagle1, eagle3, medusa, dflash, "
            "dspark, domino, peagle), a model id or a path.  [bundled eagle3 head]"
        ),
    ] = None,
    acceptance: Annotated[
        str | None,
        typer.Option(
            help="0.8 | 0.8,0.7,0.6 by position | al:1.84,2.45 tokens per step | "
            "al:2=2.36,3=2.79 | ID | mix:0.7*ID,0.3*ID | FILE | http://HOST/metrics  "
            "[bundled curve]"
        ),
    ] = None,
    max_draft_length: Annotated[int, typer.Option(help="Longest draft to consider.")] = 8,
    extrapolate: Annotated[
        bool, typer.Option("--extrapolate", help="Go beyond the acceptance that was measured.")
    ] = False,
    weights: Annotated[str | None, typer.Option(help=f"Layer weights: {_DTYPES}.")] = None,
    activations: Annotated[
        str | None, typer.Option(help="Format that products run in, where the GPU has a rate.")
    ] = None,
    kv: Annotated[str | None, typer.Option(help="KV cache format (storage only).")] = None,
    draft_tp: Annotated[
        int | None, typer.Option(help="GPUs the drafter runs on.  [as --tp]")
    ] = None,
    draft_weights: Annotated[str | None, typer.Option(help="The drafter's weights.")] = None,
    verify_attention: Annotated[
        str, typer.Option(help="How verify reads KV: kv_once, tile, kv_per_query.")
    ] = "kv_once",
    state_handling: Annotated[
        str,
        typer.Option(help="How verify keeps states of linear mixers: snapshots, replay."),
    ] = "snapshots",
    routing_skew: Annotated[
        float | None, typer.Option(help="Expert popularity ~ rank^-s; 0 is uniform.  [fitted]")
    ] = None,
    routing_correlation: Annotated[
        float | None,
        typer.Option(help="Chance that a draft token reuses the last token's experts.  [0]"),
    ] = None,
    engine: Annotated[
        str,
        typer.Option(help="vllm, sglang, trtllm, llamacpp; vllm@2025 for an era; or a YAML file."),
    ] = "vllm",
    verify_width: Annotated[
        int | None, typer.Option(help="Rows per sequence that a tree is verified with.  [1 + D]")
    ] = None,
    tree_topk: Annotated[int, typer.Option(help="Branches of a tree's draft passes.")] = 1,
    draft_block: Annotated[
        int | None, typer.Option(help="Block that a block drafter was deployed with.  [its own]")
    ] = None,
    first_pass_rows: Annotated[
        float | None,
        typer.Option(help="Rows per sequence of the first draft pass.  [padded to 1 + D]"),
    ] = None,
    prefill_tokens_per_step: Annotated[
        float, typer.Option(help="Prompt tokens that ride in each pass (chunked prefill).")
    ] = 0.0,
    overhead_ms: Annotated[
        str | None,
        typer.Option(help="Own ms around a plain step, a round, a draft pass: 0.5,0.7,0.15."),
    ] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Show every kernel of the step.")
    ] = False,
    form: Annotated[
        str | None, typer.Option("--format", help="table, json, csv, markdown.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Write to FILE; .csv, .json or .md sets the format."),
    ] = None,
) -> None:
    """Say which draft length to run for MODEL, what it buys, and why."""
    from roofline.ops import StateHandling, VerifyAttention
    from roofline.prepare import Request
    from roofline.recommend import recommend as answer_for
    from roofline.report import render

    how = _format(form, output)
    if explain and how == "csv":
        raise InputError("--explain: CSV has no place for it; use --format table, json or markdown")
    request = Request(
        model=model,
        gpu=gpu,
        tp=tp,
        ep=ep,
        routing=_routing(routing_skew, routing_correlation),
        batches=_sizes("--batch", batch),
        contexts=_sizes("--context", context),
        drafter=drafter,
        acceptance=acceptance,
        max_draft_length=max_draft_length,
        extrapolate=extrapolate,
        weights=_dtype("--weights", weights),
        activations=_dtype("--activations", activations),
        kv=_dtype("--kv", kv),
        draft_tp=draft_tp,
        draft_weights=_dtype("--draft-weights", draft_weights),
        verify_attention=_choice("--verify-attention", verify_attention, VerifyAttention),
        state_handling=_choice("--state-handling", state_handling, StateHandling),
        engine=engine,
        verify_width=verify_width,
        tree_topk=tree_topk,
        draft_block=draft_block,
        first_pass_rows=first_pass_rows,
        prefill_tokens=prefill_tokens_per_step,
        overhead=_milliseconds(overhead_ms),
    )
    answer = answer_for(request)
    emit_text(render(answer, how, explain=explain), output, answer.warnings)


def _routing(skew: float | None, correlation: float | None) -> Routing | None:
    """Return the routing asked for; what was not given keeps its stated default."""
    if skew is None and correlation is None:
        return None
    from roofline.priors import priors
    from roofline.workload import Routing

    stated = priors().routing
    return Routing(
        skew=stated.skew if skew is None else skew,
        correlation=stated.correlation if correlation is None else correlation,
    )


def _milliseconds(text: str | None) -> tuple[float, ...] | None:
    if text is None:
        return None
    try:
        return tuple(float(item) for item in text.split(","))
    except ValueError:
        raise InputError(f"--overhead-ms {text}: expected numbers such as 0.5,0.7,0.15") from None


Choice = TypeVar("Choice", bound="StrEnum")


def _choice(flag: str, text: str, kinds: type[Choice]) -> Choice:
    try:
        return kinds(text)
    except ValueError:
        raise InputError(f"{flag}: unknown value '{text}': {did_you_mean(text, kinds)}") from None


def _format(form: str | None, output: Path | None):  # type: ignore[no-untyped-def]
    from roofline.report import OutputFormat

    by_suffix = None
    if output is not None:
        by_suffix = _SUFFIXES.get(output.suffix.lower())
        if by_suffix is None and form is None:
            raise InputError(
                f"-o {output}: expected a name ending in {', '.join(_SUFFIXES)}, or --format"
            )
    return _choice("--format", form or by_suffix or "table", OutputFormat)


def _sizes(flag: str, text: str) -> tuple[int, ...]:
    try:
        return tuple(parse_size(item) for item in text.split(","))
    except InputError as error:
        raise InputError(f"{flag}: {error}") from None


def _dtype(flag: str, text: str | None) -> DType | None:
    from roofline.quantization import parse_dtype

    return None if text is None else parse_dtype(text, flag)
