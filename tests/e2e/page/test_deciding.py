"""Approvals, runs and the audit log, as a person meets them in a browser."""

from __future__ import annotations

import json
import re
import socket
import socketserver
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from threading import Thread
from typing import Any

import pytest
from playwright.sync_api import Page, Route, expect

from tests.browser import DESK, PHONE, ROOT
from tests.crib import Crib
from tests.e2e.page.conftest import Open
from tests.http_server import HttpServerProcess, http_server
from tests.patience import wait_for

AGENT = {
    "name": "helper",
    "model": "scripted",
    "tools": ["greet"],
    "script": [{"calls": [{"tool": "greet", "arguments": {"c": "echo hi"}}]}, {"text": "I said {{result}}"}],
}
PAYS = {
    "name": "payer",
    "model": "scripted",
    "tools": ["pay"],
    "script": [{"calls": [{"tool": "pay", "arguments": {"n": 12345678901234567890}}]}],
}
ASKS = {
    "name": "asks",
    "model": "scripted",
    "tools": ["look"],
    "script": [{"calls": [{"tool": "look", "arguments": {"c": "echo again"}}]}, {"text": "Seen."}],
}
WAITS = {
    "name": "waits",
    "model": "scripted",
    "tools": ["linger"],
    "script": [
        {"calls": [{"tool": "linger", "arguments": {"c": "until [ -e flags/go ]; do sleep 0.1; done"}}]},
        {"text": "It came."},
    ],
}
ASKED = {"required": True, "reason": "It pays."}
RULE = {"name": "lent", "effect": "ask", "tools": ["lend"]}
HOSTILE = "echo \u202e<script>document.title='x'</script>"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServerProcess]:
    crib = Crib(tmp_path_factory.mktemp("deciding") / "project")
    crib.shell("greet", description="Greets whom you name.")
    crib.shell("look", description="Looks around.", approval={"required": True, "reason": "It looks."})
    crib.shell("lend", description="Lends.")
    crib.shell("linger", description="Waits for a file.", permissions={"fs": {"read": ["flags"]}})
    paid = {"entrypoint": "echo", "args": ["${n}"]}
    crib.tool("pay", "command", paid, {"n": {"type": "integer"}}, approval=ASKED)
    crib.write("flags/.keep", "")
    for agent in (AGENT, ASKS, WAITS, PAYS):
        crib.write(f".toolcrib/agents/{agent['name']}.yml", json.dumps(agent))
    crib.write(".toolcrib/config.yml", f"policy:\n  rules:\n  - {json.dumps(RULE)}\n")
    with http_server(crib.root) as running:
        crib.shell("late", description="Came after trust.")
        yield running


def ask(server: HttpServerProcess, text: str, token: str = "", tool: str = "look") -> str:
    body, later = {"args": {"c": text}}, {"Prefer": "respond-async"}
    return str(server.send("POST", f"/tools/invoke/{tool}", body, later, token=token).json["callId"])


def begin(server: HttpServerProcess, agent: str, **more: Any) -> Any:
    return server.send("POST", "/runs", {"agent": agent, "prompt": "Begin", **more}).json


class Cut(socketserver.ThreadingTCPServer):
    """A proxy to a server. It can close all connections and refuse new ones for a while."""

    daemon_threads = True

    def __init__(self, port: int) -> None:
        super().__init__(("127.0.0.1", 0), socketserver.BaseRequestHandler)
        self.far, self.open, self.is_cut = port, list[socket.socket](), False
        Thread(target=self.serve_forever, daemon=True).start()

    def finish_request(self, request: Any, client_address: Any) -> None:
        with socket.create_connection(("127.0.0.1", self.far)) as far:
            self.open += [request, far]
            if self.is_cut:
                return
            Thread(target=self.copy, args=(far, request), daemon=True).start()
            self.copy(request, far)

    def copy(self, one: socket.socket, other: socket.socket) -> None:
        with suppress(OSError):
            while data := one.recv(65_536):
                other.sendall(data)
            other.shutdown(socket.SHUT_WR)

    def cut(self) -> None:
        self.is_cut = True
        for one in self.open:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


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


def test_a_card_that_comes_under_the_finger_takes_no_tap(opened: Open, server: HttpServerProcess) -> None:
    asked = [ask(server, f"echo {name}") for name in ("lower", "upper")]
    page = opened(size=PHONE).log_in("/approvals")
    box = request(page, "echo upper").get_by_role("button", name="Approve").bounding_box()
    assert box is not None
    # What a second tap would meet in the moment in which the first card goes.
    page.evaluate(
        """([x, y]) => { window.met = new Promise(done => new MutationObserver(
            () => done(document.elementFromPoint(x, y).closest("button")?.innerText ?? ""),
        ).observe(document.querySelector(".approvals > ul"), {childList: true})) }""",
        [box["x"] + 20, box["y"] + 20],
    )
    request(page, "echo upper").get_by_role("button", name="Approve").click()
    assert page.evaluate("window.met") == ""
    request(page, "echo lower").get_by_role("button", name="Deny").click()
    expect(page.get_by_text("No call waits for you")).to_be_visible()
    for call in asked:
        server.send("GET", f"/tools/calls/{call}/events")  # Until its end.


def revoke(page: Page, text: str) -> None:
    grants = page.get_by_role("region", name="Decisions in force").get_by_role("listitem")
    grant = grants.filter(has_text=text)
    for name in ("Revoke", "Revoke: sure?"):
        grant.get_by_role("button", name=name).click()
    expect(grant).to_have_count(0)


def test_who_comes_second_is_told(opened: Open, server: HttpServerProcess) -> None:
    call = ask(server, "echo before")
    first, second = opened(), opened()
    # Without the stream of changes it still shows what another person has decided.
    second.page.route("**/events", lambda route: route.abort())
    page, other = first.log_in("/approvals"), second.log_in("/approvals")
    expect(request(other, "echo before")).to_be_visible()
    request(page, "echo before").get_by_role("button", name="Edit arguments").click()
    expect(page.get_by_label("For").get_by_role("option")).to_have_text(["this call"])
    box = page.get_by_role("textbox", name="Arguments")
    box.fill("{x")
    expect(request(page, "Line 1, column 2: x does not fit here")).to_be_visible()
    expect(page.get_by_role("button", name="Approve")).to_be_disabled()
    box.fill('{"c": "echo after"}')
    page.get_by_role("button", name="Approve").click()
    expect(page.get_by_text("look was approved")).to_be_visible()
    request(other, "echo before").get_by_role("button", name="Deny").click()
    expect(other.get_by_text("look was not decided")).to_be_visible()
    server.send("GET", f"/tools/calls/{call}/events")  # Until its end.
    assert result(server, call)["result"]["value"] == "after\n"
    second.problems.clear()


def test_a_long_number_is_shown_and_sent_as_it_is(opened: Open, server: HttpServerProcess) -> None:
    body, later = {"args": {"n": 12345678901234567890}}, {"Prefer": "respond-async"}
    call = server.send("POST", "/tools/invoke/pay", body, later).json["callId"]
    page = opened().log_in("/approvals")
    card = request(page, "It pays.")
    expect(card).to_contain_text("12345678901234567890")
    card.get_by_role("button", name="Edit arguments").click()
    card.get_by_role("textbox", name="Arguments").fill('{"n": 12345678901234567891}')
    card.get_by_role("button", name="Approve").click()
    expect(card).to_have_count(0)
    server.send("GET", f"/tools/calls/{call}/events")  # Until its end.
    assert result(server, call)["result"]["value"] == 12345678901234567891
    page.goto(f"{server.address}/#/audit?tool=pay&event=TOOL_EXECUTED")
    page.get_by_role("listitem").first.get_by_text("TOOL_EXECUTED").click()
    expect(page.get_by_role("listitem").first.locator("pre")).to_contain_text('"n": 12345678901234567891')
    page.goto(f"{server.address}/#/runs/{begin(server, 'payer')['id']}")
    expect(page.get_by_text('{"n":12345678901234567890}')).to_be_visible()
    page.goto(f"{server.address}/#/approvals")
    card.get_by_role("button", name="Deny").click()
    expect(card).to_have_count(0)


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
    ask(server, "echo single " + "x" * 30_000)
    card = request(page, "echo single")
    card.get_by_text("More about this call").click()
    expect(card.locator("del")).to_have_text('"echo twin"')
    expect(card.locator("ins")).to_contain_text('"echo single xxx')
    expect(card.locator("ins")).to_contain_text("Show all 30,014 characters")
    nothing_wrong(browser)
    card.get_by_role("button", name="Deny").click()
    expect(card).to_have_count(0)


def test_a_decision_takes_no_focus_from_who_has_moved_on(opened: Open, server: HttpServerProcess) -> None:
    ask(server, "echo slow")
    page = opened().log_in("/approvals")
    link = page.get_by_role("link", name="Runs")

    def move_on(route: Route) -> None:
        link.focus()
        route.continue_()

    page.route("**/deny", move_on)
    request(page, "echo slow").get_by_role("button", name="Deny").click()
    expect(page.get_by_text("look was denied")).to_be_visible()
    expect(request(page, "echo slow")).to_have_count(0)
    expect(link).to_be_focused()


def test_what_waits_for_trust_is_shown_and_trusted(opened: Open, server: HttpServerProcess) -> None:
    call = ask(server, "echo 5", tool="late")
    page = opened().log_in("/approvals")
    # No worker has a tool that nobody has trusted: its call asks before it is stored.
    expect(page.get_by_role("heading", name="late")).to_be_visible()
    inbox = page.get_by_role("region", name="Waiting for trust")
    expect(inbox.get_by_text("late", exact=True)).to_be_visible()
    inbox.get_by_text("Manifest and code").click()
    expect(inbox.locator("pre")).to_contain_text("Came after trust.")
    inbox.get_by_role("button", name="Trust late").click()
    inbox.get_by_role("button", name="Trust late").click()  # It asks once more.
    expect(inbox.get_by_text("Nothing waits for trust.")).to_be_visible()
    wait_for(lambda: result(server, call)["status"] == "ok", "the end of the call")


def test_of_many_that_wait_for_trust_the_inbox_loads_what_is_scrolled_to(
    opened: Open, server: HttpServerProcess
) -> None:
    tools = server.root / ".toolcrib/tools"
    manifest = (tools / "late/tool.yml").read_text()
    for name in (f"late_{number:02}" for number in range(30)):
        (tools / name).mkdir()
        (tools / name / "tool.yml").write_text(manifest.replace('"late"', f'"{name}"'))
    page = opened().log_in("/approvals")
    inbox = page.get_by_role("region", name="Waiting for trust")
    all_of_a_page = inbox.get_by_role("button", name="Trust all 25")
    expect(all_of_a_page).to_be_visible()
    inbox.get_by_text("late_20", exact=True).scroll_into_view_if_needed()
    expect(inbox.get_by_text("late_29", exact=True)).to_have_count(1)
    all_of_a_page.click()
    all_of_a_page.click()  # It asks once more.
    expect(inbox.get_by_text("late_00", exact=True)).to_have_count(0)
    rest = inbox.get_by_role("button", name=re.compile(r"Trust all \d\b"))
    rest.click()
    rest.click()
    expect(inbox.get_by_text("Nothing waits for trust.")).to_be_visible()


def test_a_run_is_found_and_followed_to_its_calls(opened: Open, server: HttpServerProcess) -> None:
    run = server.send("POST", "/runs", {"agent": "helper", "prompt": "Say hi"}).json["id"]
    server.send("GET", f"/runs/{run}/events")  # Until its end.
    browser = opened()
    page = browser.log_in("/runs?state=done")
    page.get_by_role("link", name="helper").click()
    expect(page).to_have_title("helper: done · Toolcrib")
    label = page.get_by_role("region", name="Timeline").get_by_text("greet")
    expect(label).to_be_visible()
    page.get_by_label("Zoom").select_option("8")
    expect(label).to_be_in_viewport()
    box = page.locator(".track").first.bounding_box()
    assert box is not None
    left = page.locator(".timeline").evaluate("one => one.scrollLeft")
    page.mouse.move(700, box["y"] + 2)
    page.mouse.down()
    page.mouse.move(600, box["y"] + 2)
    page.mouse.up()
    assert page.locator(".timeline").evaluate("one => one.scrollLeft") == left + 100
    expect(page.get_by_text("I said hi")).to_be_visible()
    nothing_wrong(browser)
    page.get_by_role("region", name="Conversation").get_by_role("link", name="greet").click()
    expect(page.get_by_role("listitem").get_by_role("link", name="greet")).to_be_visible()
    browser.go("/runs?agent=helper&state=failed")
    expect(page.get_by_text("No run matches")).to_be_visible()
    page.keyboard.press("/")
    expect(page.get_by_role("dialog").get_by_role("combobox")).to_be_focused()
    page.keyboard.type("say hi")
    expect(page.get_by_role("option", name="helper: Say hi").first).to_have_attribute("aria-selected", "true")
    page.keyboard.press("Enter")
    expect(page.get_by_text("I said hi")).to_be_visible()


def suggested(page: Page, label: str) -> list[str]:
    field = page.get_by_label(label, exact=True)
    found: list[str] = field.evaluate("one => [...one.list.options].map(({ value }) => value)")
    return found


def test_the_audit_log_is_filtered_and_saved(opened: Open, server: HttpServerProcess) -> None:
    server.send("POST", "/tools/invoke/greet", {"args": {"c": "exit 4"}})
    browser = opened(color_scheme="dark")
    page = browser.log_in("/audit?tool=greet&status=error")
    expect(page.get_by_text("The chain is whole")).to_be_visible()
    rows = re.findall(r"^\| (`[A-Z].*?) \|", (ROOT / "docs" / "audit.md").read_text(), re.MULTILINE)
    assert suggested(page, "Event") == re.findall(r"`([A-Z_]+)`", " ".join(rows))
    assert {"error", "refused"} <= set(suggested(page, "Status"))
    assert "policy_denied" in suggested(page, "Error code")
    line = page.get_by_role("listitem").filter(has_text="greet").first
    line.get_by_text("TOOL_EXECUTED").click()
    expect(line.get_by_text("exit 4")).to_be_visible()
    nothing_wrong(browser)
    with page.expect_download() as saving:
        page.get_by_role("button", name="as JSONL").click()
    lines = [json.loads(one) for one in saving.value.path().read_text().splitlines()]
    assert {one["fields"]["name"] for one in lines} == {"greet"}


def test_a_long_list_keeps_and_reads_again_only_what_is_near(opened: Open, server: HttpServerProcess) -> None:
    for number in range(60):
        server.send("POST", "/tools/invoke/greet", {"args": {"c": f"echo {number} {HOSTILE}"}})
    browser, read = opened(), list[str]()
    page = browser.page
    page.on("response", lambda one: read.append(one.url) if "/audit?" in one.url else None)
    # As if there were more.
    page.route(
        "**/audit?*", lambda route: route.continue_(url=route.request.url.replace("Size=100", "Size=15"))
    )
    browser.log_in("/audit")
    rows, more = page.locator(".rows > li"), page.get_by_role("button", name="Show more")
    expect(rows.nth(14)).to_be_attached()
    while more.count() > 0:
        page.keyboard.press("End")
        page.wait_for_timeout(100)
    assert len(read) > 6
    assert rows.count() <= 75
    seen = "document.elementFromPoint(640, 600).closest('li').querySelector('time').dateTime"
    # The browser may still scroll to the end.
    page.wait_for_function(
        "() => { const last = window.last; window.last = scrollY; return last === scrollY }", polling=500
    )
    last = page.evaluate(seen)
    before = len(read)
    with page.expect_response("**/audit?*"):
        server.send("POST", "/tools/invoke/greet", {"args": {"c": "exit 4"}})
    page.wait_for_timeout(500)
    assert len(read) - before <= 10  # Of the begin and the end of the call.
    assert page.evaluate(seen) == last
    page.keyboard.press("Home")
    expect(rows.first).to_contain_text("error")
    nothing_wrong(browser)


@pytest.mark.parametrize(
    ("scope", "tool", "other", "words"),
    [
        ("arguments", "look", "echo kept", "these arguments"),
        ("rule", "lend", "echo else", "all calls of lend by this caller (rule lent)"),
    ],
    ids=["these arguments", "the rule"],
)
def test_a_decision_counts_for_later_calls(
    opened: Open, server: HttpServerProcess, scope: str, tool: str, other: str, words: str
) -> None:
    first = ask(server, "echo kept", tool=tool)
    page = opened().log_in("/approvals")
    card = request(page, "echo kept")
    expect(card.get_by_label("For").locator(f"[value={scope}]")).to_contain_text(words)
    card.get_by_label("For").select_option(scope)
    card.get_by_role("button", name="Approve").click()
    expect(card).to_have_count(0)
    for call in (first, ask(server, other, tool=tool)):
        server.send("GET", f"/tools/calls/{call}/events")  # Until its end.
        assert result(server, call)["status"] == "ok"
    revoke(page, f"{tool}approved")
    ask(server, other, tool=tool)
    card = request(page, other)
    card.get_by_label("Note").fill("Not again.")
    card.get_by_role("button", name="Deny").click()
    revoke(page, "Not again.")


def test_a_decision_counts_for_its_session_alone(opened: Open, server: HttpServerProcess) -> None:
    run = begin(server, "asks")
    page = opened().log_in("/approvals")
    card = request(page, "echo again")
    card.get_by_label("For").select_option("session")
    card.get_by_role("button", name="Approve").click()
    expect(card).to_have_count(0)
    for one in (run, begin(server, "asks", sessionId=run["sessionId"])):
        server.send("GET", f"/runs/{one['id']}/events")  # Until its end.
        assert server.send("GET", f"/runs/{one['id']}").json["state"] == "done"
    begin(server, "asks")
    expect(card).to_be_visible()
    card.get_by_role("button", name="Approve").click()
    expect(card).to_have_count(0)


def test_the_time_for_a_decision_runs_down(opened: Open, server: HttpServerProcess) -> None:
    ask(server, "echo soon")
    page = opened().page.context.new_page()
    page.clock.install()
    page.goto(server.person_link())
    page.get_by_role("link", name="Approvals").click()
    card = request(page, "echo soon")
    expect(card).to_contain_text("expires in 7 days")
    (asked,) = server.send("GET", "/approvals?status=pending").json["approvals"]
    page.clock.pause_at(datetime.fromisoformat(asked["expiresAt"]) - timedelta(seconds=90))
    expect(card).to_contain_text("expires in 1:30")
    page.clock.fast_forward(100_000)
    expect(card).to_contain_text("expired")
    page.clock.resume()
    card.get_by_role("button", name="Deny").click()
    expect(card).to_have_count(0)


def test_by_keyboard_alone_a_call_is_approved_and_its_run_followed(
    opened: Open, server: HttpServerProcess
) -> None:
    run = begin(server, "asks")["id"]
    page = opened().log_in()
    keys = page.keyboard

    def reach(role: Any, name: str) -> None:
        wanted = page.get_by_role(role, name=name, exact=True).first
        wanted.wait_for()
        for _ in range(60):
            if wanted.evaluate("one => one === document.activeElement"):
                break
            keys.press("Tab")
        expect(wanted).to_be_focused()
        keys.press("Enter")

    keys.press("Control+k")
    expect(page.get_by_role("dialog").get_by_role("combobox")).to_be_focused()
    keys.type("Approv")
    expect(page.get_by_role("option", name="Approvals")).to_have_attribute("aria-selected", "true")
    keys.press("Enter")
    reach("button", "Approve")
    expect(page.get_by_text("look was approved")).to_be_visible()
    expect(page.locator("#main")).to_be_focused()
    reach("link", "Runs")
    reach("link", "asks")
    expect(page).to_have_url(re.compile(run))
    expect(page.get_by_role("heading", name="asks")).to_contain_text("done")
    expect(page.get_by_role("region", name="Timeline")).to_contain_text("waiting for a person")


@pytest.mark.parametrize("first", [False, True], ids=["later", "before the first event"])
def test_a_run_is_followed_over_a_lost_connection(
    opened: Open, server: HttpServerProcess, first: bool
) -> None:
    run = begin(server, "waits")["id"]
    with Cut(server.port) as line:
        browser = opened()
        page = browser.page
        browser.server = replace(server, address=f"http://127.0.0.1:{line.server_address[1]}")
        page.goto(server.person_link().replace(server.address, browser.server.address))
        page.locator("#main h1").wait_for()
        if first:
            page.route("**/events", lambda route: route.abort())
        browser.go(f"/runs/{run}")
        heading = page.get_by_role("heading", name="waits")
        expect(heading).to_contain_text("waiting")
        line.cut()
        (server.root / "flags/go").touch()
        server.send("GET", f"/runs/{run}/events")  # Until its end.
        (server.root / "flags/go").unlink()
        expect(heading).to_contain_text("waiting")
        lost = page.get_by_text("The server cannot be reached")
        expect(lost).to_be_visible()
        page.unroute_all()
        line.is_cut = False
        expect(lost).to_have_count(0)
        expect(heading).to_contain_text("done")
        expect(page.get_by_text("It came.")).to_have_count(1)
        expect(page.get_by_role("region", name="Timeline").get_by_text("linger")).to_have_count(1)
        browser.problems.clear()  # The browser logs what it could not load.
        line.shutdown()


def test_runs_are_filtered_cancelled_and_retried(opened: Open, server: HttpServerProcess) -> None:
    begin(server, "waits", variables={})
    browser = opened()
    page = browser.log_in("/runs?state=waiting")
    page.get_by_label("Tool").fill("linger")
    page.get_by_label("From").fill("2020-01-01")
    expect(page).to_have_url(re.compile("tool=linger&since=2020-01-01"))
    page.locator("#main").get_by_role("link", name="waits").wait_for()
    page.get_by_role("button", name="Cancel all that match").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel 1 run").click()
    expect(page.get_by_text("1 run was changed.")).to_be_visible()
    expect(page.get_by_text("No run matches")).to_be_visible()
    page.get_by_label("State").select_option("cancelled")
    page.locator("#main").get_by_role("link", name="waits").click()
    heading = page.get_by_role("heading", name="waits")
    expect(heading).to_contain_text("cancelled")
    page.get_by_role("button", name="Retry").click()
    expect(heading).to_contain_text("waiting")
    page.locator(".replaced").wait_for()
    nothing_wrong(browser)
    page.get_by_role("button", name="Cancel").click()
    expect(heading).to_contain_text("cancelled")


@pytest.mark.parametrize(
    ("scheme", "size", "language"), [("light", DESK, "de"), ("dark", PHONE, "pseudo")], ids=["desk", "phone"]
)
def test_the_pages_are_accessible_and_fit(
    opened: Open, server: HttpServerProcess, scheme: str, size: tuple[int, int], language: str
) -> None:
    call = ask(server, f"{HOSTILE} {scheme}")  # What was denied is not asked again.
    run = begin(server, "helper")["id"]
    server.send("GET", f"/runs/{run}/events")  # Until its end.
    browser = opened(color_scheme=scheme, size=size)
    browser.context.add_init_script(f"localStorage.setItem('toolcrib.language', '{language}')")
    page = browser.log_in("/approvals")
    for path in ("/approvals", "/runs", f"/runs/{run}", "/audit"):
        browser.go(path)
        expect(page.locator(".loading")).to_have_count(0)
        page.evaluate("document.querySelectorAll('#main details').forEach(one => { one.open = true })")
        expect(page.locator(".loading")).to_have_count(0)
        nothing_wrong(browser)
    server.send("DELETE", f"/tools/calls/{call}")
