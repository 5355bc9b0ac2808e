"""The HTML report in headless Chromium: by keyboard, on a phone, on paper.

Skipped where Chromium or Playwright is missing; ``make browser`` installs both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Page
from tests.html_browser import DENSE, Open, settle, text, until

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
