"""An answer as text: a table, JSON, CSV or Markdown."""

from roofline.report.formats import OutputFormat, render

__all__ = ["OutputFormat", "render"]
