"""``python -m workshop.proof``: every text through the engines' own code, with a log and a page."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

from workshop.proof.environment import VERSIONS, NotFetchedError, environment
from workshop.proof.judge import Judged, judged, judged_pages
from workshop.proof.page import PAGE, page
from workshop.proof.texts import ENGINES, as_json, texts


def main() -> None:
    """Run all texts, print the log, compare or write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="write the page anew")
    options = parser.parse_args()
    begun = time.monotonic()
    try:
        engines = environment()
    except NotFetchedError as error:
        sys.exit(f"make engines-texts: the engines' packages could not be installed: {error}")
    found, stubbed = list(texts()), dict[str, list[str]]()
    verdicts: list[Judged] = []
    for engine in ENGINES:
        own = [text for text in found if text.engine == engine]
        script = Path(__file__).with_name(f"read_{engine}.py")
        answer = json.loads(engines.run(script, engine, as_json(own)))
        stubbed[engine] = answer["stubbed"]
        verdicts += [judged(*pair) for pair in zip(own, answer["verdicts"], strict=True)]
        verdicts += judged_pages(engine, answer.get("pages"))
        say(f"{engine} {VERSIONS[engine]}: {len(own)} texts")
    for verdict in verdicts:
        say(verdict.line)
    wrong = [verdict for verdict in verdicts if verdict.wrong]
    taken, took = len(verdicts) - len(wrong), time.monotonic() - begun
    say(f"{taken} of {len(verdicts)} as meant; {took:.0f} s")
    text = page(verdicts, stubbed)
    if options.write:
        PAGE.write_text(text, "utf-8")
    elif not PAGE.is_file() or PAGE.read_text("utf-8") != text:
        wrong_page = f"{PAGE.name} is not what these texts give: python -m workshop.proof --write"
        sys.exit(f"make engines-texts: {wrong_page}")
    if wrong:
        sys.exit(f"make engines-texts: {len(wrong)} texts are not taken as they are meant")


def say(line: str) -> None:
    """Print a line of the log."""
    sys.stdout.write(f"{line}\n")


if __name__ == "__main__":
    main()
