"""The HTML report in headless Chromium: sliders, charts, keyboard, phone, paper; no requests.

Skipped where Chromium or Playwright is missing; ``make browser`` installs both.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from roofline.render.recommendation import COLUMNS
from tests.html_browser import DENSE, Open, move, settle, table, text, until
from tests.support import Cli

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


MOE = (
    "qwen3-30b-a3b",
    "--gpu",
    "h200-sxm",
    "--batch",
    "16",
    "--acceptance",
    "conditional:0.7,0.6,0.5",
)
COUNTED = ("llama-3.1-8b", "--batch", "8", "--acceptance", "0.8", "--acceptance-rounds", "60")


def same_as_the_tool(page: Page, cli: Cli) -> dict[str, Any]:
    """Run the command that the page shows; every word and number must be the tool's."""
    settle(page)
    words = shlex.split(text(page, "command"))
    entry: dict[str, Any] = cli(*words[1:], "--format", "json").point()
    assert text(page, "headline") == entry["headline"]
    assert text(page, "reason") == entry["reason"]
    assert text(page, "flag") == entry["flag"]
    assert table(page, "by-draft-length") == [
        [column.form.format(value=row[column.key]) for column in COLUMNS]
        for row in entry["by_draft_length"]
    ]
    ties = ", ".join(map(str, entry["tie_band"]))
    assert text(page, "ties") == (
        f"Within 1 % of the best: draft lengths {ties}." if len(entry["tie_band"]) > 1 else ""
    )
    return entry


def stops(page: Page) -> dict[str, Any]:
    """Return the values that the page's sliders and choices stand for."""
    found: dict[str, Any] = page.evaluate(
        "() => JSON.parse(document.getElementById('data').textContent)"
    )
    return found


@pytest.mark.parametrize("question", [DENSE, MOE, COUNTED], ids=["dense", "experts", "counted"])
def test_the_page_opens_on_the_tools_own_answer(
    report: Open, cli: Cli, question: tuple[str, ...]
) -> None:
    with report(*question) as page:
        same_as_the_tool(page, cli)
        assert page.locator("#reset").is_disabled()
        assert page.locator(".chart .main-svg").count() >= 6
        move(page, "batch", to=2)
        same_as_the_tool(page, cli)


def test_the_script_says_what_the_page_says_without_it(report: Open) -> None:
    places = ("headline", "reason", "ties", "likely", "flag")
    found = []
    for scripts in (False, True):
        with report(*MOE, java_script_enabled=scripts) as page:
            tiles = page.locator(".tile").all_text_contents()
            rows = table(page, "by-draft-length")
            found.append([*(text(page, place) for place in places), tiles, rows])
    assert found[0] == found[1]


def test_sliders_give_the_numbers_of_the_tool(report: Open, cli: Cli) -> None:
    with report(*DENSE) as page:
        batches = stops(page)["batches"]
        seen = {text(page, "headline")}
        move(page, "rate", to=52)
        assert page.locator("#mode-rate").is_checked()
        seen.add(same_as_the_tool(page, cli)["headline"])
        assert "--acceptance 0.52" in text(page, "command")
        move(page, "batch", to=batches.index(8))
        assert text(page, "batch-value") == "8"
        seen.add(same_as_the_tool(page, cli)["headline"])
        page.locator("#context").select_option(label="512")
        move(page, "batch", to=batches.index(256))
        seen.add(same_as_the_tool(page, cli)["headline"])
        move(page, "rate", to=3)
        entry = same_as_the_tool(page, cli)
        assert not entry["speculate"]
        assert len({*seen, entry["headline"]}) == 5
        assert text(page, "likely") == ""  # the odds are those of the question asked
        page.locator("#reset").click()
        settle(page)  # the button is disabled at once, the answer follows in the next frame
        assert page.locator("#reset").is_disabled()
        assert text(page, "headline") in seen
        same_as_the_tool(page, cli)


def test_scaled_acceptance_is_the_same_curve_in_the_tool(report: Open, cli: Cli) -> None:
    with report(*MOE) as page:
        move(page, "scale", to=130)
        entry = same_as_the_tool(page, cli)
        # accepted drafts 0.7, 1.12, 1.33 times 1.3, at most D
        al = [row["tokens_per_step"] for row in entry["by_draft_length"]]
        assert al[:4] == pytest.approx([1, 1.91, 2.456, 2.729])
        move(page, "scale", to=40)
        page.locator("#context").select_option(label="16k")
        same_as_the_tool(page, cli)


def test_a_rate_of_one_half_rounds_as_the_tool_does(report: Open, cli: Cli) -> None:
    with report("llama-3.1-8b", "--batch", "4") as page:
        move(page, "rate", to=50)  # AL = 1.5, 1.75, 1.875, ...: halves of the last digit
        same_as_the_tool(page, cli)
        move(page, "rate", to=25)
        same_as_the_tool(page, cli)


def test_the_grid_is_the_tools(report: Open, cli: Cli) -> None:
    with report(*DENSE, "--batches", "4,32,64", "--contexts", "1k,8k") as page:
        rows = table(page, "grid-body")
        asked = (*DENSE[:3], "--batch", "4,32", "--context", "8k", "--format", "json")
        points = cli("recommend", *asked).data()["points"]
        assert [row[0] for row in rows] == ["4", "32"]
        assert text(page, "grid-left") == "At this context these batches do not fit: 64."
        for row, point in zip(rows, points, strict=True):
            known = {p["draft_length"]: p["speedup"] for p in point["by_draft_length"]}
            shown = [int(cell.removeprefix("D = ")) for cell in table(page, "grid-head")[0][1:]]
            # the curve is known up to D = 7: no column is empty
            assert shown == [*known]
            assert row[1:] == [f"{known[d]:.2f}x" for d in shown]
        page.locator("#context").select_option(label="1k")
        until(page, "document.getElementById('grid-body').rows.length === 3")


def test_a_point_that_does_not_fit_says_why_and_offers_a_way_back(report: Open, cli: Cli) -> None:
    with report(*DENSE, "--batches", "64", "--contexts", "1k") as page:
        move(page, "batch", to=stops(page)["batches"].index(64))
        refusal = cli("recommend", *DENSE[:-4], "--batch", "64", "--context", "8k").err
        said = text(page, "headline").removeprefix("This does not fit: ")
        assert said.startswith("batch 64 at 8k tokens needs")
        assert said in refusal
        assert not page.locator("#speedup").is_visible()
        page.locator("#reset").click()
        page.wait_for_selector("#speedup", state="visible")
        same_as_the_tool(page, cli)


def test_the_page_and_the_tool_agree_that_drafts_do_not_fit(report: Open, cli: Cli) -> None:
    """At 128 sequences of 2048 tokens Qwen3 8B fits one H100, its 0.6B drafter does not."""
    asked = ("qwen3-8b", "--drafter", "qwen3-0.6b", "--acceptance", "0.6", "--context", "2k")
    with report(*asked, "--batches", "128", "--contexts", "2k") as page:
        move(page, "batch", to=stops(page)["batches"].index(128))
        assert same_as_the_tool(page, cli)["draft_length"] == 0
        assert "qwen3-0.6b needs" in text(page, "reason")


def test_the_charts_show_the_numbers_and_follow(report: Open) -> None:
    drawn = (
        "id => document.getElementById(id).data.map(t => ({name: t.name, x: t.x, y: t.y, z: t.z}))"
    )
    with report(*DENSE) as page:
        data = stops(page)
        b, c = data["asked"]["batch"], data["asked"]["context"]
        cell, by_context = data["cells"][b][c], data["tokens"][data["scales"].index(100)]
        tokens = by_context[c if len(by_context) > 1 else 0]
        known = [i for i, al in enumerate(tokens) if al is not None]
        curve = page.evaluate(drawn, "speedup")[2]
        assert curve["x"] == [data["draft_lengths"][i] for i in known]
        wanted = [tokens[i] * cell["step"][0] / cell["step"][i] for i in known]
        assert curve["y"] == pytest.approx(wanted)
        bars = page.evaluate(drawn, "breakdown")[:-1]
        heights = [sum(bar["y"][k] for bar in bars) for k in range(len(known))]
        assert heights == pytest.approx([1e3 * cell["step"][i] for i in known], rel=1e-4)
        before = page.evaluate(drawn, "heatmap")[0]["z"]
        near = [i for i, each in zip(known, wanted, strict=True) if each >= 0.99 * max(wanted)]
        assert before[b][c] == data["draft_lengths"][near[0]]  # the smallest D within 1 %
        plain = page.evaluate(drawn, "frontier")[0]
        assert 1 / cell["step"][0] == pytest.approx(
            plain["x"][plain["y"].index(max(plain["y"])) - 1]
        )
        move(page, "rate", to=10)
        assert page.evaluate(drawn, "heatmap")[0]["z"] != before
        assert max(page.evaluate(drawn, "speedup")[2]["y"]) < max(curve["y"])


def test_the_script_shows_what_the_tool_decided(browser: Browser, cli: Cli, tmp_path: Path) -> None:
    """With every decision in the file rewritten to D = 0, that is what the page says."""
    path = tmp_path / "report.html"
    assert cli("report", *MOE, "-o", str(path)).code == 0
    whole = path.read_text("utf-8")
    changed = re.sub(r'"best":\d+,"shown":\d+', '"best":0,"shown":1', whole)
    assert changed != whole
    path.write_text(changed, "utf-8")
    inside = browser.new_context()
    page = inside.new_page()
    page.goto(path.as_uri())
    page.wait_for_selector("html[data-ready]", timeout=60_000)
    assert page.locator(".tile .value").first.text_content() == "0"
    assert page.locator("#by-draft-length tr.best th").text_content() == "0"
    assert page.locator("#heatmap").evaluate("chart => Math.max(...chart.data[0].z.flat())") == 0
    inside.close()


def in_the_first_screen(page: Page, place: str) -> bool:
    """Return whether an element is whole within what is seen without scrolling."""
    box = page.locator(place).bounding_box()
    size = page.viewport_size
    assert box is not None
    assert size is not None
    return bool(box["y"] >= 0 and box["y"] + box["height"] <= size["height"])


LONG = ("qwen3-next-80b-a3b-instruct", "--gpu", "h200-sxm", "--tp", "2", "--acceptance", "0.7",
        "--batch", "10,64")  # fmt: skip


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize(
    "question",
    [DENSE, MOE, LONG, ("llama-3.1-8b", "--drafter", "none")],
    ids=["dense", "experts", "long", "none"],
)
def test_the_answer_is_in_the_first_screen_and_no_card_is_empty(
    report: Open, width: int, question: tuple[str, ...]
) -> None:
    height = 900 if width == 1280 else 844
    with report(*question, viewport={"width": width, "height": height}) as page:
        for place in ("#headline", ".tiles"):
            assert in_the_first_screen(page, place), place
        if width == 390:  # the sliders follow the answer
            answer, sliders = (page.locator(p).bounding_box() for p in (".answer", ".controls"))
            assert answer is not None
            assert sliders is not None
            assert answer["y"] + answer["height"] <= sliders["y"]
        if question is LONG:
            assert in_the_first_screen(page, ".answers")
        empty = page.evaluate(
            "() => [...document.querySelectorAll('figure, section, .controls')]"
            ".filter(e => e.offsetParent !== null)"
            ".filter(e => e.matches('figure') ? !e.querySelector('.chart .main-svg')"
            " : e.innerText.trim().length < 20).map(e => e.outerHTML.slice(0, 80))"
        )
        assert empty == []
        # every chart that is drawn has points in it
        drawn = page.evaluate(
            "() => [...document.querySelectorAll('figure .chart')]"
            ".filter(e => e.offsetParent !== null)"
            ".map(e => [e.id, e.data.reduce((n, t) => n + (t.z ?? t.x).length, 0)])"
        )
        assert all(points > 0 for _, points in drawn)
        names = [name for name, _ in drawn]
        if question[-1] == "none":
            assert names == ["breakdown", "frontier", "roofline"]
        else:
            assert names == ["speedup", "costs", "breakdown", "frontier", "heatmap", "roofline"]


def test_a_point_that_does_not_fit_has_no_empty_card(report: Open) -> None:
    with report(*DENSE, "--batches", "64", "--contexts", "1k") as page:
        move(page, "batch", to=stops(page)["batches"].index(64))
        for place in ("speedup", "costs", "breakdown", "numbers"):
            assert not page.locator(f"#{place}").is_visible()
        cards = page.evaluate(
            "() => [...document.querySelectorAll('figure')].filter(e => e.offsetParent !== null)"
            ".map(e => e.querySelector('.chart').id)"
        )
        assert cards == ["frontier", "heatmap", "roofline"]


def test_without_scripts_nothing_empty_is_shown(report: Open) -> None:
    with report(*DENSE, java_script_enabled=False) as page:
        assert page.locator("noscript").is_visible() or page.get_by_text("Without scripts").count()
        for place in (".charts", "#grid", "#batch", "#command"):
            assert not page.locator(place).is_visible()
        assert page.locator("#by-draft-length tr").count() > 1
        assert text(page, "flag")


MANY_KERNELS = ("deepseek-v3", "--gpu", "h200-sxm", "--tp", "8", "--acceptance", "0.7")


@pytest.mark.parametrize("width", [1280, 390])
def test_the_legend_of_kernels_leaves_the_plot_its_room(report: Open, width: int) -> None:
    """On a desk it stands beside the plot, on a phone below, where the card grows with it."""
    with report(*MANY_KERNELS, viewport={"width": width, "height": 844}) as page:
        sizes: dict[str, Any] = page.locator("#roofline").evaluate(
            "chart => Object.fromEntries(Object.entries("
            "{legend: '.legend', plot: '.nsewdrag', card: '.main-svg'}).map(([name, place]) => "
            "{ const box = chart.querySelector(place).getBoundingClientRect();"
            " return [name, [box.left, box.top, box.width, box.height]]; }))"
        )
        legend, plot, card = sizes["legend"], sizes["plot"], sizes["card"]
        if width == 1280:
            assert legend[0] >= plot[0] + plot[2]
            assert legend[2] < 0.25 * card[2]
            assert plot[2] > 0.65 * card[2]
        else:
            assert legend[1] >= plot[1] + plot[3]
            assert plot[2] > 0.7 * card[2]
            assert plot[3] > 280
        names = page.locator("#roofline").evaluate("chart => chart.data.map(trace => trace.name)")
        roofs = {"bf16 datasheet", "fp8 datasheet"}
        assert {"router", "lm_head", "experts", *roofs} <= set(names)
        assert len(set(names)) == len(names)
        looks = page.locator("#roofline").evaluate(
            "chart => chart.data.map(t => JSON.stringify([t.line.color, t.line.dash, "
            "t.marker && t.marker.symbol]))"
        )
        assert len(set(looks)) == len(looks)


def test_columns_end_where_the_draft_lengths_end(report: Open) -> None:
    with report(*MOE, "--max-draft-length", "3") as page:
        head = table(page, "grid-head")[0]
        assert head == ["batch", "D = 0", "D = 1", "D = 2", "D = 3"]
        assert all(len(row) == len(head) for row in table(page, "grid-body"))
    with report(*MOE) as page:  # the prior continues the curve
        assert table(page, "grid-head")[0][-1] == "D = 8"


def test_every_batch_that_was_asked_about_is_one_click_away(report: Open, cli: Cli) -> None:
    with report(*DENSE[:3], "--batch", "10,24", "--context", "8k") as page:
        assert text(page, "batch-value") == "10"
        point = cli("recommend", *DENSE[:3], "--batch", "24", "--context", "8k",
                    "--format", "json").point()  # fmt: skip
        assert point["headline"] in (page.locator(".answers").text_content() or "")
        page.get_by_role("button", name="Show batch 24").click()
        settle(page)
        assert text(page, "headline") == point["headline"]
        assert page.get_by_text("Batch 24, context 8k; acceptance as given.").is_visible()


def test_a_click_on_the_heatmap_chooses_its_cell(report: Open, cli: Cli) -> None:
    with report(*DENSE) as page:
        page.locator("#heatmap").evaluate("chart => chart.scrollIntoView({block: 'end'})")
        cells = page.locator("#heatmap .nsewdrag").bounding_box()
        assert cells is not None
        page.mouse.click(cells["x"] + 5, cells["y"] + cells["height"] - 5)
        until(page, "document.getElementById('batch-value').textContent === '1'")
        assert page.locator("#context").evaluate("c => c.selectedOptions[0].text") == "512"
        same_as_the_tool(page, cli)


PHONE = {"width": 390, "height": 844}


def test_everything_is_reached_and_done_by_keyboard(report: Open) -> None:
    with report(*DENSE, permissions=["clipboard-read", "clipboard-write"]) as page:
        order = []
        for _ in range(9):
            page.keyboard.press("Tab")
            order.append(
                page.evaluate("document.activeElement.id || document.activeElement.tagName")
            )
            if order[-1] == "batch":
                ring = page.locator("#batch").evaluate("e => getComputedStyle(e).outlineStyle")
                assert ring == "solid"
                for key, moved in (("ArrowRight", "48"), ("ArrowLeft", "32"), ("Home", "1")):
                    page.keyboard.press(key)
                    settle(page)
                    assert text(page, "batch-value") == moved
            if order[-1] == "scale":
                page.keyboard.press("ArrowLeft")
                settle(page)
                assert text(page, "scale-value") == "x 0.95"
        # one of two radio buttons is a tab stop; "back" is one once something has moved
        assert order[:6] == ["batch", "context", "mode-given", "scale", "rate", "reset"]
        for place in ("flag", "schedule"):
            button = page.locator(f"[data-copies={place}]")
            button.focus()
            page.keyboard.press("Enter")
            until(page, "document.getElementById('copied').textContent === 'Copied'")
            assert page.evaluate("navigator.clipboard.readText()") == text(page, place)
            until(page, "document.getElementById('copied').textContent === ''")


def test_copying_works_without_the_clipboard_permission(report: Open) -> None:
    with report(*DENSE) as page:
        page.evaluate(
            "() => { navigator.clipboard.writeText = () => Promise.reject(new Error()); }"
        )
        page.locator("[data-copies=command]").click()
        until(page, "document.getElementById('copied').textContent !== ''")
        assert page.evaluate("getSelection().toString()") == text(page, "command")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_shows_it_all_without_scrolling_sideways(report: Open, scheme: str) -> None:
    with report(*DENSE, viewport=PHONE, color_scheme=scheme, has_touch=True) as page:
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
        wide = page.evaluate(
            "() => [...document.querySelectorAll('h1, h2, h3, p, pre, input, select, .chart')]"
            ".filter(e => e.offsetParent && !e.classList.contains('unseen'))"
            ".filter(e => e.getBoundingClientRect().right > innerWidth).map(e => e.outerHTML)"
        )
        assert wide == []
        for control in ("batch", "scale", "rate", "context"):
            box = page.locator(f"#{control}").bounding_box()
            assert box is not None
            assert box["height"] >= 24  # of CSS pixels: what WCAG 2.2 asks of a target
        assert luminance_ratio(page, "--ink", "--card") > 7
        assert luminance_ratio(page, "--muted", "--card") > 4.5
        assert luminance_ratio(page, "--accent", "--card") > 4.5
        assert (luminance(page, "--card") > 0.5) == (scheme == "light")


def luminance(page: Page, name: str) -> float:
    """Return the relative luminance of one of the page's colours, as WCAG 2.2 defines it."""
    value = page.evaluate(
        "name => getComputedStyle(document.documentElement).getPropertyValue(name).trim()", name
    )
    parts = [int(value[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in parts]
    return float(0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2])


def luminance_ratio(page: Page, first: str, second: str) -> float:
    """Return the contrast of two colours, 1 to 21."""
    high, low = sorted((luminance(page, first), luminance(page, second)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_print_leaves_controls_out_and_charts_on_the_paper(report: Open) -> None:
    with report(*DENSE, color_scheme="dark") as page:
        page.emulate_media(media="print", color_scheme="dark")
        until(page, "document.querySelector('#speedup .main-svg').clientWidth === 660")
        assert not page.locator(".controls").is_visible()
        assert not page.locator(".copy").first.is_visible()
        assert page.get_by_text("Batch 32, context 8k; acceptance as given.").is_visible()
        ink = page.evaluate("getComputedStyle(document.body).color")
        assert ink == "rgb(0, 0, 0)"
        label = page.locator("#speedup .xtick text").first
        assert label.evaluate("e => getComputedStyle(e).fill") == "rgb(0, 0, 0)"
        page.emulate_media(media="screen")
        until(page, "document.querySelector('#speedup .main-svg').clientWidth !== 660")


def test_the_table_of_a_phone_has_its_title_whole_and_no_gap(report: Open) -> None:
    with report(*DENSE, viewport=PHONE) as page:
        title = page.locator("#lengths-title").bounding_box()
        head = page.locator(".lengths thead").bounding_box()
        line = page.locator(".lengths tbody tr").first.bounding_box()
    assert title is not None
    assert head is not None
    assert line is not None
    assert title["x"] + title["width"] <= PHONE["width"]
    assert head["height"] < 3 * line["height"]  # three lines, "tokens / per / step"


def test_tokens_have_their_price_where_gpus_have_one(report: Open, cli: Cli) -> None:
    """At another batch too: dollars of all GPUs for an hour over the tokens of it."""
    asked = ("llama-3.1-70b", "--tp", "4", "--weights", "fp8", "--gpu-hour", "2.5")
    with report(*asked, "--batches", "1,8", "--contexts", "4k") as page:
        for batch, stop in ((1, 0), (8, 1)):
            page.locator("#batch").fill(str(stop))
            rows = cli("recommend", *asked, "--batch", str(batch), "--format", "json").point()
            prices = [line[-1] for line in table(page, "by-draft-length")]
            by_hand = [
                4 * 2.5 / 3600 / row["tokens_per_s"] * 1e6 for row in rows["by_draft_length"]
            ]
            assert prices == [f"{price:#.3g}" for price in by_hand]
    with report("llama-3.1-8b", "--batches", "1,8", "--contexts", "4k") as page:
        assert "$" not in page.locator("#numbers table thead").inner_text()
