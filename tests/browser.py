"""A page of the machine's Chromium, for tests of the web page: what it logs and requests is kept."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.http_server import HttpServerProcess

ROOT = Path(__file__).resolve().parent.parent
AXE = ROOT / "frontend" / "node_modules" / "axe-core" / "axe.min.js"
BUILT = ROOT / "src" / "toolcrib" / "page" / "index.html"
LIMIT_MS = 100_000
PHONE, DESK = (390, 844), (1280, 800)


def _missing() -> str | None:
    if shutil.which("chromium") is None:
        return "there is no Chromium (Debian: apt-get install chromium)"
    return None if BUILT.is_file() else "the web page is not built (make setup)"


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser. Where there is none the test is skipped, but never on CI."""
    reason = _missing()
    if reason is not None:
        if os.environ.get("CI"):
            raise AssertionError(reason)
        pytest.skip(reason)
    expect.set_options(timeout=LIMIT_MS)
    with sync_playwright() as playwright:
        # Chromium's own sandbox refuses root. It loads nothing but the page under test.
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


class Opened:
    """A page in a profile of its own. `problems` is what it logged or asked of another server."""

    def __init__(self, browser: Browser, server: HttpServerProcess, **context: Any) -> None:
        self.server, self.problems = server, list[str]()
        width, height = context.pop("size", DESK)
        self.context = browser.new_context(
            viewport={"width": width, "height": height}, **{"locale": "en-US", **context}
        )
        self.context.set_default_timeout(LIMIT_MS)
        self.page = self._watch(self.context.new_page())

    def _watch(self, page: Page) -> Page:
        page.on(
            "console",
            lambda one: self.problems.append(one.text) if one.type in ("error", "warning") else None,
        )
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        page.on(
            "request",
            lambda one: None if one.url.startswith(self.server.address) else self.problems.append(one.url),
        )
        return page

    def tab(self, path: str = "") -> Page:
        """Open another tab of the same profile."""
        page = self._watch(self.context.new_page())
        page.goto(f"{self.server.address}/#{path}")
        return page

    def log_in(self, path: str = "/tools") -> Page:
        """Log in by a new link, and open a page."""
        self.page.goto(self.server.person_link())
        self.page.locator("#main h1").wait_for()
        return self.go(path)

    def go(self, path: str) -> Page:
        """Load a page, and wait until it is shown."""
        self.page.goto(f"{self.server.address}/#{path}")
        self.page.reload()  # Otherwise the page before stays until this one is loaded, and looks like it.
        self.page.locator("#main[aria-busy=false] h1").wait_for()
        return self.page

    def violations(self) -> list[str]:
        """Return what axe finds on the page as it is now."""
        page = self.page
        # By the debugger, as the page's own rules let no script but its own run.
        page.evaluate(AXE.read_text())
        # One whose element goes ends with an error.
        page.evaluate("Promise.allSettled(document.getAnimations().map(one => one.finished))")
        found: Any = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        return [
            f"{one['id']}: {json.dumps([node['target'] for node in one['nodes']])}"
            for one in found["violations"]
        ]

    def is_too_wide(self) -> bool:
        """Return True if the page scrolls sideways."""
        return bool(self.page.evaluate("document.documentElement.scrollWidth > innerWidth"))
