"""Options that say nothing for the drafter chosen: refused, for their silence would mislead."""

from __future__ import annotations

from roofline.advice.request import Request
from roofline.base.errors import InputError
from roofline.specs.network import DrafterSpec, NetworkSpec
from roofline.timing.drafters import BLOCK_KINDS

__all__ = ["check_idle"]


def check_idle(request: Request, kind: str, network: NetworkSpec | None) -> None:
    """Refuse what was given and would change nothing for a drafter of this kind.

    Where a question is put to several drafters in turn, its options are for those that have them.
    """
    if request.several_drafters:
        return
    if network is None:
        _check_host(request, kind)
    block = isinstance(network, DrafterSpec) and network.kind in BLOCK_KINDS
    if request.draft_block is not None and not block:
        raise InputError(
            f"--draft-block: says nothing for {kind}, which drafts no block "
            f"({', '.join(BLOCK_KINDS)} do); leave it out"
        )


def _check_host(request: Request, kind: str) -> None:
    """Refuse what belongs to a network, and without drafts what belongs to them."""
    networks: dict[str, object] = {
        "--draft-tp": request.draft_tp,
        "--draft-weights": request.draft_weights,
        "--first-pass-rows": request.first_pass_rows,
    }
    drafts: dict[str, object] = {
        "--acceptance": request.acceptance if isinstance(request.acceptance, str) else None,
        "--acceptance-rounds": request.acceptance_rounds,
        "--verify-width": request.verify_width,
    }
    for flag, value in (networks | (drafts if kind == "none" else {})).items():
        if value is not None:
            raise InputError(f"{flag}: says nothing with --drafter {kind}; leave it out")
