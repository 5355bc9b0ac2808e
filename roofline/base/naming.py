"""How the names of one kind may be written: the files ``data/<kind>.aliases.yaml``."""

from __future__ import annotations

from pydantic import Field

from roofline.base.schema import Document, Schema

__all__ = ["NameRules", "NamingRules"]


class NamingRules(Schema):
    """How the names of one kind may be written."""

    #: Words that a name may begin with and that say nothing (NVIDIA, GeForce).
    leading: tuple[str, ...] = ()
    #: Words that a name may end with and that change nothing (Instruct).
    trailing: tuple[str, ...] = ()
    #: Words that tell the parts of one family (PCIe, 80GB); a family's name leaves them out.
    variants: tuple[str, ...] = ()
    #: The variants that a family's name means, in groups: each leaves the parts that have one of
    #: its words, where some have (SXM; of these 80GB).
    usual: tuple[tuple[str, ...], ...] = ()
    #: Other names, and what each means; several where it may mean each of them.
    aliases: dict[str, str | tuple[str, ...]] = Field(default_factory=dict)


class NameRules(Document, NamingRules):
    """The file ``<kind>.aliases.yaml``."""
