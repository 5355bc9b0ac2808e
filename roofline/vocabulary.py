"""How far a draft model's vocabulary may differ from its target's, as an engine has it."""

from __future__ import annotations

from pydantic import Field

from roofline.base.schema import Schema
from roofline.model import NetworkSpec

__all__ = ["VocabularyRule"]


class VocabularyRule(Schema):
    """How far the vocabularies of a target and of a separate draft model may differ in size."""

    largest_difference: int = Field(default=0, ge=0)  # tokens
    source: str = "drafts are ids of the target's vocabulary"

    def allows(self, draft: int, target: int) -> bool:
        """Return whether an engine takes a draft model with so many tokens.

        >>> VocabularyRule(largest_difference=128).allows(151_936, 152_064)
        True
        >>> VocabularyRule().allows(151_936, 152_064)
        False
        """
        return abs(draft - target) <= self.largest_difference

    def warning(self, network: NetworkSpec, target: NetworkSpec, *, engine: str) -> str:
        """Return what to say of a draft model with another vocabulary, empty where equal."""
        if network.vocab_size == target.vocab_size:
            return ""
        return (
            f"drafter {network.id}: vocabulary of {network.vocab_size} tokens, but {target.id} has "
            f"{target.vocab_size}; {engine} takes up to {self.largest_difference} "
            "more or fewer if the tokens that both have are the same"
        )
