"""What a user names: a model on accelerators, a drafter, an engine; odd numbers are refused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from roofline.base.errors import InputError, Option
from roofline.base.names import bundled_id
from roofline.base.numbers import LONGEST_DRAFT
from roofline.importers.references import drafter_word
from roofline.specs.engine import ENGINE_SHELF, engine_parts
from roofline.specs.formats import DType
from roofline.specs.placement import Routing, SplitMode, StateHandling, VerifyAttention

if TYPE_CHECKING:
    from roofline.specs.overrides import Override

__all__ = ["Configuration", "check_configuration"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Configuration:
    """What the user names: a model on accelerators, a drafter, an engine.

    None is a default that the answer states; a name is a bundled id or a path.
    """

    model: str
    gpu: str = "h100-sxm"
    tp: int = 1
    ep: int = 1
    dp_attention: int = 1  # groups of ranks that share out the sequences
    #: Cards of one machine that only its slots join, and how they share the model.
    gpus: int = 1
    split: SplitMode | None = None
    tensor_split: tuple[float, ...] = ()
    host: str | None = None
    cpu_experts: str | None = None  # layers whose experts stay with the processor, or all
    drafter: str | None = None
    weights: DType | None = None
    activations: DType | None = None
    kv: DType | None = None
    draft_tp: int | None = None
    draft_weights: DType | None = None
    verify_attention: VerifyAttention | None = None
    state_handling: StateHandling = StateHandling.SNAPSHOTS
    routing: Routing | None = None
    memory_fraction: float | None = None
    engine: str = "vllm"
    #: The user's own ms around a plain step, a round and a draft pass; None is the engine's.
    overhead_ms: tuple[float, ...] | None = None
    #: Rows per sequence and branches of a tree; None is a chain.
    verify_width: int | None = None
    tree_topk: int = 1
    draft_block: int | None = None
    first_pass_rows: float | None = None
    #: Values put in place of those of the model, drafter, GPU or engine.
    overrides: tuple[Override, ...] = ()

    def __post_init__(self) -> None:
        """Write the words for an engine and a kind of drafter as they are known here."""
        name, separator, rest = engine_parts(self.engine)
        engine = f"{bundled_id(name, ENGINE_SHELF) or name}{separator}{rest}"
        object.__setattr__(self, "engine", engine)
        if self.drafter is not None:
            object.__setattr__(self, "drafter", drafter_word(self.drafter) or self.drafter)

    def of_root(self, root: str) -> list[Override]:
        """Return the overrides of the model, drafter, gpu or engine."""
        return [override for override in self.overrides if override.root == root]


def check_configuration(configuration: Configuration) -> None:
    """Refuse numbers that no deployment could have."""
    for field in ("tp", "ep", "dp_attention", "draft_tp"):
        size = getattr(configuration, field)
        if size is not None and size < 1:
            raise InputError("expected at least 1", field=field, value=size)
    width, topk = configuration.verify_width, configuration.tree_topk
    if width is not None and not 2 <= width <= 1024:
        raise InputError("expected 2 to 1024 rows per sequence", field="verify_width", value=width)
    if not 1 <= topk <= 64:
        raise InputError("expected 1 (a chain) to 64", field="tree_topk", value=topk)
    if topk > 1 and width is None:
        raise InputError(
            f"a tree needs {Option('verify_width')}, the rows it is verified with",
            field="tree_topk",
        )
    block, rows = configuration.draft_block, configuration.first_pass_rows
    if block is not None and not 2 <= block <= LONGEST_DRAFT:
        raise InputError(f"expected 2 to {LONGEST_DRAFT}", field="draft_block", value=block)
    if rows is not None and not 1 <= rows <= 1 + LONGEST_DRAFT:
        raise InputError(
            f"expected 1 to {1 + LONGEST_DRAFT}", field="first_pass_rows", value=f"{rows:g}"
        )
    paths = [override.path for override in configuration.overrides]
    twice = next((path for path in paths if paths.count(path) > 1), None)
    if twice is not None:
        raise InputError("is given twice; give each path once", field="set", value=twice)
    routing = configuration.routing or Routing()
    if not 0 <= routing.skew <= 4:
        raise InputError(
            "expected 0 (uniform) to 4", field="routing_skew", value=f"{routing.skew:g}"
        )
    if not 0 <= routing.correlation <= 1:
        raise InputError(
            "expected 0 to 1", field="routing_correlation", value=f"{routing.correlation:g}"
        )
