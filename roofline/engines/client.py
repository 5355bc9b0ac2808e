"""The GETs of one reading: one server, one allowance of time for all answers together."""

from __future__ import annotations

import json
import time
from typing import Any
from urllib.parse import urlsplit

from roofline.base.errors import InputError
from roofline.engines import http

__all__ = ["Client", "at_path"]

ENDINGS = ("/prometheus/metrics", "/metrics", "/v1/models", "/v1")


class Client:
    """Asks one server until the time for waiting is used up. Sends nothing but GETs."""

    def __init__(self, url: str, *, timeout: float) -> None:
        self._left = timeout
        self._timeout = timeout
        self.base = base_of(url)
        try:
            self.where = http.shown(urlsplit(self.base))
        except ValueError:
            self.where = "the address"

    def get(self, path: str) -> bytes:
        """Return the page at ``path``; the time waited is taken off the allowance [s]."""
        if self._left <= 0:
            raise InputError(
                f"{self.where}{path}: the {self._timeout:g} s for all answers are used up "
                "(--timeout)"
            )
        start = time.monotonic()
        try:
            return http.fetch(self.base + path, timeout=self._left)
        finally:
            self._left -= time.monotonic() - start

    def get_text(self, path: str) -> str:
        """Return the page at ``path`` as text, whatever it claims to be."""
        return self.get(path).decode("utf-8", errors="replace")

    def get_json(self, path: str) -> Any:
        """Return the JSON at ``path``."""
        text = self.get_text(path)
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            raise InputError(f"{self.where}{path.partition('?')[0]}: is no JSON") from None


def base_of(url: str) -> str:
    """Return the address of a server from that of any of its pages; without a scheme it is http.

    >>> base_of("host:8000/metrics"), base_of("https://host/llm/v1/")
    ('http://host:8000', 'https://host/llm')
    """
    base = url.partition("?")[0].rstrip("/")
    base = base if "://" in base else f"http://{base}"
    for ending in ENDINGS:
        if base.endswith(ending):
            return base.removesuffix(ending).rstrip("/")
    return base


def at_path(data: Any, dotted: str) -> Any:
    """Return what lies at a dotted path of JSON, None where nothing does.

    >>> at_path({"data": [{"id": "x"}]}, "data.0.id")
    'x'
    """
    for step in dotted.split("."):
        if isinstance(data, list):
            data = data[int(step)] if step.isdecimal() and int(step) < len(data) else None
        else:
            data = data.get(step) if isinstance(data, dict) else None
    return data
