"""A diagnosis as text or JSON."""

from __future__ import annotations

import json
from typing import Any

from roofline.base.units import format_size
from roofline.questions.diagnose.diagnose import Diagnosis, Proposal
from roofline.questions.diagnose.explain import Explanation
from roofline.questions.diagnose.terms import ADDED, Term
from roofline.render.columns import listed, text_table, wrap
from roofline.render.deployment import deployment_data, gpus_named, set_data, set_line
from roofline.render.forms import TableOrJson
from roofline.render.notices import assumptions, warnings
from roofline.render.refusals import refused_data, refused_lines

__all__ = ["render_diagnosis"]

SCHEMA = "roofline.diagnose/1"
#: What settles whether a term is at fault, beside a load at which explanations part.
SETTLES = {
    Term.DRAFTER: "time the drafter's passes in a profile of a few steps, or the same load at two "
    "draft lengths: the slope per token drafted is one pass of it",
    Term.HOST: "profile a few steps and add up the gaps between kernels; check that CUDA "
    "graphs cover this batch and that the host's cores are free",
    Term.ROUNDS: "profile a few speculative steps and add up the gaps around the "
    "drafter's passes; check that its passes run in CUDA graphs",
    Term.ATTENTION: "the same batch at two contexts, D = 0 and speculating: the slope per token "
    "of context is the cache being read; the log names the attention backend",
    Term.PER_ROW: "the same load with --verify-attention kv_per_query says what it "
    "would cost; the log names the attention backend, and a profile shows how often it reads",
    Term.EXPERTS: "time the expert kernels in a profile, or the same load at two batches with a "
    "short context; a text in one language wakes other experts than a mix",
    Term.COMMUNICATION: "nccl-tests all_reduce_perf at batch x rows x hidden size x 2 bytes on "
    "the same GPUs, or the same load with another --tp",
    Term.MEMORY: "the engine's counter of preemptions and the cache in use while it runs "
    "(vllm:num_preemptions_total, sglang:num_retracted_requests_total), or the same load at half "
    "the batch",
    Term.PRODUCTS: "'roofline calibrate measure' times them on this machine; check the clocks "
    "and the format that the weights really run in",
    Term.SMALL: "profile a few steps; sampling with penalties or large top-k runs here",
}


def render_diagnosis(found: Diagnosis, how: TableOrJson) -> str:
    """Return the diagnosis in the format asked for, ending in a newline."""
    if how is TableOrJson.JSON:
        return json.dumps(_data(found), indent=2, allow_nan=False) + "\n"
    blocks = [wrap(_headline(found)), wrap(_where(found)), _points(found)]
    if found.best is not None:
        blocks += [_explanations(found), wrap(_settle(found, found.best))]
    blocks += map(wrap, [*refused_lines(found.deployment, found.refused), *_waiting(found)])
    assumed = (wrap(f"Assumed: {text}") for text in assumptions(found.notices))
    return "\n\n".join([*blocks, *assumed]) + "\n"


def _data(found: Diagnosis) -> dict[str, Any]:
    deployment, best = found.deployment, found.best
    return {
        "schema": SCHEMA,
        "inputs": {
            **deployment_data(deployment),
            "drafter": deployment.drafter.name,
            "noise": found.noise,
            "set": set_data(deployment.changes),
        },
        "nothing_to_explain": found.nothing_to_explain,
        "distance": found.whole.distance,
        "limit": found.whole.limit,
        "inside_band": found.whole.inside,
        "term": None if best is None else best.term,
        "settles": None if best is None else SETTLES[best.term],
        "points": _points_data(found),
        "explanations": [_explanation_data(each) for each in found.explanations if each.moves],
        "next": None if best is None else _next_data(found.proposal),
        "refused": refused_data(found.refused),
        "warnings": warnings(found.notices),
    }


def _points_data(found: Diagnosis) -> list[dict[str, Any]]:
    """Return each measured load beside its prediction, and what the best explanation makes of it.

    ``difference`` and ``band`` are shares of the prediction.
    """
    times = (found.predicted, found.whole.band, found.explained)
    memory = found.deployment.memory
    return [
        {
            "draft_length": point.draft_length,
            "batch": point.batch,
            "context": point.context,
            "fits": bool(memory.has_room(point.batch, point.context, point.draft_length)),
            "tokens_per_step": point.tokens_per_step,
            "measured_tpot_ms": 1e3 * point.time_per_token,
            "predicted_tpot_ms": 1e3 * predicted / point.tokens_per_step,
            "measured_step_ms": 1e3 * point.seconds,
            "predicted_step_ms": 1e3 * predicted,
            "difference": point.seconds / predicted - 1,
            "band": band,
            "explained_step_ms": None if found.best is None else 1e3 * explained,
            "terms_ms": {
                name: 1e3 * float(each[i]) for name, each in found.terms.items() if each[i]
            },
        }
        for i, (point, predicted, band, explained) in enumerate(
            zip(found.points, *(each.tolist() for each in times), strict=True)
        )
    ]


def _waiting(found: Diagnosis) -> list[str]:
    """Say what the prediction of a load that does not fit is."""
    memory = found.deployment.memory
    if all(memory.has_room(p.batch, p.context, p.draft_length) for p in found.points):
        return []
    waiting = (
        "The prediction of a load that does not fit is of all its sequences at once; what waiting "
        f"adds is the term {Term.MEMORY}."
    )
    return [waiting]


def _explanation_data(found: Explanation) -> dict[str, Any]:
    return {
        "term": found.term,
        "factor": found.factor,
        "sigma": found.sigma,
        "strain": found.strain,
        "misfit": found.misfit,
        "gain": found.gain,
        "needed": found.needed,
        "leaves": found.leaves,
        "as_good": found.as_good,
        "fits": found.fits,
    }


def _next_data(proposal: Proposal | None) -> dict[str, Any] | None:
    """Return the load to measure next, and the step that each of two explanations expects there."""
    if proposal is None:
        return None
    return {
        "draft_length": proposal.draft_length,
        "batch": proposal.batch,
        "context": proposal.context,
        "step_ms": {
            proposal.first: 1e3 * proposal.first_step,
            proposal.second: 1e3 * proposal.second_step,
        },
    }


def _headline(found: Diagnosis) -> str:
    best = found.best
    if best is None:
        return (
            "Nothing to explain: the measurements are within the errors of the model and of "
            f"measurement (distance {found.whole.distance:.1f}, limit {found.whole.limit:.1f})."
        )
    name = best.term[0].upper() + best.term[1:]
    others = [e.term for e in found.explanations[1:] if e.as_good]
    if len(found.points) == 1 and others and best.fits:
        return (
            f"One point cannot tell the terms apart: {listed([best.term, *others], 'or')} may be "
            f"off. Measure {_next(found)}."
        )
    said = f"{name} disagrees most: {_factor(best)} explains the measurements"
    if not best.fits:
        said = (
            f"No single term explains the measurements; {best.term} comes closest, {_factor(best)}"
        )
    if found.whole.inside:
        said = f"Inside the error band, but {best.term} alone accounts for it: {_factor(best)}"
    within = "within" if best.strain <= 2 else "beyond"
    said += f", {within} its stated error ({best.strain:.1f} standard deviations)."
    if others and best.fits:
        said += f" So far {listed(others, 'or')} would do as well, with more strain."
    return said


def _next(found: Diagnosis) -> str:
    """Return the load at which the likeliest explanations part, or what makes one likely."""
    proposal = found.proposal
    if proposal is None:
        return "other batches, contexts and draft lengths, D = 0 among them"
    return (
        f"D = {proposal.draft_length} at batch {proposal.batch}, context "
        f"{format_size(proposal.context)} as well"
    )


def _factor(found: Explanation) -> str:
    if found.term is Term.MEMORY:
        return f"{found.factor:.2f}x the wait of sequences that do not fit"
    if found.term is Term.PER_ROW:
        return f"{found.factor:.2f}x what reading the cache anew for each row would add"
    return f"{found.factor:.2f}x its prediction"


def _where(found: Diagnosis) -> str:
    deployment = found.deployment
    return (
        f"{deployment.target.model.name} on {gpus_named(deployment)}, "
        f"{deployment.engine.name}; drafter {deployment.drafter.name}. Band: one standard "
        f"deviation of model and measurement (the latter {found.noise:.1%})."
        + set_line(deployment.changes)
    )


def _points(found: Diagnosis) -> str:
    best = found.best
    rows = []
    for i, point in enumerate(found.points):
        predicted = float(found.predicted[i])
        cells = [
            f"{point.draft_length}@{point.batch}x{format_size(point.context)}",
            f"{point.tokens_per_step:.2f}",
            f"{1e3 * point.time_per_token:.2f}",
            f"{1e3 * predicted / point.tokens_per_step:.2f}",
            f"{1e3 * point.seconds:.2f}",
            f"{1e3 * predicted:.2f}",
            f"{point.seconds / predicted - 1:+.1%}",
            f"{found.whole.band[i]:.1%}",
        ]
        rows.append(cells if best is None else [*cells, f"{1e3 * float(found.explained[i]):.2f}"])
    headers = [
        "D@batch\nxcontext", "tokens\nper step", "ms/token\nmeasured", "pre-\ndicted",
        "ms/step\nmeasured", "pre-\ndicted", "off", "band",
    ]  # fmt: skip
    return text_table(headers if best is None else [*headers, "ex-\nplained"], rows)


def _explanations(found: Diagnosis) -> str:
    rows = []
    for e in found.explanations:
        if not e.moves:
            continue
        shares = found.terms[e.term] / found.predicted
        low, high = 100 * float(shares.min()), 100 * float(shares.max())
        share = f"{low:.0f}-{high:.0f}%" if high - low >= 1 else f"{high:.0f}%"
        rows.append(
            [
                ("* " if e is found.best else "  ") + e.term,
                f"+{share}" if e.term in ADDED else share,
                f"{e.factor:.2f}x",
                f"{e.sigma:.0%}",
                f"{e.strain:.1f}",
                f"{e.misfit:.1f}",
                f"{e.leaves:.1%}",
                "yes" if e.as_good else "no",
            ]
        )
    headers = (
        "  term", "share of\nstep", "factor", "stated\nerror", "strain", "misfit", "leaves",
        "may\nbe",
    )  # fmt: skip
    return text_table(headers, rows, names_first=True)


def _settle(found: Diagnosis, best: Explanation) -> str:
    said = f"To settle it: {SETTLES[best.term]}."
    proposal = found.proposal
    if proposal is None:
        return said
    return (
        f"{said} Or measure D = {proposal.draft_length} at batch {proposal.batch}, context "
        f"{format_size(proposal.context)}: {1e3 * proposal.first_step:.2f} ms a step if "
        f"{proposal.first} is at fault, {1e3 * proposal.second_step:.2f} ms if {proposal.second} "
        "is."
    )
