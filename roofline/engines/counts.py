"""Acceptance from what an engine counted: passes, drafts, tokens; one form for all engines."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from roofline.acceptance.conventions import standard_error, survival_from_histogram
from roofline.acceptance.curve import Acceptance, from_curve, from_survival
from roofline.base.errors import InputError, Option
from roofline.base.notices import Code, Notice, notice
from roofline.specs.network import LOOKUPS

__all__ = [
    "DECIMAL",
    "WHOLE",
    "DecodeTotals",
    "Reading",
    "checked_number",
    "from_counts",
    "from_histogram",
    "incomplete_log",
    "mappings_with",
    "one_record",
    "pooled_histogram",
    "whole_length",
]

#: Patterns of the numbers in a log line that float() and int() read; a mangled line has none.
WHOLE = r"\d{1,15}"
DECIMAL = rf"{WHOLE}(?:\.\d{{0,15}})?(?![\d.])"

#: A mean drafted length this far below the configured one means that drafts were cut short.
FULL_DRAFTS = 0.98
#: Share by which two counts of one thing may differ: a server updates them while a page is read.
READ_SKEW = 0.02
#: Drafters that propose nothing where they find nothing.
#: Engines that count only passes with drafts; SGLang counts every pass as a verify call.
DRAFTING_ONLY = ("vllm", "trtllm")
#: Above this a counter no longer counts one by one.
LARGEST_COUNT = 2.0**53


@dataclass(frozen=True, kw_only=True, slots=True)
class DecodeTotals:
    """Tokens that decode passes emitted, and the passes, those without a draft as well.

    ``slack`` is the share by which passes may exceed the drafting ones although every pass drafts:
    counts are not taken in one instant, and passes that begin or end a request draft nothing.
    """

    tokens: float
    passes: float
    slack: float = READ_SKEW

    def has_all(self, drafts: float) -> bool:
        """Return whether at least the ``drafts`` passes that drafted are counted."""
        return self.passes >= (1 - self.slack) * drafts

    def beyond(self, drafts: float) -> bool:
        """Return whether there were passes without a draft.

        >>> decoded = DecodeTotals(tokens=792, passes=346)
        >>> decoded.beyond(232), decoded.beyond(340)
        (True, False)
        """
        return self.passes > (1 + self.slack) * drafts

    def fits(self, accepted: float) -> bool:
        """Return whether each pass emitted one token, and some of the ``accepted`` drafts.

        They may be fewer than all accepted ones: drafts after a stop are accepted, then trimmed.

        >>> [DecodeTotals(tokens=tokens, passes=346).fits(459) for tokens in (792, 900)]
        [True, False]
        """
        noise = self.slack * self.passes
        return self.passes - noise <= self.tokens <= self.passes + accepted + noise


@dataclass(frozen=True, kw_only=True, slots=True)
class Reading:
    """Tokens per step as an engine reports it, with the counts behind it where it gives them.

    ``passes`` are all decode passes, set where some of them drafted nothing: tokens per step and
    survival are then over all of them. ``hit_rate`` is the share of passes that drafted.
    """

    engine: str
    how: str  # what kind of numbers these are
    where: str
    tokens_per_step: float
    model: str | None = None
    draft_length: int | None = None
    survival: tuple[float, ...] | None = None
    curve: Mapping[int, float] | None = None
    drafts: float | None = None  # passes that verified drafts
    drafted: float | None = None  # tokens
    accepted: float | None = None  # tokens
    passes: float | None = None
    hit_rate: float | None = None
    notices: tuple[Notice, ...] = ()

    @property
    def counted(self) -> float | None:
        """The passes that tokens per step is the mean of."""
        return self.drafts if self.passes is None else self.passes

    @property
    def standard_error(self) -> float | None:
        """Sampling error of tokens per step, where counts and positions are known [tokens]."""
        if self.survival is None or not self.counted:
            return None
        return standard_error(survival=self.survival, drafts=self.counted)

    def with_draft_length(self, draft_length: int | None) -> Reading:
        """Return the reading with D given by the reader, who knows the server's settings."""
        if draft_length is None:
            return self
        if self.survival is not None and draft_length != len(self.survival):
            raise InputError(
                f"{self.where} gives {len(self.survival)} positions",
                field="draft_length",
                value=draft_length,
            )
        notices = self.notices
        if self.draft_length not in (None, draft_length):
            notices += (
                notice(
                    Code.ANOTHER_DRAFT_LENGTH_GIVEN,
                    where=self.where,
                    counted=self.draft_length,
                    given=draft_length,
                ),
            )
        return replace(self, draft_length=draft_length, notices=notices)

    def of_drafter(self, method: str) -> Reading:
        """Return the reading, with a notice where passes without drafts are missing from it."""
        known = self.hit_rate is not None or self.engine not in DRAFTING_ONLY
        if known or method not in LOOKUPS:
            return self
        return self.with_notice(
            notice(Code.DRAFTS_IN_SOME_PASSES, where=self.where, drafter=method)
        )

    def with_notice(self, further: Notice) -> Reading:
        """Return the reading with a further notice."""
        return replace(self, notices=(*self.notices, further))

    def acceptance(self) -> Acceptance:
        """Return what the advice can use."""
        on = f", on {self.model}" if self.model else ""
        label = f"counted by {self.engine} ({self.how}{on})"
        if self.curve is not None:
            acceptance = from_curve(dict(self.curve), label=label, source=self.where)
        elif self.survival is not None:
            acceptance = from_survival(self._emitted(), label=label, source=self.where)
        elif self.draft_length is not None:
            curve = {self.draft_length: self.tokens_per_step}
            acceptance = from_curve(curve, label=label, source=self.where)
        else:
            raise InputError(
                f"says {self.tokens_per_step:.4g} tokens per step but not at which draft length; "
                f"give {Option('acceptance', f'al:3={self.tokens_per_step:.4g}')}, with that "
                "length in place of 3, or the file that 'roofline acceptance read SOURCE "
                f"{Option('draft_length', 'D')} {Option('output', 'FILE.yaml')}' writes",
                where=self.where,
            )
        self._check()
        return replace(
            acceptance, drafts=self.counted, notices=self.notices, hit_rate=self.hit_rate
        )

    def _emitted(self) -> tuple[float, ...]:
        """Return survival that sums to AL - 1.

        Over all passes AL counts emitted tokens, while survival counts accepted ones, of which
        those past a stop were trimmed. Each position loses the same share.
        """
        survival = self.survival or ()
        total = sum(survival)
        if self.passes is None or total == 0:
            return survival
        share = (self.tokens_per_step - 1) / total
        return tuple(min(share * value, 1.0) for value in survival)

    def _check(self) -> None:
        if self.draft_length is not None and not 1 <= self.tokens_per_step <= 1 + self.draft_length:
            raise InputError(
                f"{self.tokens_per_step:.4g} tokens per step cannot come from "
                f"{self.draft_length} drafts (1 to {1 + self.draft_length}); is the draft length "
                "right?",
                where=self.where,
            )


def from_counts(
    *,
    engine: str,
    how: str,
    where: str,
    drafts: float,
    drafted: float,
    accepted: float,
    per_position: Sequence[float] = (),
    model: str | None = None,
    doubts: Sequence[Notice] = (),
    decoded: DecodeTotals | None = None,
) -> Reading:
    """Make a reading from counts: AL = 1 + accepted / drafts, S_i = per_position[i] / drafts.

    vLLM's names: num_drafts, num_draft_tokens, num_accepted_tokens, ..._per_pos. ``doubts`` are
    what the reader found wrong with them already. ``drafts`` holds only passes that drafted; where
    ``decoded`` shows others, AL = decoded.tokens / decoded.passes and S_i = per_position[i] /
    decoded.passes.

    >>> made = from_counts(engine="vllm", how="counters", where="page", drafts=43, drafted=129,
    ...     accepted=10, per_position=[4, 3, 3])
    >>> round(made.tokens_per_step, 4), made.draft_length
    (1.2326, 3)

    Half of 200 passes drafted nothing: AL = 300 / 200, not 1 + 100 / 100.

    >>> made = from_counts(engine="vllm", how="counters", where="page", drafts=100, drafted=200,
    ...     accepted=100, per_position=[60, 40], decoded=DecodeTotals(tokens=300, passes=200))
    >>> made.tokens_per_step, made.survival, made.hit_rate
    (1.5, (0.3, 0.2), 0.5)
    """
    if drafts <= 0:
        raise InputError("no pass has verified a draft yet; send some requests first", where=where)
    if accepted > drafted or any(value > drafts for value in per_position):
        raise InputError("more drafts accepted than proposed; the counts do not match", where=where)
    if max(drafts, drafted) > LARGEST_COUNT or 2 * drafted < drafts:
        raise InputError(
            f"{drafted:g} tokens drafted in {drafts:g} passes; the counts do not match", where=where
        )
    notices = list(doubts)
    by_position = sum(per_position)
    if not notices and per_position and abs(accepted - by_position) > READ_SKEW * drafts:
        notices.append(
            notice(Code.POSITIONS_DISAGREE, where=where, accepted=accepted, by_position=by_position)
        )
    length = len(per_position) or whole_length(drafted / drafts)
    if decoded is not None and not decoded.has_all(drafts):
        decoded = None
    abstains = decoded is not None and decoded.beyond(drafts)
    if decoded is not None and abstains and not decoded.fits(accepted):
        notices.append(
            notice(
                Code.TOKENS_DO_NOT_FIT_PASSES,
                where=where,
                tokens=decoded.tokens,
                passes=decoded.passes,
                accepted=accepted,
                drafts=drafts,
            )
        )
        decoded, abstains = None, False
    passes, mean = drafts, 1 + accepted / drafts
    if decoded is not None and abstains:
        passes, mean = decoded.passes, max(decoded.tokens / decoded.passes, 1.0)
        notices.append(
            notice(
                Code.SOME_PASSES_DRAFTED,
                where=where,
                drafts=drafts,
                passes=passes,
                drafted_per_pass=drafted / drafts,
            )
        )
    elif length and drafted / drafts < FULL_DRAFTS * length:
        notices.append(
            notice(
                Code.DRAFTS_CUT_SHORT,
                where=where,
                drafted_per_pass=drafted / drafts,
                draft_length=length,
                every_pass=decoded is not None,  # every pass is known to have drafted
            )
        )
    return Reading(
        engine=engine,
        how=how,
        where=where,
        model=model,
        tokens_per_step=mean,
        draft_length=length,
        survival=tuple(value / passes for value in per_position) or None,
        drafts=drafts,
        drafted=drafted,
        accepted=accepted,
        passes=passes if abstains else None,
        hit_rate=min(drafts / decoded.passes, 1.0) if decoded is not None else None,
        notices=tuple(notices),
    )


def from_histogram(
    counts: Sequence[float], *, engine: str, how: str, where: str, drafted: float | None = None
) -> Reading:
    """Make a reading from how many passes accepted exactly j = 0 ... D drafts.

    >>> made = from_histogram([39, 1, 0, 3], engine="vllm", how="histogram", where="response")
    >>> round(made.tokens_per_step, 6)  # vLLM's documentation: 1.2325581395348837
    1.232558
    """
    passes, depth = sum(counts), len(counts) - 1
    if passes <= 0 or depth < 1:
        raise InputError("no pass has verified a draft yet; send some requests first", where=where)
    survival = survival_from_histogram(counts)
    return from_counts(
        engine=engine,
        how=how,
        where=where,
        drafts=passes,
        drafted=passes * depth if drafted is None else drafted,
        accepted=sum(j * value for j, value in enumerate(counts)),
        per_position=[float(s) * passes for s in survival],
    )


def pooled_histogram(histograms: Sequence[Sequence[float]]) -> list[float]:
    """Add histograms of several requests, the shorter ones filled up with zeros.

    >>> pooled_histogram([[1, 2], [3, 0, 4]])
    [4, 2, 4]
    """
    depth = max(len(counts) for counts in histograms)
    return [sum(h[j] for h in histograms if j < len(h)) for j in range(depth)]


def whole_length(mean: float, *, slack: float = 0.05) -> int | None:
    """Return a mean drafted length as D where it is whole within ``slack``, else None.

    >>> whole_length(3.0), whole_length(405 / 203), whole_length(37.4)
    (3, 2, None)
    """
    nearest = round(mean)
    return nearest if nearest >= 1 and abs(mean - nearest) <= slack else None


#: Fields of a log line by the name that an engine prints, with a group for what follows it.
FieldPatterns = Mapping[str, re.Pattern[str]]
#: Characters up to which a text may be one line that a terminal wrapped.
LONGEST_LINE = 4096


def one_record(lines: Sequence[str], fields: FieldPatterns) -> str:
    """Return the one log line that a text holds, or its last one that has any of the fields.

    A line that was copied from a terminal may be wrapped, but has each field once.
    """
    whole = " ".join(line.strip() for line in lines)
    if len(whole) <= LONGEST_LINE and all(
        len(pattern.findall(whole)) <= 1 for pattern in fields.values()
    ):
        return whole
    marked = (line for line in reversed(lines) if any(p.search(line) for p in fields.values()))
    return next(marked, "")


def incomplete_log(
    where: str,
    *,
    record: str,
    missing: Sequence[str],
    survival: Sequence[float] = (),
    tokens_per_step: float | None = None,
    rate: float | None = None,
) -> InputError:
    """Return the refusal of log lines that lack fields, with the form that says what they do hold.

    ``record`` is what holds the fields. Of what it has, ``survival`` by position says most, and
    tokens per step say more than the ``rate`` of accepted over drafted.
    """
    verb = "are" if len(missing) > 1 else "is"
    lacks = f"no {record} is whole: {', '.join(missing)} {verb} missing"
    example = ", with the server's draft length in place of 3"
    if survival:
        form, remark = f"survival:{','.join(f'{value:g}' for value in survival)}", ""
    elif tokens_per_step is not None and tokens_per_step >= 1:
        form, remark = f"al:3={tokens_per_step:g}", example
    elif rate is not None:
        form, remark = f"rate:3={rate:.4g}", example
    else:
        return InputError(lacks, where=where)
    return InputError(f"{lacks}; give {Option('acceptance', form)}{remark}", where=where)


def checked_number(value: Any, what: str, where: str) -> float:
    """Return a JSON or page value as a finite number of at least 0."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(f"{what}: expected a number, got {value!r:.40}", where=where)
    if not math.isfinite(value) or value < 0:
        raise InputError(f"{what} is {value}; expected a finite number of at least 0", where=where)
    return float(value)


def mappings_with(data: Any, key: str) -> Iterator[dict[str, Any]]:
    """Yield every mapping at any depth that has ``key``."""
    stack = [data]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            if key in item:
                yield item
            stack.extend(reversed(item.values()))
        elif isinstance(item, list):
            stack.extend(reversed(item))
