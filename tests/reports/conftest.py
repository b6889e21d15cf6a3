"""Debian's Chromium, led by Playwright, for the report's browser tests; both are optional."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cod_lightning.reports.page import render
from cod_lightning.reports.report import report_data

CHROMIUM = Path("/usr/bin/chromium")
ARGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
Opened = Callable[..., Any]


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install playwright")
    if not CHROMIUM.exists():
        pytest.skip(f"{CHROMIUM} is missing: apt-get install chromium")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=ARGS)
        yield browser
        browser.close()


@pytest.fixture
def opened(chromium: Any, tmp_path: Path) -> Iterator[Opened]:
    """Opens a report of these folders; in the end no console message, error or request but for the file was seen."""
    seen: list[str] = []
    contexts: list[Any] = []

    def open_report(*folders: Path, scheme: str = "light") -> Any:
        file = tmp_path / "report.html"
        file.write_bytes(render(*report_data(folders)).encode("utf-8", "replace"))
        contexts.append(chromium.new_context(color_scheme=scheme, viewport={"width": 1300, "height": 900}))
        contexts[-1].set_default_timeout(10_000)
        page = contexts[-1].new_page()
        page.on("console", lambda message: seen.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: seen.append(f"error: {error}"))
        page.on("dialog", lambda dialog: seen.append(f"dialog: {dialog.message}"))
        page.on("request", lambda request: seen.extend([request.url] * (request.url != file.as_uri())))
        page.goto(file.as_uri())
        page.wait_for_selector(".row, #details .empty", state="attached")
        return page

    yield open_report
    for context in contexts:
        context.close()
    assert seen == []
