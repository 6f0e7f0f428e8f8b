"""`toolcrib bundle` and `toolcrib tool`: the store on the command line, without a project."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.commands import PROGRAM, run
from tests.crib import Crib, accept
from tests.e2e.cli.test_cli import ENVIRONMENT, Done
from tests.e2e.terminal import terminal
from toolcrib.bundles import Store
from toolcrib.project.catalog.stored import BUNDLE_ID
from toolcrib.spec.identifier import new_id

RECORD: dict[str, Any] = {
    "slug": "forecast",
    "version": "v1",
    "displayName": "Forecast",
    "type": "http",
    "argSchema": {"type": "object", "properties": {"city": {"type": "string"}}},
    "impl": {"urlTemplate": "https://example.com/${city}"},
}
MANIFEST = """# kept as it is
name: read_notes
description: Read the notes
kind: file
version: 3
exec:
  file: {action: read, path: notes.txt}
permissions:
  fs: {read: [notes.txt], write: []}
"""


class Shelf:
    """A store in a folder of its own, and commands about it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.data = folder / "data"

    def __call__(self, *words: str, stdin: bytes = b"", env: dict[str, str] | None = None) -> Done:
        environment = ENVIRONMENT | {"TOOLCRIB_DATA": str(self.data)} | (env or {})
        return Done(run(words, self.folder, environment, stdin))

    def ok(self, *words: str, stdin: bytes = b"") -> Any:
        """The document of a command that must succeed."""
        done = self(*words, "--json", stdin=stdin)
        assert done.code == 0, done.out + done.err
        return done.document

    def asked(self, answer: str, *words: str) -> str:
        """What the terminal shows of a command whose question gets this answer."""
        environment = ENVIRONMENT | {"TOOLCRIB_DATA": str(self.data)}
        with terminal([PROGRAM, *words], self.folder, environment, accepted=False) as screen:
            screen.read_until("[y/N]")
            screen.type(f"{answer}\n")
            screen.end()
            return screen.text

    def refused(self, exit_code: int, code: str, *words: str, stdin: bytes = b"") -> str:
        """The message of a command that must be refused so, with a hint, in both forms."""
        done = self(*words, "--json", stdin=stdin)
        assert (done.code, done.document["error"]["code"]) == (exit_code, code), done.out
        plain = self(*words, stdin=stdin)
        assert plain.code == exit_code
        assert plain.out == ""
        return str(done.document["error"]["message"]) + " " + str(done.document["error"]["hint"])

    def own(self, *words: str) -> list[Any]:
        """The bundles that are listed before the one of the built-in tools, the last."""
        own: list[Any]
        *own, builtin = self.ok("bundle", "list", *words)["bundles"]
        assert (builtin["slug"], builtin["isBuiltIn"]) == ("builtin", True)
        return own

    def put(self, bundle: str, **fields: Any) -> Any:
        return self.ok("tool", "put", bundle, "-", stdin=json.dumps({**RECORD, **fields}).encode())


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path)


def test_revisions_and_history_of_a_tool(shelf: Shelf) -> None:
    shelf.ok("bundle", "create", "weather")
    first = shelf.put("weather")
    shelf.ok("tool", "disable", "weather/forecast")
    shelf.ok("tool", "delete", "weather/forecast", "--yes")
    found = shelf.ok("tool", "revisions", "weather/forecast@v1")["revisions"]
    assert [(one["change"], one["changedBy"]) for one in found] == [("deleted", "cli"), ("disabled", "cli")]
    assert found[1]["tool"] == first
    changes = shelf.ok("tool", "history", "weather/forecast")["changes"]
    assert [one["event"] for one in changes] == ["TOOL_DELETED", "TOOL_DISABLED", "TOOL_PUT"]
    assert shelf("tool", "revisions", "weather/forecast@v1").out.count("cli") == 2
    assert "TOOL_PUT" in shelf("tool", "history", "weather/forecast").out
    shelf.refused(3, "tool_not_found", "tool", "revisions", "weather/forecast@v2")
    assert [one["event"] for one in (line for line in shelf.ok("audit", "tail", "--store")["lines"])] == [
        "BUNDLE_CREATED", "TOOL_PUT", "TOOL_DISABLED", "TOOL_DELETED",
    ]  # fmt: skip
    assert shelf.ok("audit", "verify", "--store")["ok"] is True


def test_a_bundle_from_its_creation_to_its_restoration(shelf: Shelf) -> None:
    made = shelf.ok("bundle", "create", "weather", "--name", "Weather", "--description", "Forecasts.")
    assert (made["slug"], made["displayName"], made["isEnabled"]) == ("weather", "Weather", True)
    assert shelf.own() == [made]
    assert shelf.ok("bundle", "show", made["id"][:20]) == {**made, "tools": []}
    assert shelf.ok("bundle", "disable", "weather")["isEnabled"] is False
    assert shelf.ok("bundle", "show", "weather")["isEnabled"] is False
    assert shelf.ok("bundle", "enable", made["id"])["isEnabled"] is True
    assert shelf.ok("bundle", "delete", "weather")["deleted"] == made["id"]
    assert shelf.own() == []
    assert [one["id"] for one in shelf.ok("bundle", "list", "--deleted")["bundles"]] == [made["id"]]
    shelf.refused(3, "bundle_deleting", "bundle", "show", "weather")
    again = shelf.ok("bundle", "create", "weather", "--id", made["id"], "--replace")
    assert again["createdAt"] == made["createdAt"]


def test_the_lines_for_people(shelf: Shelf) -> None:
    done = shelf("bundle", "create", "weather", "--description", "Forecasts of\nall kinds")
    assert done.code == 0
    bundle = done.out.strip()
    shelf.put("weather")
    assert [line.split() for line in shelf("bundle", "list").out.splitlines()] == [
        ["SLUG", "ENABLED", "TOOLS", "ID", "DESCRIPTION"],
        ["weather", "yes", "1", bundle, "Forecasts", "of"],
        ["builtin", "yes", "13", BUNDLE_ID, "Built-in", "tools"],
    ]
    shown = shelf("bundle", "show", "weather").out
    assert "about      Forecasts of\\nall kinds\n" in shown
    assert shown.splitlines()[-1].split() == ["forecast", "v1", "http", "yes", "Forecast"]
    assert (
        "created weather/forecast@v2"
        in shelf("tool", "put", "weather", "-", stdin=json.dumps({**RECORD, "version": "v2"}).encode()).err
    )
    assert [line.split()[0] for line in shelf("tool", "versions", "forecast").out.splitlines()] == [
        "VERSION", "v2", "v1",
    ]  # fmt: skip
    assert shelf("bundle", "disable", "weather").err == "weather is disabled.\n"


def test_a_damaged_record_is_named_and_not_left_out_in_silence(shelf: Shelf) -> None:
    shelf.ok("bundle", "create", "weather")
    shelf.put("weather")
    (record,) = shelf.data.glob("bundles/*/tools/*.json")
    record.write_bytes(record.read_bytes()[:20])
    for words in ("bundle", "list"), ("bundle", "show", "weather"):
        done = shelf(*words, "--json")
        assert done.code == 0
        assert done.document
        assert f"warning: {record} is not a record of this store" in done.err
        assert "hint: Restore the file from a backup, or move it away." in done.err
    assert shelf("bundle", "show", "builtin").err == ""


def test_the_built_in_tools_are_a_bundle_with_switches_only(shelf: Shelf) -> None:
    shelf.ok("tool", "enable", "builtin/list-files")
    tools = shelf.ok("bundle", "show", "builtin")["tools"]
    assert [one["slug"] for one in tools if one["isEnabled"]] == ["list-files"]
    shelf.refused(5, "builtin_read_only", "bundle", "delete", "builtin")
    shelf.refused(5, "builtin_read_only", "tool", "delete", "builtin/list-files", "--yes")


def test_two_bundles_of_one_slug_are_told_apart_by_id(shelf: Shelf) -> None:
    first = shelf.ok("bundle", "create", "same")
    done = shelf("bundle", "create", "same", "--json")
    assert "by its id" in done.err
    second = done.document
    message = shelf.refused(2, "usage", "bundle", "show", "same")
    assert first["id"] in message
    assert second["id"] in message
    assert shelf.ok("bundle", "show", second["id"])["id"] == second["id"]
    shelf.refused(2, "usage", "bundle", "disable", first["id"][:3])
    shelf.put(first["id"])
    shelf.put(second["id"])
    assert "BUNDLE/SLUG" in shelf.refused(2, "usage", "tool", "get", "forecast")
    assert shelf.ok("tool", "get", f"{first['id']}/forecast")["bundleID"] == first["id"]


def test_what_does_not_exist_names_the_nearest(shelf: Shelf) -> None:
    shelf.ok("bundle", "create", "weather")
    shelf.put("weather")
    assert "Did you mean weather?" in shelf.refused(3, "not_found", "bundle", "show", "wether")
    assert "Did you mean forecast?" in shelf.refused(3, "tool_not_found", "tool", "get", "weather/forcast")
    assert "tool versions" in shelf.refused(3, "tool_not_found", "tool", "get", "weather/forecast@v7")
    shelf.refused(3, "not_found", "tool", "put", "weather", "missing.json")
    shelf.refused(4, "invalid_slug", "bundle", "create", "a_b")
    shelf.refused(4, "invalid_id", "bundle", "create", "a", "--id", "7")
    shelf.refused(2, "usage", "bundle", "create", "a", "--replace")


def test_ids_are_created_once_and_replaced_only_when_asked(shelf: Shelf) -> None:
    wanted = new_id()
    shelf.ok("bundle", "create", "a", "--id", wanted)
    shelf.put(wanted)
    assert "--replace" in shelf.refused(7, "conflict", "bundle", "create", "b", "--id", wanted)
    assert shelf.ok("bundle", "create", "b", "--id", wanted, "--replace", "--disabled")["slug"] == "b"
    found = shelf.ok("bundle", "show", "b")
    assert (found["isEnabled"], len(found["tools"])) == (False, 1)


def test_a_tool_from_its_creation_to_its_end(shelf: Shelf) -> None:
    bundle = shelf.ok("bundle", "create", "weather")
    made = shelf.put("weather", tags=["sky"])
    assert (made["bundleID"], made["tags"], made["isEnabled"]) == (bundle["id"], ["sky"], True)
    assert shelf.ok("tool", "get", "forecast") == made
    shelf.refused(7, "conflict", "tool", "put", "weather", "-", stdin=json.dumps(RECORD).encode())
    assert shelf.ok("tool", "get", "forecast") == made
    second = shelf.put("weather", version="v2")
    assert [one["version"] for one in shelf.ok("tool", "versions", "weather/forecast")["versions"]] == [
        "v2",
        "v1",
    ]
    done = shelf("tool", "get", "forecast", "--json")
    assert done.document == second
    assert "version v2" in done.err
    assert "several versions: v2, v1" in shelf.refused(2, "usage", "tool", "disable", "forecast")
    assert shelf.ok("tool", "disable", "forecast@v2")["isEnabled"] is False
    assert shelf.ok("tool", "get", "forecast")["version"] == "v1"  # the only enabled one
    assert shelf.ok("tool", "enable", "weather/forecast@v2")["isEnabled"] is True
    shelf.refused(7, "bundle_not_empty", "bundle", "delete", "weather")
    shelf.refused(2, "usage", "tool", "delete", "forecast@v2")  # nobody can be asked
    for answer in ("", "n"):
        assert "not deleted" in shelf.asked(answer, "tool", "delete", "forecast@v2")
    assert shelf.ok("tool", "delete", "forecast@v2", "--yes")["deleted"] == second
    assert "is deleted" in shelf.asked("y", "tool", "delete", "forecast")
    shelf.ok("bundle", "delete", "weather")


def test_a_disabled_bundle_takes_no_tool(shelf: Shelf) -> None:
    shelf.ok("bundle", "create", "off")
    shelf.put("off")
    shelf.ok("bundle", "disable", "off")
    record = json.dumps({**RECORD, "version": "v2"}).encode()
    shelf.refused(7, "bundle_disabled", "tool", "put", "off", "-", stdin=record)
    shelf.refused(7, "bundle_disabled", "tool", "disable", "off/forecast")
    assert shelf.ok("tool", "get", "off/forecast")["version"] == "v1"
    shelf.ok("tool", "delete", "off/forecast", "--yes")


def test_get_prints_what_put_takes(shelf: Shelf) -> None:
    shelf.ok("bundle", "create", "a")
    other = shelf.ok("bundle", "create", "b")
    shelf.put("a", tags=["sky"], description="Says what comes", isEnabled=False)
    (shelf.folder / "tool.yml").write_text(MANIFEST)
    native = shelf.ok("tool", "put", "a", "tool.yml")
    assert (native["slug"], native["version"], native["type"]) == ("read-notes", "3", "native")
    assert native["description"] == "Read the notes"
    for slug, name in (("forecast", "f.json"), ("read-notes", "r.yml")):
        text = shelf("tool", "get", f"a/{slug}").out
        (shelf.folder / name).write_text(text)
        made = shelf.ok("tool", "put", "b", name)
        first = shelf.ok("tool", "get", f"a/{slug}")
        changed = {key for key in made if made[key] != first[key]}
        assert changed == {"id", "bundleID", "createdAt", "modifiedAt"}
        assert made["bundleID"] == other["id"]
    assert shelf("tool", "get", "b/read-notes").out == MANIFEST
    assert shelf("tool", "put", "b", "-", "--manifest", stdin=MANIFEST.encode()).code == 7


@pytest.mark.parametrize(
    ("fields", "code", "path"),
    [
        ({"id": new_id()}, "invalid", "$.id"),
        ({"createdAt": "2024-05-14T13:44:00Z"}, "invalid", "$.createdAt"),
        ({"schemaVersion": "xyz"}, "invalid", "$.schemaVersion"),
        ({"bundleID": new_id()}, "invalid", "$.bundleID"),
        ({"isBuiltIn": True}, "invalid", "$.isBuiltIn"),
        ({"colour": "red"}, "invalid", "colour"),
        ({"argSchema": 3}, "invalid", "$.argSchema"),
        ({"type": "grpc"}, "invalid", "$.type"),
        ({"slug": "a_b"}, "invalid_slug", "a_b"),
        ({"version": 1}, "invalid", "$.version"),
        ({"impl": None}, "invalid", "$.impl"),
        ({"impl": {"urlTemplate": "ftp://example.com"}}, "invalid_manifest", "ftp"),
        ({"tags": ["1"]}, "invalid", "'1'"),
    ],
)
def test_a_record_that_is_wrong_is_refused(
    shelf: Shelf, fields: dict[str, Any], code: str, path: str
) -> None:
    shelf.ok("bundle", "create", "a")
    record = json.dumps({**RECORD, **fields}).encode()
    assert path in shelf.refused(4, code, "tool", "put", "a", "-", stdin=record)
    assert shelf.ok("bundle", "show", "a")["tools"] == []


def test_fields_that_are_missing_or_the_store_would_set_the_same(shelf: Shelf) -> None:
    bundle = shelf.ok("bundle", "create", "a")
    for gone in ("slug", "version", "type", "impl"):
        record = json.dumps({key: value for key, value in RECORD.items() if key != gone}).encode()
        assert gone in shelf.refused(4, "missing_field", "tool", "put", "a", "-", stdin=record)
    bare = {key: value for key, value in RECORD.items() if key not in ("slug", "version", "argSchema")}
    text = json.dumps({**bare, "isBuiltIn": False, "bundleID": bundle["id"]}).encode()
    made = shelf.ok("tool", "put", "a", "-", "--slug", "x", "--version", "1.0", stdin=text)
    assert (made["slug"], made["version"], made["argSchema"]) == ("x", "1.0", {})
    assert "$.slug" in shelf.refused(
        4, "invalid", "tool", "put", "a", "-", "--slug", "y", stdin=json.dumps(RECORD).encode()
    )
    assert "JSON object" in shelf.refused(4, "invalid", "tool", "put", "a", "-", stdin=b"name: x")


def test_a_manifest_with_an_error_is_refused_at_its_line(shelf: Shelf) -> None:
    shelf.ok("bundle", "create", "a")
    (shelf.folder / "x.yml").write_text(MANIFEST.replace("kind: file", "kind: fil"))
    done = shelf("tool", "put", "a", "x.yml")
    assert done.code == 4
    assert "x.yml:4:" in done.err
    (shelf.folder / "x.yml").write_text(MANIFEST)
    shelf.ok("tool", "put", "a", "x.yml")
    (shelf.folder / "x.yml").write_text(MANIFEST.replace("read_notes", "read-notes").replace("3", "4"))
    (shelf.folder / "y.yml").write_text(MANIFEST.replace("read_notes", "other"))
    shelf.ok("tool", "put", "a", "y.yml")  # other slugs are not concerned
    message = shelf.refused(7, "conflict", "tool", "put", "a", "x.yml")
    assert "'read-notes'" in message
    assert "'read_notes'" in message


def test_a_bundle_goes_to_another_store_and_back(shelf: Shelf) -> None:
    bundle = shelf.ok("bundle", "create", "weather")["id"]
    shelf.put("weather")
    assert shelf.ok("bundle", "export", "weather") == {
        "bundle": bundle,
        "files": ["weather.zip"],
        "losses": [],
    }
    shelf.refused(7, "conflict", "bundle", "export", "weather")  # the file is there
    first = (shelf.folder / "weather.zip").read_bytes()
    dry = shelf.ok("bundle", "import", "weather.zip", "--dry-run", "--data", "other")
    assert (dry["dryRun"], dry["changes"], dry["tools"][0]["action"]) == (True, True, "add")
    assert shelf.own("--data", "other") == []
    made = shelf.ok("bundle", "import", "-", "--data", "other", stdin=first)
    assert (made["bundleId"], made["isEnabled"], made["refused"]) == (bundle, False, None)
    assert shelf.ok("bundle", "show", "weather", "--data", "other")["isEnabled"] is False
    again = run(["bundle", "export", "weather", "-", "--data", "other"], shelf.folder, ENVIRONMENT)
    assert again.stdout == first
    assert "is the same already" in shelf("bundle", "import", "weather.zip", "--data", "other").err
    shelf.ok("bundle", "import", "weather.zip", "--data", "third", "--enable")
    assert shelf.ok("bundle", "show", "weather", "--data", "third")["isEnabled"] is True


def test_conflicts_of_an_import_are_a_table_and_a_choice(shelf: Shelf) -> None:
    shelf.ok("bundle", "create", "weather")
    shelf.put("weather")
    shelf.ok("bundle", "export", "weather")
    shelf.ok("tool", "delete", "forecast", "--yes")
    shelf.put("weather", description="Another")
    shown = shelf("bundle", "import", "weather.zip", "--dry-run")
    assert [line.split() for line in shown.out.splitlines()] == [
        ["TOOL", "HERE", "REFUSE", "SKIP", "REPLACE", "NEW-ID"],
        ["(bundle", "weather)", "same", "keep", "keep", "keep", "add"],
        ["forecast@v1", "differs", "conflict", "keep", "replace", "add"],
    ]
    assert "refused: different here: forecast@v1" in shown.err
    assert "--dry-run" in shelf.refused(7, "conflict", "bundle", "import", "weather.zip")
    made = shelf("bundle", "import", "weather.zip", "--on-conflict", "new-id")
    assert "imported weather" in made.err
    assert "toolcrib bundle enable " in made.err
    shelf.ok("bundle", "import", "weather.zip", "--on-conflict", "skip")
    first = shelf.ok("bundle", "list")["bundles"][1]["id"]
    assert shelf.ok("tool", "get", f"{first}/forecast")["description"] == "Another"
    shelf.ok("bundle", "import", "weather.zip", "--on-conflict", "replace")
    replaced = shelf.ok("tool", "get", f"{first}/forecast")
    assert (replaced["description"], replaced["isEnabled"]) == ("", False)


def test_what_cannot_be_imported_or_exported(shelf: Shelf) -> None:
    shelf.ok("bundle", "create", "weather")
    shelf.put("weather", impl={"urlTemplate": "https://example.com", "headers": {"Cookie": "id=1"}})
    assert "${NAME}" in shelf.refused(5, "denied", "bundle", "export", "weather")
    assert not (shelf.folder / "weather.zip").exists()
    (shelf.folder / "no.zip").write_bytes(b"PK no")
    shelf.refused(4, "invalid_archive", "bundle", "import", "no.zip")
    shelf.refused(3, "not_found", "bundle", "import", "missing.zip")
    shelf.refused(2, "usage", "bundle", "import", "no.zip", "--into", "weather")
    shelf.refused(2, "usage", "bundle", "export", "weather", "x.zip", "--native", "tools")
    (shelf.folder / "empty").mkdir()
    shelf.refused(3, "not_found", "bundle", "import", "empty")


def test_folders_of_manifests_become_bundles_and_back(shelf: Shelf) -> None:
    notes = shelf.folder / "my_tools/read_notes"
    notes.mkdir(parents=True)
    (notes / "tool.yml").write_text(MANIFEST)
    (notes / "README.md").write_text("about it")
    dry = shelf.ok("bundle", "import", "my_tools", "--dry-run")
    assert (dry["slug"], dry["losses"][0]["was"]) == ("my-tools", "README.md")
    done = shelf("bundle", "import", "my_tools", "--enable")
    assert "README.md" in done.err
    assert "imported my-tools" in done.err
    exported = shelf.ok("bundle", "export", "my-tools", "--native", "out")
    assert (exported["files"], exported["losses"]) == (["out/read_notes/tool.yml"], [])
    assert (shelf.folder / "out/read_notes/tool.yml").read_text() == MANIFEST
    shelf.ok("bundle", "create", "other")
    shelf.put("other", tags=["sky"])
    made = shelf.ok("bundle", "import", "my_tools", "--into", "other")
    assert [one["slug"] for one in shelf.ok("bundle", "show", "other")["tools"]] == ["read-notes", "forecast"]
    assert made["isEnabled"] is True
    assert shelf.ok("tool", "get", "other/read-notes")["isEnabled"] is False
    lost = shelf("bundle", "export", "other", "--native", "more").err
    assert "read-notes: $.isEnabled: false is lost" in lost


def test_the_store_is_where_data_says(shelf: Shelf) -> None:
    elsewhere = shelf.folder / "elsewhere"
    made = shelf.ok("bundle", "create", "a", "--data", str(elsewhere))
    assert [one.id for one in Store(elsewhere).bundles()] == [made["id"]]
    assert shelf.own() == []
    assert shelf.own("--data", "elsewhere") == [made]
    taken = shelf.folder / "file"
    taken.write_text("")
    done = shelf("bundle", "list", "--data", str(taken / "x"))
    assert done.code == 1
    assert "state_unavailable" in done.err


def hits(shelf: Shelf, *words: str) -> list[str]:
    done = shelf("search", *words, "--json")
    assert done.code == (0 if done.document["hits"] else 3), done.err
    return [hit["name"] for hit in done.document["hits"]]


def test_search_finds_tools_of_bundles_outside_of_a_project(shelf: Shelf) -> None:
    shelf.ok("bundle", "create", "weather")
    shelf.ok("bundle", "create", "notes")
    shelf.put("weather", tags=["sky"], description="Says what comes")
    shelf.put("notes", version="v2")
    assert hits(shelf, "forecst") == ["notes/forecast@v2", "weather/forecast@v1"]  # the newest first
    assert hits(shelf, "comes") == ["weather/forecast@v1"]
    assert hits(shelf, "city", "--bundle", "notes") == ["notes/forecast@v2"]
    assert hits(shelf, "forecast", "--tag", "sky") == ["weather/forecast@v1"]
    first = shelf("search", "forecast", "--limit", "1", "--json").document
    assert first["total"] == 2
    assert hits(shelf, "forecast", "--limit", "1", "--page", first["next"]) == ["weather/forecast@v1"]
    shelf.ok("tool", "disable", "weather/forecast")
    shelf.ok("bundle", "disable", "notes")
    assert hits(shelf, "forecast") == []
    assert len(hits(shelf, "forecast", "--disabled")) == 2
    assert shelf("search", "forecast", "--disabled", "--json").document["hits"][0]["enabled"] is False
    assert hits(shelf, "forecast", "--data", "other") == []
    assert "toolcrib bundle list" in shelf("search", "forecast").err
    assert len(hits(shelf, "forecast", "--kind", "http", "--disabled")) == 2
    assert hits(shelf, "forecast", "--kind", "file", "--disabled") == []
    shelf.refused(3, "not_found", "search", "forecast", "--bundle", "nothing")


def test_search_outside_of_a_project_finds_what_is_built_in_too(shelf: Shelf) -> None:
    assert hits(shelf, "read", "--bundle", "builtin") == []  # Switched off, until somebody wants them
    assert "builtin/read-file@v1" in hits(shelf, "read", "--bundle", "builtin", "--disabled")
    shelf.ok("tool", "enable", "builtin/read-file")
    assert hits(shelf, "read", "--bundle", "builtin") == ["builtin/read-file@v1"]


def test_a_hint_about_versions_can_be_typed(shelf: Shelf) -> None:
    shelf.ok("bundle", "create", "weather")
    shelf.put("weather")
    for name in ("forecast", "weather/forecast"):
        text = shelf.refused(3, "tool_not_found", "tool", "get", f"{name}@v9")
        command = text.partition("toolcrib ")[2].split()
        assert command == ["tool", "versions", name]


def test_a_call_without_bundle_or_version_says_which_tool_it_was(shelf: Shelf) -> None:
    root = Crib(shelf.folder / "shop").root
    (root / "notes.txt").write_text("noted")
    shelf.ok("bundle", "create", "notes")
    for version in ("3", "4"):
        file = root / "read.yml"
        file.write_text(MANIFEST.replace("version: 3", f"version: {version}"))
        shelf.ok("tool", "put", "notes", str(file))
    accept(root, shelf.data)
    words = ("run", "read-notes", "--root", str(root))
    assert shelf.ok(*words)["meta"]["details"]["tool"] == "notes/read-notes@4"
    assert "notes/read-notes@4" in shelf(*words).err
    assert "tool" not in shelf.ok("run", "notes/read-notes@3", "--root", str(root))["meta"]["details"]


def test_search_in_a_project_finds_its_tools_and_those_of_bundles(shelf: Shelf) -> None:
    crib = Crib(shelf.folder / "shop")
    crib.tool("forecast_here", "file", {"action": "read", "path": "f"})
    shelf.ok("bundle", "create", "weather")
    shelf.put("weather")
    accept(crib.root, shelf.data)
    assert sorted(hits(shelf, "forecast", "--root", "shop")) == ["forecast_here", "weather/forecast@v1"]
    assert hits(shelf, "forecast", "--root", "shop", "--bundle", "weather") == ["weather/forecast@v1"]
    shelf.ok("tool", "disable", "weather/forecast")
    assert hits(shelf, "forecast", "--root", "shop") == ["forecast_here"]
    assert hits(shelf, "forecast", "--root", "shop", "--disabled") == ["weather/forecast@v1"]
    shelf.refused(3, "project_not_found", "search", "forecast", "--root", "elsewhere")
    token = shelf("token", "create", "ci", "--scope", "read", "--root", "shop").out.strip()
    done = shelf("search", "forecast", "--root", "shop", "--disabled", env={"TOOLCRIB_TOKEN": token})
    assert done.code == 5
    assert "invalid_token" in done.err


def test_names_are_completed(shelf: Shelf) -> None:
    shelf.ok("bundle", "create", "weather")
    shelf.put("weather")

    def completed(*words: str) -> list[str]:
        variables = {"_TOOLCRIB_COMPLETE": "bash_complete", "COMP_WORDS": " ".join(["toolcrib", *words])}
        done = shelf(env={**variables, "COMP_CWORD": str(len(words))})
        return [line.partition(",")[2] for line in done.out.splitlines() if line]

    assert completed("bundle", "show", "we") == ["weather"]
    assert completed("tool", "get", "we") == ["weather/"]
    assert completed("tool", "get", "weather/f") == ["weather/forecast"]
    assert completed("tool", "get", "weather/forecast@") == ["weather/forecast@v1"]
    assert completed("tool", "get", "nothing/f") == []
