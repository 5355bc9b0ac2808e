"""An answer as text: a table, JSON, CSV or Markdown."""

from roofline.render.formats import OutputFormat, render

__all__ = ["OutputFormat", "render"]
