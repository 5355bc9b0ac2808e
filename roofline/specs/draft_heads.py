"""Drafters that no file describes: the target's own layer, and heads derived by a stated rule."""

from __future__ import annotations

from roofline.base.errors import InputError
from roofline.specs.formats import DType
from roofline.specs.mixers import GroupedQueryAttention
from roofline.specs.network import (
    DenseMlp,
    DrafterKind,
    DrafterSpec,
    FeatureFusion,
    LayerRun,
    ModelSpec,
)

__all__ = ["DERIVED", "HEAD_KINDS", "HOST_DRAFTERS", "derive", "mtp_head"]

#: Kinds of head that can be derived, with their layers and what the last published ones tap.
DERIVED: dict[DrafterKind, tuple[int, int]] = {
    "eagle1": (1, 2), "eagle3": (1, 3), "peagle": (4, 3), "dflash": (5, 5), "dspark": (5, 5),
    "domino": (5, 5), "medusa": (0, 0),
}  # fmt: skip
BLOCK = {"dflash": 16, "dspark": 7, "domino": 16}
REDUCED_VOCABULARY = 32000  # of EAGLE-3 heads (SpecForge, AngelSlim)
MARKOV_RANK = 256  # of DSpark's Markov head (SpecForge)
RULE = (
    "layers as the published heads of its kind have (EAGLE 1, P-EAGLE 4, block drafters 5), the "
    "target's heads and dense MLP width (4 H in a mixture, 32 heads over 8 of 128 without GQA), "
    "32,000 tokens of vocabulary for EAGLE-3 and P-EAGLE, the target's own head else"
)


def mtp_head(target: ModelSpec) -> DrafterSpec:
    """Return the target's multi-token-prediction layer as a drafter.

    Each pass norms and joins the embedding of the last token and the last hidden state, projects
    them back to the hidden size, runs one layer like the target's, and uses the target's head.
    """
    if target.mtp is None:
        raise InputError(
            f"--drafter mtp: {target.id} was not published with a multi-token-prediction layer; "
            "use eagle3, ngram or a draft model"
        )
    return DrafterSpec(
        schema=1,
        kind="mtp",
        id=f"{target.id}-mtp",
        name=f"MTP layer of {target.name}",
        source=target.source,
        target=target.id,
        hidden_size=target.hidden_size,
        vocab_size=target.vocab_size,
        draft_vocab_size=target.vocab_size,
        dtype=target.dtype,
        dtypes=target.dtypes,
        kv_dtype=target.kv_dtype,
        activations=target.activations,
        layers=(target.mtp,),
        modules=target.mtp_modules,
        fusion=FeatureFusion(taps=2, target_hidden_size=target.hidden_size, every_pass=True),
        shares_head=True,
        extra_norms=2,
    )


def derive(kind: DrafterKind, target: ModelSpec) -> DrafterSpec:
    """Return a head of this kind for a target that has none bundled, by ``RULE``.

    >>> from roofline.specs.network import load_model
    >>> head = derive("eagle3", load_model("llama-3.1-8b"))
    >>> head.layers[0].mlp.intermediate_size, head.draft_vocab_size
    (14336, 32000)
    """
    count, taps = DERIVED[kind]
    reduced = kind in ("eagle3", "peagle")
    # the rest follows the kind: EAGLE-1 joins in every pass, block heads read keys of the taps
    vocabulary = min(REDUCED_VOCABULARY, target.vocab_size) if reduced else target.vocab_size
    return DrafterSpec(
        schema=1,
        kind=kind,
        id=f"{target.id}-{kind}",
        name=f"{kind} head derived for {target.name}",
        source=f"derived: {RULE}",
        target=target.id,
        hidden_size=target.hidden_size,
        vocab_size=target.vocab_size,
        draft_vocab_size=vocabulary,
        dtype=DType.BF16,
        layers=_layers(kind, count, target),
        fusion=FeatureFusion(
            taps=taps, target_hidden_size=target.hidden_size, every_pass=kind == "eagle1"
        ),
        shares_head=not reduced and kind != "medusa",
        block_size=BLOCK.get(kind),
        heads=5 if kind == "medusa" else 1,
        head_blocks=1 if kind == "medusa" else 0,
        side_parameters=2 * target.vocab_size * MARKOV_RANK if kind in ("dspark", "domino") else 0,
        notes=(f"derived: {RULE}",),
    )


def _layers(kind: DrafterKind, count: int, target: ModelSpec) -> tuple[LayerRun, ...]:
    if not count:
        return ()
    hidden = target.hidden_size
    attention = next(
        (
            run.attention
            for run in target.layers
            if isinstance(run.attention, GroupedQueryAttention)
        ),
        GroupedQueryAttention(num_heads=32, num_kv_heads=8, head_dim=128),
    )
    wide = 2 * hidden if kind in ("eagle3", "peagle") else None
    dense = [run.mlp.intermediate_size for run in target.layers if isinstance(run.mlp, DenseMlp)]
    only_dense = len(dense) == len(target.layers)
    return (
        LayerRun(
            repeat=count,
            attention=GroupedQueryAttention(
                num_heads=attention.num_heads,
                num_kv_heads=attention.num_kv_heads,
                head_dim=attention.head_dim,
                input_size=wide,
            ),
            mlp=DenseMlp(intermediate_size=max(dense) if only_dense else 4 * hidden),
        ),
    )


HOST_DRAFTERS = ("none", "ngram", "suffix")


HEAD_KINDS = tuple(DERIVED)
