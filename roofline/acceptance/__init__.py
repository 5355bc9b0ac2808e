"""Tokens that a verify pass yields. No module here knows what a pass costs.

a_i is the probability that draft token i is accepted given that all before it were; the survival
S_i is their product; tokens per step AL(D) = 1 + sum of S_i up to D, the bonus token included.
"""

from roofline.acceptance.curve import Acceptance, from_curve, tokens_per_step
from roofline.acceptance.files import (
    ACCEPTANCE_SHELF,
    AcceptanceFile,
    load_acceptance,
)

__all__ = [
    "ACCEPTANCE_SHELF",
    "Acceptance",
    "AcceptanceFile",
    "from_curve",
    "load_acceptance",
    "tokens_per_step",
]
