"""Which kernels an engine runs, by format, generation and version, where tables leave it open."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from roofline.base.schema import PositiveInt, Schema
from roofline.specs.engine_versions import VersionRange, version_numbers
from roofline.specs.formats import DType, bits_per_weight, is_gguf
from roofline.specs.laws import WeightOnly

__all__ = [
    "ExpertActivations",
    "ExpertKernels",
    "FileReader",
    "FusedQuantisation",
    "Served",
    "ServedFormats",
    "ServedKernels",
    "WholeBlocks",
]


class Served(VersionRange):
    """For which formats (as laws name them) and parts a rule about served kernels holds."""

    formats: Annotated[tuple[str, ...], Field(min_length=1)]
    #: Of the accelerator; empty for all.
    generations: tuple[str, ...] = ()

    def known_in(self, version: str) -> bool:
        """Return whether the rule is known of a build's version; never of one without numbers.

        >>> rule = Served(formats=("fp8",), since="0.12", source="here")
        >>> rule.known_in("0.12.1"), rule.known_in("0.11.2"), rule.known_in("")
        (True, False, False)
        """
        return self.since is None or version_numbers(version) >= version_numbers(self.since)

    def holds(self, format: str, generation: str) -> bool:
        """Return whether the rule is about this format on this generation.

        >>> rule = Served(formats=("fp8",), generations=("hopper",), source="here")
        >>> rule.holds("fp8", "hopper"), rule.holds("fp8", "ada"), rule.holds("bf16", "hopper")
        (True, False, False)
        """
        return format in self.formats and (not self.generations or generation in self.generations)


class ExpertKernels(Served):
    """Which expert kernels an engine's own dispatch takes, in its order.

    ``kernels`` are parts of the names that the tables give them. A format without a table of its
    own kernel may be priced by the ``like`` formats, which the same kernel runs as well.
    """

    kernels: Annotated[tuple[str, ...], Field(min_length=1)]
    #: Only where experts lie on groups of ranks (true), or only where they do not (false).
    expert_parallel: bool | None = None
    #: Only experts with a gate (true), or only those without (false).
    gated: bool | None = None
    like: tuple[str, ...] = ()


class FusedQuantisation(Served):
    """Products whose activations arrive quantised by the kernel before them.

    Tables time the engine's linear layer, which quantises by a kernel of its own. A served model
    has it only before the ``separate`` products; where ``only`` names some, before all others.
    """

    separate: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    #: Only where a product's parts are added up over several accelerators before the next norm.
    tensor_parallel: bool | None = None

    def covers(self, product: str, *, tp: int) -> bool:
        """Return whether the activations of a product arrive quantised.

        >>> rule = FusedQuantisation(formats=("fp8",), separate=("o_proj",), source="here")
        >>> rule.covers("down_proj", tp=1), rule.covers("o_proj", tp=1)
        (True, False)
        """
        named = product not in self.separate and (not self.only or product in self.only)
        return named and self.tensor_parallel in (None, tp > 1)


class ServedKernels(Schema):
    """Which kernels an engine runs where its tables hold several, or none as it serves them."""

    experts: tuple[ExpertKernels, ...] = ()
    fused_quantisation: tuple[FusedQuantisation, ...] = ()
    #: None where nothing else than of all engines is known.
    weight_only: WeightOnly | None = None

    def of_version(self, version: str) -> ServedKernels:
        """Return what is known of a build's version."""
        return self.model_copy(
            update={
                "experts": tuple(rule for rule in self.experts if rule.known_in(version)),
                "fused_quantisation": tuple(
                    rule for rule in self.fused_quantisation if rule.known_in(version)
                ),
            }
        )


class FileReader(VersionRange):
    """What an engine reads GGUF files by that is no part of it."""

    needs: str
    install: str


class ServedFormats(Schema):
    """Formats that an engine serves; what none of the rules names, it does not.

    ``gguf`` stands for every type of GGUF files, ``width`` for a bare width such as 4.7bpw.
    """

    weights: Annotated[tuple[Served, ...], Field(min_length=1)]
    kv: Annotated[tuple[Served, ...], Field(min_length=1)]
    #: By what it reads GGUF files in the versions that do not by themselves.
    gguf_readers: tuple[FileReader, ...] = ()

    @property
    def reads_gguf(self) -> bool:
        """Whether it serves GGUF files at all."""
        return any("gguf" in rule.formats for rule in self.weights)

    def rules(self, part: str, dtype: DType) -> list[Served]:
        """Return the rules about a format of ``weights`` or ``kv``, for any part and version."""
        names = {dtype.value}
        if bits_per_weight(dtype.value) is not None:
            names.add("width")
        if is_gguf(dtype):
            names.add("gguf")
        rules: tuple[Served, ...] = self.weights if part == "weights" else self.kv
        return [rule for rule in rules if names & set(rule.formats)]


class WholeBlocks(Served):
    """Formats whose blocks of ``block`` x ``block`` weights an engine keeps whole on a rank."""

    block: PositiveInt


class ExpertActivations(Served):
    """What an engine multiplies stored experts with, where it is not what the format usually has.

    ``generations`` are those of accelerators that do so.
    """

    activations: DType
