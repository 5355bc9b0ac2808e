"""Stated constants for what nobody has measured, and whose measured laws stand in for others'."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Literal

from pydantic import Field

from roofline.base import resources
from roofline.base.notices import Code, Notice, notice
from roofline.base.schema import Bandwidth, Document, Duration, Schema
from roofline.specs.laws import SimpleLaw, WeightOnly

__all__ = [
    "AcceptanceEffects",
    "FrontEnd",
    "GenerationPrior",
    "LinkName",
    "PipelinePrior",
    "PowerPrior",
    "Priors",
    "Reads",
    "Spread",
    "priors",
    "unknown_generation",
]


#: What a kernel streams beside ordinary weights.
Reads = Literal["experts", "cache", "state"]


class LawPrior(Schema):
    """A simple law as the file writes it."""

    floor: Duration
    serial: Duration = 0.0
    mem_eff: float = Field(ge=0.3, le=1.05)
    compute_eff: float = Field(default=1.0, gt=0, le=1.05)
    overlap: float = Field(default=4.0, ge=1, le=8)

    def law(self) -> SimpleLaw:
        """Return the law with these constants."""
        return SimpleLaw(**self.model_dump())


class GenerationPrior(Schema):
    """The constants in which one generation of accelerators differs from the generic laws."""

    #: Of products: by the rate that they compute in, or ``default``; ``experts`` and ``cache`` are
    #: those of routed experts and of attention, where they are known apart.
    mem_eff: dict[str, float]
    compute_eff: dict[str, float]
    #: What every floor of the generic laws is multiplied by, and that of its links.
    floors: float = Field(default=1.0, ge=0.5, le=10)
    link_floors: float = Field(default=1.0, ge=0.5, le=10)
    #: The same again for products whose weights have this format.
    format_floors: dict[str, float] = Field(default_factory=dict)
    #: And for kernels that stream what is named.
    read_floors: dict[Reads, float] = Field(default_factory=dict)
    #: Standard deviation of the logarithm of a time by a stated prior; None as ``spread.prior``.
    spread: float | None = Field(default=None, gt=0, le=2)
    #: Integer lanes, as a share of the fp32 lanes.
    integer_lanes: float = Field(default=0.5, gt=0, le=1)
    #: As ``WeightOnly.unpacking``, where it is known for the generation.
    unpacking: float | None = Field(default=None, gt=0, le=1)
    #: Calibrated accelerators whose laws stand in for this generation's: those of the nearest one.
    relatives: tuple[str, ...] = ()
    #: Median error of borrowed constants (roofline validate transfer).
    relative_error: float = 0.0

    def applied_to(
        self,
        law: SimpleLaw,
        rate: str | None = None,
        weights: str | None = None,
        reads: Reads | None = None,
    ) -> SimpleLaw:
        """Return a generic law with this generation's constants.

        ``rate`` is that of a product, ``weights`` the format that its weights are stored in and
        ``reads`` what the kernel streams, where a share of the bandwidth may be its own.
        """
        floors = self.floors * self.format_floors.get(weights or "", 1.0)
        floors *= 1.0 if reads is None else self.read_floors.get(reads, 1.0)
        law = replace(law, floor=floors * law.floor)
        if rate is not None:
            law = replace(
                law,
                mem_eff=self.mem_eff.get(rate, self.mem_eff["default"]),
                compute_eff=self.compute_eff.get(rate, self.compute_eff["default"]),
            )
        return replace(law, mem_eff=self.mem_eff.get(reads or "", law.mem_eff))


class Spread(Schema):
    """Standard deviations of the logarithm of a time, by where its law comes from."""

    calibrated: float  # from tables to a running model, added to a law's own held-out error
    prior: float  # the simple law with generic constants
    rows: float  # of t(4 M) / t(M), where a law does not state its own
    reads: float  # beside it, of attention where how a verify pass reads the cache is assumed
    overhead: float  # of the engine's time around the kernels
    #: What served builds do beyond all of these (`workshop.spread`): of R(D), once for each build;
    served: float = 0.0
    #: of the verify pass at D = 7, growing as log2(1 + D);
    growth: float = 0.0
    #: of the draft passes;
    draft: float = 0.0
    #: and of each draft length by itself.
    each: float = 0.0


class LevelEffect(Schema):
    """What moves logit a_i of every position, and by how much that may be off [logits]."""

    shift: float = Field(ge=-4, le=4)
    width: float = Field(ge=0, le=4)
    source: str


class AcceptanceEffects(Schema):
    """What moves acceptance, or widens it, beside the labels of the prior."""

    #: How conditional rates fall at the low end of the range where one is given for all positions.
    one_rate_fall: float = Field(gt=0, le=1)
    #: Passes of one request, which are alike, where nobody says of how many requests a count is.
    passes_per_request: float = Field(ge=1)
    #: A KV cache in fp8 where the model's own is wider.
    fp8_kv: LevelEffect
    #: Weights of 4 bits in groups (AWQ, GPTQ) under a head that was trained on wider ones.
    int4_target: LevelEffect
    #: Contexts beyond the trained one: the width is that at e times it; the prior has the shift.
    beyond_training: LevelEffect


class RoutingPrior(Schema):
    """How tokens choose experts where nobody has counted the choices."""

    skew: float = Field(ge=0, le=4)
    correlation: float = Field(ge=0, le=1)
    source: str


class FrontEnd(Schema):
    """What a server does to a request around its passes: HTTP, tokens, its own queue."""

    first_token: Duration  # added to the time to first token
    spread: float = Field(gt=0, le=3)  # standard deviation of its logarithm
    source: str


#: Sorts of link that constants are stated for.
LinkName = Literal["direct", "pcie", "network"]


class PipelinePrior(Schema):
    """What an engine's pipeline stages cost beside their kernels and links. Experimental."""

    #: From one stage to the next: launching it and waiting for its input, in a plain pass [s],
    plain: Duration
    #: and in a pass with drafts, of which each stage has to know what was accepted before [s].
    drafting: Duration
    #: Standard deviation of the logarithm of these times, and of those of links between nodes.
    spread: float = Field(gt=0, le=2)
    #: What a link between two nodes carries for each GPU where nobody says it [B/s].
    internode: Bandwidth
    #: GPUs that a machine links through its slots where the user names the slots.
    slots: int = Field(ge=2)
    source: str


class PowerPrior(Schema):
    """Shares of its rated power that a board draws beside idle power. Experimental."""

    awake: float = Field(ge=0, lt=1)  # while anything runs on it
    memory: float = Field(ge=0, lt=1)  # at its whole bandwidth
    compute: float = Field(ge=0, lt=1)  # at its whole peak
    spread: float = Field(gt=0, le=2)  # standard deviation of the logarithm of its watts
    source: str


class Priors(Document):
    """Constants for what nobody has measured."""

    routing: RoutingPrior
    weight_only: WeightOnly
    spread: Spread
    acceptance_effects: AcceptanceEffects
    front_end: FrontEnd
    generic: dict[
        Literal[
            "gemm",
            "batched-gemm",
            "moe",
            "attention",
            "mla",
            "ssm",
            "elementwise",
        ],
        LawPrior,
    ]
    generations: dict[str, GenerationPrior]
    links: dict[LinkName, LawPrior]
    pipeline: PipelinePrior
    power: PowerPrior
    #: Experts that the host's processor computes from its own memory, layer by layer.
    cpu_experts: LawPrior


def unknown_generation(gpu: str, generation: str) -> list[Notice]:
    """Return a notice where the generation of an accelerator has no stated constants.

    >>> unknown_generation("h100-sxm", "hopper")
    []
    """
    known = tuple(sorted(priors().generations))
    if generation in known:
        return []
    return [notice(Code.UNKNOWN_GENERATION, gpu=gpu, generation=generation, known=known)]


@cache
def priors() -> Priors:
    """Return the shipped priors."""
    return Priors.load(resources.data_file("priors.yaml"))
