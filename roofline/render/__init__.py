"""An answer as text: a table, JSON, CSV or Markdown."""

from roofline.render.formats import OutputFormat
from roofline.render.recommendation import render

__all__ = ["OutputFormat", "render"]
