"""`toolcrib bundle` and `toolcrib bundle tool`: the store on the command line, without a project."""

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
from toolcrib.spec.identifier import new_id

TOOL = ("bundle", "tool")
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


class Bundles:
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
        """The bundles that are listed, as their changes return them."""
        more = ("source", "toolCount", "availability", "unavailableBecause")
        listed = self.ok("bundle", "list", *words)["bundles"]
        return [{key: one[key] for key in one if key not in more} for one in listed]

    def put(self, bundle: str, **fields: Any) -> Any:
        return self.ok(*TOOL, "put", bundle, "-", stdin=json.dumps({**RECORD, **fields}).encode())


@pytest.fixture
def bundles(tmp_path: Path) -> Bundles:
    return Bundles(tmp_path)


def test_revisions_and_history_of_a_tool(bundles: Bundles) -> None:
    bundles.ok("bundle", "create", "weather")
    first = bundles.put("weather")
    bundles.ok(*TOOL, "disable", "weather/forecast")
    bundles.ok(*TOOL, "delete", "weather/forecast", "--yes")
    found = bundles.ok(*TOOL, "revisions", "weather/forecast@v1")["revisions"]
    assert [(one["change"], one["changedBy"]) for one in found] == [("deleted", "cli"), ("disabled", "cli")]
    assert found[1]["tool"] == first
    changes = bundles.ok(*TOOL, "history", "weather/forecast")["changes"]
    assert [one["event"] for one in changes] == ["TOOL_DELETED", "TOOL_DISABLED", "TOOL_PUT"]
    assert bundles(*TOOL, "revisions", "weather/forecast@v1").out.count("cli") == 2
    assert "TOOL_PUT" in bundles(*TOOL, "history", "weather/forecast").out
    bundles.refused(3, "tool_not_found", *TOOL, "revisions", "weather/forecast@v2")
    assert [one["event"] for one in (line for line in bundles.ok("audit", "tail", "--store")["lines"])] == [
        "BUNDLE_CREATED", "TOOL_PUT", "TOOL_DISABLED", "TOOL_DELETED",
    ]  # fmt: skip
    assert bundles.ok("audit", "verify", "--store")["ok"] is True


def test_a_bundle_from_its_creation_to_its_restoration(bundles: Bundles) -> None:
    made = bundles.ok("bundle", "create", "weather", "--name", "Weather", "--description", "Forecasts.")
    assert (made["slug"], made["displayName"], made["isEnabled"]) == ("weather", "Weather", True)
    assert bundles.own() == [made]
    assert bundles.ok("bundle", "show", made["id"][:20]) == {**made, "tools": []}
    assert bundles.ok("bundle", "disable", "weather")["isEnabled"] is False
    assert bundles.ok("bundle", "show", "weather")["isEnabled"] is False
    assert bundles.ok("bundle", "enable", made["id"])["isEnabled"] is True
    assert bundles.ok("bundle", "delete", "weather")["deleted"] == made["id"]
    assert bundles.own() == []
    assert [one["id"] for one in bundles.ok("bundle", "list", "--deleted")["bundles"]] == [made["id"]]
    bundles.refused(3, "bundle_deleting", "bundle", "show", "weather")
    again = bundles.ok("bundle", "create", "weather", "--id", made["id"], "--replace")
    assert again["createdAt"] == made["createdAt"]


def test_the_lines_for_people(bundles: Bundles) -> None:
    done = bundles("bundle", "create", "weather", "--description", "Forecasts of\nall kinds")
    assert done.code == 0
    bundle = done.out.strip()
    bundles.put("weather")
    assert [line.split() for line in bundles("bundle", "list").out.splitlines()] == [
        ["SLUG", "SOURCE", "ENABLED", "TOOLS", "ID", "DESCRIPTION"],
        ["weather", "user", "yes", "1", bundle, "Forecasts", "of"],
    ]
    shown = bundles("bundle", "show", "weather").out
    assert "about      Forecasts of\\nall kinds\n" in shown
    assert shown.splitlines()[-1].split() == ["forecast", "v1", "http", "yes", "Forecast"]
    assert (
        "created weather/forecast@v2"
        in bundles(*TOOL, "put", "weather", "-", stdin=json.dumps({**RECORD, "version": "v2"}).encode()).err
    )
    assert [line.split()[0] for line in bundles(*TOOL, "versions", "forecast").out.splitlines()] == [
        "VERSION", "v2", "v1",
    ]  # fmt: skip
    assert bundles("bundle", "disable", "weather").err == "weather is disabled.\n"


def test_a_damaged_record_is_listed_with_its_reason_and_can_be_put_again(bundles: Bundles) -> None:
    bundles.ok("bundle", "create", "weather")
    bundles.put("weather")
    (record,) = bundles.data.glob("bundles/*/tools/*.json")
    record.write_bytes(record.read_bytes()[:20])
    (tool,) = bundles.ok("bundle", "show", "weather")["tools"]
    assert (tool["slug"], tool["isEnabled"], tool["path"]) == ("forecast", False, str(record))
    assert tool["unavailableBecause"] in bundles("bundle", "show", "weather").out
    message = bundles.refused(1, "state_unavailable", *TOOL, "get", "weather/forecast")
    assert str(record) in message
    bundles.put("weather")
    assert bundles.ok(*TOOL, "get", "weather/forecast")["displayName"] == RECORD["displayName"]
    (about,) = bundles.data.glob("bundles/*/bundle.json")
    about.write_text("")
    listed = bundles.ok("bundle", "list")["bundles"]
    assert ("weather", False) in [(one["slug"], one["isEnabled"]) for one in listed]
    bundles.refused(7, "bundle_disabled", *TOOL, "disable", "weather/forecast")


def test_the_sources_of_a_project_are_bundles_with_switches_only(bundles: Bundles) -> None:
    crib = Crib(bundles.folder)
    reads = {"fs": {"read": ["f"], "write": []}}
    crib.tool("read_it", "file", {"action": "read", "path": "f"}, permissions=reads)
    crib.write("f", "noted")
    accept(crib.root, bundles.data)
    listed = bundles.ok("bundle", "list")["bundles"]
    assert {one["slug"]: one["source"] for one in listed} == {"project": "project", "builtin": "builtin"}
    bundles.ok(*TOOL, "enable", "builtin/list-files")
    tools = bundles.ok("bundle", "show", "builtin")["tools"]
    assert [one["slug"] for one in tools if one["isEnabled"]] == ["list-files"]
    assert bundles("run", "list_files").code == 0
    for code, name, tool in (
        ("builtin_read_only", "builtin", "list-files"),
        ("bundle_read_only", "project", "read-it"),
    ):
        bundles.refused(5, code, "bundle", "delete", name)
        bundles.refused(5, code, *TOOL, "delete", f"{name}/{tool}", "--yes")
        bundles.refused(5, code, "bundle", "export", name)
    assert bundles("run", "read_it").out == "noted\n"
    for words, error in (
        ((*TOOL, "disable", "project/read-it"), "tool_disabled"),
        (("bundle", "disable", "project"), "bundle_disabled"),
    ):
        bundles.ok(*words)
        assert [one["name"] for one in bundles.ok("list")["tools"]] == ["list_files"]
        disabled = bundles.ok("list", "--disabled", "--source", "project")["tools"]
        assert [one["name"] for one in disabled] == ["read_it"]
        bundles.refused(7, error, "run", "read_it")
        bundles.ok(*words[:-2], "enable", words[-1])
    assert bundles("run", "project/read_it").out == bundles("run", "read-it@1").out == "noted\n"
    show = bundles.ok("show", "read_it")
    assert (show["callCount"], show["source"], show["isEnabled"]) == (3, "project", True)


def test_two_bundles_of_one_slug_are_told_apart_by_id(bundles: Bundles) -> None:
    first = bundles.ok("bundle", "create", "same")
    done = bundles("bundle", "create", "same", "--json")
    assert "by its id" in done.err
    second = done.document
    message = bundles.refused(2, "usage", "bundle", "show", "same")
    assert first["id"] in message
    assert second["id"] in message
    assert bundles.ok("bundle", "show", second["id"])["id"] == second["id"]
    bundles.refused(2, "usage", "bundle", "disable", first["id"][:3])
    bundles.put(first["id"])
    bundles.put(second["id"])
    assert "BUNDLE/SLUG" in bundles.refused(2, "usage", *TOOL, "get", "forecast")
    assert bundles.ok(*TOOL, "get", f"{first['id']}/forecast")["bundleID"] == first["id"]


def test_what_does_not_exist_names_the_nearest(bundles: Bundles) -> None:
    bundles.ok("bundle", "create", "weather")
    bundles.put("weather")
    assert "Did you mean weather?" in bundles.refused(3, "not_found", "bundle", "show", "wether")
    assert "Did you mean forecast?" in bundles.refused(3, "tool_not_found", *TOOL, "get", "weather/forcast")
    assert "tool versions" in bundles.refused(3, "tool_not_found", *TOOL, "get", "weather/forecast@v7")
    bundles.refused(3, "not_found", *TOOL, "put", "weather", "missing.json")
    bundles.refused(4, "invalid_slug", "bundle", "create", "a_b")
    bundles.refused(4, "invalid_id", "bundle", "create", "a", "--id", "7")
    bundles.refused(2, "usage", "bundle", "create", "a", "--replace")


def test_ids_are_created_once_and_replaced_only_when_asked(bundles: Bundles) -> None:
    wanted = new_id()
    bundles.ok("bundle", "create", "a", "--id", wanted)
    bundles.put(wanted)
    assert "--replace" in bundles.refused(7, "conflict", "bundle", "create", "b", "--id", wanted)
    assert bundles.ok("bundle", "create", "b", "--id", wanted, "--replace", "--disabled")["slug"] == "b"
    found = bundles.ok("bundle", "show", "b")
    assert (found["isEnabled"], len(found["tools"])) == (False, 1)


def test_a_tool_from_its_creation_to_its_end(bundles: Bundles) -> None:
    bundle = bundles.ok("bundle", "create", "weather")
    made = bundles.put("weather", tags=["sky"])
    assert (made["bundleID"], made["tags"], made["isEnabled"]) == (bundle["id"], ["sky"], True)
    assert bundles.ok(*TOOL, "get", "forecast") == made
    bundles.refused(7, "conflict", *TOOL, "put", "weather", "-", stdin=json.dumps(RECORD).encode())
    assert bundles.ok(*TOOL, "get", "forecast") == made
    second = bundles.put("weather", version="v2")
    assert [one["version"] for one in bundles.ok(*TOOL, "versions", "weather/forecast")["versions"]] == [
        "v2",
        "v1",
    ]
    done = bundles(*TOOL, "get", "forecast", "--json")
    assert done.document == second
    assert "version v2" in done.err
    assert "several versions: v2, v1" in bundles.refused(2, "usage", *TOOL, "disable", "forecast")
    assert bundles.ok(*TOOL, "disable", "forecast@v2")["isEnabled"] is False
    assert bundles.ok(*TOOL, "get", "forecast")["version"] == "v1"  # the only enabled one
    assert bundles.ok(*TOOL, "enable", "weather/forecast@v2")["isEnabled"] is True
    bundles.refused(7, "bundle_not_empty", "bundle", "delete", "weather")
    bundles.refused(5, "denied", *TOOL, "delete", "forecast@v2")  # nobody can be asked
    for answer in ("", "n"):
        assert "not deleted" in bundles.asked(answer, *TOOL, "delete", "forecast@v2")
    assert bundles.ok(*TOOL, "delete", "forecast@v2", "--yes")["deleted"] == second
    assert "is deleted" in bundles.asked("y", *TOOL, "delete", "forecast")
    bundles.ok("bundle", "delete", "weather")


def test_a_disabled_bundle_takes_no_tool(bundles: Bundles) -> None:
    bundles.ok("bundle", "create", "off")
    bundles.put("off")
    bundles.ok("bundle", "disable", "off")
    record = json.dumps({**RECORD, "version": "v2"}).encode()
    bundles.refused(7, "bundle_disabled", *TOOL, "put", "off", "-", stdin=record)
    bundles.refused(7, "bundle_disabled", *TOOL, "disable", "off/forecast")
    assert bundles.ok(*TOOL, "get", "off/forecast")["version"] == "v1"
    bundles.ok(*TOOL, "delete", "off/forecast", "--yes")


def test_get_prints_what_put_takes(bundles: Bundles) -> None:
    bundles.ok("bundle", "create", "a")
    other = bundles.ok("bundle", "create", "b")
    bundles.put("a", tags=["sky"], description="Says what comes", isEnabled=False)
    (bundles.folder / "tool.yml").write_text(MANIFEST)
    native = bundles.ok(*TOOL, "put", "a", "tool.yml")
    assert (native["slug"], native["version"], native["type"]) == ("read-notes", "3", "native")
    assert native["description"] == "Read the notes"
    for slug, name in (("forecast", "f.json"), ("read-notes", "r.yml")):
        text = bundles(*TOOL, "get", f"a/{slug}").out
        (bundles.folder / name).write_text(text)
        made = bundles.ok(*TOOL, "put", "b", name)
        first = bundles.ok(*TOOL, "get", f"a/{slug}")
        changed = {key for key in made if made[key] != first[key]}
        assert changed == {"toolID", "bundleID", "createdAt", "modifiedAt"}
        assert made["bundleID"] == other["id"]
    assert bundles(*TOOL, "get", "b/read-notes").out == MANIFEST
    assert bundles(*TOOL, "put", "b", "-", stdin=MANIFEST.encode()).code == 7
    # A manifest has no place for translations: a new version has those of the one before.
    german = {
        "type": "native",
        "impl": {"manifest": MANIFEST},
        "translations": {"de": {"displayName": "Notizen"}},
    }
    record = {"slug": "read-notes", "version": "3"} | german
    bundles.ok("bundle", "create", "c")
    bundles.ok(*TOOL, "put", "c", "-", stdin=json.dumps(record).encode())
    newer = bundles(*TOOL, "get", "c/read-notes").out.replace("version: 3", "version: 4")
    assert bundles.ok(*TOOL, "put", "c", "-", stdin=newer.encode())["translations"] == german["translations"]


@pytest.mark.parametrize(
    ("fields", "code", "path"),
    [
        ({"bundleID": new_id()}, "invalid_input", "$.bundleID"),
        ({"colour": "red"}, "invalid_input", "colour"),
        ({"argSchema": 3}, "invalid_input", "$.argSchema"),
        ({"type": "grpc"}, "invalid_input", "$.type"),
        ({"slug": "a_b"}, "invalid_slug", "a_b"),
        ({"version": 1}, "invalid_input", "$.version"),
        ({"impl": None}, "invalid_input", "$.impl"),
        ({"impl": {"urlTemplate": "ftp://example.com"}}, "invalid_manifest", "ftp"),
        ({"tags": ["1"]}, "invalid_input", "'1'"),
    ],
)
def test_a_record_that_is_wrong_is_refused(
    bundles: Bundles, fields: dict[str, Any], code: str, path: str
) -> None:
    bundles.ok("bundle", "create", "a")
    record = json.dumps({**RECORD, **fields}).encode()
    assert path in bundles.refused(4, code, *TOOL, "put", "a", "-", stdin=record)
    assert bundles.ok("bundle", "show", "a")["tools"] == []


def test_fields_that_are_missing_or_that_the_store_sets(bundles: Bundles) -> None:
    bundle = bundles.ok("bundle", "create", "a")
    for gone in ("slug", "version", "type", "impl"):
        record = json.dumps({key: value for key, value in RECORD.items() if key != gone}).encode()
        assert gone in bundles.refused(4, "missing_field", *TOOL, "put", "a", "-", stdin=record)
    bare = {key: value for key, value in RECORD.items() if key not in ("slug", "version", "argSchema")}
    ours = {
        "toolID": new_id(),
        "isBuiltIn": True,
        "createdAt": "2024-05-14T13:44:00Z",
        "schemaVersion": "xyz",
    }
    text = json.dumps({**bare, **ours, "bundleID": bundle["id"]}).encode()
    made = bundles.ok(*TOOL, "put", "a", "-", "--slug", "x", "--version", "1.0", stdin=text)
    assert (made["slug"], made["version"], made["argSchema"]) == ("x", "1.0", {})
    assert "$.slug" in bundles.refused(
        4, "invalid_input", *TOOL, "put", "a", "-", "--slug", "y", stdin=json.dumps(RECORD).encode()
    )
    assert made["createdAt"] > "2026"
    assert made["toolID"] != ours["toolID"]
    read = json.dumps({**made, "version": "1.1"}).encode()
    assert bundles.ok(*TOOL, "put", "a", "-", stdin=read)["version"] == "1.1"
    commented = b"// Mine\n" + json.dumps({**RECORD, "slug": "z"}).encode()
    assert bundles.ok(*TOOL, "put", "a", "-", stdin=commented)["slug"] == "z"
    for wrong, code, message in (
        ("[]", "invalid_input", "JSON object"),
        ("name: x", "invalid_manifest", "not JSON"),
    ):
        (bundles.folder / "f.json").write_text(wrong)
        assert message in bundles.refused(4, code, *TOOL, "put", "a", "f.json")


def test_a_manifest_with_an_error_is_refused_at_its_line(bundles: Bundles) -> None:
    bundles.ok("bundle", "create", "a")
    (bundles.folder / "x.yml").write_text(MANIFEST.replace("kind: file", "kind: fil"))
    done = bundles(*TOOL, "put", "a", "x.yml")
    assert done.code == 4
    assert "x.yml:4:" in done.err
    (bundles.folder / "x.yml").write_text(MANIFEST)
    bundles.ok(*TOOL, "put", "a", "x.yml")
    (bundles.folder / "x.yml").write_text(MANIFEST.replace("read_notes", "read-notes").replace("3", "4"))
    (bundles.folder / "y.yml").write_text(MANIFEST.replace("read_notes", "other"))
    bundles.ok(*TOOL, "put", "a", "y.yml")  # other slugs are not concerned
    message = bundles.refused(7, "conflict", *TOOL, "put", "a", "x.yml")
    assert "'read-notes'" in message
    assert "'read_notes'" in message


def test_a_bundle_goes_to_another_store_and_back(bundles: Bundles) -> None:
    bundle = bundles.ok("bundle", "create", "weather")["id"]
    bundles.put("weather")
    assert bundles.ok("bundle", "export", "weather") == {
        "bundle": bundle,
        "files": ["weather.zip"],
        "losses": [],
    }
    bundles.refused(7, "conflict", "bundle", "export", "weather")  # the file is there
    first = (bundles.folder / "weather.zip").read_bytes()
    dry = bundles.ok("bundle", "import", "weather.zip", "--dry-run", "--data", "other")
    assert (dry["dryRun"], dry["changes"], dry["tools"][0]["action"]) == (True, True, "add")
    assert bundles.own("--data", "other") == []
    made = bundles.ok("bundle", "import", "-", "--data", "other", stdin=first)
    assert (made["bundleID"], made["isEnabled"], made["refused"]) == (bundle, False, None)
    assert bundles.ok("bundle", "show", "weather", "--data", "other")["isEnabled"] is False
    again = run(["bundle", "export", "weather", "-", "--data", "other"], bundles.folder, ENVIRONMENT)
    assert again.stdout == first
    assert "is the same already" in bundles("bundle", "import", "weather.zip", "--data", "other").err
    bundles.ok("bundle", "import", "weather.zip", "--data", "third", "--enable")
    assert bundles.ok("bundle", "show", "weather", "--data", "third")["isEnabled"] is True


def test_conflicts_of_an_import_are_a_table_and_a_choice(bundles: Bundles) -> None:
    bundles.ok("bundle", "create", "weather")
    bundles.put("weather")
    bundles.ok("bundle", "export", "weather")
    bundles.ok(*TOOL, "delete", "forecast", "--yes")
    bundles.put("weather", description="Another")
    shown = bundles("bundle", "import", "weather.zip", "--dry-run")
    assert [line.split() for line in shown.out.splitlines()] == [
        ["TOOL", "HERE", "REFUSE", "SKIP", "REPLACE", "NEW-ID"],
        ["(bundle", "weather)", "same", "keep", "keep", "keep", "add"],
        ["forecast@v1", "differs", "conflict", "keep", "replace", "add"],
    ]
    assert "refused: different here: forecast@v1" in shown.err
    assert "--dry-run" in bundles.refused(7, "conflict", "bundle", "import", "weather.zip")
    made = bundles("bundle", "import", "weather.zip", "--on-conflict", "new-id")
    assert "imported weather" in made.err
    assert "toolcrib bundle enable " in made.err
    bundles.ok("bundle", "import", "weather.zip", "--on-conflict", "skip")
    first = bundles.ok("bundle", "list")["bundles"][1]["id"]
    assert bundles.ok(*TOOL, "get", f"{first}/forecast")["description"] == "Another"
    bundles.ok("bundle", "import", "weather.zip", "--on-conflict", "replace")
    replaced = bundles.ok(*TOOL, "get", f"{first}/forecast")
    assert (replaced["description"], replaced["isEnabled"]) == ("", False)


def test_what_cannot_be_imported_or_exported(bundles: Bundles) -> None:
    bundles.ok("bundle", "create", "weather")
    bundles.put("weather", impl={"urlTemplate": "https://example.com", "headers": {"Cookie": "id=1"}})
    assert "${NAME}" in bundles.refused(5, "denied", "bundle", "export", "weather")
    assert not (bundles.folder / "weather.zip").exists()
    (bundles.folder / "no.zip").write_bytes(b"PK no")
    bundles.refused(4, "invalid_archive", "bundle", "import", "no.zip")
    bundles.refused(3, "not_found", "bundle", "import", "missing.zip")
    bundles.refused(2, "usage", "bundle", "import", "no.zip", "--into", "weather")
    bundles.refused(2, "usage", "bundle", "export", "weather", "x.zip", "--native", "tools")
    (bundles.folder / "empty").mkdir()
    bundles.refused(3, "not_found", "bundle", "import", "empty")


def test_folders_of_manifests_become_bundles_and_back(bundles: Bundles) -> None:
    notes = bundles.folder / "my_tools/read_notes"
    notes.mkdir(parents=True)
    (notes / "tool.yml").write_text(MANIFEST)
    (notes / "README.md").write_text("about it")
    dry = bundles.ok("bundle", "import", "my_tools", "--dry-run")
    assert (dry["slug"], dry["losses"][0]["was"]) == ("my-tools", "README.md")
    done = bundles("bundle", "import", "my_tools", "--enable")
    assert "README.md" in done.err
    assert "imported my-tools" in done.err
    exported = bundles.ok("bundle", "export", "my-tools", "--native", "out")
    assert (exported["files"], exported["losses"]) == (["out/read_notes/tool.yml"], [])
    assert (bundles.folder / "out/read_notes/tool.yml").read_text() == MANIFEST
    bundles.ok("bundle", "create", "other")
    bundles.put("other", tags=["sky"])
    made = bundles.ok("bundle", "import", "my_tools", "--into", "other")
    assert [one["slug"] for one in bundles.ok("bundle", "show", "other")["tools"]] == [
        "read-notes",
        "forecast",
    ]
    assert made["isEnabled"] is True
    assert bundles.ok(*TOOL, "get", "other/read-notes")["isEnabled"] is False
    lost = bundles("bundle", "export", "other", "--native", "more").err
    assert "read-notes: $.isEnabled: false is lost" in lost


def test_the_store_is_where_data_says(bundles: Bundles) -> None:
    elsewhere = bundles.folder / "elsewhere"
    made = bundles.ok("bundle", "create", "a", "--data", str(elsewhere))
    assert [one.id for one in Store(elsewhere).bundles()] == [made["id"]]
    assert bundles.own() == []
    assert bundles.own("--data", "elsewhere") == [made]
    taken = bundles.folder / "file"
    taken.write_text("")
    done = bundles("bundle", "create", "b", "--data", str(taken / "x"))
    assert done.code == 2
    assert "Not a directory" in done.err


def hits(bundles: Bundles, *words: str) -> list[str]:
    done = bundles("list", *words, "--json")
    assert done.code == (0 if done.document["tools"] else 3), done.err
    return [hit["name"] for hit in done.document["tools"]]


def test_search_finds_tools_of_bundles_outside_of_a_project(bundles: Bundles) -> None:
    bundles.ok("bundle", "create", "weather")
    bundles.ok("bundle", "create", "notes")
    bundles.put("weather", tags=["sky"], description="Says what comes")
    bundles.put("notes", version="v2")
    assert hits(bundles, "forecst") == ["notes/forecast@v2", "weather/forecast@v1"]  # the newest first
    assert hits(bundles, "comes") == ["weather/forecast@v1"]
    assert hits(bundles, "city", "--bundle", "notes") == ["notes/forecast@v2"]
    assert hits(bundles, "forecast", "--tag", "sky") == ["weather/forecast@v1"]
    first = bundles("list", "forecast", "--limit", "1", "--json").document
    assert first["total"] == 2
    assert hits(bundles, "forecast", "--limit", "1", "--page", first["next"]) == ["weather/forecast@v1"]
    bundles.ok(*TOOL, "disable", "weather/forecast")
    bundles.ok("bundle", "disable", "notes")
    assert hits(bundles, "forecast") == []
    assert len(hits(bundles, "forecast", "--disabled")) == 2
    found = bundles("list", "forecast", "--disabled", "--json").document["tools"]
    assert {one["bundle"]: one["isEnabled"] for one in found} == {"weather": False, "notes": True}
    assert hits(bundles, "forecast", "--data", "other") == []
    assert "toolcrib bundle list" in bundles("list", "forecast").err
    assert len(hits(bundles, "forecast", "--kind", "http", "--disabled")) == 2
    assert hits(bundles, "forecast", "--kind", "file", "--disabled") == []
    bundles.refused(3, "not_found", "list", "forecast", "--bundle", "nothing")


def test_a_list_says_how_to_trust_what_waits(bundles: Bundles) -> None:
    bundles.ok("bundle", "create", "weather")
    bundles.put("weather")
    bundles("init")
    assert bundles("list").err == "1 tool waits for trust: toolcrib trust NAME\n"


def test_a_search_in_a_project_finds_what_is_built_in_too(bundles: Bundles) -> None:
    accept(Crib(bundles.folder).root, bundles.data)
    assert hits(bundles, "read", "--bundle", "builtin") == []  # Switched off, until somebody wants them
    assert "read_file" in hits(bundles, "read", "--bundle", "builtin", "--disabled")
    bundles.ok(*TOOL, "enable", "builtin/read-file")
    assert hits(bundles, "read", "--bundle", "builtin") == hits(bundles, "read") == ["read_file"]


def test_a_hint_about_versions_can_be_typed(bundles: Bundles) -> None:
    bundles.ok("bundle", "create", "weather")
    bundles.put("weather")
    for name in ("forecast", "weather/forecast"):
        text = bundles.refused(3, "tool_not_found", *TOOL, "get", f"{name}@v9")
        command = text.partition("toolcrib ")[2].split()
        assert command == [*TOOL, "versions", name]


def test_a_call_without_bundle_or_version_says_which_tool_it_was(bundles: Bundles) -> None:
    root = Crib(bundles.folder / "shop").root
    (root / "notes.txt").write_text("noted")
    bundles.ok("bundle", "create", "notes")
    for version in ("3", "4"):
        file = root / "read.yml"
        file.write_text(MANIFEST.replace("version: 3", f"version: {version}"))
        bundles.ok(*TOOL, "put", "notes", str(file))
    accept(root, bundles.data)
    words = ("run", "read-notes", "--root", str(root))
    assert bundles.ok(*words)["meta"]["details"]["tool"] == "notes/read-notes@4"
    assert "notes/read-notes@4" in bundles(*words).err
    assert "tool" not in bundles.ok("run", "notes/read-notes@3", "--root", str(root))["meta"]["details"]


def test_search_in_a_project_finds_its_tools_and_those_of_bundles(bundles: Bundles) -> None:
    crib = Crib(bundles.folder / "shop")
    crib.tool("forecast_here", "file", {"action": "read", "path": "f"})
    bundles.ok("bundle", "create", "weather")
    bundles.put("weather")
    accept(crib.root, bundles.data)
    assert sorted(hits(bundles, "forecast", "--root", "shop")) == ["forecast_here", "weather/forecast@v1"]
    assert hits(bundles, "forecast", "--root", "shop", "--bundle", "weather") == ["weather/forecast@v1"]
    bundles.ok(*TOOL, "disable", "weather/forecast")
    assert hits(bundles, "forecast", "--root", "shop") == ["forecast_here"]
    both = ["forecast_here", "weather/forecast@v1"]
    assert sorted(hits(bundles, "forecast", "--root", "shop", "--disabled")) == both
    assert hits(bundles, "forecast", "--root", "shop", "--disabled", "--source", "user") == both[1:]
    bundles.refused(3, "project_not_found", "list", "forecast", "--root", "elsewhere")
    token = bundles("token", "create", "ci", "--scope", "read", "--root", "shop").out.strip()
    done = bundles("list", "forecast", "--root", "shop", "--data", "x", env={"TOOLCRIB_TOKEN": token})
    assert done.code == 5
    assert "invalid_token" in done.err


def test_names_are_completed(bundles: Bundles) -> None:
    made = bundles.ok("bundle", "create", "weather")["id"]
    bundles.put("weather")

    def completed(*words: str) -> list[str]:
        variables = {"_TOOLCRIB_COMPLETE": "bash_complete", "COMP_WORDS": " ".join(["toolcrib", *words])}
        done = bundles(env={**variables, "COMP_CWORD": str(len(words))})
        return [line.partition(",")[2] for line in done.out.splitlines() if line]

    assert completed("bundle", "show", "we") == ["weather"]
    assert completed("bundle", "show", made[:13]) == [made]
    assert completed(*TOOL, "get", "we") == ["weather/"]
    assert completed(*TOOL, "get", f"{made}/f") == [f"{made}/forecast"]
    assert completed(*TOOL, "get", "weather/f") == ["weather/forecast"]
    assert completed(*TOOL, "get", "weather/forecast@") == ["weather/forecast@v1"]
    assert completed(*TOOL, "get", "nothing/f") == []
