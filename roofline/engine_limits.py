"""What an engine allows while it drafts."""

from __future__ import annotations

from string import Template
from typing import Annotated

from roofline.base.schema import PositiveInt, Schema, placeholders

__all__ = ["RunningRequests"]

RequestsFlag = Annotated[str, placeholders("requests")]


class RunningRequests(Schema):
    """The most requests that an engine runs at once wherever something is drafted."""

    default: PositiveInt  # where the flag is left out
    flag: RequestsFlag  # with $requests: those of all data-parallel groups together
    source: str

    def text(self, running: int, *, groups: int) -> str:
        """Return the flag that lets ``running`` requests run, and no fewer than the default.

        Each group takes an equal share, rounded down: 100 requests in 8 groups are 13 each.

        >>> cap = RunningRequests(default=48, flag="--most $requests", source="here")
        >>> cap.text(32, groups=1), cap.text(100, groups=8)
        ('--most 48', '--most 104')
        """
        each = -(-max(running, self.default) // groups)
        return Template(self.flag).substitute(requests=each * groups)
