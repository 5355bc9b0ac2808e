"""What is timed: a case for each kernel, shape and format, with the work that the laws count.

Cases are taken from the list of kernels that prices a step (`roofline.kernels.forward`), so a
law is fitted on the FLOPs and bytes that it will be asked about.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from roofline.kernels.formulas import attention_bytes, gemm_bytes, gemm_flops
from roofline.kernels.forward import decode
from roofline.kernels.ops import GemmShape, Kind, MoeShape, Op
from roofline.specs.formats import Component, DType, bytes_per_element, resolve_precision
from roofline.specs.network import GroupedQueryAttention, LayerRun, ModelSpec, MoeMlp
from roofline.specs.placement import Placement

__all__ = [
    "Case",
    "Menu",
    "case_of",
    "expert_cases",
    "expert_layer",
    "in_format",
    "one_layer",
    "pass_kernels",
    "plan_cases",
]


#: M of the products. The first ones come first; the others fill in while the budget lasts.
FIRST_ROWS = (1, 2, 4, 8, 16, 32, 64)
ROWS = (3, 6, 12, 24, 48, 5, 7, 10, 14, 20, 28, 40, 56, 65, 96, 128, 129, 192, 256, 257, 512, 1024)
ELEMENTWISE_ROWS = (1, 16, 4, 64)
QUERY_ROWS = (1, 2, 4, 8, 3, 5, 6, 7, 12, 16)  # q = 1 + D, the most telling first
GROUPS = (1, 4, 8, 16)  # query heads per KV head beside the model's own
BATCHES, CONTEXTS = (1, 4, 8), (512, 1024, 4096)
SHORT_CONTEXT = 256  # with few rows: do small products take a path of their own?
NARROW_CACHE = ("flashinfer",)  # kernels that read a cache narrower than the queries
STREAM_BYTES = 256 * 2**20
#: Tokens of experts split over ranks, and of expert kernels and formats beside the first.
MORE_TOKENS = (128, 256)
EXPERT_RANKS = (1, 2, 4)  # ranks that share each expert
LEAST_WIDTH = 64  # narrower parts are not what kernels are made for


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """One kernel at one shape. ``flops`` [FLOP] and ``bytes`` [B] are those the laws count."""

    kind: str
    op: str
    dtype: str
    kernel: str
    shape: tuple[tuple[str, int], ...]
    flops: float
    bytes: float
    rows: float
    tier: int = 0  # 0 is measured first, higher ones while the budget lasts

    @property
    def key(self) -> str:
        """Return the name that the case has in a file of measurements."""
        return f"{self.kind}/{self.op}/{self.dtype}/{self.kernel}/{self.shape_text}"

    @property
    def shape_text(self) -> str:
        """Return the shape as the file writes it: ``m=1 n=4096 k=4096``."""
        return " ".join(f"{name}={value}" for name, value in self.shape)

    @property
    def anchors(self) -> bool:
        """Whether the machine's bandwidth or peak is read from this case."""
        return self.kind == "stream" or self.op == "peak"

    def size(self, name: str) -> int:
        """Return one number of the shape."""
        return dict(self.shape)[name]


@dataclass(frozen=True, kw_only=True, slots=True)
class Menu:
    """The formats and kernels that a device offers."""

    base: str  # format of weights, cache and activations unless named below
    products: tuple[str, ...]  # formats of matrix products
    caches: tuple[str, ...]  # formats of the KV cache
    attention: tuple[str, ...]  # kernels, the one that a model would use first
    experts: tuple[tuple[str, str], ...] = ()  # (format, kernel), the likeliest to serve first
    graphs: bool = False  # launches can be captured
    ranks: int = 1  # accelerators that can be reduced over
    large: bool = True  # long contexts and large products, as for a GPU


def pass_kernels(
    model: ModelSpec, *, batch: int, rows: int, context: int, placement: Placement | None = None
) -> list[Op]:
    """Return the kernels of one pass at plain numbers, in the model's own formats."""
    formats = {model.dtype, *model.dtypes.values(), *filter(None, [model.kv_dtype])}
    precision, _ = resolve_precision(
        stored=model.stored(),
        base=model.dtype,
        kv_stored=model.kv_dtype,
        available=sorted(formats),
        gpu="any",
    )
    placement = placement or Placement()
    return decode(model, precision, placement, batch=batch, context=context, rows=rows)


def case_of(op: Op, dtype: str, kernel: str, shape: Iterable[tuple[str, int]], tier: int) -> Case:
    """Return the case of one kernel, with the work that the laws count for it."""
    return Case(
        kind=op.kind.value,
        op=op.name,
        dtype=dtype,
        kernel=kernel,
        shape=tuple(shape),
        flops=float(op.flops),
        bytes=float(op.bytes),
        rows=float(op.rows),
        tier=tier,
    )


def expert_layer(model: ModelSpec) -> tuple[ModelSpec, LayerRun] | None:
    """Return the model cut to its first layer with routed experts, None where it has none."""
    return _first_layer(
        model,
        lambda run: (
            isinstance(run.mlp, MoeMlp) and isinstance(run.attention, GroupedQueryAttention)
        ),
    )


def _first_layer(
    model: ModelSpec, wanted: Callable[[LayerRun], bool]
) -> tuple[ModelSpec, LayerRun] | None:
    for run in model.layers:
        if wanted(run):
            single = run.model_copy(update={"repeat": 1})
            return model.model_copy(update={"layers": (single,)}), single
    return None


def expert_cases(
    model: ModelSpec, run: LayerRun, menu: Menu, *, tokens: tuple[Sequence[int], Sequence[int]]
) -> Iterator[Case]:
    """Yield the routed experts over ``tokens``: the first ones, then the others.

    Experts split over ranks tell the cost of an expert from that of its bytes; one width does not.
    """
    mlp = run.mlp
    assert isinstance(mlp, MoeMlp)
    first, others = tokens
    seen: set[str] = set()
    for number, (dtype, kernel) in enumerate(menu.experts):
        for ranks in EXPERT_RANKS if dtype not in seen else EXPERT_RANKS[:1]:
            if mlp.expert_intermediate_size % (ranks * LEAST_WIDTH) and ranks > 1:
                continue
            whole = number == 0 and ranks == 1
            for count in (*first, *(others if whole else MORE_TOKENS)):
                tier = 0 if whole and count in first else 1 if count <= max(first) else 2
                op = _expert_kernel(model, dtype, tokens=count, ranks=ranks)
                yield case_of(op, dtype, kernel, _expert_sizes(op, count), tier)
        seen.add(dtype)


def _expert_kernel(model: ModelSpec, dtype: str, *, tokens: int, ranks: int) -> Op:
    stored = model.model_copy(update={"dtypes": {Component.EXPERTS: DType(dtype)}})
    ops = pass_kernels(stored, batch=tokens, rows=1, context=1, placement=Placement(tp=ranks))
    return next(op for op in ops if op.kind is Kind.MOE)


def _expert_sizes(op: Op, tokens: int) -> Sequence[tuple[str, int]]:
    shape = op.shape
    assert isinstance(shape, MoeShape)
    return (
        ("tokens", tokens),
        ("hidden", int(shape.hidden)),
        ("width", int(shape.width)),
        ("matrices", int(shape.matrices)),
        ("experts", int(shape.experts)),
        ("top_k", int(shape.top_k)),
    )


def in_format(model: ModelSpec, dtype: str) -> ModelSpec:
    """Return the model stored and computed in one format throughout."""
    return model.model_copy(update={"dtype": DType(dtype), "dtypes": {}, "kv_dtype": None})


def one_layer(model: ModelSpec) -> tuple[ModelSpec, LayerRun]:
    """Return the model cut to its first layer with grouped-query attention."""
    layer = _first_layer(model, lambda run: isinstance(run.attention, GroupedQueryAttention))
    if layer is None:
        raise ValueError(f"{model.id} has no layer with grouped-query attention")
    return layer


def plan_cases(model: ModelSpec, menu: Menu) -> list[Case]:
    """Return the cases of a campaign, the most telling first."""
    whole = in_format(model, menu.base)
    single, run = one_layer(whole)
    routed = expert_layer(whole) if menu.experts else None
    cases = [
        *_streams(menu),
        *_passes(single, run, menu),
        *(_passes(*routed, menu) if routed else ()),
        *(expert_cases(*routed, menu, tokens=(FIRST_ROWS, ROWS)) if routed else ()),
        *_attention(single, run, menu),
        *_other_products(single, menu),
        *_collectives(menu),
    ]
    unique = {case.key: case for case in reversed(cases)}
    kept = [case for case in cases if unique[case.key] is case]
    return sorted(kept, key=lambda case: case.tier)


def _streams(menu: Menu) -> Iterator[Case]:
    width = int(bytes_per_element(DType(menu.base)))
    count = STREAM_BYTES // width
    for op, trips in (("copy", 2), ("read", 1)):
        yield Case(
            kind="stream",
            op=op,
            dtype=menu.base,
            kernel=op,
            shape=(("count", count),),
            flops=0.0,
            bytes=float(trips * STREAM_BYTES),
            rows=1.0,
        )
    size = 2048 if menu.large else 768
    for scale in (1.0, 0.75, 1.25):  # one may be lost to noise
        edge = int(scale * size)
        yield _product("peak", menu.base, edge, edge, edge, tier=0)
    for op in ("eager", "graph") if menu.graphs else ("eager",):
        yield Case(
            kind="launch",
            op=op,
            dtype=menu.base,
            kernel=op,
            shape=(("count", 1),),
            flops=0.0,
            bytes=2.0 * width,
            rows=1.0,
        )


def _passes(model: ModelSpec, run: LayerRun, menu: Menu) -> Iterator[Case]:
    """Yield every kernel of a layer, and of the head, over the rows of all sequences together."""
    for rows in (*FIRST_ROWS, *ROWS):
        tier = 0 if rows in FIRST_ROWS else 1 if rows <= 64 else 2
        ops = pass_kernels(model, batch=rows, rows=1, context=CONTEXTS[0])
        for op, after in zip(ops, [*ops[1:], None], strict=True):
            if op.kind is Kind.GEMM and isinstance(op.shape, GemmShape):
                big = op.name == "lm_head" and not menu.large
                if big and rows not in FIRST_ROWS and rows not in (3, 6, 12, 24):
                    continue
                yield _product(
                    op.name, menu.base, rows, int(op.shape.n), int(op.shape.k), tier=tier
                )
            elif op.kind is Kind.ELEMENTWISE and rows in ELEMENTWISE_ROWS:
                shape = (("rows", rows), *_elementwise_sizes(model, run, op, after))
                yield case_of(op, menu.base, op.name, shape, int(rows not in ELEMENTWISE_ROWS[:2]))


def _attention(model: ModelSpec, run: LayerRun, menu: Menu) -> Iterator[Case]:
    """Yield verify attention over q, batch, context and G, for each kernel and cache format."""
    assert isinstance(run.attention, GroupedQueryAttention)
    own = run.attention.model_copy(update={"window": None})
    contexts = (*CONTEXTS, 16384) if menu.large else CONTEXTS
    for kernel in menu.attention:
        first = kernel == menu.attention[0]
        for group in GROUPS:
            other = own.model_copy(update={"num_heads": group * own.num_kv_heads})
            for rows in QUERY_ROWS[:6]:
                yield from _one_attention(
                    model,
                    other,
                    menu,
                    kernel=kernel,
                    batch=BATCHES[1],
                    rows=rows,
                    context=CONTEXTS[1],
                    tier=1,
                )
        for rows in QUERY_ROWS[:4] if first else ():
            yield from _one_attention(
                model,
                own,
                menu,
                kernel=kernel,
                batch=BATCHES[1],
                rows=rows,
                context=SHORT_CONTEXT,
                tier=1,
            )
        for context in contexts if first else CONTEXTS[1:]:
            for batch in BATCHES if first else BATCHES[:1]:
                for rows in QUERY_ROWS if first else QUERY_ROWS[:4]:
                    telling = first and batch < BATCHES[-1] and context in CONTEXTS[1:]
                    tier = 0 if telling and rows in QUERY_ROWS[:4] else 1
                    yield from _one_attention(
                        model,
                        own,
                        menu,
                        kernel=kernel,
                        batch=batch,
                        rows=rows,
                        context=context,
                        tier=tier,
                    )


def _one_attention(
    model: ModelSpec,
    attention: GroupedQueryAttention,
    menu: Menu,
    *,
    kernel: str,
    batch: int,
    rows: int,
    context: int,
    tier: int,
) -> Iterator[Case]:
    run = model.layers[0].model_copy(update={"attention": attention})
    changed = model.model_copy(update={"layers": (run,)})
    ops = pass_kernels(changed, batch=batch, rows=rows, context=context)
    op = next(op for op in ops if op.kind is Kind.ATTENTION)
    shape = (
        ("batch", batch),
        ("q", rows),
        ("kv_heads", attention.num_kv_heads),
        ("group", attention.group_size),
        ("head_dim", attention.head_dim),
        ("context", context),
    )
    for cache in menu.caches:
        if cache != menu.base and kernel not in NARROW_CACHE:
            continue
        moved = attention_bytes(
            batch=batch,
            rows=rows,
            heads=attention.num_heads,
            kv_heads=attention.num_kv_heads,
            head_dim=attention.head_dim,
            length=context,
            kv=bytes_per_element(DType(cache)),
            activation=bytes_per_element(op.compute),
        )
        yield case_of(replace(op, bytes=moved), cache, kernel, shape, tier)


def _other_products(model: ModelSpec, menu: Menu) -> Iterator[Case]:
    """Yield the layer's products in the further formats that the library offers."""
    for dtype in menu.products:
        if dtype == menu.base:
            continue
        for rows in (*FIRST_ROWS, 128, 256, 512):
            for op in pass_kernels(model, batch=1, rows=1, context=1):
                if (
                    op.kind is Kind.GEMM
                    and isinstance(op.shape, GemmShape)
                    and op.name != "lm_head"
                ):
                    yield _product(op.name, dtype, rows, int(op.shape.n), int(op.shape.k), tier=1)


def _collectives(menu: Menu) -> Iterator[Case]:
    if menu.ranks < 2:
        return
    for power in range(12, 28, 2):
        payload = 2**power
        yield Case(
            kind="allreduce",
            op="all_reduce",
            dtype=menu.base,
            kernel="nccl",
            shape=(("payload", payload), ("ranks", menu.ranks)),
            flops=0.0,
            bytes=2 * (menu.ranks - 1) / menu.ranks * payload,
            rows=1.0,
            tier=1,
        )


def _product(op: str, dtype: str, m: int, n: int, k: int, *, tier: int) -> Case:
    base = bytes_per_element(DType.FP32 if dtype == "fp32" else DType.BF16)
    int4 = bytes_per_element(DType.INT4_G128)
    weight = {"int4-wo": int4, "int8-wo": 1.0, "fp8": 1.0}.get(dtype, base)
    activation = 1.0 if dtype == "fp8" else base
    return Case(
        kind="gemm",
        op=op,
        dtype=dtype,
        kernel="linear",
        shape=(("m", m), ("n", n), ("k", k)),
        flops=float(gemm_flops(m=m, n=n, k=k)),
        bytes=float(gemm_bytes(m=m, n=n, k=k, weight=weight, activation=activation, output=base)),
        rows=float(m),
        tier=tier,
    )


def _elementwise_sizes(
    model: ModelSpec, run: LayerRun, op: Op, after: Op | None
) -> Sequence[tuple[str, int]]:
    """Return the sizes that an elementwise kernel may need.

    The width of an activation is K of the product after it.
    """
    attention = run.attention
    assert isinstance(attention, GroupedQueryAttention)
    product = after.shape if after is not None else None
    width = int(product.k) if isinstance(product, GemmShape) else 0
    top_k: tuple[tuple[str, int], ...] = ()
    if op.name == "top_k" and isinstance(run.mlp, MoeMlp):
        width, top_k = run.mlp.num_experts, (("top_k", run.mlp.top_k),)
    return (
        ("hidden", model.hidden_size),
        ("heads", attention.num_heads),
        ("kv_heads", attention.num_kv_heads),
        ("head_dim", attention.head_dim),
        ("width", width),
        *top_k,
        ("vocab", model.vocab_size),
    )
