"""The sentence of every notice."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from roofline.advice.deployment import Needs
from roofline.advice.question import Ending, why_drafts_end
from roofline.base.errors import Option, close_names, did_you_mean
from roofline.base.notices import Code, Notice
from roofline.base.units import format_size, listed
from roofline.render.blocks import Note
from roofline.render.reading_notices import READING_SENTENCES
from roofline.specs.placement import VerifyAttention

__all__ = [
    "ORDER",
    "SENTENCES",
    "assumptions",
    "capitalised",
    "notes",
    "notes_by_text",
    "notes_data",
    "ranked",
    "sentence",
    "warned",
    "warnings",
]

#: What a step past the captured graphs costs: 104 ms instead of 20.6 past 1,024 captured rows was
#: published (DeepSeek-V4-Flash on B300; see ``graphs`` of the vLLM engine file).
COST_PAST_GRAPHS = "can cost several times more (published: 5 times)"


def sentence(notice: Notice) -> str:
    """Return what a notice says."""
    return SENTENCES[notice.code](**notice.values)


def capitalised(text: str) -> str:
    """Return what a notice says as a sentence by itself.

    >>> capitalised("nothing is drafted")
    'Nothing is drafted.'
    """
    return f"{text[:1].upper()}{text[1:]}."


#: What a notice could change in the advice, most first: why the group stands there, and its codes.
ORDER: tuple[tuple[str, tuple[Code, ...]], ...] = (
    (
        "a setting to change: the answer would be another one",
        (
            Code.SHIPPED_IS_FASTER,
            Code.PLAIN_ASSUMED,
            Code.GOAL_MISSED,
            Code.SCHEDULE_OFF_IN_COPIES,
            Code.SCHEDULE_OFF_IN_GROUPS,
            Code.FORM_REJECTED,
            Code.OTHER_RELEASES_DIFFER,
            Code.OTHER_RELEASES_REFUSE,
            Code.ANOTHER_SERVER_SETTING,
        ),
    ),
    (
        "no run confirms what is priced",
        (
            Code.EXPERIMENTAL_STAGES,
            Code.EXPERIMENTAL_DRAFTER_GPU,
            Code.EXPERIMENTAL_NODES,
            Code.EXPERIMENTAL_LINK,
            Code.EXPERIMENTAL_WATTS,
            Code.EXPERIMENTAL_POOLS,
        ),
    ),
    (
        "an option that was given and cannot act on the question",
        (Code.CHANGES_NOTHING,),
    ),
    (
        "the numbers of the acceptance contradict themselves or may be read in two ways",
        (
            Code.AMBIGUOUS_ACCEPTANCE,
            Code.READ_AS_SURVIVAL,
            Code.POSITIONS_DISAGREE,
            Code.LENGTH_CONTRADICTS_POSITIONS,
            Code.RATE_CONTRADICTS_COUNTS,
            Code.TOKENS_DO_NOT_FIT_PASSES,
            Code.DRAFT_TREE,
            Code.SEVERAL_DRAFT_LENGTHS,
            Code.TAKEN_FOR_BLOCK,
            Code.ANOTHER_DRAFT_LENGTH_GIVEN,
            Code.ANOTHER_DRAFT_LENGTH_COUNTED,
            Code.UNUSUAL_DRAFT_LENGTH,
            Code.CONTEXTS_DISAGREE,
            Code.SURVIVAL_RISES,
            Code.TOKENS_PER_STEP_FALL,
        ),
    ),
    (
        "the setup may not run as it is priced",
        (
            Code.ENGINE_ELSEWHERE,
            Code.ENGINE_NEWER,
            Code.ENGINE_OLDER,
            Code.ANOTHER_VOCABULARY,
            Code.OFF_FAST_PATH,
            Code.UNKNOWN_GENERATION,
            Code.POWER_LIMITED,
            Code.NO_16_BIT_RATE,
            Code.PRE_RELEASE,
        ),
    ),
    (
        "what is priced leaves out a cost that was measured",
        (
            Code.SCHEDULE_NOT_WORTH,
            Code.SCHEDULE_GAINS_NOTHING,
            Code.SCHEDULE_GRAPH_MODE,
            Code.PAST_GRAPHS_UNDER_LOAD,
        ),
    ),
    (
        "the engine's own choice of kernel makes drafting dearer: another setting may not",
        (
            Code.OUTSIDE_GRAPH,
            Code.HOST_WAITS,
            Code.VERIFY_PATH_DECIDES,
            Code.KV_CONVERTED_BY_WARPS,
        ),
    ),
    (
        "the acceptance is that of something else: the best draft length moves with it",
        (
            Code.COUNTED_ON_ANOTHER_MODEL,
            Code.COUNTED_WITH_ANOTHER_KV,
            Code.ACCEPTANCE_UNKNOWN,
            Code.MEAN_ONLY,
            Code.LENGTH_NOT_READ,
            Code.BEYOND_TRAINED_CONTEXT,
            Code.BEYOND_PUBLISHED_RUNS,
            Code.OUTSIDE_MEASURED_CONTEXTS,
            Code.TREE_ACCEPTANCE,
            Code.ONE_RATE_IN_LONG_DRAFTS,
            Code.DRAFTS_CUT_SHORT,
            Code.DRAFTS_IN_SOME_PASSES,
            Code.SOME_PASSES_DRAFTED,
            Code.DRAFTING_PASSES_ONLY,
            Code.COUNTED_AT_END,
            Code.LINES_LEFT_OUT,
            Code.TRIMMED_AT_STOPS,
        ),
    ),
    (
        "draft lengths, batches or variants that were not looked at may be better",
        (
            Code.LONGEST_IS_BEST,
            Code.LENGTHS_END,
            Code.EARLY_STOPS_END,
            Code.DRAFTS_DO_NOT_FIT,
            Code.PAST_GRAPHS,
            Code.PAST_GRAPHS_IN_SWEEP,
            Code.LENGTHS_NOT_TAKEN,
            Code.VARIANT_LEFT_OUT,
            Code.BATCHES_DO_NOT_FIT,
            Code.CONTEXT_DOES_NOT_FIT,
            Code.LENGTH_HAS_NO_ROOM,
            Code.BATCHES_NOT_ASKED,
        ),
    ),
    (
        "another format may be faster, or answer worse",
        (
            Code.SHIPS_AS,
            Code.SLOWER_THAN_WIDE,
            Code.KV_SAVES_NO_TIME,
            Code.WEIGHTS_STORED_ONLY,
            Code.FEW_BITS,
            Code.GGUF_BY_PLUG_IN,
        ),
    ),
    (
        "why there is no schedule, or what an engine makes of one",
        (
            Code.NO_SCHEDULE,
            Code.NOTHING_TO_SCHEDULE,
            Code.NO_RELEASE_TAKES_SCHEDULES,
            Code.SCHEDULE_OFF_UNDER_DP_ATTENTION,
            Code.DRAFTER_DOES_NOT_FIT,
            Code.DRAFTER_CACHE_BEHIND,
            Code.NEAREST_SCHEDULE,
            Code.DEFAULT_SIZES,
            Code.GIVEN_SIZES,
            Code.LAST_BAND_KEPT,
            Code.NOTHING_DRAFTED_ABOVE,
            Code.OTHER_RELEASES_AGREE,
        ),
    ),
    (
        "what was assumed where the question left it open",
        (
            Code.FORMAT_NEAREST,
            Code.ACCEPTANCE_ASSUMED,
            Code.NO_OWN_RATE,
            Code.HEAD_DERIVED,
            Code.HEAD_BY_NAME,
            Code.DRAFTER_STORED_AS_TARGET,
            Code.HEAD_ASSUMED,
            Code.GAPS_FILLED,
            Code.CURVE_CONTINUED,
            Code.HIT_RATE_ASSUMED,
            Code.OVER_ALL_PASSES,
            Code.PULLED_BY_PRIOR,
            Code.JOINED_WITH_PRIOR,
            Code.HOST_ASSUMED,
            Code.NAME_TAKEN,
            Code.WEIGHTS_NAMED,
            Code.CONFIG_DEFAULT,
            Code.CONFIG_NOTE,
        ),
    ),
    (
        "where a figure comes from",
        (
            Code.WHAT_WAS_COUNTED,
            Code.WEIGHTS_BY_NAME,
            Code.DRAFTER_NOT_BUNDLED,
            Code.SETTING_CHANGED,
            Code.TIMINGS_TAKEN,
            Code.BANDWIDTH_OF_PROFILE,
            Code.MEMORY_SIZE_SEEN,
            Code.MEMORY_SIZE_OF_DATASHEET,
        ),
    ),
)
_RANK = {code: n for n, code in enumerate(code for _, codes in ORDER for code in codes)}


def ranked(notices: Iterable[Notice]) -> list[Notice]:
    """Return each notice once, those that could change the advice most first."""
    return sorted(dict.fromkeys(notices), key=lambda each: _RANK[each.code])


def notes(notices: Iterable[Notice]) -> tuple[Note, ...]:
    """Return the notes of an answer, each once."""
    return tuple(
        Note(code=each.code.value, text=sentence(each), assumption=each.assumption)
        for each in ranked(notices)
    )


def notes_by_text(codes: Mapping[str, str]) -> tuple[Note, ...]:
    """Return notes of which each text is kept with its code, as `notes` ranks them."""
    found = [Note(code=code, text=text) for text, code in codes.items()]
    return tuple(sorted(found, key=lambda note: (_RANK[Code(note.code)], note.text)))


def notes_data(notices: Iterable[Notice]) -> list[dict[str, Any]]:
    """Return every notice as JSON has it."""
    return [
        {"code": each.code.value, "text": sentence(each), "assumption": each.assumption}
        for each in ranked(notices)
    ]


def assumptions(notices: Iterable[Notice]) -> list[str]:
    """Return the sentences of the notices that state an assumption."""
    return [sentence(notice) for notice in notices if notice.assumption]


def warnings(notices: Iterable[Notice]) -> list[str]:
    """Return the sentences of the notices that warn."""
    return [sentence(notice) for notice in notices if not notice.assumption]


def warned(notices: Iterable[Notice]) -> dict[str, str]:
    """Return the code of each notice that warns, by its sentence."""
    return {sentence(each): each.code.value for each in notices if not each.assumption}


def _config_default(field: str, value: str, why: str) -> str:
    return f"{field} = {value} ({why})"


def _config_note(note: str) -> str:
    return note


def _name_taken(name: str, taken: str, others: tuple[str, ...]) -> str:
    sentence = f"{name} means {taken}"
    return f"{sentence}; the same family has {listed(others)}" if others else sentence


def _weights_named(name: str, dtype: str) -> str:
    return f"{dtype} weights, as the name {name} ends; {Option('weights')} sets another format"


def _format_nearest(dtype: str, nearest: str) -> str:
    return f"{dtype} is taken as {nearest}, the nearest format of that name"


def _head_assumed(model: str, kind: str, bundled: str | None) -> str:
    name = {"eagle3": "EAGLE-3", "eagle1": "EAGLE-1"}.get(kind, kind)
    if kind == "mtp":
        return f"the MTP layer that {model} ships with as drafter"
    if bundled is None:
        return f"a {name} head as drafter, of the kind whose acceptance was counted on {model}"
    return f"the bundled {name} head {bundled} as drafter"


def _plain_assumed(
    *,
    model: str,
    engine: str,
    known: tuple[str, ...],
    kinds: tuple[str, ...],
    draft_model: str | None,
) -> str:
    why = f"no drafter is bundled for {model}"
    if known:
        why += f" that {engine} runs (none of {', '.join(known)} is known to run)"
    ways = [kind for kind in kinds if kind == "ngram"]
    if "eagle3" in kinds and not known:
        ways.append("eagle3 for a head of the usual shape")
    if draft_model is not None:
        others = f" (or {listed(ways, 'or')})" if ways else ""
        drafter = f"{Option('drafter', draft_model)}{others}"
    else:
        ways += ["a draft model's name"] if "model" in kinds else []
        drafter = f"{Option('drafter')} ({', '.join(ways)})"
    return (
        f"{why}, so plain decoding is priced; to speculate give {drafter} and "
        f"{Option('acceptance')} (such as 0.6)"
    )


def _head_derived(kind: str, model: str, source: str) -> str:
    return f"{kind} head for {model}, {source}"


def _head_by_name(repository: str, kind: str, shape: str | None) -> str:
    taken = f"that of the bundled {shape}" if shape else "derived"
    return f"{repository} is taken to be {kind}; its shape is {taken}"


def _host_assumed(host: str, name: str) -> str:
    return f"the machine is {host} ({name})"


def _no_own_rate(gpu: str, dtype: str, other: str) -> str:
    return f"{gpu} has no {dtype} rate: products run in {other}"


def _engine_newer(engine: str, known: str) -> str:
    return f"{engine} is newer than what is known: flags, defaults and costs are those of {known}"


def _engine_older(engine: str, read: str) -> str:
    return f"{engine} was not read: its flags are those of {read}; hold them against its own help"


def _engine_elsewhere(engine: str, vendor: str, remedy: str) -> str:
    return (
        f"{engine} does not run on {vendor} accelerators by itself: its flags and overheads may "
        f"not hold there; {remedy}"
    )


def _few_bits(network: str, dtype: str) -> str:
    return f"{network}: {dtype} weights have fewer than 4 bits; check the answers' quality"


def _gguf_by_plug_in(engine: str, needs: str, install: str) -> str:
    return (
        f"{engine} reads GGUF by {needs} alone ({install}), which its documents call experimental "
        f"and slow: it may be slower than predicted; {Option('engine', 'llamacpp')} runs such files"
    )


def _no_16_bit_rate(gpu: str) -> str:
    return f"{gpu} has no 16-bit rate: what has 16 bits is priced in fp32"


def _pre_release(gpu: str) -> str:
    return f"{gpu} is a pre-release part: its figures may change"


def _unknown_generation(gpu: str, generation: str, known: tuple[str, ...]) -> str:
    near = close_names(generation, known)
    hint = did_you_mean(generation, known) if near else f"known: {', '.join(known)}"
    return (
        f"{gpu}: generation: '{generation}' has no stated constants, so generic ones stand in; "
        f"{hint}"
    )


def _power_limited(gpu: str, clock: float, memory: float) -> str:
    return (
        f"{gpu}: under its power limit the clock is taken as {100 * clock:.0f}% and the memory's "
        f"bandwidth as {100 * memory:.0f}% of their own"
    )


def _experimental_stages(
    *, stages: int, plain_ms: float, drafting_ms: float, factor: float, launches: bool
) -> str:
    by_hand = ""
    if launches:
        keeps = Option("set", "engine.graphs.eager_launch=0us")
        by_hand = (
            "; with drafts its recurrent layers are taken to leave the CUDA graphs, and every "
            f"kernel to be launched by itself (for a build that keeps them: {keeps})"
        )
    return (
        f"experimental: {stages} pipeline stages rest on no timed row of their own; launches and "
        f"synchronisation are assumed at {plain_ms:g} ms between two stages in a plain pass and "
        f"{drafting_ms:g} ms in one with drafts (each within a factor of {factor:.1f}){by_hand}"
    )


def _experimental_drafter_gpu(wait_ms: float) -> str:
    return (
        "experimental: a drafter on a GPU of its own rests on no timed row; each way to it is "
        f"assumed to wait {wait_ms:g} ms beside the link"
    )


def _experimental_nodes(*, nodes: int, rate: float, assumed: bool) -> str:
    source = "assumed" if assumed else "as given"
    return (
        f"experimental: {nodes} nodes rest on no timed row; the link between them carries "
        f"{rate / 1e9:g} GB/s for each GPU ({source}), its fixed time is assumed"
    )


def _experimental_link(link: str) -> str:
    return (
        f"experimental: {link} stands in for the GPU's own links; its fixed time is assumed, its "
        "rate is the slot's"
    )


def _experimental_watts(gpu: str, rated: float, factor: float) -> str:
    return (
        f"experimental: watts are stated shares of the {rated:g} W that {gpu} is rated at, between "
        f"two public sets of measurements on an H200; no run of this model (each within a factor "
        f"of {factor:.1f})"
    )


def _experimental_pools(rate: float, assumed: bool) -> str:
    source = "assumed" if assumed else "as given"
    return (
        "experimental: pools rest on no timed row; they divide the rate of prompts, read one at a "
        "time, by that of answers, and the link carries "
        f"{rate / 1e9:g} GB/s for each GPU ({source})"
    )


def _weights_stored_only(gpu: str, rate: str, weights: str, multiplied: str) -> str:
    return (
        f"{gpu} has no {rate} rate: {weights} weights are only stored, and multiplied at "
        f"{multiplied} speed"
    )


def _another_vocabulary(
    *,
    drafter: str,
    drafter_tokens: int,
    model: str,
    model_tokens: int,
    engine: str,
    largest_difference: int,
) -> str:
    return (
        f"drafter {drafter}: vocabulary of {drafter_tokens} tokens, but {model} has "
        f"{model_tokens}; {engine} takes up to {largest_difference} more or fewer if the tokens "
        "that both have are the same"
    )


def _off_fast_path(kernel: str, most: int, engine: str, version: str, group: int) -> str:
    return (
        f"{kernel} takes at most {most} query heads per KV head on its fast path in {engine} "
        f"{version}, this model has {group}: its attention may be many times slower than predicted"
    )


def _outside_graph(
    *, engine: str, version: str, backend: str, kv: str, gpu: str, round_ms: float, pass_ms: float
) -> str:
    return (
        f"{_build(engine, version)} verifies drafts on {gpu} with a {kv} cache by {backend} "
        f"outside the full CUDA graph: {round_ms:.1f} ms more for a verify pass and "
        f"{pass_ms:.1f} ms for a draft pass are priced; look for 'cudagraph_mode=PIECEWISE' in its "
        "log"
    )


def _host_waits(
    *, engine: str, version: str, backend: str, kv: str, gpu: str, round_ms: float, pass_ms: float
) -> str:
    return (
        f"{_build(engine, version)} runs attention on {gpu} with a {kv} cache by {backend}, whose "
        f"host code waits for the GPU before each pass: {round_ms:.1f} ms more for a verify pass "
        f"and {pass_ms:.1f} ms for a draft pass are priced"
    )


#: How a verify pass reads the cache, and what another kernel would do.
_READS = {
    VerifyAttention.KV_ONCE: "reads the cache once for all rows",
    VerifyAttention.TILE: "fills whole tiles of rows",
    VerifyAttention.HEAD_TILE: "gives every query head a block of its own over the whole cache",
    VerifyAttention.KV_PER_TILE: "reads the cache for every tile of rows",
    VerifyAttention.KV_PER_QUERY: "reads the cache for every row",
}


def _verify_path_decides(
    *,
    engine: str,
    version: str,
    backend: str,
    gpu: str,
    assumed: bool,
    mode: VerifyAttention,
    other: VerifyAttention,
    batch: int,
    context: int,
    length: int,
    speedup: float,
    other_length: int,
    other_speedup: float,
) -> str:
    known = "is assumed to verify" if assumed else "verifies"
    name = "" if assumed else f" ({backend})"
    where = f"at batch {batch}, context {format_size(context)}"
    if other_length == length:
        found = f"D = {length} would give {other_speedup:.2f}x instead of {speedup:.2f}x {where}"
    elif other_length:
        found = f"D = {other_length} would be best, {other_speedup:.2f}x, {where}"
    else:
        found = f"plain decoding would be best {where}"
    if other_length != length:
        found += f", where D = {length} is advised"
    return (
        f"how attention runs decides: {_build(engine, version)} {known} on {gpu} by a kernel"
        f"{name} that {_READS[mode]}; with one that {_READS[other]}, {found}; "
        f"{Option('verify_attention', other.value)} prices it"
    )


def _build(engine: str, version: str) -> str:
    return f"{engine} {version}" if version else engine


def _beyond_trained_context(network: str, trained: int, context: int) -> str:
    return (
        f"{network}: its config has {trained} positions, the context is {context}; acceptance may "
        "be lower there, so measure it"
    )


def _lengths_not_taken(drafter: str, modules: int, engine: str, lengths: tuple[int, ...]) -> str:
    return (
        f"{drafter} has {modules} modules: {engine} drafts up to {modules} tokens with them, or a "
        f"multiple of {modules}; D = {', '.join(map(str, lengths))} left out"
    )


def _longest_is_best(drafter: str, longest: int, ending: Ending, given: int | None) -> str:
    return (
        f"{drafter}: the best draft length found is the longest one tried ({longest}): "
        f"{why_drafts_end(ending, drafter=drafter, given=given)}"
    )


def _drafter_stored_as_target(drafter: str, dtype: str) -> str:
    return (
        f"the draft model {drafter} is stored as {dtype}, like its target; "
        f"{Option('draft_weights')} says otherwise"
    )


def _changes_nothing(field: str, needs: Needs, network: str) -> str:
    if needs is Needs.DRAFTS:
        return f"{Option(field)} acts on verify passes only; here nothing is drafted"
    if needs is Needs.STEP_TIMES:
        return f"{Option(field)} acts on step times only; acceptance does not depend on it"
    if needs is Needs.PUBLIC_RUNS:
        return f"{Option(field)} acts on {needs} only; nothing is taken from that here"
    return f"{Option(field)} acts on {needs} only; {network} has none"


def _lengths_end(drafter: str, longest: int, ending: Ending, given: int | None) -> str:
    return (
        f"{drafter}: no draft longer than {longest} was tried: "
        f"{why_drafts_end(ending, drafter=drafter, given=given)}"
    )


def _tree_acceptance(rows: int, counted: bool) -> str:
    what = "the acceptance given must be" if counted else "public runs are mostly of chains: give"
    return (
        f"a tree of {rows} rows is verified: {what} that of the whole tree (by depth, its longest "
        "accepted path), as its engine counts it; that of a chain is lower"
    )


def _one_rate_in_long_drafts(drafter: str, longest: int) -> str:
    del drafter  # what is said holds for every one
    return (
        "one rate at every position overstates long drafts (by 27 % in the median at D = 8): D = "
        f"{longest} may be too long; measure rates by position (roofline acceptance read)"
    )


def _drafts_do_not_fit(batch: int, context: int, lengths: tuple[int, ...]) -> str:
    which = (
        f"draft length {lengths[0]} does not fit beside the drafter and is"
        if len(lengths) == 1
        else f"draft lengths {_listed_lengths(lengths)} do not fit beside the drafter and are"
    )
    return f"batch {batch}, context {context}: {which} left out"


def _slower_than_wide(
    *,
    dtypes: tuple[str, ...],
    base: str,
    own_ms: float,
    wide_ms: float,
    kernel: str,
    provenance: str,
    detail: str,
    error: float | None,
) -> str:
    off = "" if error is None else f", {100 * error:.0f} % off"
    return (
        f"{'/'.join(dtypes)} weights: a plain step takes {own_ms:.3g} ms here, {wide_ms:.3g} ms "
        f"with {base}: they save memory, not time ({kernel}: {provenance}, {detail}{off})"
    )


def _kv_saves_no_time(*, kv: str, base: str, gpu: str, own_ms: float, wide_ms: float) -> str:
    return (
        f"{kv} KV saves memory, not time, on {gpu}: nothing there multiplies {kv}, so kernels "
        f"convert it (a plain step takes {own_ms:.3g} ms, {wide_ms:.3g} ms with {base} KV)"
    )


def _kv_converted_by_warps(
    *, kv: str, batch: int, context: int, length: int, factor: float, rows: int, warps: int
) -> str:
    return (
        f"at D = {length} a verify pass takes {factor:.2g} times as long as at D = {length - 1} "
        f"(batch {batch}, context {format_size(context)}): beyond {rows} rows of a KV head {warps} "
        f"warps share the rows, and each converts the whole {kv} cache for itself"
    )


def _shipped_is_faster(
    *,
    model: str,
    field: str,
    asked: str,
    shipped: tuple[str, ...],
    asked_ms: float,
    shipped_ms: float,
) -> str:
    as_shipped = _ships_as(model=model, field=field, asked=asked, shipped=shipped)
    return f"{as_shipped} (a plain step takes {shipped_ms:.3g} ms then, {asked_ms:.3g} ms as asked)"


def _ships_as(*, model: str, field: str, asked: str, shipped: tuple[str, ...]) -> str:
    what = "" if field == "weights" else " KV"
    return f"{model} ships as {listed(shipped)}{what}: leave {Option(field, asked)} out"


def _past_graphs(
    *, engine: str, largest: int, lengths: tuple[int, ...], batches: tuple[int, ...], flag: str
) -> str:
    captures = f"the {largest} rows that {engine} captures CUDA graphs for"
    remedy = f"; {flag} captures all of them" if flag else ""
    where = f"batch{'es' if len(batches) > 1 else ''} {', '.join(map(str, batches))}"
    if lengths[0] == 0:
        return (
            f"{where}: plain decoding and every draft length need more than {captures}: such steps "
            f"{COST_PAST_GRAPHS}{remedy}"
        )
    drafts = (
        f"draft length {lengths[0]} needs"
        if len(lengths) == 1
        else f"draft lengths {_listed_lengths(lengths)} need"
    )
    return (
        f"{where}: {drafts} more than {captures}: such steps {COST_PAST_GRAPHS} and are not "
        f"advised{remedy}"
    )


def _listed_lengths(lengths: Sequence[int]) -> str:
    """Return two or more draft lengths as a sentence has them.

    >>> _listed_lengths([2, 3, 4, 5]), _listed_lengths([3, 7])
    ('2 to 5', '3 and 7')
    """
    if len(lengths) > 2 and lengths[-1] - lengths[0] == len(lengths) - 1:
        return f"{lengths[0]} to {lengths[-1]}"
    return f"{', '.join(map(str, lengths[:-1]))} and {lengths[-1]}"


def _past_graphs_in_sweep(engine: str, largest: int) -> str:
    return (
        f"where captured is false, a pass has more than the {largest} rows that {engine} captures "
        f"CUDA graphs for: such steps {COST_PAST_GRAPHS} and are not advised where plain decoding "
        "is captured"
    )


def _past_graphs_under_load(
    *,
    engine: str,
    largest: int,
    lengths: tuple[int, ...],
    least_share: float,
    largest_share: float,
    flag: str,
) -> str:
    share = f"{largest_share:.1%}"
    if len(lengths) > 1:
        share = f"{least_share:.1%} to {share}"
    remedy = f"; {flag} captures all of them" if flag else ""
    return (
        f"D = {', '.join(map(str, lengths))}: {share} of the steps have more than the {largest} "
        f"rows that {engine} captures CUDA graphs for; such steps {COST_PAST_GRAPHS} and are not "
        f"advised{remedy}"
    )


def _batches_not_asked(first: int) -> str:
    return f"batches below {first} were not asked for: the first band covers them"


def _batches_do_not_fit(first: int, last: int) -> str:
    return f"batches from {first} on do not fit beside the drafter: the table ends at batch {last}"


def _length_has_no_room(batches: tuple[int, ...]) -> str:
    where = f"batches {batches[0]} to {batches[-1]}" if len(batches) > 1 else f"batch {batches[0]}"
    return (
        f"{where}: the draft length does not fit in memory beside so many sequences; the engine "
        "runs fewer at a time there"
    )


def _context_does_not_fit(context: int, batch: int) -> str:
    return f"context {context} does not fit above batch {batch}: bands there leave it out"


def _variant_left_out(problem: str) -> str:
    return f"left out: {problem}"


def _goal_missed(context: int, problem: str) -> str:
    return f"context {context}: {problem}"


def _no_schedule(reason: str) -> str:
    return f"no schedule: {reason}"


def _last_band_kept(
    engine: str, above: int, item: str, prefills_count: bool = False, flags: str = ""
) -> str:
    counted = "; prefills count as well" if prefills_count else ""
    started = f"; flags: {flags}" if flags else ""
    return f"{engine}: batches above {above} keep the last {item}{counted}{started}"


def _nothing_drafted_above(engine: str, above: int) -> str:
    return f"{engine}: nothing is drafted above batch {above}"


def _schedule_graph_mode(
    *, engine: str, graphs: str, cost: float, issues: tuple[int, ...], length_name: str, static: int
) -> str:
    against = f"{length_name} = {static} at every batch" if static else "no speculation"
    named = " and ".join(map(str, issues))
    if graphs == "full":
        return (
            f"{engine} keeps whole CUDA graphs under a schedule; nobody has published its speed, "
            f"and older builds lost a sixth of it (issues {named}): time it against {against}"
        )
    return (
        f"{engine} runs a schedule in {graphs} CUDA graphs, which cost about {cost:.0%} (issues "
        f"{named}); that is not in these figures: time it against {against}"
    )


def _schedule_not_worth(engine: str, gain: float, static: int, graphs: str, cost: float) -> str:
    against = f"D = {static} at every batch" if static else "no speculation"
    return (
        f"a schedule would gain {gain:.1%} over {against}, but {engine} runs it in {graphs} CUDA "
        f"graphs, which cost about {cost:.0%}"
    )


def _schedule_gains_nothing(gain: float, static: int) -> str:
    against = f"D = {static} at every batch" if static else "no speculation"
    return f"bands by batch gain nothing over {against} ({gain:.1%} tokens), so that is what to run"


def _schedule_off_in_copies(engine: str, data_parallel: int, draft_length: int) -> str:
    return (
        f"{engine} switches the schedule off at {Option('data_parallel', data_parallel)}: every "
        f"batch would run {draft_length}"
    )


def _schedule_off_in_groups(engine: str) -> str:
    return f"{engine} switches adaptation off under data-parallel attention"


def _form_rejected(engine: str, form: str, proposal: str) -> str:
    return f"{engine} rejects {form}: they are a proposal ({proposal})"


def _default_sizes(engine: str, where: str) -> str:
    return (
        f"{engine}: slots follow its default CUDA-graph sizes; {where} tells yours, for "
        f"{Option('graph_batches')}"
    )


def _given_sizes(engine: str) -> str:
    return f"{engine}: slots follow the CUDA-graph sizes given"


def _nearest_schedule(engine: str) -> str:
    return (
        f"{engine} drafts the most at the smallest batch; the best table does not, and this is the "
        "nearest that can be written"
    )


def _drafter_cache_behind(engine: str, issue: str) -> str:
    return (
        f"{engine}: steps at 0 leave a one-model drafter's cache behind; acceptance of the "
        f"requests in flight drops when drafting resumes ({issue})"
    )


def _other_releases_refuse(engine: str, key: int) -> str:
    return f"{engine} refuses this text: it wants a key {key}"


def _other_releases_differ(engine: str, batch: int, draft_length: int, other: int) -> str:
    return (
        f"{engine} reads the same text the other way round: batch {batch} would run {other}, not "
        f"{draft_length}; give {Option('engine_version')}"
    )


def _other_releases_agree(engine: str) -> str:
    return f"{engine} reads the same"


def _nothing_to_schedule() -> str:
    return "nothing is drafted, so there is nothing to schedule"


def _no_release_takes_schedules(engine: str) -> str:
    return f"no schedule: no release of {engine} is known to take one"


def _schedule_off_under_dp_attention() -> str:
    return "no schedule: engines switch it off under data-parallel attention"


def _drafter_does_not_fit(sequences: int) -> str:
    return f"no schedule: the drafter does not fit beside {sequences} sequences"


def _bandwidth_of_profile(gpu: str, confidence: str | None) -> str:
    return f"{gpu}.yaml: {'the bandwidth is given' if confidence is None else confidence}"


def _memory_size_seen() -> str:
    return "what a process sees says"


def _memory_size_of_datasheet() -> str:
    return "what the datasheet says"


def _setting_changed(value: object, was: object) -> str:
    return f"{value} instead of {was}"


def _timings_taken(label: str, batches: tuple[int, ...], acceptance: bool) -> str:
    what = "step times and acceptance" if acceptance else "step times"
    where = listed([str(batch) for batch in batches])
    return (
        f"{what} after {label}, at batch {where}; at other batches drafting and the engine's own "
        "time move as they did there"
    )


SENTENCES: dict[Code, Callable[..., str]] = {
    **READING_SENTENCES,
    Code.NO_SCHEDULE: _no_schedule,
    Code.NOTHING_TO_SCHEDULE: _nothing_to_schedule,
    Code.NO_RELEASE_TAKES_SCHEDULES: _no_release_takes_schedules,
    Code.SCHEDULE_OFF_UNDER_DP_ATTENTION: _schedule_off_under_dp_attention,
    Code.DRAFTER_DOES_NOT_FIT: _drafter_does_not_fit,
    Code.BANDWIDTH_OF_PROFILE: _bandwidth_of_profile,
    Code.MEMORY_SIZE_SEEN: _memory_size_seen,
    Code.MEMORY_SIZE_OF_DATASHEET: _memory_size_of_datasheet,
    Code.SETTING_CHANGED: _setting_changed,
    Code.TIMINGS_TAKEN: _timings_taken,
    Code.CONFIG_DEFAULT: _config_default,
    Code.CONFIG_NOTE: _config_note,
    Code.WEIGHTS_STORED_ONLY: _weights_stored_only,
    Code.ANOTHER_VOCABULARY: _another_vocabulary,
    Code.OFF_FAST_PATH: _off_fast_path,
    Code.OUTSIDE_GRAPH: _outside_graph,
    Code.HOST_WAITS: _host_waits,
    Code.VERIFY_PATH_DECIDES: _verify_path_decides,
    Code.PAST_GRAPHS_UNDER_LOAD: _past_graphs_under_load,
    Code.BATCHES_NOT_ASKED: _batches_not_asked,
    Code.BATCHES_DO_NOT_FIT: _batches_do_not_fit,
    Code.CONTEXT_DOES_NOT_FIT: _context_does_not_fit,
    Code.LENGTH_HAS_NO_ROOM: _length_has_no_room,
    Code.VARIANT_LEFT_OUT: _variant_left_out,
    Code.GOAL_MISSED: _goal_missed,
    Code.NAME_TAKEN: _name_taken,
    Code.WEIGHTS_NAMED: _weights_named,
    Code.FORMAT_NEAREST: _format_nearest,
    Code.HEAD_ASSUMED: _head_assumed,
    Code.PLAIN_ASSUMED: _plain_assumed,
    Code.HEAD_DERIVED: _head_derived,
    Code.HEAD_BY_NAME: _head_by_name,
    Code.HOST_ASSUMED: _host_assumed,
    Code.NO_OWN_RATE: _no_own_rate,
    Code.ENGINE_ELSEWHERE: _engine_elsewhere,
    Code.ENGINE_NEWER: _engine_newer,
    Code.ENGINE_OLDER: _engine_older,
    Code.FEW_BITS: _few_bits,
    Code.GGUF_BY_PLUG_IN: _gguf_by_plug_in,
    Code.NO_16_BIT_RATE: _no_16_bit_rate,
    Code.PRE_RELEASE: _pre_release,
    Code.UNKNOWN_GENERATION: _unknown_generation,
    Code.POWER_LIMITED: _power_limited,
    Code.EXPERIMENTAL_STAGES: _experimental_stages,
    Code.EXPERIMENTAL_DRAFTER_GPU: _experimental_drafter_gpu,
    Code.EXPERIMENTAL_NODES: _experimental_nodes,
    Code.EXPERIMENTAL_LINK: _experimental_link,
    Code.EXPERIMENTAL_WATTS: _experimental_watts,
    Code.EXPERIMENTAL_POOLS: _experimental_pools,
    Code.BEYOND_TRAINED_CONTEXT: _beyond_trained_context,
    Code.LENGTHS_NOT_TAKEN: _lengths_not_taken,
    Code.DRAFTER_STORED_AS_TARGET: _drafter_stored_as_target,
    Code.CHANGES_NOTHING: _changes_nothing,
    Code.LONGEST_IS_BEST: _longest_is_best,
    Code.LENGTHS_END: _lengths_end,
    Code.TREE_ACCEPTANCE: _tree_acceptance,
    Code.ONE_RATE_IN_LONG_DRAFTS: _one_rate_in_long_drafts,
    Code.DRAFTS_DO_NOT_FIT: _drafts_do_not_fit,
    Code.KV_SAVES_NO_TIME: _kv_saves_no_time,
    Code.KV_CONVERTED_BY_WARPS: _kv_converted_by_warps,
    Code.SLOWER_THAN_WIDE: _slower_than_wide,
    Code.SHIPPED_IS_FASTER: _shipped_is_faster,
    Code.SHIPS_AS: _ships_as,
    Code.PAST_GRAPHS: _past_graphs,
    Code.PAST_GRAPHS_IN_SWEEP: _past_graphs_in_sweep,
    Code.LAST_BAND_KEPT: _last_band_kept,
    Code.NOTHING_DRAFTED_ABOVE: _nothing_drafted_above,
    Code.SCHEDULE_GRAPH_MODE: _schedule_graph_mode,
    Code.SCHEDULE_NOT_WORTH: _schedule_not_worth,
    Code.SCHEDULE_GAINS_NOTHING: _schedule_gains_nothing,
    Code.SCHEDULE_OFF_IN_COPIES: _schedule_off_in_copies,
    Code.SCHEDULE_OFF_IN_GROUPS: _schedule_off_in_groups,
    Code.FORM_REJECTED: _form_rejected,
    Code.DEFAULT_SIZES: _default_sizes,
    Code.GIVEN_SIZES: _given_sizes,
    Code.NEAREST_SCHEDULE: _nearest_schedule,
    Code.DRAFTER_CACHE_BEHIND: _drafter_cache_behind,
    Code.OTHER_RELEASES_REFUSE: _other_releases_refuse,
    Code.OTHER_RELEASES_DIFFER: _other_releases_differ,
    Code.OTHER_RELEASES_AGREE: _other_releases_agree,
}
