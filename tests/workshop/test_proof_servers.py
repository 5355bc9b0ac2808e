"""What real servers gave is counted by a client of its own, kept, and shown on the page."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from workshop.proof import page as pages
from workshop.proof.served import LLAMACPP, RESULTS, Check, Results
from workshop.proof.serving import Server
from workshop.proof.vllm_cpu import Counted, counters, load

#: What a server streams: a first token, then passes of 3, 1 and 2 tokens, then the usage.
CHUNKS = ([7], [8, 9, 10], [11], [12, 13])
PAGE = """\
vllm:generation_tokens_total{engine="0",model_name="m"} 5.0
vllm:generation_tokens_total{engine="1",model_name="m"} 9.0
vllm:inter_token_latency_seconds_count{engine="0",model_name="m"} 6.0
"""


class Streams(BaseHTTPRequestHandler):
    """Streams the same completion to everyone, as vLLM does."""

    def do_POST(self) -> None:
        """Answer a completion."""
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.end_headers()
        for ids in CHUNKS:
            self._line({"choices": [{"token_ids": ids}]})
        self._line({"choices": [], "usage": {"completion_tokens": 7}})
        self.wfile.write(b"data: [DONE]\n\n")

    def _line(self, data: object) -> None:
        self.wfile.write(f"data: {json.dumps(data)}\n\n".encode())

    def do_GET(self) -> None:
        """Answer the metrics page."""
        self.send_response(200)
        self.end_headers()
        self.wfile.write(PAGE.encode())

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    http = ThreadingHTTPServer(("127.0.0.1", 0), Streams)
    thread = threading.Thread(target=http.serve_forever)
    thread.start()
    log = tmp_path / "log"
    log.write_text("'cudagraph_mode': <CUDAGraphMode.PIECEWISE: 1>\n'cudagraph_mode': "
                   "<CUDAGraphMode.NONE: 0>\n", "utf-8")  # fmt: skip
    yield Server(port=http.server_port, name="m", log=log)
    http.shutdown()
    thread.join()
    http.server_close()


def test_the_client_counts_passes_after_the_first_and_their_tokens(
    server: Server, tmp_path: Path
) -> None:
    """Of four chunks, three are decode passes; they bring 3 + 1 + 2 = 6 tokens."""
    kept = tmp_path / "streamed"
    counted = load(server, clients=2, requests=3, tokens=7, keep=kept)
    assert counted == Counted(requests=3, tokens=18, passes=9)
    assert counted.tokens_per_step == 2.0
    assert kept.read_text("utf-8").count("completion_tokens") == 3


def test_counters_of_engines_are_added_up(server: Server) -> None:
    found = counters(server)
    assert (found["generated"], found["passes"], found["drafted"]) == (14, 6, 0)


def test_the_log_is_asked_for_what_it_says_last(server: Server) -> None:
    assert server.said(r"<CUDAGraphMode\.(\w+)") == "NONE"
    assert server.said("(model runner)") is None


def test_what_is_wrong_stands_on_the_page() -> None:
    wrong = Check(server="suffix", about="log lines", read="2.1000", truth="2.0000", ok=False)
    found = Results(version="1", checks=[wrong], not_served={"held": "ValueError: no"})
    text = "\n".join(pages._served("vLLM", found))
    assert "| suffix | log lines | 2.1000 (**wrong**) | 2.0000 |" in text
    assert "- held: `ValueError: no`" in text


def test_what_ran_again_takes_the_place_of_what_was_kept() -> None:
    """Of a and b only b ran again, and now it is served."""
    kept = [Check(server=name, about="drafts", read="1", truth="> 0", ok=True) for name in "ab"]
    again = Check(server="b", about="metrics page", read="2", truth="2", ok=True)
    before = Results(version="1", checks=kept, not_served={"b": "why", "c": "why"})
    found = before.renewed(Results(version="2", checks=[again], not_served={}))
    assert (found.checks, found.not_served) == ([kept[0], again], {"c": "why"})
    assert found.version == "2"


def test_the_page_shows_the_results_that_are_kept() -> None:
    _, _, part = pages.PAGE.read_text("utf-8").partition(pages.SERVED)
    for engine, file in (("vLLM", RESULTS), ("llama.cpp", LLAMACPP)):
        kept = Results.load(file)
        assert "\n".join(pages._served(engine, kept)) in part
        assert all(check.ok for check in kept.checks)


def test_every_server_drafts_by_its_own_counters() -> None:
    """N-grams, both draft models, an EAGLE-3 head, an MTP layer; each was also read as counted."""
    kept = Results.load()
    drafting = {check.server for check in kept.checks if check.about == "drafts"}
    assert {"n-gram", "EAGLE-3 head", "MTP layer"} <= drafting
    for server in drafting:
        about = {check.about for check in kept.checks if check.server == server}
        for place in ("metrics page", "responses", "log lines"):
            assert f"tokens per step, {place}" in about
