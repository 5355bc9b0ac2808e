"""What an engine spends around the kernels, today and in its older builds."""

from __future__ import annotations

import re

from pydantic import Field

from roofline.base.schema import Duration, Schema
from roofline.laws.vector import VectorKernels

__all__ = ["Era", "Overhead"]


class Overhead(Schema):
    """Time that no kernel's law accounts for, and how much of the kernels' launch floors shows."""

    floor_scale: float = Field(default=1.0, ge=0, le=2)  # outside the expert kernels
    expert_floor_scale: float = Field(default=1.0, ge=0, le=2)
    per_layer: Duration = 0.0  # of the target, in every pass [s]
    per_sequence: Duration = 0.0  # of the batch, in every pass [s]
    per_step: Duration  # scheduling and launching one target pass [s]
    per_spec_round: Duration  # verification and bookkeeping once drafts are in play [s]
    per_draft_pass: Duration  # launching one pass of the drafter [s]
    #: And of one kind of drafter, where measured.
    draft_passes: dict[str, Duration] = Field(default_factory=dict)
    #: A draft model's pass is a decode call of its own: it costs a plain step's time at least.
    model_pass_is_a_step: bool = False
    per_spec_sequence: Duration = 0.0  # of the batch, once drafts are in play [s]
    #: Extra time of one layer with experts, in every pass of the target [s].
    per_expert_layer: Duration = 0.0
    #: And of one layer with a recurrent state.
    per_state_layer: Duration = 0.0
    per_tree_round: Duration = 0.0  # building and checking a tree instead of a chain [s]
    #: Undoing a separate model's rejected drafts in a recurrent state [s].
    per_model_round: Duration = 0.0
    #: Matrix-vector kernels that a few rows run through; None has none.
    vector: VectorKernels | None = None
    source: str
    note: str | None = None
    #: Served decode rows that the first five numbers were fitted on; 0 where none were.
    fitted_rows: int = 0
    #: Speculative rows that the numbers of rounds and passes were fitted on.
    spec_rows: int = 0

    def draft_pass(self, kind: str) -> float:
        """Return the time around one pass of a drafter of this kind [s].

        Kinds are those of drafters, with ``stateful_model`` for a model with recurrent layers.
        """
        if kind in self.draft_passes:
            return self.draft_passes[kind]
        if self.model_pass_is_a_step and kind in ("model", "stateful_model"):
            return max(self.per_step, self.per_draft_pass)
        return self.per_draft_pass


class Era(Schema):
    """What an older line of builds spent instead; what is not named is as it is today."""

    id: str
    builds: str
    #: Its last version, as far as it is spelt out: 0.11 covers 0.11.2.
    until: str | None = Field(default=None, pattern=r"^\d+(\.\d+)*$")
    per_step: Duration | None = None
    per_spec_round: Duration | None = None
    per_draft_pass: Duration | None = None
    draft_passes: dict[str, Duration] = Field(default_factory=dict)
    per_tree_round: Duration | None = None
    per_model_round: Duration | None = None
    per_spec_sequence: Duration | None = None
    per_expert_layer: Duration | None = None
    spec_rows: int = 0
    source: str

    def covers(self, version: str) -> bool:
        """Return whether a build's version is of this era or older.

        >>> era = Era(id="x", builds="to 0.11", until="0.11", source="here")
        >>> era.covers("0.11.2"), era.covers("0.12.0"), era.covers("0.9.1rc1"), era.covers("dev")
        (True, False, True, False)
        """
        last = _numbers(self.until or "")
        own = _numbers(version)
        return any(own) and own[: len(last)] <= last  # 0.0.0 is a build that knows no version

    def applied(self, overhead: Overhead) -> Overhead:
        """Return the overhead of that time."""
        own = {k: v for k, v in self.model_dump().items() if v is not None and k not in _LABELS}
        return overhead.model_copy(update={**own, "note": f"builds {self.builds}"})


_LABELS = ("id", "builds", "until")


def _numbers(version: str) -> tuple[int, ...]:
    """Return the numbers that a version begins with.

    >>> _numbers("v0.11.2rc1")
    (0, 11, 2)
    """
    found = re.match(r"v?(\d{1,6}(?:\.\d{1,6})*)", version)
    return tuple(map(int, found[1].split("."))) if found else ()
