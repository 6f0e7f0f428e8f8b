"""Login, tabs and the end of a session, as a person meets them in a browser."""

from __future__ import annotations

import gzip
import os
import re
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.commands import PROGRAM, complete
from tests.e2e.page.conftest import Open
from tests.http_server import HttpServerProcess


def test_a_link_works_once_and_leaves_no_code_in_the_address(opened: Open, server: HttpServerProcess) -> None:
    link = server.person_link()
    first = opened()
    first.page.goto(link)
    expect(first.page.get_by_role("heading", name="Tools", exact=True)).to_be_visible()
    expect(first.page).not_to_have_url(re.compile("code"))
    assert first.context.cookies() == []
    second = opened()
    second.page.goto(link)
    expect(second.page.get_by_role("heading", name="You are not logged in")).to_be_visible()


def test_a_new_tab_with_a_deep_link_takes_the_session_of_an_open_one(opened: Open) -> None:
    browser = opened()
    browser.log_in()
    tab = browser.tab("/tools?q=greet")
    expect(tab.get_by_role("link", name="greet")).to_be_visible()
    expect(tab.get_by_role("searchbox")).to_have_value("greet")


def test_many_tabs_are_open_at_once_and_follow_the_server(opened: Open, server: HttpServerProcess) -> None:
    browser = opened()
    browser.log_in()
    # A browser makes six connections to one server.
    tabs = [browser.tab("/tools") for _ in range(9)]
    for tab in (browser.page, *tabs):
        expect(tab.get_by_role("link", name="greet", exact=True)).to_be_visible()
    found = server.send("GET", "/tools/search?q=greet").json["tools"][0]
    path = f"/tools/bundles/{found['bundleID']}/tools/{found['slug']}/version/{found['version']}"
    for enabled in (False, True):
        assert server.send("PATCH", path, {"isEnabled": enabled}).status == 200
        for tab in (tabs[-1], browser.page):
            expect(tab.get_by_role("link", name="greet", exact=True)).to_have_count(int(enabled))
        # Another tab goes on when the one that reads the events is closed.
        if not enabled:
            browser.page.close()
            browser.page = tabs[0]


def test_a_page_that_cannot_be_loaded_says_so_and_is_tried_again(opened: Open) -> None:
    browser = opened()
    page = browser.log_in()
    browser.context.set_offline(True)
    page.get_by_role("link", name="Audit").click()
    expect(page.get_by_role("heading", name="This page could not be loaded")).to_be_visible()
    browser.context.set_offline(False)
    page.get_by_role("button", name="Try again").click()
    expect(page.get_by_role("heading", name="Audit")).to_be_visible()
    browser.problems.clear()


def test_logging_out_ends_the_session_in_every_tab(opened: Open) -> None:
    browser = opened()
    page = browser.log_in()
    tab = browser.tab("/tools")
    expect(tab.get_by_role("heading", name="Tools", exact=True)).to_be_visible()
    page.get_by_role("button", name="Log out").click()
    for one in (page, tab):
        expect(one.get_by_role("heading", name="You are not logged in")).to_be_visible()


@pytest.mark.parametrize("path", ["/", "/assets/nothing.js"])
def test_only_files_of_this_server_run_in_the_page(server: HttpServerProcess, path: str) -> None:
    reply = server.send("GET", path, headers={"Accept": "text/html"}, token=None)
    if path == "/":
        policy = reply.headers["Content-Security-Policy"]
        assert "default-src 'self'; script-src 'self'" in policy
        assert "unsafe" not in policy
    else:
        assert (reply.status, reply.code) == (404, "not_found")


def test_files_are_compressed_for_who_takes_it(server: HttpServerProcess) -> None:
    index = server.send("GET", "/", headers={"Accept": "text/html"}, token=None)
    (script,) = re.findall(rb'src="\./(assets/[^"]+\.js)"', index.body)
    whole = server.send("GET", f"/{script.decode()}", token=None)
    small = server.send("GET", f"/{script.decode()}", headers={"Accept-Encoding": "gzip"}, token=None)
    assert small.headers["Content-Encoding"] == "gzip"
    assert small.headers["Content-Type"] == whole.headers["Content-Type"]
    assert gzip.decompress(small.body) == whole.body
    assert len(small.body) < len(whole.body) / 2


def test_ui_prints_a_link_of_the_server_that_runs(opened: Open, server: HttpServerProcess) -> None:
    words = [PROGRAM, "ui", "--print", "--root", str(server.root), "--data", str(server.data)]
    done = complete(words, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{server.address}/#code=")
    # Who copies or searches the data folder finds files alone.
    found = [Path(folder, name) for folder, _, names in os.walk(server.data) for name in names]
    assert found
    assert not [path for path in found if path.is_socket()]
    browser = opened()
    browser.page.goto(done.stdout.strip())
    expect(browser.page.get_by_role("heading", name="Tools", exact=True)).to_be_visible()
