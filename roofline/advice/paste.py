"""What to paste into an engine: its flag for a drafter, and additions inside its braces."""

from __future__ import annotations

from roofline.advice.prepare import Setup

__all__ = ["flag", "inside", "layout", "pasted", "sharing", "timed_flag"]


def flag(setup: Setup, draft_length: int, *, running: int) -> str:
    """Return what to paste into the engine for this draft length and ``running`` sequences.

    Without drafts that is what lays the target out; with nothing to lay out, what to leave out.
    """
    if draft_length == 0:
        return f"{layout(setup)}{sharing(setup)}".strip() or left_out(setup)
    network = setup.drafter.network
    weights = "" if network is None else network.repository or f"PATH-TO-{network.id}"
    own = setup.engine.flag(
        setup.drafter.kind,
        draft_length=draft_length,
        draft_weights=weights,
        draft_tp=setup.drafter.placement.attention_tp,
        running=running,
        groups=setup.target.placement.dp,
        draft_file="" if network is None else _file(setup, network.id),
    )
    known = setup.engine.attention_dp
    join = "" if known is None else known.join
    return join.join(filter(None, [layout(setup), own])) + sharing(setup)


def left_out(setup: Setup) -> str:
    """Return the sentence that says which flag is not given without drafts."""
    return setup.engine.flags["none"]


def pasted(setup: Setup, draft_length: int, *, running: int) -> str:
    """Return the flags, and without drafts also the flag to leave out, on a line of its own."""
    text = flag(setup, draft_length, running=running)
    if draft_length or text == left_out(setup):
        return text
    return f"{text}\n({left_out(setup)})"


def layout(setup: Setup) -> str:
    """Return the flags of data-parallel attention, empty without it."""
    placement = setup.target.placement
    return setup.engine.parallel_flags(tp=placement.tp, dp=placement.dp, ep=placement.ep)


def sharing(setup: Setup) -> str:
    """Return the flags that share the model among cards and processor, each after a space."""
    local, split = setup.engine.local, setup.target.placement.split
    if local is None:
        return ""
    cards = setup.request.local.gpus
    return local.text(split, cards=cards, layers=setup.target.model.num_layers)


def _file(setup: Setup, name: str) -> str:
    """Return the file of a drafter's weights: the one it was read from, else a place for it."""
    given = setup.request.drafter or ""
    return given if given.endswith(".gguf") else f"PATH-TO-{name}.gguf"


def timed_flag(
    setup: Setup, draft_length: int, tokens_per_step: float, *, running: int
) -> str | None:
    """Return the flag with tokens per step held fixed for timing, if the engine can do that."""
    hold = setup.engine.hold_acceptance
    if draft_length == 0:
        return flag(setup, 0, running=running)
    if hold is None:
        return None
    text = flag(setup, draft_length, running=running)
    return hold.apply(text, tokens_per_step=tokens_per_step)


def inside(text: str, addition: str) -> str:
    """Put ``addition`` before the last closing brace.

    >>> inside("--x '{1: 2}'", ", 3: 4")
    "--x '{1: 2, 3: 4}'"
    """
    head, brace, tail = text.rpartition("}")
    return f"{head}{addition}{brace}{tail}"
