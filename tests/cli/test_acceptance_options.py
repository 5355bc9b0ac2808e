"""Options that say something of the acceptance: each is used, told or refused by every command."""

from __future__ import annotations

import pytest

from tests.support import Cli, assert_refused

#: A run of every command that asks a question, with a drafter that it looks at.
COMMANDS = (
    "recommend llama-3.1-8b",
    "schedule llama-3.1-8b",
    "sweep llama-3.1-8b",
    "compare llama-3.1-8b --drafter ngram",
    "memory llama-3.1-8b",
    "diagnose llama-3.1-8b --measured 0:7.9ms,3:5.5ms:2.66",
    "acceptance explain llama-3.1-8b",
    "explore llama-3.1-8b --vary group_size=4",
    "plot speedup llama-3.1-8b -o x.svg",
)


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("option", "several"), [("--domain", "chat=0.7,code=0.3"), ("--dataset", "mt-bench+gsm8k")]
)
def test_prompts_of_several_kinds_are_shown_as_a_mix(
    cli: Cli, command: str, option: str, several: str
) -> None:
    refused = cli(*command.split(), option, several)
    asked = several.partition(",")[0] if command.startswith("sweep") else several
    assert_refused(refused, f"roofline: {option} {asked}: one name only", "mix:0.7*A,0.3*B")


@pytest.mark.parametrize("command", COMMANDS)
def test_an_unknown_domain_is_the_fault_of_the_domain(cli: Cli, command: str) -> None:
    refused = cli(*command.split(), "--domain", "chatt")
    assert_refused(refused, "roofline: --domain chatt: unknown domain", "did you mean 'chat'?")


@pytest.mark.parametrize(
    ("command", "options"),
    [
        ("recommend", ("--acceptance", "0.7")),
        ("recommend", ("--acceptance-rounds", "200")),
        ("recommend", ("--hit-rate", "0.5")),
        ("recommend", ("--domain", "chat")),
        ("recommend", ("--temperature", "0")),
        ("recommend", ("--draft-tp", "1")),
        ("memory", ("--acceptance", "0.7")),
        ("schedule", ()),
    ],
)
def test_where_no_drafter_is_known_the_drafter_is_at_fault(
    cli: Cli, command: str, options: tuple[str, ...]
) -> None:
    refused = cli(command, "mistral-7b-v0.3", *options)
    assert_refused(refused, "roofline: --drafter: no drafter is bundled for mistral-7b-v0.3; give")
