"""The requests that options describe, and which options say nothing beside them."""

from __future__ import annotations

from collections.abc import Mapping

from roofline.base.errors import InputError, Option
from roofline.base.values import one_size
from roofline.questions.request.lengths import LONGEST, Requests, requests_of
from roofline.questions.request.traces import read_trace

__all__ = ["check_alone", "check_in_load", "lengths_of"]

#: The least chunk that an engine takes.
LEAST_CHUNK = 16


def lengths_of(
    *,
    input_tokens: str | None = None,
    output_tokens: str | None = None,
    prefix_tokens: str | None = None,
    prefill_chunk: str | None = None,
    trace: str | None = None,
) -> Requests | None:
    """Return the requests that options describe, if they do."""
    given = {"input_tokens": input_tokens, "output_tokens": output_tokens}
    chunk = _one("prefill_chunk", prefill_chunk, least=LEAST_CHUNK)
    if trace is not None:
        for field, value in (given | {"prefix_tokens": prefix_tokens}).items():
            if value is not None:
                raise InputError(
                    f"stands in the trace; leave it out beside {Option('trace')}", field=field
                )
        return read_trace(trace, chunk=chunk)
    if all(value is None for value in given.values()):
        for field, value in (("prefix_tokens", prefix_tokens), ("prefill_chunk", prefill_chunk)):
            if value is not None:
                raise InputError(
                    f"describes a request; give {Option('input_tokens')} and "
                    f"{Option('output_tokens')}, or {Option('trace')}",
                    field=field,
                )
        return None
    if None in given.values():
        raise InputError(f"{Option('input_tokens')}, {Option('output_tokens')}: expected both")
    prompt, answer = (_one(field, value, least=1) or 0 for field, value in given.items())
    prefix = _one("prefix_tokens", prefix_tokens, least=0) or 0
    if prefix >= prompt:
        raise InputError(
            f"expected fewer than the {prompt} of {Option('input_tokens')}: the last token of a "
            "prompt is computed always",
            field="prefix_tokens",
            value=prefix,
        )
    return requests_of((prompt,), (answer,), (prefix,), chunk=chunk)


def check_in_load(options: Mapping[str, object]) -> None:
    """Refuse options of requests that a load does not take."""
    for field in ("trace", "prefix_tokens"):
        if options[field] is not None:
            raise InputError("is for requests at a batch; leave it out beside a load", field=field)


def check_alone(options: Mapping[str, object]) -> None:
    """Refuse options that say nothing of whole requests."""
    for field, value in options.items():
        if value is not None:
            how = "follows from the lengths of requests" if field == "context" else "is not for"
            what = "; leave it out" if field == "context" else " whole requests; leave it out"
            raise InputError(f"{how}{what}", field=field)


def _one(field: str, text: str | None, *, least: int) -> int | None:
    if text is None or (least == 0 and text.strip() == "0"):
        return None if text is None else 0
    size = one_size(field, text, "expected one number, since a request has one")
    if not least <= size <= LONGEST:
        raise InputError(f"expected at least {least}", field=field, value=size)
    return size
