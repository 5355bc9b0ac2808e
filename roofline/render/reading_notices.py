"""The sentences of notices about an acceptance or about what an engine reports."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, assert_never

from roofline.acceptance.curve import HitRate
from roofline.acceptance.labels import Beyond
from roofline.base.errors import Option
from roofline.base.notices import Code
from roofline.base.units import format_size, listed

if TYPE_CHECKING:
    from roofline.advice.readings import Advice, Place

__all__ = ["READING_SENTENCES"]


def _acceptance_assumed(
    *,
    kind: str,
    drafter: str,
    published: tuple[str, ...],
    certain: bool,
    of_base: bool,
    domain: str | None,
    dataset: str | None,
    at: int,
    low: float,
    high: float,
) -> str:
    if of_base:
        whose = f"of public runs of the {kind} drafters of models of the same base"
    elif certain:
        whose = f"of public runs of {drafter}"
    elif published:
        count = len(published)
        whose = f"of public runs of {count} such drafter{'s' if count > 1 else ''} of this model"
    else:
        whose = f"of public runs of other {kind} drafters"
    known = dataset or domain
    use = f" on {known}" if known else ""
    domain_first = "" if known else f"{Option('domain')} (chat, code, math, ...) or "
    return (
        f"acceptance was not measured; expected {whose}{use}: {low:.2g} to {high:.2g} tokens per "
        f"step at D = {at} (80 %); give {domain_first}{Option('acceptance')}"
    )


def _gaps_filled(label: str, lengths: tuple[int, ...]) -> str:
    return (
        f"acceptance of {label} was not measured at D = {listed(list(map(str, lengths)))}; filled "
        "in from the lengths beside"
    )


def _curve_continued(label: str, last: int, longest: int) -> str:
    to = f" to {longest}" if longest > last + 1 else ""
    return (
        f"the acceptance ({label}) ends at D = {last}; D = {last + 1}{to} "
        f"{'are' if to else 'is'} what public runs of such drafters lead to expect"
    )


def _hit_rate_assumed(drafter: str, hit_rate: float, *, typed: str | None) -> str:
    found = f"{drafter} finds a draft in {100 * hit_rate:.0f} % of the passes"
    if typed is None:
        return f"{found}; give the true share with {Option('hit_rate')}"
    return (
        f"{found}, as {typed} is taken to count all of them; engines print shares of the passes "
        f"that drafted, which {Option('acceptance', f'drafting:{typed}')} reads"
    )


def _beyond_published_runs(*, kind: str, of: Beyond, asked: float, reached: float) -> str:
    match of:
        case Beyond.TEMPERATURE:
            return (
                f"published runs end at temperature {reached:g}: what is expected at {asked:g} is "
                f"that of {reached:g}; hotter sampling accepts less, so measure it"
            )
        case Beyond.CONTEXT:
            longest, here = format_size(int(reached)), format_size(int(asked))
            return (
                f"published runs of {kind} drafters end at {longest} tokens of context: what is "
                f"expected at {here} is that of shorter ones, so measure it"
            )
        case Beyond.TRAINED_CONTEXT:
            longest, here = format_size(int(reached)), format_size(int(asked))
            return (
                f"published runs beyond the trained context would end at {longest} tokens for this "
                f"drafter: what is expected at {here} goes on as they fall, so measure it"
            )
        case Beyond.DRAFT_LENGTH:
            return (
                f"published runs of {kind} drafters end at D = {reached:g}: longer drafts are "
                "expected to yield no more; count some to know"
            )
        case Beyond.COUNTED_LENGTH:
            return (
                f"the acceptance ends at D = {reached:g}, later than any published run of {kind} "
                "drafters: longer drafts are expected to yield no more; count some to know"
            )
        case _:
            assert_never(of)


def _pulled_by_prior(
    *,
    label: str,
    passes: float,
    least: float,
    most: float,
    draft_length: int,
    counted: float,
    taken: float,
) -> str:
    return (
        f"{passes:.0f} passes of the acceptance ({label}) count {counted:.3g} tokens per step at "
        f"D = {draft_length}; public runs of such drafters draw it to {taken:.3g}, further than "
        f"chance explains (the count has {_weight(least, most)} of the weight); count more passes "
        "to decide"
    )


def _joined_with_prior(*, label: str, passes: float, least: float, most: float) -> str:
    return (
        f"the acceptance ({label}): its {passes:.0f} passes have {_weight(least, most)} of the "
        "weight, public runs of such drafters the rest"
    )


def _weight(least: float, most: float) -> str:
    """Return the weight of a count, as a range where it differs by position."""
    low, high = f"{100 * least:.0f}", f"{100 * most:.0f}"
    return f"{low if low == high else f'{low} to {high}'} %"


def _early_stops_end(*, drafter: str, last: int, longest: int) -> str:
    left = f"D = {last + 1} to {longest} are" if longest > last + 1 else f"D = {longest} is"
    return (
        f"{Option('hit_rate')} ends at D = {last}; drafts of {drafter} that stop early tell "
        f"nothing of longer ones, so {left} left out"
    )


def _over_all_passes(label: str, drafter: str, hit_rate: float, *, origin: HitRate) -> str:
    known = {
        HitRate.GIVEN: "as given",
        HitRate.COUNTED: "as counted with it",
        HitRate.EXPECTED: "as public runs lead to expect",
    }[origin]
    remedy = "" if origin is HitRate.GIVEN else f"; {Option('hit_rate')} gives another share"
    return (
        f"the acceptance ({label}) is of passes that drafted; {drafter} drafts in "
        f"{100 * hit_rate:.3g} % of the passes ({known}), and the others yield one token{remedy}"
    )


def _counted_on_another_model(label: str, counted: str, model: str) -> str:
    return f"acceptance of {label}: counted on {counted}, not on {model}; measure your own"


def _tokens_per_step_fall(label: str, first: int, second: int, before: float, after: float) -> str:
    return (
        f"acceptance of {label}: tokens per step fall from {before:g} at D={first} to {after:g} at "
        f"D={second}; drafts past the trained depth, or counted on other prompts"
    )


def _survival_rises(where: str, first: int, second: int, before: float, after: float) -> str:
    return (
        f"{where}: survival rises from {before:.2f} at D={first} to {after:.2f} at D={second}, as "
        "only noise or other prompts can make it"
    )


def _outside_measured_contexts(label: str, shortest: int, longest: int, context: int) -> str:
    measured = f"at {shortest}" if shortest == longest else f"from {shortest} to {longest}"
    return (
        f"acceptance of {label} was measured {measured} tokens of context; {context} tokens use "
        "the nearest value, so measure it there"
    )


def _counted_with_another_kv(name: str, counted: str | None, asked: str) -> str:
    return f"acceptance {name}: measured with {counted} KV, not with {asked}"


def _read_as_survival(rates: str, *, same_advice: bool = False) -> str:
    read = f"{Option('acceptance', rates)}: read as survival by position, as engines print it"
    if same_advice:
        return f"{read}; as conditional rates they lead to the same advice"
    return f"{read}; conditional rates are written conditional:{rates}"


def _ambiguous_acceptance(
    *, rates: str, place: Place, survival: Advice, conditional: Advice, differ: int, points: int
) -> str:
    where = ", ".join(f"{name} {value}" for name, value in place)
    if points > 1:
        where = f"at {differ} of {points} points; the first: {where}"
    return (
        f"{Option('acceptance', rates)}: two readings, two answers{f' ({where})' if where else ''}"
        f": survival by position, as engines print it, advises {_advice(survival)}, conditional "
        f"rates {_advice(conditional)}; write survival:{rates} or conditional:{rates}"
    )


def _advice(advice: Advice) -> str:
    """Return what is advised, in a few words."""
    if advice.refused:
        return f"nothing ({advice.refused})"
    if advice.term:
        return f"a look at {advice.term}"
    if len(advice.bands) == 1:
        return f"D = {'/'.join(map(str, advice.bands[0][2]))} at every batch"
    if advice.bands:
        lengths = (
            f"{'/'.join(map(str, by_context))} at {f'{first}-{last}' if last > first else first}"
            for first, last, by_context in advice.bands
        )
        return f"D by batch: {', '.join(lengths)}"
    at = f"batch {advice.batch} with " if advice.batch is not None else ""
    return f"{at}{f'{advice.drafter} at ' if advice.drafter else ''}D = {advice.draft_length}"


def _another_draft_length_given(where: str, counted: tuple[int, ...], given: int) -> str:
    return f"{where}: by its numbers D is {' or '.join(map(str, counted))}, not {given}"


def _several_draft_lengths(where: str, lengths: tuple[int, ...]) -> str:
    return (
        f"{where}: its numbers fit D = {' or '.join(map(str, lengths))} alike; "
        f"{Option('draft_length')} says which the server runs"
    )


def _taken_for_block(where: str, tokens: int) -> str:
    return (
        f"{where}: {tokens} draft tokens in one step are taken for a block of {tokens - 1} drafts "
        "(DFLASH, DSPARK); a tree of lookups reads the same"
    )


def _trimmed_at_stops(where: str, least: float, requests: float) -> str:
    return (
        f"{where}: accepted drafts after a stop are counted too, though never emitted: with "
        f"{requests:.0f} requests tokens per step are at least {least:.4g}"
    )


def _what_was_counted(
    *,
    where: str,
    engine: str,
    passes: str | None,
    bonus: str,
    tokens: str | None,
    form: str,
    early_stops: bool,
    version: str | None,
) -> str:
    """Return what a source counted, in the words of the glossary."""
    build = f" {version}" if version else ""
    parts = [
        {"all": "all passes", "drafting": "passes that drafted"}.get(passes or "", "passes"),
        {"emitted": "tokens emitted", "accepted": "drafts accepted"}.get(tokens or "", "tokens"),
        "the bonus token among them" if bonus == "in" else "one bonus token added for each pass",
        {"mean": "the mean alone", "survival": "survival by position"}.get(form, f"{form} rates"),
    ]
    if early_stops:
        parts.append("of drafts that were made and accepted, so nothing is carried to longer ones")
    return f"{where}: {engine}{build} counted {', '.join(parts)}"


def _another_draft_length_counted(where: str, counted: int, stated: object, source: str) -> str:
    return (
        f"{where}: drafts of {counted} tokens were counted, but {source} says {stated}; {counted} "
        "is used"
    )


def _drafts_in_some_passes(where: str, drafter: str) -> str:
    return f"{where}: {drafter} drafts in some passes only, and this holds only for those"


def _some_passes_drafted(
    where: str, drafts: float, passes: float, drafted_per_pass: float, draft_length: int | None
) -> str:
    most = "" if draft_length is None else f" of up to {draft_length}"
    return (
        f"{where}: {drafts:.0f} of {passes:.0f} passes drafted ({100 * drafts / passes:.0f} %, "
        f"{drafted_per_pass:.2f} tokens{most} each): a drafter that found nothing to propose, "
        f"{_SURE}or a schedule; tokens per step are over all passes"
    )


#: Why drafts end early where engines have a bound for it.
_SURE = "a confidence bound, "


def _drafting_passes_only(where: str) -> str:
    return (
        f"{where}: mean len holds only for passes that drafted; the log's 'eval time' lines, or "
        "llamacpp:n_decode_total and llamacpp:tokens_predicted_total on /metrics, count the others"
    )


def _positions_disagree(where: str, accepted: float, by_position: float) -> str:
    return (
        f"{where}: {accepted:.0f} drafts accepted, but {by_position:.0f} by position: it "
        "contradicts itself, so do not rely on it"
    )


def _tokens_do_not_fit_passes(
    where: str, tokens: float, passes: float, accepted: float, drafts: float
) -> str:
    return (
        f"{where}: {tokens:.0f} tokens of {passes:.0f} passes do not fit {accepted:.0f} accepted "
        f"drafts, so only the {drafts:.0f} passes that drafted count"
    )


def _drafts_cut_short(
    where: str, drafted_per_pass: float, draft_length: int, *, every_pass: bool
) -> str:
    short = f"{where}: {drafted_per_pass:.2f} tokens drafted per pass, not {draft_length}"
    if every_pass:
        return (
            f"{short}: drafts were cut short ({_SURE}a schedule, or ends of sequences), so deep "
            "positions read too low"
        )
    return (
        f"{short}: drafts were cut short (a drafter that may propose nothing, {_SURE}a "
        "schedule, or ends of sequences), so deep positions read too low, and all holds only for "
        "passes that drafted"
    )


def _lines_left_out(where: str, lines: int, draft_length: int) -> str:
    return (
        f"{where}: {lines} lines have another draft length than the last ({draft_length}) and are "
        "left out"
    )


def _contradiction(where: str, lines: int, what: str) -> str:
    many = f"{lines} lines contradict themselves"
    return (
        f"{where}: {many if lines > 1 else 'a line contradicts itself'} ({what}), so do not rely "
        "on it"
    )


def _length_contradicts_positions(where: str, lines: int, length: str, by_position: float) -> str:
    what = f"mean length {length}, but {by_position:.2f} by position"
    return _contradiction(where, lines, what)


def _rate_contradicts_counts(
    where: str, lines: int, percent: str, accepted: float, drafted: float
) -> str:
    what = f"{percent} % accepted, but {accepted:g} of {drafted:g} tokens"
    return _contradiction(where, lines, what)


def _counted_at_end(where: str) -> str:
    return f"{where}: verify calls are counted when a request finishes; take a long interval"


def _draft_tree(where: str, tokens: float, steps: float) -> str:
    return (
        f"{where}: {tokens:g} draft tokens over {steps:g} steps is a tree; its tokens per step do "
        "not hold for a chain"
    )


def _unusual_draft_length(
    where: str, tokens_per_step: float, rate: float, draft_length: int
) -> str:
    return (
        f"{where}: accept len {tokens_per_step:.2f} at accept rate {rate:.2f} would be "
        f"{draft_length} drafts a pass: if the server makes fewer, the two contradict each other"
    )


def _contexts_disagree(where: str, by_requests: float, by_cache: float) -> str:
    return (
        f"{where}: finished requests give a context of {by_requests:.0f} tokens, the cache in use "
        f"{by_cache:.0f}: shared prefixes, windowed layers or a changing load; give "
        f"{Option('context')} where you know it"
    )


#: What was read of a server, and may not hold with another setting than it has.
_READ_FOR = {
    "model": "acceptance and load",
    "drafter": "acceptance",
    "engine": "load",
    "tp": "load",
    "kv": "load",
    "weights": "acceptance and load",
}


def _another_server_setting(field: str, runs: str, asked: str) -> str:
    drafts = "a draft model" if (field, runs) == ("drafter", "model") else runs
    return (
        f"{field} {asked}: the server runs {drafts}; {asked} is priced, and its {_READ_FOR[field]} "
        "may not be what was read"
    )


def _weights_by_name() -> str:
    return "the name of the repository says it, the server does not"


def _drafter_not_bundled(weights: str | None) -> str:
    return f"{weights} is not bundled"


def _acceptance_unknown() -> str:
    return "unknown"


def _length_not_read() -> str:
    return "tokens per step were read, the draft length was not"


def _mean_only(draft_length: int) -> str:
    return f"only the mean at D = {draft_length} is on the page"


READING_SENTENCES: dict[Code, Callable[..., str]] = {
    Code.ACCEPTANCE_ASSUMED: _acceptance_assumed,
    Code.GAPS_FILLED: _gaps_filled,
    Code.CURVE_CONTINUED: _curve_continued,
    Code.BEYOND_PUBLISHED_RUNS: _beyond_published_runs,
    Code.PULLED_BY_PRIOR: _pulled_by_prior,
    Code.JOINED_WITH_PRIOR: _joined_with_prior,
    Code.EARLY_STOPS_END: _early_stops_end,
    Code.HIT_RATE_ASSUMED: _hit_rate_assumed,
    Code.OVER_ALL_PASSES: _over_all_passes,
    Code.COUNTED_ON_ANOTHER_MODEL: _counted_on_another_model,
    Code.TOKENS_PER_STEP_FALL: _tokens_per_step_fall,
    Code.SURVIVAL_RISES: _survival_rises,
    Code.OUTSIDE_MEASURED_CONTEXTS: _outside_measured_contexts,
    Code.COUNTED_WITH_ANOTHER_KV: _counted_with_another_kv,
    Code.READ_AS_SURVIVAL: _read_as_survival,
    Code.AMBIGUOUS_ACCEPTANCE: _ambiguous_acceptance,
    Code.ANOTHER_DRAFT_LENGTH_GIVEN: _another_draft_length_given,
    Code.SEVERAL_DRAFT_LENGTHS: _several_draft_lengths,
    Code.TAKEN_FOR_BLOCK: _taken_for_block,
    Code.TRIMMED_AT_STOPS: _trimmed_at_stops,
    Code.WHAT_WAS_COUNTED: _what_was_counted,
    Code.ANOTHER_DRAFT_LENGTH_COUNTED: _another_draft_length_counted,
    Code.DRAFTS_IN_SOME_PASSES: _drafts_in_some_passes,
    Code.SOME_PASSES_DRAFTED: _some_passes_drafted,
    Code.DRAFTING_PASSES_ONLY: _drafting_passes_only,
    Code.POSITIONS_DISAGREE: _positions_disagree,
    Code.TOKENS_DO_NOT_FIT_PASSES: _tokens_do_not_fit_passes,
    Code.DRAFTS_CUT_SHORT: _drafts_cut_short,
    Code.LINES_LEFT_OUT: _lines_left_out,
    Code.LENGTH_CONTRADICTS_POSITIONS: _length_contradicts_positions,
    Code.RATE_CONTRADICTS_COUNTS: _rate_contradicts_counts,
    Code.COUNTED_AT_END: _counted_at_end,
    Code.DRAFT_TREE: _draft_tree,
    Code.UNUSUAL_DRAFT_LENGTH: _unusual_draft_length,
    Code.CONTEXTS_DISAGREE: _contexts_disagree,
    Code.ANOTHER_SERVER_SETTING: _another_server_setting,
    Code.WEIGHTS_BY_NAME: _weights_by_name,
    Code.DRAFTER_NOT_BUNDLED: _drafter_not_bundled,
    Code.ACCEPTANCE_UNKNOWN: _acceptance_unknown,
    Code.LENGTH_NOT_READ: _length_not_read,
    Code.MEAN_ONLY: _mean_only,
}
