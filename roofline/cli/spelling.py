"""How the command line spells an option, in errors and in answers."""

from __future__ import annotations

from roofline.base.options import spelled

__all__ = ["flag", "typed"]

#: Settings that are typed otherwise than as ``--`` and their name.
_OTHER = {"model": "MODEL", "output": "-o"}


def flag(field: str, value: str | None = None) -> str:
    """Return an option as it is typed.

    >>> flag("dp_attention", "2"), flag("model")
    ('--dp-attention 2', 'MODEL')
    """
    name = _OTHER.get(field, "--" + field.replace("_", "-"))
    return name if value is None else f"{name} {value}"


def typed(text: str) -> str:
    """Return a text with its options as they are typed."""
    return spelled(text, flag)
