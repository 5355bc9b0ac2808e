"""What a notice says: one sentence for every code, pinned here where no command pins it."""

from __future__ import annotations

from typing import Any

import pytest

from roofline.acceptance.labels import Beyond
from roofline.advice.readings import Advice
from roofline.base.errors import Option
from roofline.base.notices import Code, notice
from roofline.render.notices import SENTENCES, sentence


def test_every_code_has_a_sentence() -> None:
    assert set(SENTENCES) == set(Code)


RATES = Option("acceptance", "0.8,0.6")


@pytest.mark.parametrize(
    ("code", "values", "said"),
    [
        (
            Code.ACCEPTANCE_ASSUMED,
            {
                "kind": "eagle3",
                "drafter": "d",
                "published": ("a", "b"),
                "certain": False,
                "of_base": False,
                "domain": None,
                "dataset": None,
                "at": 3,
                "low": 1.84,
                "high": 2.71,
            },
            (
                "acceptance was not measured; expected of public runs of 2 such drafters of this "
                "model: 1.8 to 2.7 tokens per step at D = 3 (80 %); give "
                f"{Option('domain')} (chat, code, math, ...) or {Option('acceptance')}"
            ),
        ),
        (
            Code.ACCEPTANCE_ASSUMED,
            {
                "kind": "mtp",
                "drafter": "d",
                "published": ("mtp", "mtp"),
                "certain": True,
                "of_base": True,
                "domain": "code",
                "dataset": None,
                "at": 3,
                "low": 2.14,
                "high": 3.04,
            },
            (
                "acceptance was not measured; expected of public runs of the mtp drafters of "
                "models of the same base on code: 2.1 to 3 tokens per step at D = 3 (80 %); give "
                f"{Option('acceptance')}"
            ),
        ),
        (
            Code.GAPS_FILLED,
            {"label": "eagle3 of m", "lengths": (1, 4)},
            (
                "acceptance of eagle3 of m was not measured at D = 1 and 4; filled in from the "
                "lengths beside"
            ),
        ),
        (
            Code.HEAD_BY_NAME,
            {"repository": "z-lab/x", "kind": "dflash", "shape": None},
            "z-lab/x is taken to be dflash; its shape is derived",
        ),
        (
            Code.BEYOND_PUBLISHED_RUNS,
            {"kind": "eagle3", "of": Beyond.TEMPERATURE, "asked": 1.5, "reached": 1.0},
            (
                "published runs end at temperature 1: what is expected at 1.5 is that of 1; hotter "
                "sampling accepts less, so measure it"
            ),
        ),
        (
            Code.BEYOND_PUBLISHED_RUNS,
            {"kind": "mtp", "of": Beyond.CONTEXT, "asked": 131072, "reached": 98304.0},
            (
                "published runs of mtp drafters end at 96k tokens of context: what is expected at "
                "128k is that of shorter ones, so measure it"
            ),
        ),
        (
            Code.BEYOND_PUBLISHED_RUNS,
            {"kind": "eagle3", "of": Beyond.TRAINED_CONTEXT, "asked": 16384, "reached": 8192.0},
            (
                "published runs beyond the trained context would end at 8k tokens for this "
                "drafter: what is expected at 16k goes on as they fall, so measure it"
            ),
        ),
        (
            Code.BEYOND_PUBLISHED_RUNS,
            {"kind": "ngram", "of": Beyond.DRAFT_LENGTH, "asked": 8, "reached": 5},
            (
                "published runs of ngram drafters end at D = 5: longer drafts are expected to "
                "yield no more; count some to know"
            ),
        ),
        (
            Code.BEYOND_PUBLISHED_RUNS,
            {"kind": "ngram", "of": Beyond.COUNTED_LENGTH, "asked": 12, "reached": 8},
            (
                "the acceptance ends at D = 8, later than any published run of ngram drafters: "
                "longer drafts are expected to yield no more; count some to know"
            ),
        ),
        (
            Code.PULLED_BY_PRIOR,
            {
                "label": "al",
                "passes": 50,
                "least": 0.112,
                "most": 0.204,
                "draft_length": 3,
                "counted": 3.6,
                "taken": 3.37,
            },
            (
                "50 passes of the acceptance (al) count 3.6 tokens per step at D = 3; public runs "
                "of such drafters draw it to 3.37, further than chance explains (the count has 11 "
                "to 20 % of the weight); count more passes to decide"
            ),
        ),
        (
            Code.JOINED_WITH_PRIOR,
            {"label": "al", "passes": 50.0, "least": 0.204, "most": 0.204},
            (
                "the acceptance (al): its 50 passes have 20 % of the weight, public runs of such "
                "drafters the rest"
            ),
        ),
        (
            Code.EARLY_STOPS_END,
            {"drafter": "dspark", "last": 3, "longest": 8},
            (
                f"{Option('hit_rate')} ends at D = 3; drafts of dspark that stop early tell "
                "nothing of longer ones, so D = 4 to 8 are left out"
            ),
        ),
        (
            Code.EARLY_STOPS_END,
            {"drafter": "dspark", "last": 3, "longest": 4},
            (
                f"{Option('hit_rate')} ends at D = 3; drafts of dspark that stop early tell "
                "nothing of longer ones, so D = 4 is left out"
            ),
        ),
        (
            Code.HIT_RATE_ASSUMED,
            {"drafter": "ngram", "hit_rate": 0.375, "typed": None},
            (
                "ngram finds a draft in 38 % of the passes; give the true share with "
                f"{Option('hit_rate')}"
            ),
        ),
        (
            Code.HIT_RATE_ASSUMED,
            {"drafter": "ngram", "hit_rate": 0.375, "typed": "al:3=1.5"},
            (
                "ngram finds a draft in 38 % of the passes, as al:3=1.5 is taken to count all of "
                "them; engines print shares of the passes that drafted, which "
                f"{Option('acceptance', 'drafting:al:3=1.5')} reads"
            ),
        ),
        (
            Code.READ_AS_SURVIVAL,
            {"rates": "0.8,0.6"},
            (
                f"{RATES}: read as survival by position, as engines print it; "
                "conditional rates are written conditional:0.8,0.6"
            ),
        ),
        (
            Code.READ_AS_SURVIVAL,
            {"rates": "0.8,0.6", "same_advice": True},
            (
                f"{RATES}: read as survival by position, as engines print it; as "
                "conditional rates they lead to the same advice"
            ),
        ),
        (
            Code.AMBIGUOUS_ACCEPTANCE,
            {
                "rates": "0.8,0.6",
                "place": (("batch", 1), ("context", 4096)),
                "survival": Advice(draft_length=2),
                "conditional": Advice(draft_length=1),
                "differ": 1,
                "points": 1,
            },
            (
                f"{RATES}: two readings, two answers (batch 1, context 4096): "
                "survival by position, as engines print it, advises D = 2, conditional rates "
                "D = 1; write survival:0.8,0.6 or conditional:0.8,0.6"
            ),
        ),
        (
            Code.AMBIGUOUS_ACCEPTANCE,
            {
                "rates": "0.8,0.6",
                "place": (),
                "survival": Advice(bands=((1, 32, (3,)), (33, 33, (2,)))),
                "conditional": Advice(bands=((1, 33, (1,)),)),
                "differ": 1,
                "points": 1,
            },
            (
                f"{RATES}: two readings, two answers: survival by position, as engines print it, "
                "advises D by batch: 3 at 1-32, 2 at 33, conditional rates D = 1 at every batch; "
                "write survival:0.8,0.6 or conditional:0.8,0.6"
            ),
        ),
        (
            Code.AMBIGUOUS_ACCEPTANCE,
            {
                "rates": "0.8,0.6",
                "place": (("context", 4096),),
                "survival": Advice(batch=9, draft_length=2),
                "conditional": Advice(refused="the goal is out of reach"),
                "differ": 2,
                "points": 3,
            },
            (
                f"{RATES}: two readings, two answers (at 2 of 3 points; the first: context 4096): "
                "survival by position, as engines print it, advises batch 9 with D = 2, "
                "conditional rates nothing (the goal is out of reach); write survival:0.8,0.6 or "
                "conditional:0.8,0.6"
            ),
        ),
        (
            Code.OUTSIDE_MEASURED_CONTEXTS,
            {"label": "x", "shortest": 1024, "longest": 1024, "context": 4096},
            (
                "acceptance of x was measured at 1024 tokens of context; 4096 tokens use the "
                "nearest value, so measure it there"
            ),
        ),
        (
            Code.SURVIVAL_RISES,
            {"where": "page", "first": 2, "second": 3, "before": 0.0, "after": 1.0},
            (
                "page: survival rises from 0.00 at D=2 to 1.00 at D=3, as only noise or other "
                "prompts can make it"
            ),
        ),
        (
            Code.SOME_PASSES_DRAFTED,
            {
                "where": "page",
                "drafts": 2.0,
                "passes": 146.0,
                "drafted_per_pass": 27.5,
                "draft_length": 48,
            },
            (
                "page: 2 of 146 passes drafted (1 %, 27.50 tokens of up to 48 each): a drafter "
                "that found nothing to propose, a confidence bound, or a schedule; tokens per step "
                "are over all passes"
            ),
        ),
        (
            Code.DRAFTS_CUT_SHORT,
            {"where": "page", "drafted_per_pass": 1.5, "draft_length": 2, "every_pass": True},
            (
                "page: 1.50 tokens drafted per pass, not 2: drafts were cut short (a confidence "
                "bound, a schedule, or ends of sequences), so deep positions read too low"
            ),
        ),
        (
            Code.DRAFTS_CUT_SHORT,
            {"where": "page", "drafted_per_pass": 1.5, "draft_length": 2, "every_pass": False},
            (
                "page: 1.50 tokens drafted per pass, not 2: drafts were cut short (a drafter that "
                "may propose nothing, a confidence bound, a schedule, or ends of sequences), so "
                "deep positions read too low, and all holds only for passes that drafted"
            ),
        ),
        (
            Code.TOKENS_DO_NOT_FIT_PASSES,
            {"where": "page", "tokens": 2992, "passes": 346, "accepted": 459, "drafts": 232},
            (
                "page: 2992 tokens of 346 passes do not fit 459 accepted drafts, so only the 232 "
                "passes that drafted count"
            ),
        ),
        (
            Code.DRAFTING_PASSES_ONLY,
            {"where": "log"},
            (
                "log: mean len holds only for passes that drafted; the log's 'eval time' lines, or "
                "llamacpp:n_decode_total and llamacpp:tokens_predicted_total on /metrics, count "
                "the others"
            ),
        ),
        (
            Code.LENGTH_CONTRADICTS_POSITIONS,
            {"where": "log", "lines": 1, "length": "2.63", "by_position": 2.5},
            (
                "log: a line contradicts itself (mean length 2.63, but 2.50 by position), so do "
                "not rely on it"
            ),
        ),
        (
            Code.RATE_CONTRADICTS_COUNTS,
            {"where": "log", "lines": 2, "percent": "80.0", "accepted": 50, "drafted": 100},
            (
                "log: 2 lines contradict themselves (80.0 % accepted, but 50 of 100 tokens), so do "
                "not rely on it"
            ),
        ),
        (
            Code.DRAFT_TREE,
            {"where": "page", "tokens": 8.0, "steps": 3.0},
            (
                "page: 8 draft tokens over 3 steps is a tree; its tokens per step do not hold for "
                "a chain"
            ),
        ),
        (
            Code.UNKNOWN_GENERATION,
            {"gpu": "x", "generation": "blakwell", "known": ("blackwell", "hopper")},
            (
                "x: generation: 'blakwell' has no stated constants, so generic ones stand in; did "
                "you mean 'blackwell'?"
            ),
        ),
        (
            Code.UNKNOWN_GENERATION,
            {"gpu": "x", "generation": "zz", "known": ("blackwell", "hopper")},
            (
                "x: generation: 'zz' has no stated constants, so generic ones stand in; known: "
                "blackwell, hopper"
            ),
        ),
        (
            Code.POWER_LIMITED,
            {"gpu": "x", "clock": 0.62, "memory": 1.0},
            (
                "x: under its power limit the clock is taken as 62% and the memory's bandwidth as "
                "100% of their own"
            ),
        ),
        (
            Code.ANOTHER_SERVER_SETTING,
            {"field": "drafter", "runs": "mtp", "asked": "eagle3"},
            (
                "drafter eagle3: the server runs mtp; eagle3 is priced, and its acceptance may not "
                "be what was read"
            ),
        ),
    ],
)
def test_what_it_says(code: Code, values: dict[str, Any], said: str) -> None:
    assert sentence(notice(code, **values)) == said
