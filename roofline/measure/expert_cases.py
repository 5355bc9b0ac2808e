"""The routed experts of a layer as cases: over tokens, whole and in tensor-parallel parts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from roofline.kernels.ops import Kind, MoeShape, Op
from roofline.measure.case import Case, Menu, case_of, kernels
from roofline.specs.formats import Component, DType
from roofline.specs.network import GroupedQueryAttention, LayerRun, ModelSpec, MoeMlp
from roofline.specs.placement import Placement

__all__ = ["expert_cases", "expert_layer"]

BEYOND = (128, 256)  # tokens of the parts, and of kernels and formats beside the first
PARTS = (1, 2, 4)  # ranks that share each expert
LEAST_WIDTH = 64  # narrower parts are not what kernels are made for


def expert_layer(model: ModelSpec) -> tuple[ModelSpec, LayerRun] | None:
    """Return the model with the first of its layers that has routed experts, once."""
    for run in model.layers:
        if isinstance(run.mlp, MoeMlp) and isinstance(run.attention, GroupedQueryAttention):
            single = run.model_copy(update={"repeat": 1})
            return model.model_copy(update={"layers": (single,)}), single
    return None


def expert_cases(
    model: ModelSpec, run: LayerRun, menu: Menu, *, tokens: tuple[Sequence[int], Sequence[int]]
) -> Iterator[Case]:
    """Yield the routed experts over ``tokens`` (the telling ones, the others).

    The parts tell the cost of an expert from that of its bytes, which one width cannot.
    """
    mlp = run.mlp
    assert isinstance(mlp, MoeMlp)
    lean, more = tokens
    seen: set[str] = set()
    for number, (dtype, kernel) in enumerate(menu.experts):
        for parts in PARTS if dtype not in seen else PARTS[:1]:
            if mlp.expert_intermediate_size % (parts * LEAST_WIDTH) and parts > 1:
                continue
            whole = number == 0 and parts == 1
            for count in (*lean, *(more if whole else BEYOND)):
                tier = 0 if whole and count in lean else 1 if count <= max(lean) else 2
                op = _op(model, dtype, tokens=count, parts=parts)
                yield case_of(op, dtype, kernel, _sizes(op, count), tier)
        seen.add(dtype)


def _op(model: ModelSpec, dtype: str, *, tokens: int, parts: int) -> Op:
    stored = model.model_copy(update={"dtypes": {Component.EXPERTS: DType(dtype)}})
    found = kernels(stored, batch=tokens, rows=1, context=1, placement=Placement(tp=parts))
    return next(op for op in found if op.kind is Kind.MOE)


def _sizes(op: Op, tokens: int) -> Sequence[tuple[str, int]]:
    shape = op.shape
    assert isinstance(shape, MoeShape)
    return (
        ("tokens", tokens), ("hidden", int(shape.hidden)), ("width", int(shape.width)),
        ("matrices", int(shape.matrices)), ("experts", int(shape.experts)),
        ("top_k", int(shape.top_k)),
    )  # fmt: skip
