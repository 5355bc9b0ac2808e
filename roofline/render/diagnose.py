"""The answer of ``diagnose``: its blocks, its rows and its data."""

from __future__ import annotations

from typing import Any

from roofline.advice.columns import printed
from roofline.advice.readings import is_ambiguous
from roofline.base.errors import Option
from roofline.base.units import format_size, listed
from roofline.engines import sglang, vllm
from roofline.questions.diagnose.diagnose import Diagnosis, Proposal
from roofline.questions.diagnose.explain import Explanation
from roofline.questions.diagnose.terms import ADDED, Term
from roofline.render.blocks import Answer, Block, Paragraph, Table, Tone, table
from roofline.render.deployment import deployment_data, gpus_named, set_data, set_line
from roofline.render.notices import notes, notes_data, warnings
from roofline.render.refusals import refused_blocks, refused_data, refused_details
from roofline.render.why import as_conditional

__all__ = ["answer_blocks", "as_answer", "data", "rows"]

SCHEMA = "roofline.diagnose/1"
#: What settles whether a term is at fault, beside a load at which explanations differ.
SETTLES = {
    Term.DRAFTER: "time the drafter's passes in a profile of a few steps, or the same load at two "
    "draft lengths: the slope per token drafted is one pass of it",
    Term.HOST: "profile a few steps and add up the gaps between kernels; check that CUDA "
    "graphs cover this batch and that the host's cores are free",
    Term.ROUNDS: "profile a few speculative steps and add up the gaps around the "
    "drafter's passes; check that its passes run in CUDA graphs",
    Term.ATTENTION: "the same batch at two contexts, D = 0 and speculating: the slope per token "
    "of context is the cache being read; the log names the attention backend",
    Term.PER_ROW: "the same load with "
    f"{Option('verify_attention', 'kv_per_query')} says what it would cost; the log names the "
    "attention backend, and a profile shows how often it reads",
    Term.EXPERTS: "time the expert kernels in a profile, or the same load at two batches with a "
    "short context; a text in one language wakes other experts than a mix",
    Term.COMMUNICATION: "nccl-tests all_reduce_perf at batch x rows x hidden size x 2 bytes on "
    f"the same GPUs, or the same load with another {Option('tp')}",
    Term.MEMORY: "the engine's counter of preemptions and the cache in use while it runs "
    f"({vllm.PREEMPTIONS}, {sglang.RETRACTIONS}), or the same load at half the batch",
    Term.PRODUCTS: "'roofline calibrate measure' times them on this machine; check the clocks "
    "and the format that the weights really run in",
    Term.SMALL: "profile a few steps; sampling with penalties or large top-k runs here",
}


def as_answer(diagnosis: Diagnosis) -> Answer:
    """Return the diagnosis in every form."""
    return Answer(
        headlines=lambda: [_headline(diagnosis)],
        blocks=lambda: answer_blocks(diagnosis),
        notes=notes(diagnosis.notices),
        more=lambda: refused_details(diagnosis.deployment, diagnosis.refused),
        data=lambda: data(diagnosis),
        rows=lambda: rows(diagnosis),
    )


def answer_blocks(diagnosis: Diagnosis) -> list[Block]:
    """Return the term that disagrees, the measured loads, and what would settle it."""
    blocks: list[Block] = [
        Paragraph(_headline(diagnosis), tone=Tone.HEADLINE),
        *map(Paragraph, _other_headlines(diagnosis)),
        *refused_blocks(diagnosis.deployment, diagnosis.refused),
        *(Paragraph(line, close=True) for line in _waiting_lines(diagnosis)),
        Paragraph(_where(diagnosis)),
        _points(diagnosis),
    ]
    if diagnosis.best is not None:
        blocks += [_explanations(diagnosis), Paragraph(_settle(diagnosis, diagnosis.best))]
    return blocks


def data(diagnosis: Diagnosis) -> dict[str, Any]:
    """Return the whole diagnosis as JSON-ready data."""
    deployment, best = diagnosis.deployment, diagnosis.best
    return {
        "schema": SCHEMA,
        "inputs": {
            **deployment_data(deployment),
            "drafter": deployment.drafter.name,
            "hit_rate": deployment.hit_rate,
            "noise": diagnosis.noise,
            "set": set_data(deployment.changes),
        },
        "acceptance": _acceptance(diagnosis),
        "nothing_to_explain": diagnosis.nothing_to_explain,
        "distance": diagnosis.agreement.distance,
        "limit": diagnosis.agreement.limit,
        "standard_deviations": diagnosis.agreement.deviations,
        "inside_band": diagnosis.agreement.inside,
        "term": None if best is None else best.term,
        "settles": None if best is None else SETTLES[best.term],
        "points": _points_data(diagnosis),
        "explanations": [_explanation_data(one) for one in diagnosis.explanations if one.moves],
        "next": None if best is None else _next_data(diagnosis.proposal),
        "refused": refused_data(diagnosis.refused),
        "warnings": warnings(diagnosis.notices),
        "notes": notes_data(diagnosis.notices),
    }


def _other_headlines(diagnosis: Diagnosis) -> list[str]:
    """Return the first sentence under the other reading of the acceptance, where it differs."""
    other = diagnosis.other_reading
    if other is None or not is_ambiguous(diagnosis.notices):
        return []
    return [as_conditional(_headline(other))]


def _acceptance(diagnosis: Diagnosis) -> dict[str, Any] | None:
    """Return both readings of a list of rates, where it turns times per token into steps."""
    other = diagnosis.other_reading
    if other is None:
        return None
    term = None if other.best is None else other.best.term
    reading = {"definition": "conditional", "term": term, "headline": _headline(other)}
    ambiguous = is_ambiguous(diagnosis.notices)
    return {"definition": "survival", "ambiguous": ambiguous, "other_reading": reading}


def _points_data(diagnosis: Diagnosis) -> list[dict[str, Any]]:
    """Return each measured load, its prediction, and what the best explanation predicts.

    ``difference`` and ``band`` are shares of the prediction.
    """
    columns = (diagnosis.predicted, diagnosis.agreement.band, diagnosis.explained)
    memory = diagnosis.deployment.memory
    return [
        {
            "draft_length": point.draft_length,
            "batch": point.batch,
            "context": point.context,
            "fits": bool(memory.has_room(point.batch, point.context, point.draft_length)),
            "tokens_per_step": point.tokens_per_step,
            "measured_tpot_ms": 1e3 * point.time_per_token,
            "predicted_tpot_ms": 1e3 * predicted / point.tokens_per_step,
            "measured_step_ms": 1e3 * point.seconds,
            "predicted_step_ms": 1e3 * predicted,
            "difference": point.seconds / predicted - 1,
            "band": band,
            "explained_step_ms": None if diagnosis.best is None else 1e3 * explained,
            "terms_ms": {
                term: 1e3 * float(times[i]) for term, times in diagnosis.terms.items() if times[i]
            },
        }
        for i, (point, predicted, band, explained) in enumerate(
            zip(diagnosis.points, *(column.tolist() for column in columns), strict=True)
        )
    ]


def rows(diagnosis: Diagnosis) -> list[dict[str, Any]]:
    """Return a row for every measured load."""
    return [
        {key: value for key, value in point.items() if key != "terms_ms"}
        for point in _points_data(diagnosis)
    ]


def _waiting_lines(diagnosis: Diagnosis) -> list[str]:
    """Say what is predicted for a load that does not fit, if there is one."""
    memory = diagnosis.deployment.memory
    if all(memory.has_room(p.batch, p.context, p.draft_length) for p in diagnosis.points):
        return []
    line = (
        "The prediction of a load that does not fit is of all its sequences at once; what waiting "
        f"adds is the term {Term.MEMORY}."
    )
    return [line]


def _explanation_data(explanation: Explanation) -> dict[str, Any]:
    return {
        "term": explanation.term,
        "factor": explanation.factor,
        "sigma": explanation.sigma,
        "strain": explanation.strain,
        "misfit": explanation.misfit,
        "gain": explanation.gain,
        "needed": explanation.needed,
        "leaves": explanation.residual_rms,
        "as_good": explanation.as_good,
        "fits": explanation.fits,
    }


def _next_data(proposal: Proposal | None) -> dict[str, Any] | None:
    """Return the load to measure next, and the step that each of two explanations predicts."""
    if proposal is None:
        return None
    return {
        "draft_length": proposal.draft_length,
        "batch": proposal.batch,
        "context": proposal.context,
        "step_ms": {
            proposal.first: 1e3 * proposal.first_step,
            proposal.second: 1e3 * proposal.second_step,
        },
    }


def _headline(diagnosis: Diagnosis) -> str:
    best = diagnosis.best
    if best is None:
        return _inside(diagnosis)
    others = [other.term for other in diagnosis.explanations[1:] if other.as_good]
    if len(diagnosis.points) == 1 and others and best.fits:
        return (
            f"One point cannot tell the terms apart: {listed([best.term, *others], 'or')} may be "
            f"off, by {diagnosis.agreement.deviations:.1f} standard deviations in all. Measure "
            f"{_next(diagnosis)}."
        )
    if diagnosis.agreement.inside:
        verdict = f"Inside the error band, but {best.term} alone accounts for it: {_factor(best)}"
    elif best.fits:
        verdict = f"The term furthest off is {best.term}: {_factor(best)} explains the measurements"
    else:
        verdict = (
            f"No single term explains the measurements; {best.term} comes closest, {_factor(best)}"
        )
    within = "within" if best.strain <= 2 else "beyond"
    verdict += f", {within} its stated error ({best.strain:.1f} standard deviations)."
    if others and best.fits:
        verdict += f" So far {listed(others, 'or')} would explain them as well, with more strain."
    return verdict


def _inside(diagnosis: Diagnosis) -> str:
    """Say how far measurements are off that the stated errors explain."""
    off = [point.seconds for point in diagnosis.points] / diagnosis.predicted - 1
    apart = diagnosis.agreement.deviations
    how_far = (
        f"the measurements are {apart:.1f} standard deviations of model and measurement from the "
        f"prediction (at most {off[abs(off).argmax()]:+.0%})"
    )
    if apart <= 1:
        return f"Nothing to explain: {how_far}."
    return (
        f"Not decided: {how_far}. Such errors alone do that in {diagnosis.agreement.chance:.0%} of "
        f"cases, so no term is at fault yet. Measure {_next(diagnosis)}."
    )


def _next(diagnosis: Diagnosis) -> str:
    """Return the load at which the likeliest explanations differ, or what to measure otherwise."""
    proposal = diagnosis.proposal
    if proposal is None:
        return "other batches, contexts and draft lengths, D = 0 among them"
    return (
        f"D = {proposal.draft_length} at batch {proposal.batch}, context "
        f"{format_size(proposal.context)} as well"
    )


def _factor(explanation: Explanation) -> str:
    if explanation.term is Term.MEMORY:
        return f"{explanation.factor:.2f}x the wait of sequences that do not fit"
    if explanation.term is Term.PER_ROW:
        return f"{explanation.factor:.2f}x what reading the cache anew for each row would add"
    return f"{explanation.factor:.2f}x its prediction"


def _where(diagnosis: Diagnosis) -> str:
    deployment = diagnosis.deployment
    return (
        f"{deployment.target.model.name} on {gpus_named(deployment)}, "
        f"{deployment.engine.name}; drafter {deployment.drafter.name}. Band: one standard "
        f"deviation of model and measurement (the latter {diagnosis.noise:.1%})."
        + set_line(deployment.changes)
    )


_COLUMNS = (
    printed("load", "D@batch\nxcontext"),
    printed("tokens_per_step", "tokens\nper step", "{value:.2f}"),
    printed("measured_tpot_ms", "ms/token\nmeasured", "{value:.2f}"),
    printed("predicted_tpot_ms", "pre-\ndicted", "{value:.2f}"),
    printed("measured_step_ms", "ms/step\nmeasured", "{value:.2f}"),
    printed("predicted_step_ms", "pre-\ndicted", "{value:.2f}"),
    printed("difference", "off", "{value:+.1%}"),
    printed("band", "band", "{value:.1%}"),
)
_EXPLAINED = printed("explained_step_ms", "ex-\nplained", "{value:.2f}")


def _points(diagnosis: Diagnosis) -> Table:
    """Return the measured loads beside their predictions."""
    columns = _COLUMNS if diagnosis.best is None else (*_COLUMNS, _EXPLAINED)
    loads = (
        point | {"load": "{draft_length}@{batch}x".format(**point) + format_size(point["context"])}
        for point in _points_data(diagnosis)
    )
    return table(columns, loads)


def _explanations(diagnosis: Diagnosis) -> Table:
    """Return how well each term explains the measurements."""
    lines = list[tuple[str, ...]]()
    for explanation in diagnosis.explanations:
        if not explanation.moves:
            continue
        shares = diagnosis.terms[explanation.term] / diagnosis.predicted
        low, high = 100 * float(shares.min()), 100 * float(shares.max())
        share = f"{low:.0f}-{high:.0f}%" if high - low >= 1 else f"{high:.0f}%"
        lines.append(
            (
                f"{'*' if explanation is diagnosis.best else ' '} {explanation.term}",
                f"+{share}" if explanation.term in ADDED else share,
                f"{explanation.factor:.2f}x",
                f"{explanation.sigma:.0%}",
                f"{explanation.strain:.1f}",
                f"{explanation.misfit:.1f}",
                f"{explanation.residual_rms:.1%}",
                "yes" if explanation.as_good else "no",
            )
        )
    headers = (
        "  term",
        "share of\nstep",
        "factor",
        "stated\nerror",
        "strain",
        "misfit",
        "leaves",
        "may\nbe",
    )
    return Table(headings=headers, cells=tuple(lines), align="l")


def _settle(diagnosis: Diagnosis, best: Explanation) -> str:
    settles = f"To settle it: {SETTLES[best.term]}."
    proposal = diagnosis.proposal
    if proposal is None:
        return settles
    return (
        f"{settles} Or measure D = {proposal.draft_length} at batch {proposal.batch}, context "
        f"{format_size(proposal.context)}: {1e3 * proposal.first_step:.2f} ms a step if "
        f"{proposal.first} is at fault, {1e3 * proposal.second_step:.2f} ms if {proposal.second} "
        "is."
    )
