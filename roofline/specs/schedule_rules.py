"""What an engine makes of a schedule of draft lengths, by its version and the kind of drafter."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from roofline.specs.engine_methods import VersionRange

__all__ = ["ScheduleRule", "schedule_rule"]


class ScheduleRule(VersionRange):
    """What some builds do with a schedule for some kinds of drafter."""

    #: Kinds of drafter; empty for all.
    kinds: tuple[str, ...] = ()
    #: Why they take none; empty where they do.
    off: str = ""
    #: Whether steps under a schedule run in whole CUDA graphs, or in pieces between attention.
    graphs: Literal["full", "piecewise"] = "full"
    #: Share of the speed that the graph mode was seen to cost.
    cost: Annotated[float, Field(ge=0, lt=1)] = 0.0
    #: Whether a draft length of 0 may be one of the rows.
    zero: bool = True

    def holds(self, kind: str, version: str) -> bool:
        """Return whether the rule is about this kind in this version.

        >>> rule = ScheduleRule(since="0.28", until="0.31", source="here")
        >>> [v for v in ("0.27.1", "0.28", "0.31.2", "0.32") if rule.holds("mtp", v)]
        ['0.28', '0.31.2']
        """
        return (not self.kinds or kind in self.kinds) and self.in_range(version)


def schedule_rule(rules: tuple[ScheduleRule, ...], kind: str, version: str) -> ScheduleRule | None:
    """Return the first rule that holds; None where nothing is known."""
    return next((rule for rule in rules if rule.holds(kind, version)), None)
