"""Where the bytes of one accelerator go, part by part, and how many sequences are left."""

from __future__ import annotations

from dataclasses import dataclass, replace

from roofline.drafters import Drafter
from roofline.footprint import (
    kv_bytes_per_token,
    kv_bytes_read,
    state_bytes_per_sequence,
    weight_bytes,
)
from roofline.memory import Memory, activation_bytes, logits_bytes
from roofline.ops import StateHandling
from roofline.quantization import bytes_per_element

__all__ = ["PerSequence", "Slots", "account", "per_sequence", "slots"]


@dataclass(frozen=True, kw_only=True, slots=True)
class PerSequence:
    """Cache bytes of one sequence, target and drafter apart [B]."""

    target_kv: float
    draft_kv: float
    draft_slots: float  # D + 1 more slots in both
    rounding: float  # whole blocks
    state: float
    snapshots: float  # one more state for each draft token
    per_token: float  # of context, both networks
    read: float  # by a plain pass

    @property
    def reserved(self) -> float:
        """Everything that the engine sets aside for the sequence."""
        cache = self.target_kv + self.draft_kv + self.draft_slots + self.rounding
        return cache + self.state + self.snapshots


@dataclass(frozen=True, kw_only=True, slots=True)
class Slots:
    """The largest batch without speculation and with it."""

    context: int
    draft_length: int
    plain: int
    speculative: int

    @property
    def lost(self) -> float:
        """The share of slots that drafts cost.

        >>> Slots(context=1, draft_length=1, plain=100, speculative=57).lost
        0.43
        """
        return 1 - self.speculative / self.plain if self.plain else 0.0


def per_sequence(memory: Memory, *, context: int, draft_length: int) -> PerSequence:
    """Take one sequence's reservation apart; the parts add up to ``kv_per_sequence``."""
    placement, target = memory.target.placement, memory.target
    exact = replace(memory, rules=memory.rules.model_copy(update={"kv_block": 1}))
    alone = replace(exact, drafter=Drafter(kind="none", name="none"))
    state = state_bytes_per_sequence(target.model, tp=placement.attention_tp)
    own = float(alone.kv_per_sequence(context - 1, 0)) - state
    # a draft length beyond 0 makes the drafter's cache exist; D + 1 slots are taken off its context
    with_slots = float(exact.kv_per_sequence(context, draft_length))
    target_slots = float(alone.kv_per_sequence(context, draft_length))
    snapshots = _snapshots(memory, state, draft_length)
    drafting = with_slots - target_slots
    draft_kv = 0.0
    if draft_length:
        shorter = max(context - draft_length - 1, 0)
        draft_kv = float(exact.kv_per_sequence(shorter, draft_length)) - float(
            alone.kv_per_sequence(shorter, draft_length)
        )
    network, precision = memory.drafter.network, memory.drafter.precision
    per_token = kv_bytes_per_token(target.model, target.precision.kv, tp=placement.attention_tp)
    if draft_length and network is not None and precision is not None:
        per_token += kv_bytes_per_token(
            network, precision.kv, tp=memory.drafter.placement.attention_tp
        )
    rounded = float(memory.kv_per_sequence(context, draft_length))
    return PerSequence(
        target_kv=own,
        draft_kv=draft_kv,
        draft_slots=target_slots - own - state - snapshots + drafting - draft_kv,
        rounding=rounded - with_slots,
        state=state,
        snapshots=snapshots,
        per_token=per_token,
        read=float(
            kv_bytes_read(
                target.model, target.precision.kv, context=context, tp=placement.attention_tp
            )
        ),
    )


def _snapshots(memory: Memory, state: float, draft_length: int) -> float:
    """Return the copies of a recurrent state that undo rejected drafts, one for each draft [B]."""
    kept = memory.target.placement.state_handling is StateHandling.SNAPSHOTS
    return state * draft_length if kept else 0.0


def account(memory: Memory, *, batch: int, context: int, draft_length: int) -> dict[str, float]:
    """Return the bytes of every part at this batch; with ``free`` they add up to the total [B]."""
    target, base = memory.target, bytes_per_element(memory.target.precision.base)
    each = per_sequence(memory, context=context, draft_length=draft_length)
    held = weight_bytes(target.model, target.precision, target.placement)
    rows = 1 + draft_length
    batch = int(target.placement.local(batch))
    tokens = max(batch * rows, memory.rules.prefill_chunk)
    parts = {f"{name.value} weights": size for name, size in held.items() if size}
    parts |= {
        "draft weights": memory.draft_weights if draft_length else 0.0,
        "target KV": batch * each.target_kv,
        "draft KV": batch * each.draft_kv,
        "D + 1 slots": batch * each.draft_slots,
        "block rounding": batch * each.rounding,
        "state": batch * each.state,
        "state snapshots": batch * each.snapshots,
        "logits": float(
            logits_bytes(batch=batch, rows=rows, vocabulary=target.model.vocab_size, base=base)
        ),
        "activations": float(
            activation_bytes(
                target.model, tokens=tokens, tp=target.placement.attention_tp, base=base
            )
        ),
        "engine reserve": memory.rules.reserve,
        "not the engine's": memory.total * (1 - memory.rules.fraction),
    }
    return parts | {"free": memory.total - sum(parts.values())}


def slots(memory: Memory, *, context: int, draft_length: int) -> Slots:
    """Return the largest batches that fit without and with drafts."""
    return Slots(
        context=context,
        draft_length=draft_length,
        plain=memory.largest_batch(context=context, draft_length=0),
        speculative=memory.largest_batch(context=context, draft_length=draft_length),
    )
