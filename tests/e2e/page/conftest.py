"""A browser, and a server with a few tools."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser

from tests.browser import Opened, chromium
from tests.crib import Crib
from tests.http_server import HttpServerProcess, http_server

Open = Callable[..., Opened]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    # No longer: while it is open, an event loop runs here, so that no test of another module could run one.
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServerProcess]:
    crib = Crib(tmp_path_factory.mktemp("page") / "project")
    crib.shell("greet", description="Greets whom you name.", tags=["demo"])
    crib.shell("look", description="Looks around.", approval={"required": True, "reason": "It looks."})
    with http_server(crib.root) as running:
        yield running


@pytest.fixture
def opened(browser: Browser, server: HttpServerProcess) -> Iterator[Open]:
    """Open pages in profiles of their own; at the end none may have logged or left anything."""
    made: list[Opened] = []

    def make(**context: Any) -> Opened:
        made.append(Opened(browser, server, **context))
        return made[-1]

    yield make
    # A browser logs each refusal of the server itself; the page shows it. A busy database is asked again.
    refusals = re.compile(r"status of (40[013]|503) ")
    problems = [problem for one in made for problem in one.problems if not refusals.search(problem)]
    for one in made:
        one.context.close()
    assert problems == []
