"""A server that behaves like llama-server or vLLM, for tests: ``fake_engine.py KIND [options]``.

A pass takes ``--pass-ms`` whatever runs, and emits 1 + accepted tokens, where a draft length D
accepts min(D, ACCEPTED) drafts in every pass. So B clients get B (1 + min(D, 2)) / pass seconds.
"""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

ACCEPTED = 2
#: What it answers in place of JSON that can be used.
BODIES = {
    "half": b'{"timings": {"predic',
    "list": b"[1]",
    "page": b"<html>Bad gateway</html>",
    "bytes": b'{"content": "\xff"}',
    "deep": b'{"timings": ' + b"[" * 100_000,
    "huge": b"7" * 2000,
}


def parsed() -> tuple[argparse.Namespace, list[str]]:
    """Return its own options, and the engine's."""
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=["llamacpp", "vllm"])
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--pass-ms", type=float, default=10.0)
    parser.add_argument("--dies", choices=["", "start", "load"], default="")
    parser.add_argument("--answers", choices=["", "slow", "late", "500", *BODIES], default="")
    parser.add_argument("--child", help="a file for the id of a process that it starts")
    parser.add_argument("--leaves", action="store_true", help="that process leaves the session")
    parser.add_argument("--stubborn", action="store_true", help="ignores SIGTERM")
    parser.add_argument("--record", help="a file for its arguments")
    return parser.parse_known_args()


def drafts_in(words: str) -> int:
    """Return the draft length that the engine's flags say."""
    length = re.search(r'(?:n-max|size-m) (\d+)|num_speculative_tokens": (\d+)', words)
    return int(next(filter(None, length.groups()))) if length else 0


options, rest = parsed() if __name__ == "__main__" else (argparse.Namespace(pass_ms=1.0), [])
DRAFTS = drafts_in(" ".join(rest))
PASS = options.pass_ms / 1e3
lock = threading.Lock()
count = dict.fromkeys(["generated", "first", "finished", "waited", "drafts", "accepted"], 0.0)


def decode(tokens: int) -> tuple[int, float]:
    """Take the passes that emit the tokens after the first; return tokens, and what they say took.

    That is exactly the time of a pass for each: what a busy machine adds to a sleep stays out.
    """
    emitted, passes = 1, 0
    with lock:
        count["first"] += 1
        count["generated"] += 1
    while emitted < tokens:
        time.sleep(PASS)
        passes += 1
        own = min(1 + min(DRAFTS, ACCEPTED), tokens - emitted)
        emitted += own
        with lock:
            count["generated"] += own
            count["waited"] += PASS
            count["drafts"] += DRAFTS > 0
            count["accepted"] += min(DRAFTS, ACCEPTED)
    with lock:
        count["finished"] += 1
    return emitted, passes * PASS


class Handler(BaseHTTPRequestHandler):
    """Answers as the engine does."""

    protocol_version = "HTTP/1.1"

    def answer(self, text: str | bytes, status: int = 200) -> None:
        body = text if isinstance(text, bytes) else text.encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        if self.path == "/health":
            self.answer("{}")
        elif self.path == "/metrics":
            self.answer(page())
        else:
            self.answer("no", 404)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if options.dies == "load":
            os._exit(3)
        if options.answers == "500":
            self.answer('{"error": "context is too long"}', 500)
            return
        if options.answers == "slow":
            time.sleep(60)
        if options.answers == "late" and count["first"] >= 3:
            time.sleep(60)
        tokens, took = decode(int(body.get("n_predict") or body["max_tokens"]))
        if options.answers in BODIES:
            self.answer(BODIES[options.answers])
        elif options.kind == "vllm":
            self.answer(json.dumps({"usage": {"completion_tokens": tokens}}))
        else:
            passes = -(-(tokens - 1) // (1 + min(DRAFTS, ACCEPTED)))
            timings = {"predicted_n": tokens, "predicted_ms": took * 1e3}
            if DRAFTS:
                timings |= {"draft_n": DRAFTS * passes, "draft_n_accepted": tokens - 1 - passes}
            self.answer(json.dumps({"content": "x", "timings": timings}))

    def log_message(self, *_: object) -> None:
        pass


def page() -> str:
    """Return the counters as vLLM's page has them."""
    with lock:
        now = dict(count)
    label = '{engine="0",model_name="fake"}'
    lines = [
        f"vllm:generation_tokens_total{label} {now['generated']}",
        f"vllm:time_to_first_token_seconds_count{label} {now['first']}",
        f"vllm:inter_token_latency_seconds_sum{label} {now['waited']}",
        f"vllm:inter_token_latency_seconds_count{label} {now['waited'] / PASS}",
        f"vllm:request_generation_tokens_count{label} {now['finished']}",
    ]
    if DRAFTS:
        counted = {"drafts": 1, "draft_tokens": DRAFTS}
        lines += [
            f"vllm:spec_decode_num_{name}_total{label} {now['drafts'] * times}"
            for name, times in counted.items()
        ]
        lines.append(f"vllm:spec_decode_num_accepted_tokens_total{label} {now['accepted']}")
        lines += [
            f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{engine="0",model_name="fake",'
            f'position="{at}"}} {now["drafts"] * (at < ACCEPTED)}'
            for at in range(DRAFTS)
        ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Do what was asked beside serving, then serve."""
    if options.record:
        Path(options.record).write_text(json.dumps({"rest": rest}), "utf-8")
    if options.child:
        ignore = (
            "import signal,time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
        )
        child = subprocess.Popen([sys.executable, "-c", ignore], start_new_session=options.leaves)
        Path(options.child).write_text(f"{os.getpid()} {child.pid}", "utf-8")
    if options.stubborn:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if options.dies == "start":
        sys.exit("ValueError: no such model: here")
    ThreadingHTTPServer.request_queue_size = 64
    ThreadingHTTPServer((options.host, options.port), Handler).serve_forever()


if __name__ == "__main__":
    main()
