"""Tools of other formats: each loads as it is printed, and what is wrong is reported where it stands."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from toolcrib.errors import ManifestError, UsageError
from toolcrib.manifest import (
    DIALECTS,
    check_tool,
    diagnostics_of,
    entries,
    lint_file,
    lint_tree,
    load_tools,
    read_dialect,
)
from toolcrib.spec import CommandExec, FileExec, FunctionExec, HttpExec, Tool

FORM = "application/x-www-form-urlencoded"
DATA = Path(__file__).parents[3] / "data" / "dialects"


def read(name: str) -> dict[str, Tool]:
    path = DATA / name
    loaded = read_dialect(str(path), path.read_bytes())
    assert [finding.message for finding in loaded.diagnostics if finding.is_error] == []
    return {tool.name: tool for tool in loaded.tools}


def record(**changes: Any) -> bytes:
    """A FlexiGPT record; a change to None takes a key away."""
    base: dict[str, Any] = {
        "slug": "weather",
        "version": "v2",
        "description": "Weather of a city",
        "type": "http",
        "argSchema": {
            "type": "object",
            "properties": {"city": {"type": "string", "description": "The city"}},
        },
        "impl": {"urlTemplate": "https://api.example.com/w?q=${city}"},
    }
    return json.dumps(
        {key: value for key, value in {**base, **changes}.items() if value is not None}
    ).encode()


def flexigpt(**changes: Any) -> Tool:
    loaded = read_dialect("tool.json", record(**changes), "flexigpt")
    assert loaded.diagnostics == ()
    return loaded.tools[0]


def impl(**more: Any) -> dict[str, Any]:
    return {"urlTemplate": "https://api.example.com/w?q=${city}", **more}


# -- FlexiGPT -----------------------------------------------------------------------------------------


def test_flexigpts_printed_record_loads_unchanged() -> None:
    tool = read("tool.json")["weather"]
    assert (tool.name, tool.version, tool.kind) == ("weather", "v2", "http")
    config = tool.config
    assert isinstance(config, HttpExec)
    assert config.url == "https://api.weatherapi.com/v1/current.json?q=${city}&key=${WEATHER_API_KEY}"
    assert (config.success_codes, config.timeout_ms, config.body) == ((200,), 10_000, None)
    assert (config.jsonpath, config.error_mode) == ("$.current.condition.text", "fail")
    assert tool.permissions.network.allow == ("api.weatherapi.com",)
    assert [secret.name for secret in tool.permissions.secrets] == ["WEATHER_API_KEY"]
    assert tool.output.on_violation == "fail"
    assert tool.source is not None
    assert tool.source.raw == (DATA / "tool.json").read_bytes()
    assert tool.extensions["flexigpt"]["bundleID"] == "018faf50-b7b6-7a01-9a05-a22a6e0af101"
    assert check_tool(tool) == []


def test_a_go_record_refers_to_a_registered_function() -> None:
    tool = flexigpt(type="go", impl={"goFunc": "github.com/acme/agent/tools.Weather"})
    assert tool.config == FunctionExec("github.com/acme/agent/tools.Weather")
    assert (tool.kind, check_tool(tool)) == ("function", [])


@pytest.mark.parametrize(
    ("expression", "key", "value"),
    [
        ("$.a[0]", "jsonpath", "$.a[0]"),
        ("re:a(.)", "regex", "a(.)"),
        ("/a(.)/", "regex", "a(.)"),
        ("/a(.)/i", "regex", "(?i)a(.)"),
        ("/a(.)/gsi", "regex", "(?si)a(.)"),
        ("a(.)", "regex", "a(.)"),
    ],
)
def test_an_extraction_is_a_jsonpath_or_a_regex(expression: str, key: str, value: str) -> None:
    config = flexigpt(impl=impl(extractExpr=expression, errorMode="eMPTy")).config
    assert isinstance(config, HttpExec)
    assert (getattr(config, key), config.error_mode) == (value, "empty")


@pytest.mark.parametrize(
    ("template", "headers", "body", "form"),
    [
        ('{"a": "${city}", "n": ${n}}', {}, {"a": "${city}", "n": "${n}"}, None),
        ('{"a": "say \\"${city}\\" ${n}"}', {}, {"a": 'say "${city}" ${n}'}, None),
        ("a=${city}&b=1", {"content-type": FORM}, {"a": "${city}", "b": "1"}, "form"),
        ("Hello ${city}", {"Content-Type": "text/plain"}, "Hello ${city}", "text"),
        ('"${city}"', {}, "${city}", "json"),
    ],
)  # fmt: skip
def test_a_body_template_is_read_so_that_values_cannot_add_to_it(
    template: str, headers: dict[str, str], body: Any, form: str | None
) -> None:
    schema = {"type": "object", "properties": {"city": {"type": "string"}, "n": {"type": "integer"}}}
    tool = flexigpt(argSchema=schema, impl=impl(method="post", bodyTemplate=template, headers=headers))
    assert isinstance(tool.config, HttpExec)
    assert (tool.config.method, tool.config.body, tool.config.body_format) == ("POST", body, form)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"slug": "we_ather"}, "`slug` contains U+005F"),
        ({"slug": "a.b"}, "`slug` contains U+002E"),
        ({"slug": "x" * 65}, "1 to 64 characters"),
        ({"slug": None}, "is required"),
        ({"version": "1 2"}, "`version` contains U+0020"),
        ({"bundleID": "018faf50-b7b6-4a01-9a05-a22a6e0af101"}, "not a UUID of version 7"),
        ({"type": "grpc"}, "is not one of: go, http"),
        ({"impl": []}, 'is not of type "object"'),
        ({"description": ""}, "`description` must not be empty"),
        ({"impl": {}}, "`exec.http.url` must be text"),
        ({"type": "go", "impl": {}}, "`exec.function.reference` must be text"),
        ({"argSchema": {"type": "array"}}, "`inputs.schema.type` must be object"),
        ({"impl": {"urlTemplate": "ftp://x/${city}"}}, "http"),
        ({"impl": {"urlTemplate": "https://${city}/"}}, "network"),
        ({"impl": impl(responseEncoding="xml")}, "is not one of: json, text"),
        ({"impl": impl(bodyTemplate="{", headers={"Content-Type": "application/json"})}, "is not JSON"),
        ({"impl": impl(bodyTemplate="a=1&a=2", headers={"Content-Type": FORM})},
         "has a duplicate key"),
        ({"impl": impl(bodyTemplate={"a": 1})}, 'is not of type "string"'),
        ({"impl": impl(method="get", bodyTemplate="x")}, "`bodyTemplate` is never sent by this method"),
        ({"impl": impl(extractExpr="$.a[")}, "is not RFC 9535"),
        ({"impl": impl(timeoutMs="fast")}, 'is not of type "integer"'),
    ],
)  # fmt: skip
def test_a_bad_record_is_refused_with_the_reason(
    tmp_path: Path, change: dict[str, Any], expected: str
) -> None:
    path = tmp_path / "tool.json"
    path.write_bytes(record(**change))
    errors = [finding for finding in lint_file(str(path), "flexigpt") if finding.is_error]
    assert any(expected in finding.message for finding in errors), errors


def test_slugs_and_versions_are_letters_of_any_script() -> None:
    tool = flexigpt(slug="天" * 64, version="1.0-β")
    assert (tool.name, tool.version) == ("天" * 64, "1.0-β")


def test_what_is_wrong_is_reported_at_its_place_in_the_json_file(tmp_path: Path) -> None:
    path = tmp_path / "tool.json"
    path.write_text((DATA / "tool.json").read_text().replace("?q=${city}", "?q=${citty!}"))
    finding = next(finding for finding in lint_file(str(path)) if finding.rule == "placeholder")
    assert (finding.line, finding.column) == (16, 68)
    assert finding.where == "$.impl.urlTemplate"
    assert "urlTemplate" in finding.source


def test_a_record_that_is_switched_off_is_not_loaded() -> None:
    loaded = read_dialect("tool.json", record(isEnabled=False))
    assert loaded.tools == ()
    assert [(finding.rule, finding.is_error) for finding in loaded.diagnostics] == [("disabled", False)]


def test_unknown_keys_are_kept_and_reported() -> None:
    loaded = read_dialect("tool.json", record(colour="red", impl=impl(proxy="x")))
    assert [finding.rule for finding in loaded.diagnostics] == ["unmapped", "unmapped"]
    assert loaded.tools[0].extensions == {"flexigpt": {"colour": "red", "impl": {"proxy": "x"}}}


# -- Sympozium and skills -----------------------------------------------------------------------------


def test_a_sidecars_tools_become_commands() -> None:
    tools = read("skillpack.yaml")
    echo, pods = tools["echo_words"].config, tools["list_pods"].config
    assert isinstance(echo, CommandExec)
    assert isinstance(pods, CommandExec)
    assert (echo.entrypoint, echo.args) == ("printf", ("%s|%s", "${first}", "${second}"))
    assert echo.timeout_ms == 20_000
    assert (pods.entrypoint, *pods.args) == (
        "kubectl", "get", "pods", "-n", "${namespace}", "--output", "name only")  # fmt: skip
    permissions = tools["list_pods"].permissions
    assert (permissions.network.mode, permissions.read, permissions.write) == ("none", (".",), ())


@pytest.mark.parametrize(
    "line", ["kubectl get pods | wc -l", "a; b", "a && b", "echo $(x)", "echo `x`", "a > f"]
)
def test_a_line_that_needs_a_shell_is_refused(line: str) -> None:
    written = "command: kubectl get pods -n {{.namespace}} --output 'name only'"
    text = (DATA / "skillpack.yaml").read_text()
    assert written in text
    text = text.replace(written, f"command: {json.dumps(line)}")
    loaded = read_dialect("pack.yaml", text.encode())
    assert [tool.name for tool in loaded.tools] == ["echo_words"]
    assert "needs a shell" in loaded.diagnostics[0].message


@pytest.mark.parametrize(("said", "limit"), [(0.5, 30_000), (500, 120_000), (45, 45_000), ("1m30s", 90_000)])
def test_a_sidecars_timeout_is_kept_in_its_bounds(said: Any, limit: int) -> None:
    text = (DATA / "skillpack.yaml").read_text().replace("timeout: 20", f"timeout: {said}")
    tool = read_dialect("pack.yaml", text.encode()).tools[0]
    assert isinstance(tool.config, CommandExec)
    assert tool.config.timeout_ms == limit


def test_a_schema_without_properties_has_no_arguments() -> None:
    text = (
        (DATA / "skillpack.yaml")
        .read_text()
        .replace("properties:\n            namespace:", "properties: null #")
    )
    loaded = read_dialect("pack.yaml", text.encode())
    assert [tool.name for tool in loaded.tools] == ["echo_words"]
    assert any("properties" in finding.message for finding in loaded.diagnostics)
    impl = {"urlTemplate": "https://a.example/${x}"}
    flexigpt = {"slug": "a", "version": "1", "type": "http", "impl": impl, "argSchema": {"properties": None}}
    assert read_dialect("tool.json", json.dumps(flexigpt).encode()).tools == ()


def test_a_skill_becomes_a_tool_that_reads_its_folder() -> None:
    path = DATA / "pdf-forms" / "SKILL.md"
    loaded = read_dialect(str(path), path.read_bytes())
    tool = loaded.tools[0]
    assert tool.description.startswith("Fill in PDF forms.")
    assert isinstance(tool.config, FileExec)
    assert tool.config.path == "${file}"
    (folder,) = tool.permissions.read
    asked = tool.input_schema["properties"]["file"]
    assert (asked["default"], tool.config.base) == ("SKILL.md", folder)
    assert "references/fields.md" in asked["description"]
    assert tool.extensions["skill"]["allowed-tools"] == "Read Bash(python:*)"
    assert check_tool(tool) == []


@pytest.mark.parametrize(
    ("text", "line", "expected"),
    [
        ("# No front matter\n", 1, "does not begin with front matter"),
        ("---\nname: a\n", 1, "does not begin with front matter"),
        ("---\nname: Bad Name\ndescription: x\n---\n", 2, "is not the name of a skill"),
        ("---\nname: other\ndescription: x\n---\n", 2, "differs from the folder's name"),
        ("---\nname: mine\n---\n", 2, "`description` must be text"),
        ("---\nname: mine\ndescription: [a\n---\n", 3, "is not closed here"),
        ("---\n- a\n---\n", 2, "must be a mapping"),
    ],
)
def test_a_bad_skill_is_reported_at_its_place(tmp_path: Path, text: str, line: int, expected: str) -> None:
    path = tmp_path / "mine" / "SKILL.md"
    path.parent.mkdir()
    path.write_text(text)
    found = [finding for finding in lint_file(str(path)) if finding.is_error]
    assert any(expected in finding.message for finding in found), found
    assert found[0].line == line or line == 2


# -- which format, and folders ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "dialect"),
    [
        ("tool.json", "flexigpt"),
        ("skillpack.yaml", "sympozium"),
        ("pdf-forms/SKILL.md", "skill"),
    ],
)
def test_the_format_is_found_out_by_what_a_file_holds(tmp_path: Path, name: str, dialect: str) -> None:
    raw = (DATA / name).read_bytes()
    other = tmp_path / ("any.md" if dialect == "skill" else "any.txt")
    found = {
        entry.tool.source.dialect for entry in entries(str(other), raw) if entry.tool and entry.tool.source
    }
    assert found == {dialect} or (dialect == "skill" and not found)


def test_a_definition_of_vega_is_known_by_what_it_holds_though_it_is_no_yaml() -> None:
    for path in sorted((DATA.parent / "vega").glob("*.yaml")):
        (entry,) = entries("any.txt", path.read_bytes())
        assert entry.tool is not None
        assert entry.tool.source is not None
        assert entry.tool.source.dialect == "vega"
        assert [finding for finding in check_tool(entry.tool, entry.document) if finding.is_error] == []


def test_a_file_of_no_known_format_is_an_error() -> None:
    assert read_dialect("x.json", b'{"a": 1}').diagnostics[0].rule == "dialect"
    expected = read_dialect("x.json", b'{"mcpServers": {"a": {"command": "b"}}}').diagnostics[0].message
    assert "MCP servers" in expected
    with pytest.raises(UsageError, match="flexgpt"):
        entries("x.json", b"{}", "flexgpt")


def test_every_format_says_what_it_is() -> None:
    assert all(
        dialect.meaning and dialect.name == name
        for name, dialect in zip(DIALECTS.names(), DIALECTS.builtin, strict=True)
    )


SPOIL: tuple[Callable[[bytes], bytes], ...] = (
    lambda raw: raw[: len(raw) // 2],
    lambda raw: raw.replace(b":", b"", 3),
    lambda raw: raw + b"\xff",
    lambda raw: b"\x00" + raw,
    lambda raw: raw.replace(b"description", b"d\xc3\xa9scription"),
    lambda _: b"",
    lambda _: b"null",
    lambda _: b"[]",
    lambda _: b"[" * 200_000,
    lambda raw: b"&a " + raw,
)


@pytest.mark.parametrize("name", ["tool.json", "skillpack.yaml", "pdf-forms/SKILL.md"])
def test_a_damaged_file_gives_tools_or_findings_and_never_an_exception(name: str) -> None:
    whole = (DATA / name).read_bytes()
    for spoil in SPOIL:
        for dialect in (None, *DIALECTS.names()):
            loaded = read_dialect(str(DATA / name), spoil(whole), dialect)
            # A SkillPack need not have tools, so only there is nothing to find.
            assert loaded.tools or loaded.diagnostics or dialect == "sympozium", (spoil(whole)[:50], dialect)


def folder(base: Path, name: str, file: str, raw: bytes) -> Path:
    (base / name).mkdir(parents=True)
    path = base / name / file
    path.write_bytes(raw)
    return path


def test_folders_with_other_files_are_tools_too(tmp_path: Path) -> None:
    native = b"name: b\ndescription: B\nkind: command\nversion: 1\nexec: {command: {entrypoint: ls}}\n"
    folder(tmp_path, "b", "tool.yml", native)
    folder(tmp_path, "weather", "tool.json", record())
    folder(tmp_path, "mine", "SKILL.md", b"---\nname: mine\ndescription: Mine.\n---\n")
    folder(tmp_path, "zz", "tool.json", record())
    folder(tmp_path, "broken", "tool.json", b"{")
    folder(tmp_path, "b2", "notes.txt", b"")
    loaded = load_tools(tmp_path)
    assert [tool.name for tool in loaded.tools] == ["b", "mine", "weather"]
    expected = {(Path(finding.path).parent.name, finding.rule) for finding in loaded.diagnostics}
    assert expected == {("broken", "json-syntax"), ("zz", "name")}
    assert {finding.path for finding in lint_tree(tmp_path) if finding.is_error} == {
        os.fspath(tmp_path / "broken" / "tool.json")
    }


def test_a_manifest_comes_before_any_other_file_beside_it(tmp_path: Path) -> None:
    native = b"name: weather\ndescription: B\nkind: command\nversion: 1\nexec: {command: {entrypoint: ls}}\n"
    folder(tmp_path, "weather", "tool.yml", native)
    (tmp_path / "weather" / "tool.json").write_bytes(record())
    assert [tool.kind for tool in load_tools(tmp_path).tools] == ["command"]


def test_a_file_that_cannot_be_read_is_a_finding(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "tool.json")
    assert read_dialect(str(tmp_path / "tool.json")).diagnostics[0].rule == "unreadable"
    (tmp_path / "loop").symlink_to("loop")
    assert read_dialect(str(tmp_path / "loop")).diagnostics[0].rule == "unreadable"
    assert read_dialect(str(tmp_path / "gone.json")).diagnostics[0].rule == "unreadable"
    with pytest.raises(ManifestError) as caught:
        entries("x", b"- 1\n- 2\n")
    assert diagnostics_of(caught.value)[0].rule == "dialect"
