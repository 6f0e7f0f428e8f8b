"""What keeps a project going, and conversations with agents, as a person meets them in a browser."""

from __future__ import annotations

import errno
import json
import re
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Page, Route, expect

from tests import mcp_servers
from tests.browser import DESK, PHONE
from tests.crib import Crib
from tests.e2e.page.conftest import Open
from tests.http_server import HttpServerProcess, http_server
from tests.integration.project.mcp.test_mcp_login import Guarded
from tests.integration.project.mcp.test_mcp_login import running as guarded_server
from toolcrib.guard import Ledger
from toolcrib.project import load_config
from toolcrib.project.trust.trust import settings_rows
from toolcrib.sandbox.levels.probe import kernel_mechanism
from toolcrib.state import PROJECT, SqliteDatabase, Vault
from toolcrib.state.outgoing.outbox import ChannelMessages

AGENT = {
    "name": "helper",
    "model": "scripted",
    "tools": ["greet"],
    "script": [
        {"text": "I ask. ", "calls": [{"tool": "greet", "arguments": {"c": "echo hi"}}]},
        {"text": "You said {{prompt}}, it said {{result}}"},
    ],
}
ASKER = {
    "name": "asker",
    "model": "scripted",
    "tools": ["ask"],
    "script": [
        {"text": "May I?", "calls": [{"tool": "ask", "arguments": {"c": "echo yes"}}]},
        {"text": "It did."},
    ],
}
BOSS = {
    "name": "boss",
    "model": "scripted",
    "agents": ["asker"],
    "script": [{"calls": [{"tool": "asker", "arguments": {"prompt": "Go"}}]}, {"text": "Done."}],
}
WORKFLOW = {
    "name": "chain",
    "inputs": {
        "schema": {"type": "object", "required": ["word"], "properties": {"word": {"type": "string"}}}
    },
    "steps": [
        {"id": "first", "tool": "greet", "args": {"c": "echo ${word}"}},
        {"id": "second", "needs": ["first"], "tool": "greet", "args": {"c": "exit 4"}},
    ],
}


@pytest.fixture(scope="module")
def guarded() -> Iterator[Guarded]:
    with guarded_server() as running:
        yield running


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, guarded: Guarded) -> Iterator[HttpServerProcess]:
    crib = Crib(tmp_path_factory.mktemp("operations") / "project")
    crib.shell("greet", description="Greets whom you name.")
    crib.shell("shout", examples=[{"params": {"c": "echo HEY"}}])
    crib.shell("idle", permissions={"secrets": {"SHOP_KEY": {"type": "string"}}})
    crib.shell("ask", approval={"required": True, "reason": "It changes things."})
    for agent in (AGENT, ASKER, BOSS):
        crib.write(f".toolcrib/agents/{agent['name']}.yml", json.dumps(agent))
    crib.write(".toolcrib/workflows/chain.yml", json.dumps(WORKFLOW))
    mcp_servers.mount(crib, "broken", "import sys\nsys.exit('no such luck')\n")
    servers = json.loads((crib.home / "config.yml").read_text())["mcp_servers"]
    servers["far"] = {"url": guarded.url}
    rule = {"name": "no-etc", "effect": "deny", "callers": ["mcp:*"], "reason": "Not from outside."}
    settings = f"mcp_servers: {json.dumps(servers)}\npolicy:\n  rules:\n  - {json.dumps(rule)}\n"
    crib.write(".toolcrib/config.yml", settings)
    data = crib.root.with_name(f"{crib.root.name}-data")
    config = load_config(crib.home / "config.yml", crib.root)
    Ledger(Vault(crib.root, data)).accept(settings_rows(config), "ann", "program")
    with http_server(crib.root) as running:
        for script in ("echo one", "echo one", "exit 3"):
            running.send("POST", "/tools/invoke/greet", {"args": {"c": script}})
        yield running


def test_usage_shows_days_the_most_used_and_what_is_not_used(opened: Open) -> None:
    page = opened().log_in("/operations")
    row = page.get_by_role("region", name="Most used").get_by_role("row").filter(has_text="greet")
    expect(row).to_contain_text("greet")
    page.get_by_label("Sort by").select_option("Errors")
    row.get_by_role("link", name="greet").click()
    expect(page).to_have_url(re.compile("tool=greet"))
    expect(page.get_by_label("Sort by")).to_have_value("failures")
    # A day without calls has no durations.
    expect(page.locator(".days tbody tr").nth(1).get_by_role("cell").nth(2)).to_have_text("–")
    page.get_by_label("Shows").select_option("failures")
    expect(page.locator(".days rect.failed").last).to_be_visible()
    page.get_by_text("not called in this time").click()
    expect(page.get_by_role("link", name="idle")).to_be_visible()
    page.locator(".fields").get_by_role("link", name="greet").click()
    expect(page.get_by_role("heading", name="greet")).to_be_visible()


def test_a_failed_server_shows_its_log_and_is_restarted(opened: Open) -> None:
    page = opened().log_in("/operations/servers")
    card = page.get_by_role("listitem").filter(has=page.get_by_role("heading", name="broken"))
    card.get_by_role("button", name="Restart").click()
    expect(card.locator("pre")).to_contain_text("no such luck")
    expect(card).to_contain_text("failed, starts again")


def test_a_person_logs_in_to_a_server_and_out_of_it(opened: Open) -> None:
    page = opened().log_in("/operations/servers")
    card = page.get_by_role("listitem").filter(has=page.get_by_role("heading", name="far"))
    card.get_by_role("button", name="Log in").click()
    address = card.get_by_role("link", name="Open the login of far")
    with page.context.expect_page() as window:
        address.click()
    expect(window.value.get_by_text("You can close this page.")).to_be_visible()
    window.value.close()
    expect(card).to_contain_text("ready")
    card.get_by_role("button", name="Log out").click()
    card.get_by_role("button", name="Log out: sure?").click()
    expect(page.get_by_text("Logged out of far")).to_be_visible()
    expect(card).to_contain_text("not needed yet")
    expect(address).to_have_count(0)  # It was for that login.


def test_a_server_is_added_after_a_look_at_what_it_may_use_and_removed(
    opened: Open, server: HttpServerProcess
) -> None:
    (server.root / "hello.py").write_text(f"{mcp_servers.RAW}\nmain()")
    page = opened().log_in("/operations/servers")
    form = page.get_by_role("form", name="Add a server")
    form.get_by_label("Name", exact=True).fill("hello")
    form.get_by_label("Command or address").fill(f'"{sys.executable}" hello.py')
    form.get_by_role("button", name="Show what it may use").click()
    expect(form.get_by_role("status")).to_contain_text("may read hello.py")
    form.get_by_role("button", name="Start it, and trust its tools").click()
    card = page.get_by_role("listitem").filter(has=page.get_by_role("heading", name="hello"))
    expect(card).to_contain_text("ready")
    expect(card).to_contain_text("1 tool")
    expect(form.get_by_label("Command or address")).to_have_value("")
    found = server.send("GET", "/tools/search?q=hello__hello").json["tools"]
    assert [one["bundle"] for one in found] == ["hello"]
    card.get_by_role("button", name="Remove").click()
    consequences = page.get_by_role("dialog", name="Remove hello?")
    expect(consequences).to_contain_text("all that is trusted of it")
    consequences.get_by_role("button", name="Remove").click()
    expect(card).to_have_count(0)
    assert json.loads((server.root / ".mcp.json").read_text()) == {"mcpServers": {}}
    assert server.send("GET", "/tools/search?q=hello__hello").json["tools"] == []
    assert server.send("GET", "/servers/hello").status == 404


def test_a_server_that_is_there_is_watched_and_gets_what_is_taken(
    opened: Open, server: HttpServerProcess
) -> None:
    for name in ("seen.txt", "other.txt"):
        (server.root / name).write_text("x")
    (server.root / "reader.py").write_text(f'{mcp_servers.RAW}\nopen("seen.txt").read()\nmain()')
    page = opened().log_in("/operations/servers")
    form = page.get_by_role("form", name="Add a server")
    form.get_by_label("Name", exact=True).fill("reader")
    form.get_by_label("Command or address").fill(f'"{sys.executable}" reader.py')
    form.get_by_label("Paths it may read").fill("seen.txt, other.txt")
    form.get_by_role("button", name="Show what it may use").click()
    form.get_by_role("button", name="Start it, and trust its tools").click()
    card = page.get_by_role("listitem").filter(has=page.get_by_role("heading", name="reader"))
    expect(card).to_contain_text("ready")
    card.get_by_role("button", name="Watch").click()
    window = page.get_by_role("dialog", name="What reader needs")
    window.get_by_role("button", name="Show what it may use").click()
    expect(window.get_by_role("status")).to_contain_text("may read other.txt")
    window.get_by_role("button", name="Start it once, and watch").click()
    expect(window.get_by_text("It listed: hello")).to_be_visible()
    expect(window.get_by_role("checkbox", name="read seen.txt")).to_be_checked()
    expect(window.get_by_role("checkbox", name="read other.txt")).not_to_be_checked()
    window.get_by_role("button", name="Take these permissions").click()
    window.get_by_role("button", name="Show what it may use").click()
    expect(window.get_by_role("status")).not_to_contain_text("other.txt")
    window.get_by_role("button", name="Start it, and trust its tools").click()
    expect(window).to_have_count(0)
    expect(card).to_contain_text("ready")
    entry = json.loads((server.root / ".mcp.json").read_text())["mcpServers"]["reader"]
    assert "other.txt" not in entry["permissions"]["fs"]["read"]
    assert {"reader.py", "seen.txt"} <= {*entry["permissions"]["fs"]["read"]}
    assert server.send("POST", "/tools/invoke/reader__hello", {"args": {}}).json["value"] == "hello"


def test_a_run_of_many_calls_makes_the_rows_that_one_scrolls_to(
    opened: Open, server: HttpServerProcess
) -> None:
    run = server.send("POST", "/runs", {"agent": "helper", "prompt": "Begin"}).json["id"]
    server.send("GET", f"/runs/{run}/events")  # Until its end.
    timeline = server.send("GET", f"/runs/{run}/timeline").json
    step = next(one for one in timeline["iterations"] if one["calls"])
    hostile = f"<img src=x onerror=alert(1)>{'x' * 1_000_000}"
    step["calls"] = [
        {**step["calls"][0], "arguments": {"c": f"{n}{hostile * (n == 0)}"}} for n in range(2_000)
    ]
    browser = opened()
    browser.context.route("**/timeline", lambda route: route.fulfill(json=timeline))
    page = browser.log_in(f"/runs/{run}")
    calls = page.get_by_role("region", name="Conversation").get_by_role("listitem")
    expect(calls.first).to_contain_text("<img src=x onerror=alert(1)>")
    expect(page.get_by_role("button", name="Show all 1,000,037 characters")).to_be_visible()
    assert page.locator("main *").count() < 4_000
    assert page.locator("main img").count() == 0
    calls.nth(49).scroll_into_view_if_needed()
    expect(calls.nth(75)).to_contain_text("75")


def test_a_run_waits_for_a_person_and_is_found_from_the_run_below_it(
    opened: Open, server: HttpServerProcess
) -> None:
    browser = opened(size=PHONE)
    page = browser.log_in("/chat?agent=boss")
    box = page.get_by_role("textbox", name="Message")
    for number in range(1, 4):
        box.fill('+greet {"c": "exit 5"}')
        box.press("Enter")
        expect(page.locator(".chip summary").get_by_text("failed")).to_have_count(number)
    expect(box).to_be_in_viewport()
    box.fill('+ask {"c": "echo hey"}')
    box.press("Enter")
    expect(page.locator(".chip").last).to_contain_text("It changes things.")  # It waits for a person.
    browser.go("/chat?agent=asker")
    box.fill("Please")
    box.press("Enter")
    turn = page.locator(".turns > li")
    expect(turn).to_contain_text("asker waits for a person:")
    turn.get_by_role("link", name="Approvals").click()
    expect(page.get_by_role("heading", name="Approvals", exact=True)).to_be_visible()

    above = server.send("POST", "/runs", {"agent": "boss", "prompt": "Go"}).json["id"]
    browser.go(f"/runs/{above}")
    page.get_by_role("link", name="run of asker").click()
    asked = page.get_by_text("s waiting for a person")
    before = asked.inner_text()
    expect(asked).not_to_have_text(before)  # It runs on.
    tree = page.get_by_role("region", name="Tree of runs")
    expect(tree.get_by_role("link")).to_have_text(["boss"])
    # A change that does not reach the server says so.
    page.route("**/cancel", lambda route: route.abort())
    page.get_by_role("button", name="Cancel").click()
    expect(page.get_by_text("The server cannot be reached")).to_be_visible()
    page.unroute_all()
    tree.get_by_role("link", name="boss").click()
    heading = page.get_by_role("heading", name="boss")
    expect(heading).to_be_visible()
    page.get_by_role("button", name="Cancel").click()
    expect(heading).to_contain_text("cancelled")
    page.get_by_role("link", name="all its runs").click()
    expect(page.locator(".rows .row-title")).to_have_text(["boss"])
    browser.problems[:] = [one for one in browser.problems if "ERR_FAILED" not in one]


def test_an_attempt_that_was_interrupted_is_not_called_cancelled(opened: Open) -> None:
    lines = [
        {"seq": number, "event": "TOOL_EXECUTED", "fields": {"name": "greet", **how}}
        for number, how in enumerate(({"status": "interrupted"}, {"status": "error", "code": "cancelled"}))
    ]
    browser = opened(locale="de-DE")
    browser.context.route("**/audit?*", lambda route: route.fulfill(json={"lines": lines}))
    page = browser.log_in("/audit")
    expect(page.locator(".audit-row .badge")).to_have_text(["unterbrochen", "abgebrochen"])


def test_a_secret_is_set_and_removed_and_never_shown(opened: Open) -> None:
    page = opened().log_in("/operations/secrets")
    row = page.get_by_role("listitem").filter(has_text="SHOP_KEY")
    expect(row).to_contain_text("missing")
    row.get_by_label("Value of SHOP_KEY").fill("drill-press-4711")
    row.get_by_role("button", name="Set").click()
    expect(row).to_contain_text("resolved")
    expect(row.get_by_label("Value of SHOP_KEY")).to_have_value("")
    assert "4711" not in page.content()
    row.get_by_role("button", name="Remove").click()
    row.get_by_role("button", name="Remove: sure?").click()
    expect(row).to_contain_text("missing")


def test_a_token_is_shown_once_works_and_is_revoked(opened: Open, server: HttpServerProcess) -> None:
    page = opened().log_in("/operations/tokens")
    page.get_by_label("Name").fill("ci")
    page.get_by_label("Acts for").fill("olga")
    page.get_by_role("button", name="Create").click()
    token = page.locator(".once code").inner_text()
    expect(page.locator("input:user-invalid")).to_have_count(0)
    assert server.send("GET", "/tools", token=token).status == 200
    page.reload()
    row = page.get_by_role("listitem").filter(has_text="ci")
    expect(row).to_contain_text("invoke")
    expect(row).to_contain_text("olga")
    expect(page.get_by_text(token)).to_have_count(0)
    row.get_by_role("button", name="Revoke").click()
    row.get_by_role("button", name="Revoke: sure?").click()
    expect(row).to_have_count(0)
    assert server.send("GET", "/tools", token=token).status == 401


def test_a_dead_letter_is_found_and_sent_again(opened: Open, server: HttpServerProcess) -> None:
    origin = Vault(server.root, server.data).origin()
    queue = ChannelMessages(SqliteDatabase(server.root / ".toolcrib/state.db", PROJECT, origin=origin))
    dead, _ = (queue.queue({"channel": "slack", "text": text}) for text in ("lost", "other"))
    queue.settle([(dead, "dead", "channel_not_found", b"{}")])
    page = opened().log_in("/operations/messages")
    expect(page.locator(".rows .row")).to_have_count(2)
    page.get_by_label("State").select_option("dead")
    row = page.get_by_role("listitem").filter(has_text="lost")
    expect(row).to_contain_text("channel_not_found")
    row.get_by_role("button", name="Send again").click()
    expect(row).to_have_count(0)
    page.get_by_label("State").select_option("")
    expect(row).to_have_count(2)
    expect(row.first).to_contain_text("queued")
    expect(row.last).to_contain_text("sent again")


def test_a_call_that_nobody_can_serve_is_named(opened: Open) -> None:
    waits = {"tool": "far", "ready": 3, "waitsS": 90, "served": False}
    queue = {"ready": 3, "running": 0, "waiting": 0, "tools": [waits]}
    browser = opened()
    browser.context.route("**/queue", lambda route: route.fulfill(json=queue))
    page = browser.log_in("/operations/workers")
    line = page.get_by_role("listitem").filter(has_text="nobody can run it")
    expect(line).to_contain_text("far")
    expect(line).to_contain_text("90 s")


def test_a_decision_is_explained_and_a_rule_is_tried_on_past_calls_and_added(opened: Open) -> None:
    page = opened().log_in("/operations/policy")
    expect(page.get_by_role("region", name="Rules in force")).to_contain_text("Not from outside.")
    explain = page.locator("form").filter(has=page.get_by_role("heading", name="Explain a call"))
    explain.get_by_label("Tool").fill("greet")
    explain.get_by_label("Caller").fill("mcp:editor")
    explain.get_by_label("Arguments").fill('{"c": }')
    expect(explain.get_by_role("alert")).to_contain_text("Line 1, column 7")
    explain.get_by_label("Arguments").fill("{}")
    explain.get_by_role("button", name="Explain").click()
    expect(explain.get_by_role("status")).to_contain_text("the rule 'no-etc' says deny")
    form = page.get_by_role("form", name="Try and add a rule")
    form.get_by_label("Tools (patterns").fill("gr*")
    form.get_by_label("JSON Schema").fill('{"properties": {"c": {"const": "echo one"}}}')
    form.get_by_role("button", name="Try", exact=True).click()
    call = form.get_by_role("listitem").filter(has_text="echo one")
    expect(call).to_contain_text("2 times")
    expect(call).to_contain_text("allow")
    expect(call).to_contain_text("ask")
    before, after = form.get_by_role("row").filter(has_text="ask").get_by_role("cell").all_inner_texts()
    assert int(after) - int(before) == 2
    # The list below may be long, and grows as one scrolls.
    texts = form.inner_text()
    assert texts.index("Add this rule") < texts.index("Calls that the rule matches")
    form.get_by_role("button", name="Add this rule").click()
    form.get_by_role("button", name="Add this rule: sure?").click()
    expect(page.get_by_role("region", name="Rules in force")).to_contain_text("echo one")
    expect(form.get_by_role("button", name="Add this rule")).to_have_count(0)


def test_a_workflow_is_started_and_drawn_and_a_run_is_forked(opened: Open) -> None:
    browser = opened()
    page = browser.log_in("/runs")
    page.get_by_text("Start a run").click()
    page.get_by_role("combobox", name="Agent or workflow").select_option("workflow:chain")
    page.get_by_label("word").fill("hello")
    page.get_by_role("button", name="Start", exact=True).click()
    steps = page.get_by_role("region", name="Steps")
    expect(steps.get_by_role("listitem").nth(0)).to_contain_text("done")
    expect(steps.get_by_role("listitem").nth(1)).to_contain_text("failed")
    expect(page.get_by_role("heading", name="Step 2 second")).to_be_visible()
    browser.go("/runs")
    page.get_by_text("Start a run").click()
    page.get_by_role("combobox", name="Agent or workflow").select_option("helper")
    page.get_by_label("Prompt").fill("Ahoy")
    page.get_by_role("button", name="Start", exact=True).click()
    expect(page.get_by_role("heading", name="helper")).to_contain_text("done")
    first = page.url
    page.get_by_text("Fork", exact=True).click()
    page.get_by_label("Next message").fill("Once more")
    page.get_by_role("button", name="Fork from here").click()
    expect(page).not_to_have_url(first)
    expect(page.get_by_role("heading", name="helper")).to_contain_text("done")


def test_a_conversation_with_a_tool_that_runs_first(opened: Open) -> None:
    page = opened().log_in("/chat?agent=helper")
    box = page.get_by_role("textbox", name="Message")
    # A tool by its name alone, without the agent.
    box.fill('+greet {"c": "exit 5"}')
    box.press("Enter")
    chip = page.locator(".chip")
    expect(chip).to_contain_text("failed")
    chip.get_by_label("greet: Arguments").fill('{"c": "seq 40; echo forty-two"}')
    chip.get_by_role("button", name="Run").click()
    expect(chip).to_contain_text("output")
    # Its first lines are seen at once.
    shown = chip.locator("pre").first
    expect(shown).to_have_text(re.compile("1\\s2\\s3\\s4\\s5\\s6$"))
    chip.get_by_role("button", name="Show all").click()
    expect(shown).to_contain_text("forty-two")
    box.fill("What is it?")
    box.press("Enter")
    turn = page.locator(".turns > li")
    expect(turn.locator(".you")).to_contain_text("forty-two")
    expect(turn).to_contain_text("it said hi")
    # Alone it shows the arguments of its example, and runs them only when a person wants that.
    box.fill("+shout")
    box.press("Enter")
    expect(chip.get_by_label("shout: Arguments")).to_have_value('{\n  "c": "echo HEY"\n}')
    expect(chip).to_contain_text("runs when you send")
    chip.get_by_role("button", name="Remove shout").click()
    turn.get_by_text("done").click()
    expect(turn.locator(".chat-call")).to_contain_text("echo hi")
    expect(chip).to_have_count(0)
    # The palette adds a tool, by keyboard alone; the conversation goes on in its session.
    box.press("+")
    expect(page.get_by_role("dialog").get_by_role("combobox")).to_be_focused()
    page.keyboard.type("gree")
    expect(page.get_by_role("option", name="greet")).to_have_attribute("aria-selected", "true")
    page.keyboard.press("Enter")
    expect(chip).to_contain_text("runs when you send")
    page.keyboard.type("typed at once")
    expect(box).to_have_value("typed at once")
    chip.get_by_role("button", name="Remove greet").click()
    box.fill("And now?")
    box.press("Enter")
    expect(page.locator(".turns > li")).to_have_count(2)
    expect(page.locator(".turns > li").last).to_contain_text("You said And now?")


TABLES = "[...document.querySelectorAll('.scrolls')].filter(one => one.scrollWidth > one.clientWidth).length"


def shows(page: Page) -> Any:
    return expect(page.locator(".loading"))


@pytest.mark.parametrize(
    ("scheme", "size", "language"), [("light", DESK, "de"), ("dark", PHONE, "pseudo")], ids=["desk", "phone"]
)
def test_the_pages_are_accessible_and_fit(
    opened: Open, scheme: str, size: tuple[int, int], language: str
) -> None:
    browser = opened(color_scheme=scheme, size=size)
    browser.context.add_init_script(f"localStorage.setItem('toolcrib.language', '{language}')")
    page = browser.log_in("/chat")
    parts = ("usage", "servers", "secrets", "tokens", "policy", "workers", "messages", "machine")
    for path in ("/chat", "/runs", *(f"/operations/{part}" for part in parts)):
        browser.go(path)
        shows(page).to_have_count(0)
        assert browser.violations() == [], path
        assert not browser.is_too_wide(), path
        assert page.evaluate(TABLES) == 0, path
        days = [box["x"] for one in page.locator(".days .ends span").all() if (box := one.bounding_box())]
        assert days == sorted(days), path  # As the bars, in every language.


def test_what_the_machine_lacks_is_said_in_german(opened: Open) -> None:
    browser = opened(locale="de-DE")
    browser.log_in("/runs")
    found = kernel_mechanism("openat2", str(errno.ENOSYS))

    def answer(route: Route) -> None:
        document = route.fetch().json()
        lacking = {name: getattr(found, name) for name in ("name", "ok", "required", "detail", "cost")}
        route.fulfill(json={**document, "mechanisms": [lacking, *document["mechanisms"]]})

    browser.page.route("**/doctor", answer)
    row = browser.go("/operations/machine").get_by_role("listitem").filter(has_text="openat2").first
    expect(row).to_contain_text("Der Kernel kennt das nicht (Nötig ist Linux ab 5.12.)")
    expect(row).to_contain_text("Ohne das laufen Befehle und Python-Tools nur mit der Stufe landlock")
