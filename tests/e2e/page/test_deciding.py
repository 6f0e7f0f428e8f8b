"""Approvals, runs and the audit log, as a person meets them in a browser."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser import PHONE
from tests.crib import Crib
from tests.e2e.page.conftest import Open
from tests.http_server import HttpServerProcess, http_server

AGENT = {
    "name": "helper",
    "model": "scripted",
    "tools": ["greet"],
    "script": [{"calls": [{"tool": "greet", "arguments": {"c": "echo hi"}}]}, {"text": "I said {{result}}"}],
}
HOSTILE = "echo \u202e<script>document.title='x'</script>"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServerProcess]:
    crib = Crib(tmp_path_factory.mktemp("deciding") / "project")
    crib.shell("greet", description="Greets whom you name.")
    crib.shell("look", description="Looks around.", approval={"required": True, "reason": "It looks."})
    crib.write(".toolcrib/agents/helper.yml", json.dumps(AGENT))
    with http_server(crib.root) as running:
        crib.shell("late", description="Came after trust.")
        yield running


def ask(server: HttpServerProcess, text: str, token: str = "") -> str:
    body, later = {"args": {"c": text}}, {"Prefer": "respond-async"}
    return str(server.send("POST", "/tools/invoke/look", body, later, token=token).json["callId"])


def result(server: HttpServerProcess, call: str) -> Any:
    return server.send("GET", f"/tools/calls/{call}").json


def nothing_wrong(opened: Any) -> None:
    assert opened.violations() == []
    assert not opened.is_too_wide()


def request(page: Page, text: str) -> Any:
    return (
        page.get_by_role("listitem").filter(has_text=text).filter(has=page.get_by_role("button", name="Deny"))
    )


def test_a_call_is_approved_and_another_denied_on_a_phone(opened: Open, server: HttpServerProcess) -> None:
    first = ask(server, "echo one")
    browser = opened(size=PHONE)
    page = browser.log_in("/approvals")
    expect(request(page, "echo one")).to_be_visible()
    second = ask(server, HOSTILE)  # It comes by itself.
    expect(request(page, r"echo \u202e<script>")).to_be_visible()
    expect(page).to_have_title("(2) Approvals · Toolcrib")
    nothing_wrong(browser)
    request(page, "echo one").get_by_text("More about this call").click()
    expect(page.get_by_text("Looks around.")).to_be_visible()
    request(page, "echo one").get_by_role("button", name="Approve").click()
    expect(page.get_by_text("look was approved")).to_be_visible()
    request(page, "script").get_by_label("Note").fill("Not today.")
    request(page, "script").get_by_role("button", name="Deny").click()
    expect(page.get_by_text("No call waits for you")).to_be_visible()
    expect(page).to_have_title("Approvals · Toolcrib")
    for call, status in ((first, "ok"), (second, "error")):
        server.send("GET", f"/tools/calls/{call}/events")  # Until its end.
        assert result(server, call)["status"] == status
    assert "Not today." in json.dumps(result(server, second)["result"])


def test_who_comes_second_is_told(opened: Open, server: HttpServerProcess) -> None:
    call = ask(server, "echo before")
    first, second = opened(), opened()
    # Without the stream of changes it still shows what another person has decided.
    second.page.route("**/events", lambda route: route.abort())
    page, other = first.log_in("/approvals"), second.log_in("/approvals")
    expect(request(other, "echo before")).to_be_visible()
    request(page, "echo before").get_by_role("button", name="Edit arguments").click()
    box = page.get_by_role("textbox", name="Arguments")
    box.fill("[")
    expect(page.get_by_role("button", name="Approve")).to_be_disabled()
    box.fill('{"c": "echo after"}')
    page.get_by_role("button", name="Approve").click()
    expect(page.get_by_text("look was approved")).to_be_visible()
    request(other, "echo before").get_by_role("button", name="Deny").click()
    expect(other.get_by_text("look was not decided")).to_be_visible()
    server.send("GET", f"/tools/calls/{call}/events")  # Until its end.
    assert result(server, call)["result"]["value"] == "after\n"
    second.problems.clear()


def test_identical_calls_are_decided_at_once_and_compared_with_the_last(
    opened: Open, server: HttpServerProcess
) -> None:
    tokens = [server.create_token(name, "invoke") for name in ("ann", "bob")]
    calls = [ask(server, "echo twin", token) for token in tokens]
    browser = opened(size=PHONE)
    page = browser.log_in("/approvals")
    expect(request(page, "echo twin")).to_contain_text("2 identical calls")
    expect(request(page, "echo twin")).to_contain_text("token:ann")
    request(page, "echo twin").get_by_role("button", name="Approve").click()
    expect(request(page, "echo twin")).to_have_count(0)
    for call in calls:
        server.send("GET", f"/tools/calls/{call}/events")  # Until its end.
        assert result(server, call)["status"] == "ok"
    ask(server, "echo single")
    card = request(page, "echo single")
    card.get_by_text("More about this call").click()
    expect(card.locator("del")).to_have_text('"echo twin"')
    expect(card.locator("ins")).to_have_text('"echo single"')
    nothing_wrong(browser)
    card.get_by_role("button", name="Deny").click()
    expect(card).to_have_count(0)


def test_what_waits_for_trust_is_shown_and_trusted(opened: Open) -> None:
    page = opened().log_in("/approvals")
    inbox = page.get_by_role("region", name="Waiting for trust")
    expect(inbox.get_by_text("late", exact=True)).to_be_visible()
    inbox.get_by_role("button", name="Trust late").click()
    inbox.get_by_role("button", name="Trust late").click()  # It asks once more.
    expect(inbox.get_by_text("Nothing waits for trust.")).to_be_visible()


def test_a_run_is_found_and_followed_to_its_calls(opened: Open, server: HttpServerProcess) -> None:
    run = server.send("POST", "/runs", {"agent": "helper", "prompt": "Say hi"}).json["id"]
    server.send("GET", f"/runs/{run}/events")  # Until its end.
    browser = opened()
    page = browser.log_in("/runs?state=done")
    page.get_by_role("link", name="helper").click()
    expect(page).to_have_title("helper: done · Toolcrib")
    expect(page.get_by_role("region", name="Timeline").get_by_text("greet")).to_be_visible()
    expect(page.get_by_text("I said hi")).to_be_visible()
    nothing_wrong(browser)
    browser.go("/runs?state=failed")
    expect(page.get_by_text("No run matches")).to_be_visible()


def test_the_audit_log_is_filtered_and_saved(opened: Open, server: HttpServerProcess) -> None:
    server.send("POST", "/tools/invoke/greet", {"args": {"c": "exit 4"}})
    browser = opened(color_scheme="dark")
    page = browser.log_in("/audit?tool=greet&status=error")
    expect(page.get_by_text("The chain is whole")).to_be_visible()
    line = page.get_by_role("listitem").filter(has_text="greet").first
    line.get_by_text("TOOL_EXECUTED").click()
    expect(line.get_by_text("exit 4")).to_be_visible()
    nothing_wrong(browser)
    with page.expect_download() as saving:
        page.get_by_role("button", name="as JSONL").click()
    lines = [json.loads(one) for one in saving.value.path().read_text().splitlines()]
    assert {one["fields"]["name"] for one in lines} == {"greet"}
