"""What an engine allows while it drafts: draft lengths, and requests that run at once."""

from __future__ import annotations

from string import Template
from typing import Annotated

from roofline.base.schema import PositiveInt, Schema, placeholders

__all__ = ["ModuleRule", "RunningRequests"]

RequestsFlag = Annotated[str, placeholders("requests")]


class ModuleRule(Schema):
    """Kinds of drafter of which an engine drafts up to n tokens, or multiples of n, n its modules.

    An MTP head has one module for each token that it was trained to predict; beyond them the
    engine starts over with the first one, and only whole turns are taken.
    """

    kinds: tuple[str, ...]
    source: str

    def takes(self, draft_length: int, *, kind: str, modules: int) -> bool:
        """Return whether a drafter with so many modules may draft so many tokens.

        >>> rule = ModuleRule(kinds=("mtp",), source="here")
        >>> [d for d in range(9) if rule.takes(d, kind="mtp", modules=3)]
        [0, 1, 2, 3, 6]
        """
        return kind not in self.kinds or draft_length <= modules or draft_length % modules == 0


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
