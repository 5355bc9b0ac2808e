"""The HTML report in headless Chromium: fixtures that open it, and what is read from it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support import Cli

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

FLAGS = [
    "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
NAMES = ("chromium", "chromium-browser", "google-chrome")
DENSE = ("llama-3.1-8b", "--gpu", "h100-sxm", "--batch", "32", "--context", "8k")
DESK = {"width": 1280, "height": 900}
Open = Callable[..., Any]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Start one browser for all tests, with a fresh profile."""
    playwright = pytest.importorskip("playwright.sync_api", reason="make browser installs it")
    path = next((found for name in NAMES if (found := shutil.which(name))), None)
    if path is None:
        pytest.skip("no Chromium: make browser installs it")
    with playwright.sync_playwright() as run:
        started = run.chromium.launch(executable_path=path, headless=True, args=FLAGS)
        yield started
        started.close()


@pytest.fixture
def report(cli: Cli, browser: Browser, tmp_path: Path) -> Open:
    """Return a function that makes a report and opens it; it must stay silent and at home."""

    @contextmanager
    def make(*arguments: str, **context: Any) -> Iterator[Page]:
        path = tmp_path / "report.html"
        outcome = cli("report", *arguments, "-o", str(path))
        assert outcome.code == 0, outcome.err
        said: list[str] = []
        asked: list[str] = []
        inside = browser.new_context(**({"viewport": DESK} | context))
        inside.on("request", lambda request: asked.append(request.url))
        page = inside.new_page()
        page.on("console", lambda message: said.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: said.append(f"error: {error}"))
        page.goto(path.as_uri())
        if context.get("java_script_enabled", True):
            page.wait_for_selector("html[data-ready]", timeout=60_000)
        yield page
        page.wait_for_timeout(100)
        inside.close()
        assert said == []
        assert asked == [path.as_uri()]

    return make


def text(page: Page, place: str) -> str:
    """Return what an element holds; nothing where it is hidden."""
    element = page.locator(f"#{place}")
    return (element.text_content() or "") if element.is_visible() else ""


def table(page: Page, place: str) -> list[list[str]]:
    """Return the cells of a table's body."""
    rows: list[list[str]] = page.locator(f"#{place}").evaluate(
        "body => [...body.rows].map(row => [...row.cells].map(cell => cell.textContent))"
    )
    return rows


def until(page: Page, holds: str) -> None:
    """Wait until an expression is true; the page's policy lets nothing wait inside it."""
    for _ in range(200):
        if page.evaluate(holds):
            return
        page.wait_for_timeout(50)
    pytest.fail(f"never true: {holds}")


def move(page: Page, place: str, *, to: int) -> None:
    """Put a slider somewhere, and let the page follow."""
    page.locator(f"#{place}").fill(str(to))
    settle(page)


def settle(page: Page) -> None:
    """Wait for the frame in which the page redraws."""
    page.evaluate("() => new Promise(done => requestAnimationFrame(() => setTimeout(done)))")
