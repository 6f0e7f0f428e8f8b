"""New tools, versions, imports and the trash, as a person does it on the page."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Dialog, Locator, Page, Route, expect

from tests.browser import DESK, PHONE
from tests.e2e.page.conftest import Open
from tests.http_server import HttpServerProcess
from toolcrib.spec.identifier import new_id

TEXT = """\
name: count
description: Count the words of a text.
kind: command
version: 1
inputs:
  schema:
    type: object
    additionalProperties: false
    required: [text]
    properties: {text: {type: string}}
outputs: {format: text}
exec:
  command: {entrypoint: printf, args: ["%s!", "${text}"]}
"""


def type_text(page: Page, text: str) -> None:
    """Replace the text of the editor."""
    editor = page.get_by_role("textbox", name="Definition")
    editor.click()
    page.keyboard.press("Control+a")
    page.keyboard.press("Delete")
    page.keyboard.insert_text(text)


def put_tool(server: HttpServerProcess, slug: str, manifest: str = TEXT) -> str:
    """Put a bundle with one tool, and return the address of the tool's page."""
    bundle = new_id()
    made = server.send("PUT", f"/tools/bundles/{bundle}", {"slug": f"of-{slug}", "displayName": f"Of {slug}"})
    assert made.status == 201, made.body
    text = manifest.replace("name: count", f"name: {slug}").encode()
    address = f"/tools/bundles/{bundle}/tools/{slug}/version/1"
    put = server.send("PUT", address, text, {"Content-Type": "application/yaml"})
    assert put.status == 201, put.body
    return f"/tools/{bundle}/{slug}/1"


def test_a_tool_is_written_tried_and_saved(opened: Open, server: HttpServerProcess) -> None:
    page = opened().log_in("/tools/new")
    page.get_by_role("button", name="YAML or JSON").click()
    type_text(page, TEXT.replace("entrypoint: printf", "entrypont: printf"))
    finding = page.get_by_role("button", name="Line 13: unknown key `entrypont`")
    expect(finding).to_be_visible()
    expect(page.locator(".cm-error")).to_contain_text("entrypont")
    expect(page.get_by_role("button", name="Save")).to_be_disabled()
    type_text(page, TEXT)
    expect(finding).to_have_count(0)  # The form is that of the text now.
    expect(page.get_by_role("button", name="Save", exact=True)).to_be_enabled()
    page.locator(".tester .rjsf textarea").fill("word")
    page.get_by_role("button", name="Run", exact=True).click()
    page.get_by_role("button", name="Trust it and run").click()
    expect(page.locator(".tester-answer pre")).to_have_text("word!")
    # One question for each draft: the same one runs again at once.
    page.get_by_role("button", name="Run", exact=True).click()
    expect(page.locator(".tester-answer .badge")).to_have_text("ok")
    page.get_by_role("button", name="Save", exact=True).click()
    window = page.get_by_role("dialog")
    window.get_by_role("combobox", name="Bundle").select_option("A new bundle")
    window.get_by_label("Name of the bundle").fill("Written")
    # What was just trusted as a draft stays trusted, if one does not take it back here.
    expect(window.get_by_role("checkbox", name="Trust it")).to_be_checked()
    window.get_by_role("button", name="Save", exact=True).click()
    expect(page.get_by_role("heading", name="Written/count@1")).to_be_visible()
    stored = server.send("GET", "/tools/search?q=count").json["tools"][0]
    assert (stored["bundle"], stored["source"], stored["trust"]) == ("Written", "user", None)
    page.locator(".tester .rjsf textarea").fill("again")
    page.get_by_role("button", name="Run", exact=True).click()
    expect(page.locator(".tester-answer pre")).to_have_text("again!")


def test_what_is_not_saved_is_not_lost_by_a_click(opened: Open) -> None:
    page = opened().log_in("/tools/new")
    page.get_by_label("What it does").fill("Something.")
    asked = list[str]()

    def stay(dialog: Dialog) -> None:
        asked.append(dialog.message)
        dialog.dismiss()

    page.on("dialog", stay)
    with page.expect_event("dialog"):
        page.get_by_role("link", name="Runs").click()
    expect(page.get_by_label("What it does")).to_have_value("Something.")
    assert asked == ["Leave without saving what you changed?"]
    page.remove_listener("dialog", stay)
    page.once("dialog", lambda dialog: dialog.accept())
    page.get_by_role("link", name="Runs").click()
    expect(page.get_by_role("heading", name="Runs")).to_be_visible()


def test_questions_make_a_tool_with_two_steps(opened: Open, server: HttpServerProcess) -> None:
    page = opened().log_in("/tools/new")
    page.get_by_role("combobox", name="It ").select_option("calls other tools, step by step")
    page.get_by_label("Name").first.fill("greet_twice")
    page.get_by_label("What it does").fill("Greets twice.")
    argument = page.get_by_role("group", name="Argument", exact=True)
    argument.get_by_label("Name").fill("words")
    steps = page.get_by_role("group", name="Step", exact=True)
    for index, choices in enumerate((["${words}"], ["${steps.first.value}", "${words}"])):
        step = steps.nth(index)
        tool = step.get_by_role("combobox", name="Tool")
        tool.fill("gree")
        expect(listed(tool, "greet")).to_have_count(1)
        tool.fill("greet")
        # Its arguments are asked for by name, with their type; what stands for a value is in a list.
        taken = step.get_by_role("combobox", name="c", exact=True)
        expect(step.locator(".field-about", has_text="Text")).to_have_text("Text")
        for choice in choices:
            expect(listed(taken, choice)).to_have_count(1)
        expect(listed(taken, "${")).to_have_count(len(choices))
        taken.fill(choices[0])
    page.get_by_text("Manifest", exact=True).click()
    expect(page.locator(".build-input pre")).to_contain_text('c: "${steps.first.value}"')
    expect(page.get_by_text("greet: code")).to_be_visible()
    page.locator(".tester .rjsf textarea").fill("echo echo twice")
    page.get_by_role("button", name="Run", exact=True).click()
    page.get_by_role("button", name="Trust it and run").click()
    expect(page.locator(".tester-answer pre")).to_have_text("twice\n")
    # A text stays one, whatever it looks like.
    steps.first.get_by_role("combobox", name="c", exact=True).fill("42")
    expect(page.locator(".build-input pre")).to_contain_text('c: "42"')


def listed(field: Locator, choice: str) -> Locator:
    """Return the entries with these characters in the list from which one chooses for a field."""
    page, name = field.page, field.get_attribute("list")
    return page.locator(f'datalist[id="{name}"] option[value*="{choice}"]')


class _Weather(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        good = (
            self.path == "/v1/current.json?q=Basel&key=drill-press"
            and self.headers["User-Agent"] == "MyApp/1"
        )
        body = json.dumps({"current": {"condition": {"text": "Sunny" if good else self.path}}}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def weather() -> Iterator[str]:
    """The host and port of a service that asks for a key."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Weather) as service:
        threading.Thread(target=service.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{service.server_port}"
        service.shutdown()


def test_questions_make_a_tool_that_sends_a_request_with_a_secret(opened: Open, weather: str) -> None:
    page = opened().log_in("/tools/new")
    page.get_by_label("Name").first.fill("weather")
    page.get_by_label("What it does").fill("Fetch current weather for a city")
    page.get_by_role("group", name="Argument", exact=True).get_by_label("Name").fill("city")
    page.get_by_label("Address").fill(
        f"http://{weather}/v1/current.json?q=${{city}}&key=${{WEATHER_API_KEY}}"
    )
    headers = page.get_by_role("group", name="Headers", exact=True)
    headers.get_by_role("button", name="Add").click()
    headers.get_by_label("Name", exact=True).fill("User-Agent")
    headers.get_by_label("Name", exact=True).blur()
    headers.get_by_label("User-Agent", exact=True).fill("MyApp/${version}")
    page.get_by_label("Part of the answer").fill("$.current.condition.text")
    expect(page.get_by_text("secret WEATHER_API_KEY")).to_be_visible()
    page.locator(".tester .rjsf textarea").fill("Basel")
    page.get_by_role("button", name="Dry run").click()
    expect(page.locator(".tester-answer pre").first).to_contain_text("<secret WEATHER_API_KEY>")
    # The draft runs before it is saved: the secret that it lacks is asked for where it lacks.
    run = page.get_by_role("button", name="Run", exact=True)
    run.click()
    # Nothing runs behind the question.
    expect(page.locator(".tester-answer")).not_to_contain_text("Running")
    page.get_by_role("button", name="Trust it and run").click()
    page.get_by_label("Value of WEATHER_API_KEY").fill("drill-press")
    page.get_by_role("button", name="Set", exact=True).click()
    expect(page.get_by_text("WEATHER_API_KEY is set")).to_be_visible()
    expect(page.locator(".tester-answer")).to_have_text("ResultWhat it lacked is set: run it again.")
    run.click()
    expect(page.locator(".tester-answer pre")).to_have_text("Sunny")
    page.get_by_role("button", name="Save", exact=True).click()
    window = page.get_by_role("dialog")
    window.get_by_role("combobox", name="Bundle").select_option("A new bundle")
    window.get_by_label("Name of the bundle").fill("Skies")
    window.get_by_role("checkbox", name="Trust it").uncheck()
    window.get_by_role("button", name="Save", exact=True).click()
    heading = page.get_by_role("heading", name="Skies/weather@1")
    expect(heading).to_be_visible()
    page.get_by_role("link", name="Operations").click()
    page.get_by_role("link", name="Secrets").click()
    expect(page.get_by_text("resolved")).to_be_visible()
    page.get_by_role("link", name="Tools", exact=True).click()
    page.get_by_role("link", name="weather").click()
    expect(heading).to_be_visible()
    page.get_by_role("button", name="Trust Skies/weather@1").click()
    window = page.get_by_role("dialog")
    expect(window.get_by_role("listitem")).to_have_text([f"network: {weather}", "secret WEATHER_API_KEY"])
    expect(window.locator("pre")).to_contain_text("kind: http")
    window.get_by_role("button", name="Trust Skies/weather@1").click()
    expect(page.get_by_text("nobody has trusted it")).to_have_count(0)
    page.locator(".tester .rjsf textarea").fill("Basel")
    run.click()
    expect(page.locator(".tester-answer pre")).to_have_text("Sunny")


def test_a_watched_run_proposes_permissions_to_take_or_leave(opened: Open, server: HttpServerProcess) -> None:
    for name in ("a.txt", "b.txt"):
        (server.root / name).write_text(f"{name}\n")
    browser = opened()
    page = browser.log_in("/tools/new")
    page.get_by_role("combobox", name="It ").select_option("runs a program")
    page.get_by_label("Name").first.fill("both")
    page.get_by_label("What it does").fill("Reads notes.")
    page.get_by_role("group", name="Argument", exact=True).get_by_label("Name").fill("note")
    page.get_by_role("textbox", name="Program").fill("cat")
    words = page.get_by_role("group", name="Its arguments", exact=True)
    for index, word in enumerate(("${note}", "b.txt")):
        words.get_by_role("button", name="Add").click()
        words.get_by_role("textbox").nth(index).fill(word)
    page.locator(".tester .rjsf textarea").fill("a.txt")
    page.get_by_role("button", name="Watch this run").click()
    asked = page.get_by_role("dialog")
    expect(asked.get_by_role("checkbox", name="Watch this run")).to_be_checked()
    asked.get_by_role("button", name="Trust it and run").click()
    found = page.get_by_role("region", name="What this run needs")
    expect(found.get_by_role("group", name="Asked for, and refused")).to_contain_text("read a.txt")
    assert browser.violations() == []
    found.get_by_role("checkbox", name="read a.txt").check()
    expect(found.get_by_role("checkbox", name="read b.txt")).not_to_be_checked()
    found.get_by_role("button", name="Take these permissions").click()
    touches = page.get_by_role("region", name="What it may touch").get_by_role("listitem")
    expect(touches).to_have_text(["read a.txt"])
    # As text it is the same: what is taken goes into the manifest.
    page.get_by_role("button", name="YAML or JSON").click()
    page.get_by_role("button", name="Watch this run").click()
    asked.get_by_role("button", name="Trust it and run").click()
    expect(found.get_by_role("checkbox", name="read a.txt")).to_be_checked()
    found.get_by_role("checkbox", name="read b.txt").check()
    found.get_by_role("button", name="Take these permissions").click()
    expect(touches).to_have_text(["read a.txt", "read b.txt"])
    expect(page.get_by_role("textbox", name="Definition")).to_contain_text("- b.txt  # read")
    page.get_by_role("button", name="Run", exact=True).click()
    asked.get_by_role("button", name="Trust it and run").click()
    expect(page.locator(".tester-answer pre")).to_have_text("a.txt\nb.txt\n")


def test_a_stored_tool_is_watched_and_a_new_version_has_what_is_taken(
    opened: Open, server: HttpServerProcess
) -> None:
    (server.root / "c.txt").write_text("c\n")
    address = put_tool(server, "watched", TEXT.replace("printf", "cat").replace('"%s!", ', ""))
    page = opened().log_in(address)
    page.get_by_role("button", name="Trust of-watched/watched@1").click()
    page.get_by_role("dialog").get_by_role("button", name="Trust of-watched/watched@1").click()
    expect(page.get_by_text("nobody has trusted it")).to_have_count(0)
    page.locator(".tester .rjsf textarea").fill("c.txt")
    page.get_by_role("button", name="Watch this run").click()
    page.get_by_role("dialog").get_by_role("button", name="Run it").click()
    page.get_by_role("checkbox", name="read c.txt").check()
    page.get_by_role("button", name="Open a new version with these permissions").click()
    expect(page.get_by_role("group", name="May read", exact=True).get_by_role("textbox")).to_have_value(
        "c.txt"
    )
    # As text it is what the server wrote, until an answer changes.
    page.get_by_role("button", name="YAML or JSON").click()
    editor = page.get_by_role("textbox", name="Definition")
    expect(editor).to_contain_text("version: 2")
    expect(editor).to_contain_text("- c.txt  # read")


def test_a_new_version_shows_its_difference_and_the_old_one_stays(
    opened: Open, server: HttpServerProcess
) -> None:
    address = put_tool(server, "versioned")
    page = opened().log_in(address)
    page.get_by_role("link", name="New version").click()
    page.get_by_label("What it does").fill("Count the words of a text. All.")
    page.get_by_role("button", name="Save", exact=True).click()
    diff = page.get_by_role("dialog").locator(".diff")
    expect(diff).to_contain_text("+version: 2")
    page.get_by_role("dialog").get_by_role("button", name="Save", exact=True).click()
    expect(page.get_by_role("heading", name="of-versioned/versioned@2")).to_be_visible()
    page.get_by_role("button", name="Difference from version 1").click()
    expect(page.get_by_role("dialog").locator(".added").first).to_contain_text("a text. All.")


def test_what_no_question_asks_about_opens_as_text(opened: Open, server: HttpServerProcess) -> None:
    address = put_tool(server, "limited", f"{TEXT}limits: {{timeout_ms: 3000}}\n")
    page = opened().log_in(address)
    page.get_by_role("link", name="New version").click()
    why = "The questions do not ask about timeout_ms, so the tool is shown as text."
    expect(page.get_by_text(why)).to_be_visible()
    type_text(page, TEXT.replace("version: 1", "version: 2"))
    expect(page.get_by_text(why)).to_have_count(0)
    page.get_by_role("button", name="Questions").click()
    expect(page.get_by_label("What it does")).to_have_value("Count the words of a text.")


def test_a_fault_is_said_at_its_question_in_plain_words(opened: Open) -> None:
    page = opened().log_in("/tools/new")
    page.get_by_label("Name").first.fill("weather")
    page.get_by_label("What it does").fill("Tells the weather.")
    page.get_by_label("Address").fill("https://api.example.com/${town}")
    expect(page.locator("#args_address__error")).to_contain_text("Nothing is called town.")
    page.get_by_role("combobox", name="It ").select_option("runs a program")
    page.get_by_role("textbox", name="Program").fill("cat ${x}")
    expect(page.locator("#args_program__error")).to_have_text("This is missing, or not as described above.")
    secrets = page.get_by_role("group", name="Secrets", exact=True)
    secrets.get_by_role("button", name="Add").click()
    secrets.get_by_role("textbox").fill("my key")
    expect(page.locator("#args_secrets__error")).to_have_text("This is missing, or not as described above.")


def test_a_deleted_tool_is_in_the_trash_until_it_is_restored(opened: Open, server: HttpServerProcess) -> None:
    address = put_tool(server, "doomed")
    steps = json.dumps({"steps": [{"id": "a", "tool": "of-doomed/doomed@1", "args": {"text": "x"}}]})
    put_tool(
        server,
        "caller",
        f"{TEXT[: TEXT.index('outputs')]}exec: {{composite: {steps}}}\n".replace("command", "composite"),
    )
    page = opened().log_in(address)
    page.get_by_role("button", name="Delete").click()
    expect(page.get_by_role("dialog")).to_contain_text("fail, also those of: of-caller/caller@1.")
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(page.get_by_text("is in the trash")).to_be_visible()
    page.get_by_role("link", name="Trash").click()
    assert server.send("GET", f"/tools/bundles{address.removeprefix('/tools')}").status == 404
    page.get_by_role("button", name="Restore doomed 1").click()
    expect(page.get_by_text("doomed 1 was restored")).to_be_visible()
    assert server.send("GET", "/tools/search?q=doomed").json["total"] == 1


def test_history_has_calls_of_every_interface_and_replays_them(
    opened: Open, server: HttpServerProcess
) -> None:
    server.send("POST", "/tools/invoke/greet", {"args": {"c": "echo history"}})
    found = server.send("GET", "/tools/search?q=greet").json["tools"][0]
    page = opened().log_in(f"/tools/{found['bundleID']}/{found['slug']}/{found['version']}")
    card = page.get_by_role("region", name="History")
    expect(card).to_contain_text("token:admin")
    card.get_by_role("button", name='Use these arguments: {"c":"echo history"}').first.click()
    page.get_by_role("button", name="Run", exact=True).click()
    expect(page.locator(".tester-answer pre")).to_have_text("history\n")
    expect(page.get_by_role("region", name="Who may call it")).to_contain_text("you, on this page")


def test_a_command_of_curl_becomes_a_draft(opened: Open) -> None:
    page = opened().log_in("/tools/import?source=unknown")
    expect(page.get_by_role("button", name="OpenAPI")).to_have_attribute("aria-pressed", "true")
    page.get_by_role("button", name="curl").click()
    page.get_by_label("Command").fill("curl -H 'X-Api-Key: hush' 'https://api.example.com/find?q=tea'")
    page.get_by_role("button", name="Make a tool").click()
    expect(page.get_by_text("set the secret X_API_KEY_API_EXAMPLE_COM")).to_be_visible()
    expect(page.get_by_label("Name").first).to_have_value("get_find")
    expect(page.get_by_text("network: api.example.com")).to_be_visible()
    page.get_by_role("button", name="Dry run").click()
    expect(page.locator(".tester-answer pre").first).to_contain_text("<secret X_API_KEY_API_EXAMPLE_COM>")
    # It is nowhere else, so leaving it asks.
    asked = list[str]()

    def leave(dialog: Dialog) -> None:
        asked.append(dialog.message)
        dialog.accept()

    page.once("dialog", leave)
    page.get_by_role("link", name="Runs").click()
    expect(page.get_by_role("heading", name="Runs")).to_be_visible()
    assert asked == ["Leave without saving what you changed?"]


def test_operations_of_a_document_are_chosen(opened: Open, server: HttpServerProcess, tmp_path: Path) -> None:
    answer = {"responses": {"200": {"description": "ok"}}}
    operations = {"get": {"operationId": "getPet", **answer}, "delete": {"operationId": "dropPet", **answer}}
    document = {
        "openapi": "3.1.0", "info": {"title": "Pets", "version": "1"},
        "servers": [{"url": "https://pets.example.com"}], "paths": {"/pet": operations},
    }  # fmt: skip
    file = tmp_path / "pets.json"
    file.write_text(json.dumps(document))
    page = opened().log_in("/tools/import")
    page.get_by_label("or a file").set_input_files(file)
    page.get_by_role("button", name="Read").click()
    expect(page.get_by_role("heading", name="Pets")).to_be_visible()
    page.get_by_role("checkbox", name="All operations").uncheck()
    expect(page.get_by_role("button", name="Import 0 tools")).to_be_disabled()
    page.get_by_role("checkbox", name="getPet").check()
    page.get_by_role("button", name="Import 1 tool").click()
    expect(page.get_by_text("1 tool was written")).to_be_visible()
    assert (server.root / ".toolcrib/tools/getPet/tool.yml").is_file()
    assert not (server.root / ".toolcrib/tools/dropPet").exists()


def test_a_bundle_is_exported_and_imported(opened: Open, server: HttpServerProcess, tmp_path: Path) -> None:
    address = put_tool(server, "packed")
    page = opened().log_in(address)
    with page.expect_download() as download:
        page.get_by_role("button", name="Export its bundle").click()
    file = tmp_path / "packed.zip"
    assert download.value.suggested_filename == "of-packed.zip"
    download.value.save_as(file)
    page.goto(f"{server.address}/#/tools/import?source=zip")
    page.get_by_label("File").set_input_files(file)
    page.get_by_role("combobox", name="If a tool is here already").select_option("make another bundle")
    page.get_by_role("button", name="Read").click()
    expect(page.locator(".rows").get_by_text("packed 1")).to_be_visible()
    page.get_by_role("button", name="Import", exact=True).last.click()
    expect(page.get_by_text("imported", exact=True)).to_be_visible()
    expect(page.get_by_text("What is new waits for trust: see Approvals.")).to_be_visible()
    assert server.send("GET", "/tools/search?q=packed").json["total"] == 2


@pytest.mark.parametrize(
    ("size", "scheme", "language"),
    [
        pytest.param(DESK, "light", "pseudo", id="desk-pseudo"),
        pytest.param(PHONE, "dark", "de", id="phone-de"),
        pytest.param(DESK, "light", "de", id="desk-de", marks=pytest.mark.soak),
        pytest.param(PHONE, "dark", "pseudo", id="phone-pseudo", marks=pytest.mark.soak),
    ],
)
def test_pages_for_building_are_accessible_and_fit(
    opened: Open, size: tuple[int, int], scheme: str, language: str
) -> None:
    browser = opened(color_scheme=scheme, size=size)
    browser.context.add_init_script(f"localStorage.setItem('toolcrib.language', '{language}')")
    page = browser.log_in()
    pages = (
        ("/tools/new", ".rjsf textarea"), ("/tools/new?how=text", ".cm-content"), ("/tools/trash", "h1"),
        *((f"/tools/import?source={one}", "form") for one in ("openapi", "curl", "zip", "mcp")),
    )  # fmt: skip
    for path, shown in pages:
        browser.go(path)
        page.locator(shown).first.wait_for()
        expect(page.locator(".loading")).to_have_count(0)
        assert browser.violations() == [], path
        assert not browser.is_too_wide(), path


def test_a_record_that_may_touch_other_things_once_it_is_saved_waits_for_trust(
    opened: Open, server: HttpServerProcess
) -> None:
    def differ(route: Route) -> None:
        answer = route.fetch()
        tool = {**answer.json()["tool"], "touches": ["network: elsewhere.example"]}
        route.fulfill(response=answer, json={**answer.json(), "tool": tool})

    record = {
        "slug": "sky", "version": "v1", "type": "http", "displayName": "Sky", "description": "Tells the sky.",
        "argSchema": {"type": "object"}, "impl": {"urlTemplate": "https://sky.example/x"},
    }  # fmt: skip
    page = opened().log_in("/tools/new?how=text")
    for version, answers, notice in (("v1", None, "was saved"), ("v2", differ, "touch other things")):
        type_text(page, json.dumps({**record, "version": version}))
        page.get_by_role("button", name="Save", exact=True).click()
        window = page.get_by_role("dialog")
        window.get_by_role("checkbox", name="Trust it").check()
        if answers is not None:
            page.route("**/tools/draft", answers)
        window.get_by_role("button", name="Save", exact=True).click()
        expect(page.locator(".notices")).to_contain_text(notice)
        page.unroute_all(behavior="wait")
        page.get_by_role("button", name="Export its bundle").wait_for()
        page.goto(f"{server.address}/#/tools/new?how=text")
    found = server.send("GET", "/tools/search?q=sky").json["tools"]
    assert {one["version"]: one["trust"] for one in found} == {"v1": None, "v2": "new"}
