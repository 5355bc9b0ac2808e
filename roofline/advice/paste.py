"""What to paste into an engine: its flag for a drafter, and additions inside its braces."""

from __future__ import annotations

from roofline.advice.deployment import Deployment

__all__ = ["flag", "inside", "layout", "pasted", "sharing", "timed_flag"]


def flag(deployment: Deployment, draft_length: int, *, running: int) -> str:
    """Return what to paste into the engine for this draft length and ``running`` sequences.

    Without drafts that is what lays the target out; with nothing to lay out, what to leave out.
    """
    if draft_length == 0:
        return f"{layout(deployment)}{sharing(deployment)}".strip() or left_out(deployment)
    network = deployment.drafter.network
    weights = "" if network is None else network.repository or f"PATH-TO-{network.id}"
    own = deployment.engine.flag(
        deployment.drafter.kind,
        draft_length=draft_length,
        draft_weights=weights,
        draft_tp=deployment.drafter.placement.attention_tp,
        running=running,
        groups=deployment.target.placement.dp,
        draft_file="" if network is None else _file(deployment, network.id),
    )
    known = deployment.engine.attention_dp
    join = "" if known is None else known.join
    return join.join(filter(None, [layout(deployment), own])) + sharing(deployment)


def left_out(deployment: Deployment) -> str:
    """Return the sentence that says which flag is not given without drafts."""
    return deployment.engine.flags["none"]


def pasted(deployment: Deployment, draft_length: int, *, running: int) -> str:
    """Return the flags, and without drafts also the flag to leave out, on a line of its own."""
    text = flag(deployment, draft_length, running=running)
    if draft_length or text == left_out(deployment):
        return text
    return f"{text}\n({left_out(deployment)})"


def layout(deployment: Deployment) -> str:
    """Return the flags of data-parallel attention, empty without it."""
    placement = deployment.target.placement
    return deployment.engine.parallel_flags(tp=placement.tp, dp=placement.dp, ep=placement.ep)


def sharing(deployment: Deployment) -> str:
    """Return the flags that share the model among cards and processor, each after a space."""
    local, split = deployment.engine.local, deployment.target.placement.split
    if local is None:
        return ""
    return local.text(split, cards=split.cards, layers=deployment.target.model.num_layers)


def _file(deployment: Deployment, name: str) -> str:
    """Return the file of a drafter's weights: the one it was read from, else a place for it."""
    configuration = deployment.configuration
    given = (configuration.drafter if configuration is not None else None) or ""
    return given if given.endswith(".gguf") else f"PATH-TO-{name}.gguf"


def timed_flag(
    deployment: Deployment, draft_length: int, tokens_per_step: float, *, running: int
) -> str | None:
    """Return the flag with tokens per step held fixed for timing, if the engine can do that."""
    hold = deployment.engine.hold_acceptance
    if draft_length == 0:
        return flag(deployment, 0, running=running)
    if hold is None:
        return None
    text = flag(deployment, draft_length, running=running)
    return hold.apply(text, tokens_per_step=tokens_per_step)


def inside(text: str, addition: str) -> str:
    """Put ``addition`` before the last closing brace.

    >>> inside("--x '{1: 2}'", ", 3: 4")
    "--x '{1: 2, 3: 4}'"
    """
    head, brace, tail = text.rpartition("}")
    return f"{head}{addition}{brace}{tail}"
