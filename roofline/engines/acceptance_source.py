"""Acceptance from whatever it is given as: numbers, ids, files, addresses or mixes of these."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roofline.acceptance import Acceptance, load_acceptance
from roofline.acceptance.curve import Share, weighted_mean
from roofline.acceptance.files import ACCEPTANCE_SHELF, split_part
from roofline.acceptance.forms import parse_acceptance
from roofline.base import resources
from roofline.base.errors import InputError, Option
from roofline.base.progress import progress, wait

if TYPE_CHECKING:
    from roofline.engines.counts import Reading
    from roofline.engines.prometheus import Page

__all__ = ["acceptance_from", "acceptance_in_json", "acceptance_on_page", "read_acceptance"]

MAX_BYTES = 10_000_000
#: The comma before the next share of a mix; other commas are inside a source.
_NEXT_SHARE = re.compile(r",(?=[^,*]*\*)")
#: How the name of a file ends or begins that engines and users write acceptance to.
_ENDINGS = (".csv", ".json", ".jsonl", ".log", ".txt", ".prom")
_FOLDERS = ("/", "./", "../", "~/")
#: What marks numbers of the passes that drafted.
_DRAFTING = "drafting:"
_RATES = re.compile(r"[-+\d.,eE]+|nan|inf")


@dataclass(frozen=True, kw_only=True, slots=True)
class NamedContent:
    """Content that was read, under the name that messages use."""

    name: str
    content: bytes

    def read_bytes(self) -> bytes:
        """Return the content."""
        return self.content


def acceptance_from(text: str, *, kv: str | None = None) -> Acceptance:
    """Read an acceptance from the text that an option gives.

    The text is a rate, numbers after ``survival:``, ``conditional:``, ``rate:`` or ``al:``, any of
    these after ``drafting:`` (of passes that drafted), a mix ``mix:0.7*A,0.3*B``, a bundled id, an
    acceptance file, or anything that ``roofline acceptance read`` takes; ``#PART`` chooses a
    dataset or a model inside.
    """
    if text.lower().startswith("mix:"):
        return _mixed(text[4:], kv)
    if text.lower().startswith(_DRAFTING):
        return replace(acceptance_from(text[len(_DRAFTING) :], kv=kv), drafting_only=True)
    where, _ = split_part(text)
    if where.lower() in resources.bundled_names(ACCEPTANCE_SHELF):
        return load_acceptance(text, kv=kv)
    if _is_acceptance_file(where):
        return load_acceptance(text, kv=kv)
    if _is_log(text):
        return _of_lines(text).acceptance()
    if _is_address(where) or where == "-" or (not _RATES.fullmatch(text) and _is_path(where)):
        return read_acceptance(text).acceptance()
    return parse_acceptance(text)


def _mixed(body: str, kv: str | None) -> Acceptance:
    """Read ``0.7*A,0.3*B``: shares of the passes, which sum to 1."""
    shares: list[Share] = []
    for item in _NEXT_SHARE.split(body):
        share, star, source = item.partition("*")
        try:
            weight = float(share)
        except ValueError:
            weight = -1.0
        if not star or not 0 < weight <= 1 or source.lower().startswith("mix:"):
            raise InputError(
                f"expected a share and a source, such as 0.7*ID, got '{item}'",
                field="acceptance",
                value="mix",
            )
        part = acceptance_from(source, kv=kv)
        if part.other_reading is not None:
            raise InputError(
                f"in a mix a list of rates needs its word: survival:{source}, as engines print it, "
                f"or conditional:{source}",
                field="acceptance",
                value="mix",
            )
        shares.append(Share(weight=weight, given=source, part=part))
    total = sum(share.weight for share in shares)
    if abs(total - 1) > 1e-6:
        raise InputError(
            f"the shares sum to {total:g}, expected 1", field="acceptance", value="mix"
        )
    parts = [(share.weight, share.part) for share in shares]
    mixed = weighted_mean(
        parts,
        label=", ".join(f"{100 * weight:g} % {part.label}" for weight, part in parts),
        source="; ".join(dict.fromkeys(part.source for _, part in parts)),
    )
    notices = tuple(dict.fromkeys(item for _, part in parts for item in part.notices))
    targets = tuple(dict.fromkeys(t for _, part in parts for t in part.targets))
    return replace(mixed, notices=notices, targets=targets, mixed=tuple(shares))


def read_acceptance(
    reference: str,
    *,
    earlier: str | None = None,
    interval: float | None = None,
    timeout: float | None = None,
    draft_length: int | None = None,
) -> Reading:
    """Read an engine's page, log or JSON; ``earlier`` or ``interval`` counts from another read.

    ``reference`` is a path, an http address or ``-`` for stdin, with ``#MODEL`` where it holds
    several; or lines of a log.
    """
    if earlier is None and interval is None and _is_log(reference):
        return _of_lines(reference).with_draft_length(draft_length)
    where, part = split_part(reference)
    if interval is not None:
        first = _content(where, timeout)
        with progress(interval, "s") as advance:
            wait(interval, advance)
        how = f"counters between two reads, {interval:g} s apart"
    elif earlier is not None:
        first = _content(earlier, timeout)
        how = "counters between two reads"
    else:
        return _recognized(_content(where, timeout), part).with_draft_length(draft_length)
    return _difference(first, _content(where, timeout), part, how).with_draft_length(draft_length)


def _of_lines(text: str) -> Reading:
    return _recognized(NamedContent(name="the log line", content=text.encode()), None)


def _difference(first: NamedContent, second: NamedContent, part: str | None, how: str) -> Reading:
    from roofline.engines.prometheus import counted_between, is_page

    texts = [_text(named) for named in (first, second)]
    if not all(is_page(text) for text in texts):
        raise InputError("only Prometheus pages can be read twice", where=second.name)
    pages = [_page(t, named.name) for t, named in zip(texts, (first, second), strict=True)]
    return acceptance_on_page(counted_between(pages[1], pages[0], how=how), part)


def _content(where: str, timeout: float | None) -> NamedContent:
    """Return what lies at an address, a path or on stdin."""
    if _is_address(where):
        return NamedContent(name=where.partition("?")[0], content=_fetched(where, timeout or 5.0))
    if where == "-":
        return NamedContent(name="stdin", content=_bounded(sys.stdin.buffer, "stdin"))
    if not where.strip():
        raise InputError(
            "expected a rate, a curve, an id, a file or an address", field="acceptance", value="''"
        )
    path = Path(where)
    try:
        if path.is_char_device():
            raise InputError("is a device; give a file, an address, or - for stdin", where=where)
        with path.open("rb") as file:
            return NamedContent(name=path.name, content=_bounded(file, path.name))
    except FileNotFoundError:
        raise InputError("no such file", where=where) from None
    except OSError as error:
        raise InputError(f"cannot be read ({error.strerror})", where=where) from None
    except ValueError:
        raise InputError("the path holds a character that no path can have") from None


#: What llama.cpp's server answers where its metrics are off.
_NOT_IMPLEMENTED = 501


def _fetched(where: str, timeout: float) -> bytes:
    """Return what lies at an address; say how to turn metrics on where they are off."""
    from roofline.engines import http

    try:
        return http.fetch(where, timeout=timeout)
    except http.StatusError as error:
        if error.status != _NOT_IMPLEMENTED:
            raise
        from roofline.engines.server_facts import serving_names

        names = serving_names().engines["llamacpp"]
        remedy = f"start {names.name}'s server with {names.metrics_flag}"
        raise InputError(f"{error.problem}; {remedy}", where=error.where) from None


def _bounded(file: Any, name: str) -> bytes:
    """Return a whole file up to 10 MB; of a longer log, the lines that speak of drafts."""
    head: bytes = file.read(MAX_BYTES + 1)
    if len(head) <= MAX_BYTES:
        return head
    marks = _marks()
    last_line = head.rfind(b"\n") + 1
    kept = [line for line in head[:last_line].splitlines() if any(mark in line for mark in marks)]
    rest = head[last_line:]
    size = sum(map(len, kept))
    while line := rest + file.readline(1_000_000):
        rest = b""
        if any(mark in line for mark in marks):
            kept.append(line.rstrip(b"\r\n"))
            size += len(line)
        if size > MAX_BYTES:
            raise InputError(f"more than {MAX_BYTES // 10**6} MB of such lines; cut it", where=name)
    return b"\n".join(kept)


def _text(named: NamedContent) -> str:
    """Decode; Windows shells write UTF-16."""
    raw = named.content
    wide = raw.startswith((b"\xff\xfe", b"\xfe\xff"))
    text = raw.decode("utf-16" if wide else "utf-8-sig", errors="replace")
    if not text.strip():
        raise InputError("is empty", where=named.name)
    return text


def _recognized(named: NamedContent, part: str | None) -> Reading:
    """Return what the reader of this kind of content reads."""
    from roofline.engines.prometheus import is_page

    text = _text(named)
    if named.name.endswith((".yaml", ".yml")):
        from roofline.base.schema import load_yaml
        from roofline.engines.inferencex import read_golden

        return read_golden(load_yaml(named), named.name, part)
    documents = _json(text)
    if documents is not None:
        reading = acceptance_in_json(documents, named.name)
        if reading is not None:
            return reading
    for marks, reader in _logs():
        if any(mark in text for mark in marks):
            return reader(text.splitlines(), named.name)
    if is_page(text):
        return acceptance_on_page(_page(text, named.name), part)
    what = "JSON without speculative-decoding numbers" if documents else "not a Prometheus page"
    bare = re.fullmatch(r"https?://[^/]+/?", named.name)
    hint = f"; try {named.name.rstrip('/')}/metrics" if bare else ""
    raise InputError(
        f"{what}, nor a log, JSON or YAML that is known here{hint}; or type the numbers: "
        f"{Option('acceptance', 'survival:0.72,0.45,0.21')}, rate:3=0.54 or al:3=2.31",
        where=named.name,
    )


def _marks() -> list[bytes]:
    """Return what marks the lines of logs and pages that any engine's reader reads."""
    from roofline.engines import llamacpp, sglang, trtllm, vllm, vllm_log

    lines = (*vllm_log.LOG_LINES, *vllm_log.ENGINE_V0_MARKS, *sglang.LOG_LINES, *llamacpp.LOG_LINES)
    series = (*vllm.SERIES, *sglang.SERIES, *trtllm.SERIES, *llamacpp.SERIES)
    return [mark.encode() for mark in (*lines, *series)]


def _page(text: str, where: str) -> Page:
    """Return the lines of a page that any engine's reader reads; refuse one that counts no drafts.

    A page with SGLang's generated tokens has its metrics enabled, so it is not refused here.
    """
    from roofline.engines import llamacpp, sglang, trtllm, vllm
    from roofline.engines.prometheus import parse_lines

    drafts = (vllm.DRAFT_SERIES, sglang.DRAFT_SERIES, trtllm.DRAFT_SERIES, llamacpp.DRAFT_SERIES)
    if not any(line.startswith((*drafts, sglang.GENERATED)) for line in text.splitlines()):
        raise InputError(
            f"{where}: a Prometheus page without speculative-decoding series; is speculation on, "
            "and with SGLang --enable-metrics?"
        )
    series = (*vllm.SERIES, *sglang.SERIES, *trtllm.SERIES, *llamacpp.SERIES)
    return parse_lines(text, where, series)


def _is_log(text: str) -> bool:
    """Return whether a text is lines of a log rather than the name of something."""
    if re.search("[:=] ", text) is None:
        return False
    return any(mark in text for marks, _ in _logs() for mark in marks)


def _logs() -> list[tuple[tuple[str, ...], Callable[[list[str], str], Reading]]]:
    from roofline.engines import llamacpp, sglang, trtllm, vllm, vllm_log

    return [
        (vllm_log.LOG_MARKS, vllm_log.read_log),
        (sglang.LOG_MARKS, sglang.read_log),
        (llamacpp.LOG_MARKS, llamacpp.read_log),
        (vllm_log.ENGINE_V0_MARKS, vllm_log.read_engine_v0),
        (vllm.BENCH_MARKS, vllm.read_bench),
        (trtllm.BENCH_MARKS, trtllm.read_bench),
        (sglang.BENCH_MARKS, sglang.read_bench),
    ]


def acceptance_on_page(page: Page, part: str | None) -> Reading:
    """Read the acceptance on a page, by the engine whose series it holds."""
    from roofline.engines import llamacpp, sglang, trtllm, vllm

    for drafts, reader in (
        (vllm.DRAFT_SERIES, vllm.read_page),
        (trtllm.DRAFT_SERIES, trtllm.read_page),
        (sglang.DRAFT_SERIES, sglang.read_page),
        (llamacpp.DRAFT_SERIES, llamacpp.read_page),
    ):
        if any(sample.name.startswith(drafts) for sample in page.samples):
            return reader(page, part)
    raise InputError("no speculative-decoding series; is speculation on?", where=page.where)


def acceptance_in_json(documents: list[Any], where: str) -> Reading | None:
    """Read the acceptance in JSON, None where there is none."""
    from roofline.engines import llamacpp, sglang, trtllm, vllm
    from roofline.engines.fields import mappings_with

    readers = (
        (vllm.BENCH_KEY, vllm.read_bench_json),
        (trtllm.BENCH_KEY, trtllm.read_bench_json),
        (trtllm.STATISTICS_KEY, trtllm.read_stats),
        (vllm.RESPONSE_KEY, partial(vllm.read_responses, tokens=vllm.completion_tokens(documents))),
        (sglang.RESPONSE_KEY, sglang.read_meta),
        (llamacpp.RESPONSE_KEY, llamacpp.read_responses),
        (sglang.BENCH_KEY, sglang.read_bench_json),
    )
    for key, reader in readers:
        if found := list(mappings_with(documents, key)):
            return reader(found, where)
    if list(mappings_with(documents, sglang.INFO_KEY)):
        return sglang.read_server_info(documents, where)
    return None


def _json(text: str) -> list[Any] | None:
    """Return the documents of JSON, JSON lines or a stream of ``data:`` lines."""
    if text.lstrip()[:1] in "[{":
        try:
            return [json.loads(text)]
        except (ValueError, RecursionError):
            pass
    documents = []
    for line in text.splitlines():
        body = line.strip().removeprefix("data:").strip()
        if body[:1] in ("[", "{"):
            try:
                documents.append(json.loads(body))
            except (ValueError, RecursionError):
                continue
    return documents or None


def _is_address(where: str) -> bool:
    return where.lower().startswith(("http://", "https://"))


def _is_path(where: str) -> bool:
    """Return whether a text is a path: something lies there, or it is written as one.

    >>> _is_path("no/such.csv"), _is_path("./such"), _is_path("mt-bench"), _is_path("0.7,0.5")
    (True, True, False, False)
    """
    try:
        exists = Path(where).exists()
    except (OSError, ValueError):
        return False
    return exists or where.lower().endswith(_ENDINGS) or where.startswith(_FOLDERS)


def _is_acceptance_file(where: str) -> bool:
    """Return whether a YAML path is an acceptance file of this project's format, or is missing.

    InferenceX's files are YAML too, without ``schema``.
    """
    if not where.endswith((".yaml", ".yml")) or _is_address(where):
        return False
    path = Path(where)
    if not path.is_file():
        return True
    from roofline.base.schema import load_yaml
    from roofline.engines.inferencex import curves_in

    data = load_yaml(path)
    return "schema" in data or not any(curves_in(data))
