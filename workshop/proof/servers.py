"""What the package reads of real vLLM servers, beside what their client counted.

    python -m workshop.proof.servers                # serve every case, compare
    python -m workshop.proof.servers --only eagle3  # one case, and what it needs
    python -m workshop.proof.servers --write        # write servers.json and the page's part anew

vLLM's CPU build serves models with random weights, started with the flags that the package writes
for this version. Timings on a processor say nothing of GPUs and are not looked at.
"""

from __future__ import annotations

import argparse
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from roofline.acceptance.curve import over_all_passes
from roofline.base.errors import RooflineError
from roofline.engines.acceptance_source import read_acceptance
from roofline.engines.counts import Reading
from roofline.engines.server import Serving, read_server
from roofline.engines.vllm import schedule
from roofline.engines.writing import Band, DraftWeights, Launch
from roofline.specs.engine import load_engine
from roofline.specs.network import LOOKUPS
from roofline.specs.placement import Placement
from workshop.proof.page import write_served
from workshop.proof.served import Check, Results
from workshop.proof.served_models import LAYERS
from workshop.proof.serving import NotServedError, Server
from workshop.proof.vllm_cpu import (
    LOG_EVERY,
    REQUESTS,
    VERSION,
    counters,
    load,
    serving,
    with_packages,
)

__all__ = ["main"]

CLOSE = 0.005  # how far what is read may lie from what was counted, as a share
TOKENS = 500  # of a request
#: Of one whose log and responses tell how many passes drafted: they know neither which tokens were
#: first ones nor how many drafts the end trimmed, which is one or two a request.
LONG = 1200
#: A schedule: first and last batch, and the draft length there.
BANDS = ((1, 1, 4), (2, 3, 2), (4, REQUESTS, 1))
GPU = "h100-sxm"  # that `live` prices; any does
BENCH = (
    "from vllm.benchmarks import serve\n"
    "from vllm.utils.argparse_utils import FlexibleArgumentParser\n"
    "parser = FlexibleArgumentParser()\n"
    "serve.add_cli_args(parser)\n"
    "serve.main(parser.parse_args())\n"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """A server that drafts: its drafter's kind and weights, its draft length and its target.

    ``accepted`` is the share of drafts that must be accepted, None where that is the model's.
    """

    name: str
    kind: str
    draft_length: int
    weights: str | None = None
    target: str = "target"
    accepted: float | None = None
    requests: int = 2
    tokens: int = TOKENS  # of a request; fewer where every pass gives one


#: The one whose page is also read by `live`, in the middle of a load and by the benchmark.
LOOKUP = Case(name="n-gram", kind="ngram", draft_length=4, requests=4, tokens=LONG)
SAME = Case(
    name="draft model, the target itself",
    kind="model",
    draft_length=3,
    weights="target",
    accepted=1.0,
)
MTP = Case(name="MTP layer", kind="mtp", draft_length=1, target="mtp", tokens=200)
CASES = (
    LOOKUP,
    SAME,
    Case(
        name="draft model of random weights",
        kind="model",
        draft_length=3,
        weights="drafter",
        accepted=0.0,
        tokens=200,
    ),
    Case(name="EAGLE-3 head", kind="eagle3", draft_length=3, weights="eagle3", tokens=200),
    MTP,
    Case(name="suffix", kind="suffix", draft_length=4, requests=4, tokens=LONG),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Proof:
    """The servers' Python, the folder that everything lies in, and what was found so far."""

    python: Path
    folder: Path
    checks: list[Check] = field(default_factory=list)
    not_served: dict[str, str] = field(default_factory=dict)  # why, by server

    def launch(self, kind: str, weights: str | None = None) -> Launch:
        """Return how vLLM is started with this drafter."""
        path = None if weights is None else str(self.folder / weights)
        return Launch(
            engine=load_engine(f"vllm@{VERSION}"),
            drafter_kind=kind,
            weights=None if path is None else DraftWeights(name=Path(path).name, repository=path),
            draft_tp=1,
            placement=Placement(),
            layers=LAYERS,
        )

    def file(self, server: str, ending: str) -> Path:
        """Return the path of what is kept of a server."""
        return self.folder / f"{server.replace(' ', '-').replace(',', '')}.{ending}"

    def found(self, server: str, about: str, read: str, truth: str, *, ok: bool) -> None:
        """Keep a check and print its line."""
        check = Check(server=server, about=about, read=read, truth=truth, ok=ok)
        self.checks.append(check)
        say(check.line)

    def close(
        self, server: str, about: str, read: float, truth: float, *, within: float = CLOSE
    ) -> None:
        """Keep a number that was read beside the one counted; ``within`` is a share."""
        ok = abs(read - truth) <= within * abs(truth)
        meant = f"{truth:.5g}" if within == CLOSE else f"{truth:.5g} within {within:.1%}"
        self.found(server, about, f"{read:.5g}", meant, ok=ok)

    def reads(
        self,
        server: str,
        about: str,
        where: str,
        *,
        truth: float,
        draft_length: int,
        within: float = CLOSE,
    ) -> None:
        """Keep the tokens per step that the package reads somewhere beside those counted."""
        about = f"tokens per step, {about}"
        try:
            read = tokens_per_step(read_acceptance(where), draft_length)
        except RooflineError as error:
            self.found(server, about, str(error), f"{truth:.5g}", ok=False)
        else:
            self.close(server, about, read, truth, within=within)

    def refused(self, server: str, about: str, read: Callable[[], object], part: str) -> None:
        """Keep the line that a reader refuses something with, which must hold ``part``."""
        try:
            read()
        except RooflineError as error:
            said = re.sub(r"127\.0\.0\.1:\d+", "HOST:PORT", str(error))
            self.found(server, about, said, f"names {part}", ok=part in said and "\n" not in said)
        else:
            self.found(server, about, "a number", f"names {part}", ok=False)


def say(line: str) -> None:
    """Print a line of the log."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def tokens_per_step(reading: Reading, draft_length: int) -> float:
    """Return tokens per step over all passes, as the advice uses them."""
    acceptance = reading.acceptance()
    if acceptance.drafting_only and acceptance.hit_rate is not None:
        acceptance = over_all_passes(acceptance, hit_rate=acceptance.hit_rate)
    return float(acceptance.tokens_per_step([draft_length])[0])


def drafting(proof: Proof, case: Case) -> None:
    """Serve a drafter, load the server, and read its page, its responses and its log."""
    flags = proof.launch(case.kind, case.weights).flags(case.draft_length, running=REQUESTS)
    say(f"  {case.name}: {flags}")
    log = proof.file(case.name, "log")
    try:
        with serving(proof.python, proof.folder / case.target, flags, log) as server:
            _drafting(proof, case, server)
    except NotServedError as error:
        proof.not_served[case.name] = str(error)
        say(f"not served | {case.name} | {error}")


def _drafting(proof: Proof, case: Case, server: Server) -> None:
    responses = proof.file(case.name, "jsonl")
    counted = load(server, clients=1, requests=case.requests, tokens=case.tokens, keep=responses)
    own = counters(server)
    drafted = own["drafted"]
    proof.found(case.name, "drafts", f"{drafted:.0f}", "> 0", ok=drafted > 0)
    generated = own["generated"] - own["first"]
    proof.close(case.name, "counter: tokens after the first", generated, counted.tokens)
    proof.close(case.name, "counter: decode passes", own["passes"], counted.passes)
    if case.accepted is not None:
        share = own["accepted"] / drafted
        ok = abs(share - case.accepted) <= 0.01
        proof.found(
            case.name, "share of drafts accepted", f"{share:.4f}", f"{case.accepted:.0f}", ok=ok
        )
    page = server.page(proof.file(case.name, "prom"))
    time.sleep(2 * LOG_EVERY)  # the log has the end of the load
    # neither responses nor log lines say how many drafts the end of each request trimmed: 0 to D
    ends = case.draft_length * case.requests / counted.passes if case.kind in LOOKUPS else 0.0
    for about, where, left_open in (
        ("metrics page", f"http://{server.address}/metrics", 0.0),
        ("page in a file", str(page), 0.0),
        ("responses", str(responses), ends),
        ("log lines", str(server.log), ends),
    ):
        proof.reads(
            case.name,
            about,
            where,
            truth=counted.tokens_per_step,
            draft_length=case.draft_length,
            within=max(CLOSE, left_open),
        )
    if case is LOOKUP:
        _live(proof, case, server)
        _bench(proof, case, server)


def _live(proof: Proof, case: Case, server: Server) -> None:
    """Read the server over a load, then let the command end in advice during another."""
    begun, serving_read = threading.Event(), list[Serving]()

    def reads() -> None:
        serving_read.append(
            read_server(server.address, interval=45, timeout=30, check=lambda _: begun.set())
        )

    reader = threading.Thread(target=reads)
    reader.start()
    begun.wait(60)
    counted = load(server, clients=1, requests=2, tokens=TOKENS)
    reader.join()
    found = serving_read[0]
    read = 0.0 if found.acceptance is None else tokens_per_step(found.acceptance, case.draft_length)
    proof.close(case.name, "tokens per step, live between two reads", read, counted.tokens_per_step)
    said = ", ".join(str(found.value(key)) for key in ("version", "method", "draft_length", "tp"))
    truth = f"{VERSION}, {case.kind}, {case.draft_length}, 1"
    proof.found(
        case.name, "live: version, drafter, draft length, GPUs", said, truth, ok=said == truth
    )
    during = threading.Thread(
        target=load, args=(server,), kwargs={"clients": 2, "requests": 4, "tokens": TOKENS}
    )
    during.start()
    first = _advice(proof, server, "--interval", "10s")
    during.join()
    proof.found(
        case.name, "live: what it begins with", first, "an advice", ok="draft length" in first
    )


def _advice(proof: Proof, server: Server, *options: str) -> str:
    """Return the first sentences of ``roofline live``, or of what it fails with."""
    config = proof.folder / server.name / "config.json"
    command = [sys.executable, "-m", "roofline", "live", server.address, "--gpu", GPU]
    done = subprocess.run(
        [*command, "--model", str(config), *options], capture_output=True, text=True, check=False
    )
    said = done.stdout if done.returncode == 0 else done.stderr
    first = said.strip().partition("\n\n")[0]
    return " ".join(first.split()).replace(server.address, "HOST:PORT")


def _bench(proof: Proof, case: Case, server: Server) -> None:
    """Read what vLLM's own benchmark prints and saves, beside the growth of the counters."""
    before = counters(server)
    result = proof.file("bench", "json")
    asked = {
        "backend": "openai",
        "base-url": f"http://{server.address}",
        "model": server.name,
        "tokenizer": str(proof.folder / server.name),
        "dataset-name": "random",
        "random-input-len": "16",
        "random-output-len": str(LONG),
        "num-prompts": "2",
        "max-concurrency": "1",
        "temperature": "0",
        "result-dir": str(result.parent),
        "result-filename": result.name,
    }
    options = [word for key, value in asked.items() for word in (f"--{key}", value)]
    done = subprocess.run(
        [str(proof.python), "-c", BENCH, *options, "--ignore-eos", "--save-result"],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        proof.found(case.name, "vllm bench serve", last, "a report", ok=False)
        return
    time.sleep(1)
    after = counters(server)
    grown = {key: after[key] - before[key] for key in after}
    truth = (grown["generated"] - grown["first"]) / grown["passes"]
    report = proof.file("bench", "txt")
    report.write_text(done.stdout, "utf-8")
    for name, where in (("its report", report), ("its JSON", result)):
        about = f"vllm bench serve, {name}"
        proof.reads(case.name, about, str(where), truth=truth, draft_length=case.draft_length)


SCHEDULED = "schedule of draft lengths"


def scheduled(proof: Proof) -> None:
    """Serve a schedule after another server of the same model, and read what each batch drafts."""
    bands = [Band(first=a, last=b, draft_lengths=(length,)) for a, b, length in BANDS]
    launch = proof.launch("model", "target")
    flags = schedule(bands, launch=launch, static=BANDS[0][2]).text
    say(f"  {SCHEDULED}: {flags}")
    log = proof.file(SCHEDULED, "log")
    with serving(proof.python, proof.folder / "target", flags, log) as server:
        first = counters(server)
        for begin, _, length in BANDS:
            counted = load(server, clients=begin, requests=begin, tokens=TOKENS // 2)
            after = counters(server)
            drafts = after["drafts"] - first["drafts"]
            mean = (after["drafted"] - first["drafted"]) / drafts
            about = f"tokens of a draft, batch {begin}"
            ok = abs(mean / length - 1) <= 0.1  # a request that ends leaves a smaller batch
            proof.found(SCHEDULED, about, f"{mean:.3f}", f"{length}", ok=ok)
            if begin == 1:
                page = server.page(proof.file(SCHEDULED, "prom"))
                earlier = proof.file(SAME.name, "prom")
                if earlier.is_file():  # its counters fall, so nothing is read between the two
                    again = partial(read_acceptance, str(page), earlier=str(earlier))
                    about = "page after one of an earlier start"
                    proof.refused(SCHEDULED, about, again, "was restarted between the two reads")
                read = partial(proof.reads, SCHEDULED, "page of batch 1", str(page))
                read(truth=counted.tokens_per_step, draft_length=length)
            first = after
        graphs = server.said(r"'cudagraph_mode': <CUDAGraphMode\.(\w+)") or "not said"
        runner = "V1" if server.said("(using the V1 model runner)") else "V2"
        said = f"{graphs}, model runner {runner}"
        proof.found(
            SCHEDULED, "graph mode in its log", said, "NONE: eager on a CPU", ok=graphs == "NONE"
        )


PLAIN = "no speculation"


def plain(proof: Proof) -> None:
    """Serve without drafts: acceptance is refused in one line, and `live` says what to do."""
    say(f"  {PLAIN}: {proof.launch('ngram').flags(0, running=REQUESTS)}")
    log = proof.file(PLAIN, "log")
    with serving(proof.python, proof.folder / "target", "", log) as server:
        load(server, clients=1, requests=1, tokens=TOKENS)
        address = f"http://{server.address}/metrics"
        proof.refused(PLAIN, "acceptance", lambda: read_acceptance(address), "is speculation on")
        first = _advice(proof, server, "--interval", "0", "--drafter", "ngram")
        ok = "draft length" in first or "schedule" in first
        proof.found(PLAIN, "live: what it begins with", first, "an advice", ok=ok)


TWO = "two models"


def two_models(proof: Proof) -> None:
    """Read one page with the series of two engines, as a collector of metrics shows them."""
    pages = {case: proof.file(case.name, "prom") for case in (SAME, MTP)}
    if not all(page.is_file() for page in pages.values()):
        return
    both = proof.file(TWO, "prom")
    both.write_text("".join(page.read_text("utf-8") for page in pages.values()), "utf-8")
    proof.refused(
        TWO, "which one is asked", lambda: read_acceptance(str(both)), "#mtp: mtp, target"
    )
    for case, page in pages.items():
        alone = tokens_per_step(read_acceptance(str(page)), case.draft_length)
        where, about = f"{both}#{case.target}", f"{case.target} of both"
        proof.reads(TWO, about, where, truth=alone, draft_length=case.draft_length)


def main() -> None:
    """Serve every case, print the log, and compare or write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="write servers.json and the page")
    parser.add_argument("--only", nargs="+", help="kinds of drafter, schedule, plain or two")
    parser.add_argument("--keep", type=Path, help="keep pages, logs and responses in this folder")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that its server ends as well
    begun = time.monotonic()
    python = with_packages()
    folder = Path(tempfile.mkdtemp(prefix="engines-"))
    try:
        script = Path(__file__).with_name("served_models.py")
        subprocess.run([str(python), str(script), str(folder)], check=True, capture_output=True)
        say(f"vLLM {VERSION} on the CPU, random weights")
        proof = Proof(python=python, folder=folder)
        parts = [(case.kind, partial(drafting, proof, case)) for case in CASES]
        parts += [("schedule", partial(scheduled, proof)), ("plain", partial(plain, proof))]
        parts += [("two", partial(two_models, proof))]
        for name, part in parts:
            if options.only is None or name in options.only:
                try:
                    part()
                except NotServedError as error:
                    proof.found(name, "served", str(error), "a server", ok=False)
                if options.write:
                    _write(proof)
    finally:
        if options.keep is not None:
            models = shutil.ignore_patterns("*.safetensors", "tokenizer*")
            shutil.copytree(folder, options.keep, ignore=models, dirs_exist_ok=True)
        shutil.rmtree(folder)
    wrong = [check for check in proof.checks if not check.ok]
    seconds = time.monotonic() - begun
    say(f"{len(proof.checks) - len(wrong)} of {len(proof.checks)} as counted; {seconds:.0f} s")
    if options.only is None and not options.write:
        missing = Results.load().names - _results(proof).names
        if missing:
            sys.exit(f"make engines: not found again: {sorted(missing)}")
    if wrong:
        sys.exit(f"make engines: {len(wrong)} of {len(proof.checks)} are not as counted")


def _results(proof: Proof) -> Results:
    return Results(version=VERSION, checks=proof.checks, not_served=proof.not_served)


def _write(proof: Proof) -> None:
    """Put what was found into what is kept, and onto the page."""
    Results.load().renewed(_results(proof)).keep()
    write_served()


if __name__ == "__main__":
    main()
