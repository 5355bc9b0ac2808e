"""Acceptance from what an engine counted: passes, drafts, tokens; one form for all engines."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from roofline.acceptance.conventions import standard_error, survival_from_histogram
from roofline.acceptance.curve import Acceptance, from_curve, from_survival
from roofline.base.errors import InputError, Option
from roofline.base.notices import Code, Notice, notice
from roofline.engines.counted import Counted, Form, Passes, Tokens
from roofline.specs.network import LOOKUPS

__all__ = [
    "END_PASSES",
    "DecodeTotals",
    "Reading",
    "from_counts",
    "from_histogram",
    "from_positions",
    "pooled_histogram",
    "whole_length",
]

#: A mean drafted length this far below the configured one means that drafts were cut short.
FULL_DRAFTS = 0.98
#: Share by which two counts of one thing may differ: a server updates them while a page is read.
READ_SKEW = 0.02
#: Share of passes that begin or end a request and draft nothing: one or two in 20 of a short one.
END_PASSES = 0.1
#: Drafts longer than this are of no engine.
LONGEST_READ = 4096
#: Above this a counter no longer counts one by one.
LARGEST_COUNT = 2.0**53


@dataclass(frozen=True, kw_only=True, slots=True)
class DecodeTotals:
    """Tokens that decode passes emitted, and the passes, those without a draft as well.

    ``slack`` is the share by which passes may exceed the drafting ones although every pass drafts:
    counts are not taken in one instant, and passes that begin or end a request draft nothing.
    ``exact`` says that both were counted one by one, not worked out from accepted drafts. ``ends``
    are the passes that begin or end requests, where their number is known.
    """

    tokens: float
    passes: float
    slack: float = READ_SKEW
    exact: bool = False
    ends: float | None = None

    def has_all(self, drafts: float) -> bool:
        """Return whether at least the ``drafts`` passes that drafted are counted."""
        return self.passes >= (1 - self.slack) * drafts

    def beyond(self, drafts: float) -> bool:
        """Return whether there were passes without a draft.

        >>> decoded = DecodeTotals(tokens=792, passes=346)
        >>> decoded.beyond(232), decoded.beyond(340)
        (True, False)

        Of 522 passes 8 begin or end a request, so more than those drafted nothing.

        >>> decoded = DecodeTotals(tokens=1996, passes=522, slack=END_PASSES)
        >>> decoded.beyond(495), replace(decoded, ends=8).beyond(495)
        (False, True)
        """
        ends = self.slack * drafts
        return self.passes > drafts + (ends if self.ends is None else min(self.ends, ends))

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

    ``counted`` says which passes and tokens these are. ``passes`` are all decode passes, set where
    tokens per step and survival are over all of them. ``hit_rate`` is the share of passes that
    drafted; ``requests`` are those that they are of. ``least`` is the smallest tokens per step that
    counters of accepted drafts leave, where the last pass of every request may have been trimmed.
    ``draft_lengths`` are those that the numbers allow where they do not tell one.
    """

    counted: Counted
    how: str  # what kind of numbers these are
    where: str
    tokens_per_step: float
    model: str | None = None
    draft_length: int | None = None
    draft_lengths: tuple[int, ...] = ()
    survival: tuple[float, ...] | None = None
    curve: Mapping[int, float] | None = None
    drafts: float | None = None  # passes that verified drafts
    drafted: float | None = None  # tokens
    accepted: float | None = None  # tokens
    passes: float | None = None
    hit_rate: float | None = None
    requests: float | None = None
    least: float | None = None
    notices: tuple[Notice, ...] = ()

    @property
    def engine(self) -> str:
        """The engine that counted."""
        return self.counted.engine

    @property
    def rounds(self) -> float | None:
        """The passes that tokens per step is the mean of."""
        return self.drafts if self.passes is None else self.passes

    @property
    def standard_error(self) -> float | None:
        """Sampling error of tokens per step, where counts and positions are known [tokens]."""
        if self.survival is None or not self.rounds:
            return None
        return standard_error(survival=self.survival, drafts=self.rounds)

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
        answered = (Code.SEVERAL_DRAFT_LENGTHS, Code.TAKEN_FOR_BLOCK)
        notices = tuple(n for n in self.notices if n.code not in answered)
        known = self.draft_lengths or (self.draft_length,)
        if known != (None,) and draft_length not in known:
            notices += (
                notice(
                    Code.ANOTHER_DRAFT_LENGTH_GIVEN,
                    where=self.where,
                    counted=known,
                    given=draft_length,
                ),
            )
        return replace(self, draft_length=draft_length, draft_lengths=(), notices=notices)

    def of_drafter(self, method: str) -> Reading:
        """Return the reading, with a notice where passes without drafts are missing from it."""
        known = self.hit_rate is not None or self.counted.passes is not Passes.DRAFTING
        if known or method not in LOOKUPS:
            return self
        return self.with_notice(
            notice(Code.DRAFTS_IN_SOME_PASSES, where=self.where, drafter=method)
        )

    def with_draft_lengths(self, lengths: tuple[int, ...]) -> Reading:
        """Return the reading with the draft lengths that fit it, and a notice if not just one."""
        if len(lengths) == 1:
            return replace(self, draft_length=lengths[0])
        if not lengths:
            return self
        several = replace(self, draft_length=None, draft_lengths=lengths)
        return several.with_notice(
            notice(Code.SEVERAL_DRAFT_LENGTHS, where=self.where, lengths=lengths)
        )

    def of_version(self, version: str | None) -> Reading:
        """Return the reading with the engine's version, where the source did not say it."""
        if version is None or self.counted.version is not None:
            return self
        return replace(self, counted=replace(self.counted, version=version))

    def with_notice(self, further: Notice) -> Reading:
        """Return the reading with a further notice."""
        return replace(self, notices=(*self.notices, further))

    def acceptance(self) -> Acceptance:
        """Return what the advice can use."""
        self._check()
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
            raise self._without_length()
        return replace(
            acceptance,
            drafts=self.rounds,
            requests=self.requests,
            notices=(*self.notices, self.counted.notice(self.where)),
            hit_rate=self.hit_rate,
            drafting_only=self.counted.passes is Passes.DRAFTING,
            early_stops=self.counted.early_stops,
        )

    def _without_length(self) -> InputError:
        """Return the refusal of tokens per step whose draft length is unknown."""
        word = "drafting:" if self.counted.passes is Passes.DRAFTING else ""
        forms = [f"{word}al:{d}={self.tokens_per_step:.4g}" for d in self.draft_lengths or (3,)]
        several = " or ".join(str(d) for d in self.draft_lengths)
        which = f"at one of D = {several}" if several else "but not at which D"
        place = "" if several else ", with that length in place of 3"
        typed = " or ".join(str(Option("acceptance", form)) for form in forms)
        return InputError(
            f"says {self.tokens_per_step:.4g} tokens per step {which}; give {typed}{place}, or "
            f"'roofline acceptance read' with {Option('draft_length', 'D')}",
            where=self.where,
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
        if (self.draft_length or 0) > LONGEST_READ:
            raise InputError(
                f"drafts of {self.draft_length:g} tokens are of no engine", where=self.where
            )
        if self.draft_length is not None and not 1 <= self.tokens_per_step <= 1 + self.draft_length:
            raise InputError(
                f"{self.tokens_per_step:.4g} tokens per step cannot come from "
                f"{self.draft_length} drafts (1 to {1 + self.draft_length}); is the draft length "
                "right?",
                where=self.where,
            )


def from_counts(
    counted: Counted,
    *,
    how: str,
    where: str,
    drafts: float,
    drafted: float,
    accepted: float,
    per_position: Sequence[float] = (),
    model: str | None = None,
    doubts: Sequence[Notice] = (),
    decoded: DecodeTotals | None = None,
    requests: float | None = None,
) -> Reading:
    """Make a reading from counts: AL = 1 + accepted / drafts, S_i = per_position[i] / drafts.

    vLLM's names: num_drafts, num_draft_tokens, num_accepted_tokens, ..._per_pos. ``counted`` says
    what they hold, as far as the reader knows it; ``doubts`` are what it found wrong with them
    already. ``drafts`` holds only passes that drafted; where ``decoded`` shows others, or holds the
    tokens that were emitted, AL = decoded.tokens / decoded.passes and S_i = per_position[i] /
    decoded.passes. Else each of the ``requests`` that ended may have trimmed up to D accepted
    drafts: AL is at least 1 + (accepted - D requests) / drafts. Passes that are worked out as
    tokens less accepted drafts lack what was trimmed, so the expected number is added to them.

    >>> from roofline.engines.counted import Bonus
    >>> vllm = Counted(engine="vllm", passes=Passes.DRAFTING, bonus=Bonus.OUT,
    ...     tokens=Tokens.ACCEPTED)
    >>> made = from_counts(vllm, how="counters", where="page", drafts=43, drafted=129,
    ...     accepted=10, per_position=[4, 3, 3], requests=1)
    >>> round(made.tokens_per_step, 4), made.draft_length, round(made.least, 4)  # 1 + 7 / 43
    (1.2326, 3, 1.1628)

    Half of 200 passes drafted nothing: AL = 300 / 200, not 1 + 100 / 100.

    >>> made = from_counts(vllm, how="counters", where="page", drafts=100, drafted=200,
    ...     accepted=100, per_position=[60, 40], decoded=DecodeTotals(tokens=300, passes=200))
    >>> made.tokens_per_step, made.survival, made.hit_rate, str(made.counted.passes)
    (1.5, (0.3, 0.2), 0.5, 'all')
    """
    _check_counts(where, drafts=drafts, drafted=drafted, accepted=accepted, each=per_position)
    notices = list(doubts)
    by_position = sum(per_position)
    if not notices and per_position and abs(accepted - by_position) > READ_SKEW * drafts:
        notices.append(
            notice(Code.POSITIONS_DISAGREE, where=where, accepted=accepted, by_position=by_position)
        )
    mean_length = drafted / drafts
    positions = _with_unreached(per_position, accepted, mean_length)
    length = len(positions) or whole_length(mean_length)
    if decoded is not None and not decoded.has_all(drafts):
        decoded = None
    abstains = decoded is not None and decoded.beyond(drafts)
    if decoded is not None and (abstains or decoded.exact) and not decoded.fits(accepted):
        if abstains:
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
    over_all = decoded is not None and (abstains or decoded.exact)
    emitted = decoded is not None and decoded.exact
    passes, mean, trimmed = drafts, 1 + accepted / drafts, 0.0
    if decoded is not None and over_all:
        passes = max(decoded.passes, drafts)
        if not emitted and requests and positions:
            trimmed = requests * trimmed_at_end(per_position=positions, passes=passes)
            passes += trimmed
        mean = min(max(decoded.tokens / passes, 1.0), 1 + accepted / passes)
    early_stops = length is None or mean_length < FULL_DRAFTS * length
    if abstains:
        notices.append(
            notice(
                Code.SOME_PASSES_DRAFTED,
                where=where,
                drafts=drafts,
                passes=passes,
                drafted_per_pass=mean_length,
                draft_length=length if early_stops else None,
            )
        )
    elif length and early_stops:
        notices.append(
            notice(
                Code.DRAFTS_CUT_SHORT,
                where=where,
                drafted_per_pass=mean_length,
                draft_length=length,
                every_pass=decoded is not None,  # every pass is known to have drafted
            )
        )
    reading = Reading(
        counted=replace(
            counted,
            passes=Passes.ALL if decoded is not None else counted.passes,
            tokens=Tokens.EMITTED if emitted else counted.tokens,
            form=Form.SURVIVAL if positions else Form.MEAN,
            early_stops=early_stops,
        ),
        how=how,
        where=where,
        model=model,
        tokens_per_step=mean,
        draft_length=length,
        survival=tuple(value / passes for value in positions) or None,
        drafts=drafts,
        drafted=drafted,
        accepted=accepted,
        passes=passes if over_all else None,
        hit_rate=None if decoded is None else min(drafts / (decoded.passes + trimmed), 1.0),
        requests=requests or None,
        notices=tuple(notices),
    )
    return reading if emitted else _bounded_by_stops(reading, expected=trimmed)


def _check_counts(
    where: str, *, drafts: float, drafted: float, accepted: float, each: Sequence[float]
) -> None:
    """Refuse counts that no engine can have counted."""
    if drafts <= 0:
        raise InputError("no pass has verified a draft yet; send some requests first", where=where)
    if accepted > drafted or any(value > drafts for value in each):
        raise InputError("more drafts accepted than proposed; the counts do not match", where=where)
    if max(drafts, drafted) > LARGEST_COUNT or 2 * drafted < drafts:
        raise InputError(
            f"{drafted:g} tokens drafted in {drafts:g} passes; the counts do not match", where=where
        )


def _with_unreached(
    per_position: Sequence[float], accepted: float, mean_length: float
) -> Sequence[float]:
    """Return the positions with those that never accepted a draft, which a source may leave out.

    Where the positions given hold all accepted drafts, and drafts were longer, the rest hold none;
    where they do not hold all, nothing is known by position.

    >>> _with_unreached([60, 20], accepted=80, mean_length=3.0)
    [60, 20, 0.0]
    >>> _with_unreached([60, 20], accepted=90, mean_length=3.0)
    []
    """
    if FULL_DRAFTS * mean_length <= len(per_position):
        return per_position
    length = whole_length(mean_length)
    if length is None or sum(per_position) != accepted:
        return []
    return [*per_position, *[0.0] * (length - len(per_position))] if per_position else []


def trimmed_at_end(*, per_position: Sequence[float], passes: float) -> float:
    """Return the accepted drafts that the end of a request trims, expected [tokens].

    A request's last token is any token of its pass alike, and lies in a pass of k tokens as often
    as such passes hold tokens: E = sum n_k k (k - 1) / 2 / sum n_k k, the mean of a recurrence
    time (D. R. Cox, Renewal Theory, 1962, section 5.2). With c_i passes that accepted i drafts or
    more, and P passes in all, it is sum i c_i / (P + sum c_i).

    Of 4 passes one emits 3 tokens and three emit 1: 1 x 3 x 2 / 2 / 6.

    >>> trimmed_at_end(per_position=[1, 1], passes=4)
    0.5
    """
    weighted = sum(at * count for at, count in enumerate(per_position, start=1))
    return weighted / (passes + sum(per_position))


def _bounded_by_stops(reading: Reading, *, expected: float) -> Reading:
    """Return the reading with the least that it can be, said where that is past its own error.

    Over drafting passes trimmed drafts were no tokens; over all passes, which are worked out as
    tokens less accepted drafts, they were passes that are missing, ``expected`` of them added.
    """
    requests, passes = reading.requests, reading.rounds or 1.0
    if requests is None or reading.draft_length is None or not reading.accepted:
        return reading
    trimmed = min(requests * reading.draft_length, reading.accepted)
    if reading.passes is None:
        least = max(reading.tokens_per_step - trimmed / passes, 1.0)
    else:
        most = max(passes - expected + trimmed, passes)
        least = max(reading.tokens_per_step * passes / most, 1.0)
    bounded = replace(reading, least=least)
    if reading.tokens_per_step - least <= (reading.standard_error or math.inf):
        return bounded
    return bounded.with_notice(
        notice(Code.TRIMMED_AT_STOPS, where=reading.where, least=least, requests=requests)
    )


def from_histogram(
    counts: Sequence[float],
    counted: Counted,
    *,
    how: str,
    where: str,
    drafted: float | None = None,
    decoded: DecodeTotals | None = None,
    requests: float | None = None,
) -> Reading:
    """Make a reading from how many passes accepted exactly j = 0 ... D drafts.

    >>> from roofline.engines.counted import Bonus
    >>> made = from_histogram([39, 1, 0, 3], Counted(engine="vllm", passes=Passes.DRAFTING,
    ...     bonus=Bonus.OUT, tokens=Tokens.ACCEPTED), how="histogram", where="response")
    >>> round(made.tokens_per_step, 6)  # vLLM's documentation: 1.2325581395348837
    1.232558
    """
    passes, depth = sum(counts), len(counts) - 1
    if passes <= 0 or depth < 1:
        raise InputError("no pass has verified a draft yet; send some requests first", where=where)
    survival = survival_from_histogram(counts)
    return from_counts(
        counted,
        how=how,
        where=where,
        drafts=passes,
        drafted=passes * depth if drafted is None else drafted,
        accepted=sum(j * value for j, value in enumerate(counts)),
        per_position=[float(s) * passes for s in survival],
        decoded=decoded,
        requests=requests,
    )


def from_positions(
    counted: Counted, *, what: str, where: str, survival: Sequence[float]
) -> Reading:
    """Make a reading of survival by position alone, of ``what`` lacks all counts.

    >>> from roofline.engines.counted import Bonus
    >>> vllm = Counted(engine="vllm", passes=Passes.DRAFTING, bonus=Bonus.OUT,
    ...     tokens=Tokens.ACCEPTED)
    >>> made = from_positions(vllm, what="log line", where="pasted", survival=[0.6, 0.4])
    >>> made.tokens_per_step, made.draft_length
    (2.0, 2)
    """
    if any(not 0 <= value <= 1 for value in survival):
        raise InputError("survival by position lies between 0 and 1", where=where)
    return Reading(
        counted=replace(counted, form=Form.SURVIVAL),
        how=f"positions of a {what} without counts",
        where=where,
        tokens_per_step=1 + sum(survival),
        draft_length=len(survival),
        survival=tuple(survival),
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
    nearest = round(min(mean, LARGEST_COUNT))
    return nearest if 1 <= nearest <= LONGEST_READ and abs(mean - nearest) <= slack else None
