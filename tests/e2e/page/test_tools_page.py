"""The list of tools and the page of one, as a person uses them."""

from __future__ import annotations

import json
import re

import pytest
from playwright.sync_api import FilePayload, Page, expect

from tests.browser import DESK, PHONE
from tests.e2e.page.conftest import Open
from tests.http_server import HttpServerProcess
from tests.patience import wait_for
from toolcrib.spec.identifier import new_id


def tool_page(opened: Open, server: HttpServerProcess, name: str, query: str = "") -> Page:
    """Log in and open the page of a tool."""
    found = server.send("GET", f"/tools/search?q={name}").json["tools"][0]
    page = opened().log_in(f"/tools/{found['bundleID']}/{found['slug']}/{found['version']}{query}")
    expect(page.get_by_role("heading", name=name)).to_be_visible()
    return page


def test_search_filters_and_order_are_in_the_address(opened: Open) -> None:
    page = opened().log_in()
    expect(page.get_by_role("link", name="look", exact=True)).to_be_visible()
    page.get_by_role("searchbox").fill("greets")
    expect(page.get_by_role("link", name="look", exact=True)).to_have_count(0)
    expect(page.get_by_role("link", name="greet", exact=True)).to_be_visible()
    page.get_by_role("checkbox", name="demo").check()
    expect(page).to_have_url(re.compile("q=greets"))
    expect(page).to_have_url(re.compile("tags=demo"))
    page.get_by_role("checkbox", name="Code of any kind").check()
    expect(page.get_by_role("link", name="greet", exact=True)).to_be_visible()
    expect(page).to_have_url(re.compile("touches=code"))
    page.reload()
    expect(page.get_by_role("checkbox", name="demo")).to_be_checked()
    page.get_by_role("searchbox").fill("nothing like it")
    expect(page.get_by_text("No tool matches")).to_be_visible()


def test_a_switch_counts_at_once_and_for_everybody(opened: Open, server: HttpServerProcess) -> None:
    browser = opened()
    page = browser.log_in("/tools?disabled=1")
    switch = page.get_by_role("switch", name="greet is enabled")
    with page.expect_response("**/tools/bundles/**"):
        switch.click()
    expect(switch).not_to_be_checked()
    notice = page.get_by_role("status").filter(has_text="greet is off.")
    notice.get_by_text("greet is off.").hover()  # It stays while one points at it.
    assert browser.violations() == []
    assert server.send("POST", "/tools/invoke/greet", {"args": {"c": "true"}}).code == "tool_disabled"
    with page.expect_response("**/tools/bundles/**"):
        notice.get_by_role("button", name="Undo").click()
    expect(switch).to_be_checked()
    expect(notice).to_have_count(0)


def test_a_refused_switch_goes_back_and_says_why(opened: Open, server: HttpServerProcess) -> None:
    reader = opened()
    link = server.send("POST", "/login", token=server.create_token("switcher", "admin")).json["path"]
    reader.page.goto(server.address + link)
    switch = reader.page.get_by_role("switch", name="greet is enabled")
    expect(switch).to_be_checked()
    error = {"code": "denied", "message": "not you", "retryable": False}
    reader.page.route("**/tools/bundles/**", lambda route: route.fulfill(status=403, json={"error": error}))
    switch.click()
    expect(reader.page.get_by_text("greet was not switched: not you")).to_be_visible()
    expect(switch).to_be_checked()


def test_what_the_form_shows_is_what_is_sent(opened: Open, server: HttpServerProcess) -> None:
    page = tool_page(opened, server, "greet")
    page.get_by_label("c", exact=True).fill("echo hello")
    page.get_by_role("button", name="JSON").click()
    field = page.get_by_label("Arguments as JSON")
    assert json.loads(field.input_value()) == {"c": "echo hello"}
    text = '{"c":   "echo  as \\u0077ritten"}'
    field.fill(text)
    with page.expect_request(lambda one: one.method == "POST") as sent:
        page.get_by_role("button", name="Run", exact=True).click()
    assert sent.value.post_data == f'{{"args": {text}}}'
    expect(page.locator(".tester-answer pre")).to_have_text("as written\n")
    page.get_by_role("button", name="Form").click()
    expect(page.get_by_label("c", exact=True)).to_have_value("echo  as written")


def test_the_form_has_choices_files_maps_and_null(opened: Open, server: HttpServerProcess) -> None:
    kinds = {
        kind: {"type": "object", "title": kind, "required": ["kind"], "properties": {"kind": {"const": kind}}}
        for kind in ("cat", "dog")
    }
    properties = {
        "pet": {"oneOf": [{"$ref": f"#/$defs/{kind}"} for kind in kinds]},
        "day": {"anyOf": [{"type": "string", "format": "date"}, {"type": "null"}]},
        "photo": {"type": "string", "contentEncoding": "base64"},
        "ages": {"type": "object", "additionalProperties": {"type": "integer"}},
    }
    # A schema within itself is laid out at once, however deep it is shown.
    properties["family"] = {"$ref": "#/$defs/family"}
    family = {"type": "object", "properties": {"head": {"type": "string"}, "next": properties["family"]}}
    defs = {**kinds, "family": family}
    schema = {"type": "object", "required": ["pet"], "properties": properties, "$defs": defs}
    body = {
        "type": "http",
        "description": "Adopts a pet.",
        "argSchema": schema,
        "impl": {"urlTemplate": "https://api.example.com/pets"},
    }
    bundle = f"/tools/bundles/{new_id()}"
    server.send("PUT", bundle, {"slug": "pets", "displayName": "Pets"})
    assert server.send("PUT", f"{bundle}/tools/adopt/version/v1", body).status == 201
    page = tool_page(opened, server, "adopt")
    chosen = page.locator("#args_pet__oneof_select")
    chosen.select_option("dog")
    expect(chosen.locator("option:checked")).to_have_text("dog")
    page.locator("#args_day").fill("2026-11-30")
    photo: FilePayload = {"name": "a.png", "mimeType": "image/png", "buffer": b"hello"}
    page.get_by_label("photo").set_input_files(photo)
    expect(page.get_by_text("a.png · 8 characters of it are sent")).to_be_visible()
    ages = page.get_by_role("group", name="ages")
    ages.get_by_role("button", name="Add").click()
    ages.get_by_label("Name", exact=True).fill("Rex")
    ages.get_by_label("Name", exact=True).blur()
    ages.get_by_label("Rex", exact=True).fill("4")
    page.get_by_role("button", name="JSON").click()
    assert json.loads(page.get_by_label("Arguments as JSON").input_value()) == {
        "pet": {"kind": "dog"},
        "day": "2026-11-30",
        "photo": "aGVsbG8=",
        "ages": {"Rex": 4},
    }
    page.get_by_label("Arguments as JSON").fill('{"pet": {"kind": "cat"}, "day": null}')
    page.get_by_role("button", name="Form").click()
    expect(chosen.locator("option:checked")).to_have_text("cat")
    null = page.get_by_role("checkbox", name="day: No value (null)")
    expect(null).to_be_checked()
    null.uncheck()
    expect(page.locator("#args_day")).to_have_value("")


def test_json_that_cannot_be_read_is_not_sent_and_its_place_is_named(
    opened: Open, server: HttpServerProcess
) -> None:
    page = tool_page(opened, server, "greet")
    page.get_by_role("button", name="JSON").click()
    page.get_by_label("Arguments as JSON").fill('{\n  "c": oops\n}')
    expect(page.get_by_text("Line 2, column 8")).to_be_visible()
    expect(page.get_by_role("button", name="Run", exact=True)).to_be_disabled()


def test_a_dry_run_runs_nothing_and_a_refusal_says_what_is_wrong(
    opened: Open, server: HttpServerProcess
) -> None:
    page = tool_page(opened, server, "greet", "?args=" + '{"c":"echo x > made"}')
    page.get_by_role("button", name="Dry run").click()
    expect(page.locator(".tester-answer .badge")).to_have_text("ok")
    assert not (server.root / "made").exists()
    page.get_by_role("button", name="JSON").click()
    page.get_by_label("Arguments as JSON").fill('{"c": 1, "d": 2}')
    page.get_by_role("button", name="Run", exact=True).click()
    expect(page.locator(".tester-answer")).to_contain_text("$.c")


def test_progress_is_shown_and_a_call_can_be_cancelled(opened: Open, server: HttpServerProcess) -> None:
    page = tool_page(opened, server, "greet", "?args=" + '{"c":"echo begun; sleep 600"}')
    page.get_by_role("button", name="Run", exact=True).click()
    expect(page.locator(".tester-answer pre")).to_have_text("begun\n")
    page.get_by_role("button", name="Cancel").click()
    expect(page.locator(".tester-answer .badge")).to_have_text("cancelled")
    expect(page.locator(".tester-answer figure pre")).to_have_text("begun\n")
    # The log has the same word, here and in German, and the tool's own numbers have the call.
    expect(page.locator(".history .badge").first).to_have_text("cancelled")
    numbers = page.locator(".pairs")

    def is_shown() -> bool:
        calls = server.send("GET", "/tools/search?q=greet").json["tools"][0]["callCount"]
        return numbers.get_by_role("link", name=str(calls), exact=True).is_visible()

    wait_for(is_shown, "the number of its calls")
    page.evaluate("localStorage.setItem('toolcrib.language', 'de')")
    page.reload()
    expect(page.locator(".history .badge").first).to_have_text("abgebrochen")


def test_a_menu_of_copies_closes_by_escape_and_by_a_click_elsewhere(
    opened: Open, server: HttpServerProcess
) -> None:
    page = tool_page(opened, server, "greet")
    menu, link = (page.get_by_role("button", name=name, exact=True) for name in ("Copy as", "Link"))
    menu.click()
    expect(link).to_be_visible()
    page.keyboard.press("Escape")
    expect(link).to_be_hidden()
    menu.click()
    page.get_by_role("heading").first.click()
    expect(link).to_be_hidden()


def test_an_output_that_is_not_text_is_saved_by_an_address_that_works_once(
    opened: Open, server: HttpServerProcess
) -> None:
    page = tool_page(opened, server, "greet")
    page.get_by_label("c", exact=True).fill("head -c 200000 /dev/urandom")
    page.get_by_role("button", name="Run", exact=True).click()
    save = page.get_by_role("button", name="Save the output as a file (application/octet-stream)")
    with page.expect_download() as download:
        save.click()
    assert download.value.path().stat().st_size == 200_000
    path, _, code = download.value.url.removeprefix(server.address).partition("?once=")
    assert server.send("GET", f"{path}?once={code}", token=None).code == "invalid_token"
    # It is good for its own path alone.
    for asked, status in (("/audit", 401), ("/tools", 200)):
        made = server.send("POST", "/downloads", {"path": "/tools"}).json["once"]
        assert server.send("GET", f"{asked}?once={made}", token=None).status == status


def test_hostile_text_is_shown_as_text(opened: Open, server: HttpServerProcess) -> None:
    script = r"printf '<img src=x onerror=alert(1)>\033[31m\342\200\256evil'"
    page = tool_page(opened, server, "greet")
    page.get_by_label("c", exact=True).fill(script)
    page.get_by_role("button", name="Run", exact=True).click()
    expect(page.locator(".tester-answer pre")).to_have_text(
        r"<img src=x onerror=alert(1)>\u001b[31m\u202eevil"
    )


def test_by_keyboard_alone_a_tool_is_found_and_run(opened: Open) -> None:
    page = opened().log_in()
    page.get_by_role("link", name="greet", exact=True).wait_for()
    page.keyboard.press("Control+k")
    palette = page.get_by_role("dialog")
    expect(palette.get_by_role("combobox")).to_be_focused()
    page.keyboard.type("gree")
    expect(palette.get_by_role("option", name="greet")).to_have_attribute("aria-selected", "true")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="greet")).to_be_visible()
    page.get_by_label("c", exact=True).focus()
    page.keyboard.type("echo typed")
    page.keyboard.press("Enter")
    expect(page.locator(".tester-answer pre")).to_have_text("typed\n")


def test_a_person_reads_the_texts_of_a_record_in_their_language(
    opened: Open, server: HttpServerProcess
) -> None:
    path, german = (
        f"/tools/bundles/{new_id()}",
        {"de": {"displayName": "Himmel", "description": "Heute blau. \u202e"}},
    )
    texts = {"displayName": "Sky", "description": "Blue today. \u202e", "translations": german}
    tool = {
        **texts,
        "type": "http",
        "argSchema": {"type": "object"},
        "impl": {"urlTemplate": "https://sky.example/x"},
    }
    server.send("PUT", path, {"slug": "heaven", "displayName": "Heaven", "translations": german})
    assert server.send("PUT", f"{path}/tools/sky/version/v1", tool).status == 201
    server.send("POST", "/tools/invoke/heaven%2Fsky@v1", {"args": {}}, {"Prefer": "respond-async"})
    try:
        for locale, title, about in (
            ("de-DE", "Himmel", r"Heute blau. \u202e"),
            ("en-US", "Sky", r"Blue today. \u202e"),
        ):
            one = opened(locale=locale)
            page = one.log_in(f"/tools?q={title.lower()}")
            row = page.get_by_role("listitem").filter(has_text="heaven/sky@v1")
            expect(row).to_contain_text(about)
            bundle = "Himmel" if locale == "de-DE" else "Heaven"
            expect(page.get_by_role("checkbox", name=bundle)).to_be_visible()
            page.keyboard.press("Control+k")
            expect(page.get_by_role("dialog").get_by_role("combobox")).to_be_focused()
            page.keyboard.type(about.split()[0])
            page.get_by_role("option", name=f"{title} · heaven/sky@v1").click()
            expect(page.get_by_role("heading", name=title)).to_be_visible()
            expect(page.locator(".tool-head")).to_contain_text(about)
            one.go("/approvals")
            # The question about the call is the newest.
            page.get_by_role("main").locator("summary").first.click()
            expect(
                page.get_by_text(f"Himmel: {about}" if locale == "de-DE" else about, exact=True)
            ).to_be_visible()
            inbox = page.locator("section", has=page.locator("#trust"))
            expect(inbox.get_by_text(title, exact=True)).to_be_visible()
            reason = "Netzwerk: sky.example" if locale == "de-DE" else "network: sky.example"
            expect(inbox.locator("li").filter(has_text=reason).first).to_be_visible()
    finally:
        server.send("DELETE", f"{path}/tools/sky/version/v1")
        server.send("DELETE", path)


@pytest.mark.parametrize(
    ("language", "size", "scheme"),
    [
        pytest.param("en", DESK, "light", id="en-desk"),
        pytest.param("de", PHONE, "dark", id="de-phone"),
        pytest.param("pseudo", DESK, "dark", id="pseudo-desk", marks=pytest.mark.soak),
        pytest.param("pseudo", PHONE, "light", id="pseudo-phone", marks=pytest.mark.soak),
    ],
)
def test_pages_are_accessible_and_fit(
    opened: Open, server: HttpServerProcess, language: str, size: tuple[int, int], scheme: str
) -> None:
    browser = opened(color_scheme=scheme, size=size)
    browser.context.add_init_script(f"localStorage.setItem('toolcrib.language', '{language}')")
    found = server.send("GET", "/tools/search?q=look").json["tools"][0]
    tool = f"/tools/{found['bundleID']}/{found['slug']}/{found['version']}"
    server.send("POST", "/tools/invoke/look", {"args": {"c": "echo" + " history" * 40}})
    page = browser.log_in()
    for path, shown in (("/tools", ".row"), (tool, ".history button")):
        browser.go(path)
        page.locator(shown).first.wait_for()
        expect(page.locator(".loading")).to_have_count(0)
        assert browser.violations() == []
        assert not browser.is_too_wide()
    page.set_viewport_size({"width": 640, "height": 400})  # A desk at 200 %.
    assert page.locator(".nav").evaluate("one => one.scrollWidth <= one.clientWidth")
    page.keyboard.press("Control+k")
    page.get_by_role("dialog").wait_for()
    assert browser.violations() == []
