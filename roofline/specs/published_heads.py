"""Published heads by their repositories: what kind they are, and which model they are made for."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from roofline.base import resources
from roofline.base.schema import load_yaml
from roofline.specs.network import DrafterKind

__all__ = ["PublishedHead", "published_head", "published_heads"]


class PublishedHead(NamedTuple):
    """A head whose runs were published; its config is not bundled."""

    repository: str
    kind: DrafterKind
    target: str
    trained_context: int | None = None


@cache
def published_heads() -> dict[str, PublishedHead]:
    """Return the heads of ``published_heads.yaml`` by repository, in small letters."""
    data = load_yaml(resources.data_file("published_heads.yaml"))
    return {name.lower(): PublishedHead(name, **head) for name, head in data["heads"].items()}


def published_head(reference: str) -> PublishedHead | None:
    """Return the published head that a repository holds; None where none is known.

    >>> head = published_head("redhatai/qwen3-32b-speculator.eagle3")
    >>> head.kind, head.target
    ('eagle3', 'qwen3-32b')
    """
    return published_heads().get(reference.lower())
