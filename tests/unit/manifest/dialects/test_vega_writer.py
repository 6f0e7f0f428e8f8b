"""Tools as Vega's definitions: what is written reads back, what Vega cannot say is reported."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.manifest.test_convert import JSON, MANIFESTS, NAME, SAID, bare, few, through
from toolcrib.errors import ManifestError
from toolcrib.manifest import DIALECTS, entries, load, parse_tool, read_dialect
from toolcrib.manifest.convert import convert, differences, in_terms
from toolcrib.manifest.yaml.source import flow
from toolcrib.spec import CommandExec, HttpExec, Tool

# -- generated definitions: made line by line, so that nothing of the writer is in them -----------------

TESTS = ("a", "b.c", ".list")
SCALAR = st.sampled_from(
    ['"{{a}}"', "plain", "12", "1.5e3", "true", "~", "'{{if a}}x{{else}}{{b}}{{end}} '", '"{{list}}"',
     "[1, {a: b}]", '"${TOKEN}"', '"$${a} é \\u2028 # x"', "{}", "[]", "0o17", "2024-01-01",
     '"{{a | default:10}}"']
)  # fmt: skip


WHOLE = st.integers(-(2**63), 2**63 - 1)


@st.composite
def blocks(draw: Any, depth: int, names: Any, listed: bool) -> list[str]:
    """The lines of a mapping or a list, conditions round its entries."""
    lines: list[str] = []
    for _ in range(draw(st.integers(1, 3))):
        kind = draw(
            st.sampled_from(["scalar", "block", "map", "list", "if"] if depth else ["scalar", "block"])
        )
        head = "-" if listed else f"k{next(names)}:"
        if kind == "scalar":
            lines.append(f"{head} {draw(SCALAR)}")
        elif kind == "block":
            lines += [
                f"{head} |{draw(st.sampled_from(['', '-', '+']))}",
                "    {{if a}}",
                "    x: # y",
                "    {{end}}",
            ]
        elif kind == "if":
            lines += draw(chains(depth - 1, names, listed))
        else:
            lines += [head, *("    " + line for line in draw(blocks(depth - 1, names, kind == "list")))]
    return lines


@st.composite
def chains(draw: Any, depth: int, names: Any, listed: bool) -> list[str]:
    """One condition with up to three branches; its control lines may begin at the margin of the file."""
    margin = draw(st.sampled_from(["", "\0"]))
    words = [f"if {draw(st.sampled_from(TESTS))}"]
    words += [f"else if {draw(st.sampled_from(TESTS))}"] * draw(st.integers(0, 1))
    words += ["else"] * draw(st.integers(0, 1))
    lines: list[str] = []
    for word in words:
        lines += [f"{margin}{{{{ {word} }}}}", *draw(blocks(depth, names, listed))]
    return [*lines, f"{margin}{{{{end}}}}"]


@st.composite
def definitions(draw: Any) -> str:
    body = draw(blocks(3, iter(range(10_000)), False))
    entry = st.sampled_from(['X: "{{a}}"', "{{if a}}\n    Y: 1\n    {{else}}\n    Z: '2'\n    {{end}}"])
    end = draw(st.sampled_from(["\n", "\r\n"]))
    text = f"""\
name: {draw(NAME)}
description: {flow(draw(SAID))}
params:
  - {{name: a, type: string, description: {flow(draw(SAID))}}}
  - {{name: b, type: object, properties: {{c: {{type: integer, default: {draw(WHOLE)}}}}}}}
  - {{name: list, type: array, items: {{type: number, enum: [1, 2.5]}}, required: true}}
implementation:
  type: http
  method: post
  url: "https://api.example.com/{{{{a}}}}?t=${{TOKEN}}"
  headers:
    {draw(entry)}
  query:
    {draw(entry)}
  body:
""" + "".join(f"    {line}\n".rpartition("\0")[2] for line in body)
    if draw(st.booleans()):
        text += f"  timeout: {draw(st.sampled_from(['30s', '1m30s', '1ms', '5', '0.25']))}\n"
    if draw(st.booleans()):
        text += f"  retry: {{attempts: {draw(st.integers(1, 100))}, backoff: 250ms}}\n"
    return text.replace("\n", end)


def definitions_in(text: bytes) -> tuple[Tool, ...]:
    return read_dialect("t.yaml", text, "vega").tools


@few
@given(definitions())
def test_any_definition_reads_back_as_the_same_tool(text: str) -> None:
    (tool,) = definitions_in(text.encode())
    assert convert(tool, "vega").text == text.encode()
    assert bare(through(tool, "vega")) == bare(tool)


@few
@given(MANIFESTS)
def test_any_tool_is_refused_or_its_losses_are_reported_and_it_runs_alike(manifest: dict[str, Any]) -> None:
    tool = parse_tool(load(json.dumps(manifest, ensure_ascii=False).encode(), "tool.yml"))
    try:
        written = convert(tool, "vega")
    except ManifestError:
        return
    back = entries("t.yaml", written.text, "vega")[0].tool
    assert back is not None
    assert differences(in_terms(tool, DIALECTS["vega"]), back) == ()
    given = in_terms(tool, DIALECTS["vega"])
    for name in (
        "version",
        "tags",
        "annotations",
        "permissions",
        "approval",
        "limits",
        "examples",
        "extensions",
    ):
        expected = any(loss.path.startswith(f"$.{name}") for loss in written.losses)
        assert expected == (getattr(given, name) != getattr(back, name)), name
    assert [loss.path for loss in written.losses if not loss.means] == []
    # What Vega made of it stays the same from then on.
    assert bare(through(back, "vega")) == bare(back)


@few
@given(st.dictionaries(SAID, JSON, min_size=1, max_size=3).filter(lambda body: "{{" not in json.dumps(body)))
def test_any_body_without_conditions_reads_back(body: dict[str, Any]) -> None:
    manifest = native("http", {"method": "POST", "url": "https://a.example/", "body": body})
    config = definitions_in(convert(manifest, "vega").text)[0].config
    assert isinstance(config, HttpExec)
    assert json.dumps(config.body) == json.dumps(body)


# -- what is reported, and what is refused -----------------------------------------------------------------


def native(kind: str, block: dict[str, Any], **more: Any) -> Tool:
    """A native tool with two arguments, `who` required and `n` not."""
    properties = {"who": {"type": "string"}, "n": {"type": "integer"}}
    schema = {"type": "object", "additionalProperties": False, "required": ["who"], "properties": properties}
    manifest = {
        "name": "t",
        "description": "A tool",
        "version": 1,
        "kind": kind,
        "exec": {kind: block},
        "inputs": {"schema": schema},
        **more,
    }
    return parse_tool(load(json.dumps(manifest, ensure_ascii=False).encode(), "tool.yml"))


URL = {"url": "https://api.example.com/"}
OWN = {"network": {"allow": ["api.example.com"]}}
READ = {"fs": {"read": ["."]}}


TEXT = {"outputs": {"format": "text"}}


def taking(rule: Any) -> dict[str, Any]:
    """A schema with one argument."""
    return {"inputs": {"schema": {"type": "object", "properties": {"x": rule}}}}


def expected(tool: Tool) -> dict[str, str]:
    return {loss.path: loss.means for loss in convert(tool, "vega").losses}


def test_nothing_is_reported_where_nothing_is_lost() -> None:
    query = {"who": "${who}", "n": "${n | default:3}"}
    assert expected(native("http", {**URL, "query": query, "timeout_ms": 1500}, permissions=OWN)) == {}
    assert expected(native("command", {"entrypoint": "ls", "args": ["${who}"], "stdout": {"format": "text"}},
                       outputs={"format": "text"}, permissions=READ)) == {}  # fmt: skip
    assert expected(native("file", {"action": "read", "path": "${who}"}, outputs={"format": "text"},
                       permissions=READ)) == {}  # fmt: skip


def test_everything_that_is_lost_is_reported_with_what_it_means() -> None:
    found = expected(
        native(
            "http",
            {**URL, "headers": {"X": "${KEY}", "Y": "${HOME}"}, "response": {"max_bytes": 9}},
            version="v2",
            tags=["x"],
            annotations={"read_only": True},
            outputs={"schema": {"type": "object"}, "on_violation": "fail"},
            permissions={"network": True, "secrets": {"KEY": {"required": False}}, "env": ["HOME"]},
            approval={"required": True, "reason": "Dear"},
            limits={"calls_per_minute": 2},
            retry={"max_attempts": 3, "jitter": 0.5},
            examples=[{"params": {"who": "x"}}],
            extensions={"other": {"a": 1}},
        )
    )
    assert found == {
        "$.version": "the format keeps no such version",
        "$.tags": "the tool is not found by them",
        "$.annotations": "clients do not learn what a call does",
        "$.outputs.schema": "the output is not checked",
        "$.outputs.on_violation": "the output is read or checked differently",
        "$.exec.http.response.max_bytes": "only the limits of its runner apply",
        "$.permissions.network": "the tool may reach the host of its own address, and no other",
        "$.permissions.secrets.KEY.required": "every ${NAME} that is not an argument is a required secret",
        "$.permissions.secrets.HOME": "every ${NAME} that is not an argument is a required secret",
        "$.permissions.env": "every ${NAME} that is not an argument is a required secret",
        "$.approval": "no person is asked before a call",
        "$.limits": "only the limits of its runner apply",
        "$.retry.jitter": "failed calls are retried differently, or not at all",
        "$.examples": "a model is shown no such calls",
        "$.extensions": "the keys of another format are gone",
    }


@pytest.mark.parametrize(
    ("kind", "block", "more", "said"),
    [
        ("http", {**URL, "cookies": {"a": "1"}}, {}, r"\$\.exec\.http\.cookies: .* is lost"),
        ("http", {**URL, "success_codes": [200]}, {}, r"\$\.exec\.http\.success_codes: \[200\] is lost"),
        ("http", {**URL, "error_mode": "empty"}, {}, r"error_mode"),
        ("http", {**URL, "response": {"json_path": "a"}}, {}, r"response\.json_path"),
        ("http", {**URL, "response": {"regex": "a", "max_bytes": 1}}, {}, r"response\.regex"),
        ("http", {**URL, "method": "POST", "body": {"a": "1"}, "body_format": "form"}, {}, "body_format"),
        ("http", URL, {"outputs": {"format": "text"}}, r'\$\.outputs\.format: "text" becomes "json"'),
        ("http", URL, {"auth": {"type": "basic", "username_secret": "U"},
                       "permissions": {**OWN, "secrets": {"U": {}}}}, r"\$\.auth: .* is lost"),
        ("http", URL, {"auth": {"type": "api_key", "secret": "U", "in": "cookie", "name": "k"},
                       "permissions": {**OWN, "secrets": {"U": {}}}}, r"\$\.auth: .* is lost"),
        ("http", {"url": "https://${who}.example.com/"},
         {"permissions": {"network": {"allow": ["*.example.com"]}}}, "must be literal"),
        ("http", {**URL, "query": {"a": "{{x}}"}}, {}, "would mean something else"),
        ("command", {"entrypoint": "ls", "args": ["${n}"]}, {}, "`n` is not given"),
        ("command", {"entrypoint": "ls", "args": ["${who | default:null}"]}, TEXT, "`who` is not given"),
        ("command", {"entrypoint": "ls", "args": ["${session_id}"]}, TEXT, "`session_id` is not given"),
        ("command", {"entrypoint": "docker", "args": ["{{.Names}}"]}, TEXT, "would mean something else"),
        ("command", {"entrypoint": "/bin/sh", "args": ["-c", "echo {{x}}"]}, TEXT, "would mean something"),
        ("command", {"entrypoint": "ls", "stdin": "x"}, {}, r"\$\.exec\.command\.stdin"),
        ("command", {"entrypoint": "ls", "cwd": "src"}, {}, r"\$\.exec\.command\.cwd"),
        ("command", {"entrypoint": "ls", "exit_codes_ok": [0, 1]}, {}, "exit_codes_ok"),
        ("command", {"entrypoint": "ls"}, {"outputs": {"format": "json"}}, r"exec\.command\.stdout"),
        ("python", {"module": "m", "function": "f"}, {}, "of kind python; Vega only has http, exec"),
        ("sql", {"engine": "sqlite", "database": "a", "statement": "SELECT 1"}, {}, "of kind sql"),
        ("function", {"reference": "m.f"}, {}, "of kind function"),
        ("composite", {"steps": [{"id": "a", "tool": "x"}]}, {}, "of kind composite"),
        ("file", {"action": "write", "path": "a", "content": "{{x}}"}, {}, "would mean something else"),
        ("http", URL, taking({}), "`x` does not have exactly one type"),
        ("http", URL, taking({"type": ["string", "null"]}), "`x` does not have exactly one type"),
        ("http", URL, taking({"type": "array", "items": {"type": "object", "properties": {"y": True}}}),
         r"`x\[\]\.y` does not have exactly one type"),
        ("http", {**URL, "timeout_ms": 90_000_000}, {}, "is not a duration up to a day"),
    ],
)  # fmt: skip
def test_what_would_run_otherwise_is_refused(
    kind: str, block: dict[str, Any], more: dict[str, Any], said: str
) -> None:
    more = {"permissions": OWN, **more} if kind == "http" else more
    with pytest.raises(ManifestError, match=f"(?s)^t cannot be written as vega.*{said}"):
        convert(native(kind, block, **more), "vega")


def test_auth_becomes_entries_of_the_request() -> None:
    secrets = {"KEY": {"type": "string", "required": True}, "TOKEN": {"type": "string", "required": True}}
    auth = [
        {"type": "bearer", "secret": "TOKEN"},
        {"type": "api_key", "secret": "KEY", "in": "query", "name": "k"},
    ]
    tool = native("http", URL, auth=auth, permissions={**OWN, "secrets": secrets})
    assert expected(tool) == {}
    text = convert(tool, "vega").text.decode()
    assert "Authorization: Bearer ${TOKEN}" in text
    assert "k: ${KEY}" in text


@pytest.mark.parametrize(
    ("args", "line"),
    [
        (["-l", "a b", ""], "exec ls -l 'a b' ''"),
        (["it's ${who}", '$HOME `x` "', "$${x}"], "exec ls 'it'\\''s {{who}}' '$HOME `x` \"' '$${x}'"),
        (["--", "${who}", "*.py"], "exec ls -- '{{who}}' '*.py'"),
        (["${secret:KEY}", "x=${run_id}", "${name}"], "exec ls '${KEY}' 'x=${run_id}' '${name}'"),
    ],
)
def test_every_argument_is_one_word_of_the_line(args: list[str], line: str) -> None:
    secrets = {"KEY": {"type": "string", "required": True}}
    tool = native("command", {"entrypoint": "ls", "args": args}, outputs={"format": "text"},
                  permissions={**READ, "secrets": secrets})  # fmt: skip
    config = definitions_in(convert(tool, "vega").text)[0].config
    assert isinstance(config, CommandExec)
    assert config.shell == line


def test_a_line_without_values_is_the_same_in_both() -> None:
    block = {"entrypoint": "/bin/sh", "args": ["-c", "ls | wc -l # $${x}\n"], "stdout": {"format": "text"}}
    tool = native("command", block, outputs={"format": "text"}, permissions=READ)
    back = definitions_in(convert(tool, "vega").text)[0]
    assert isinstance(back.config, CommandExec)
    assert back.config.shell == "ls | wc -l # $${x}\n"
    again = convert(back, "native")
    assert again.losses == ()
    assert bare(entries("t/tool.yml", again.text, "native")[0].tool or tool) == bare(tool)


def test_a_changed_definition_keeps_what_only_vega_has() -> None:
    text = """\
name: t
description: A tool
params:
  - {name: x, type: string, description: X}
implementation:
  type: exec
  command: "grep {{if x}}-e '{{x}}'{{else}}''{{end}} -- *.py | sort"
  allow_dash: [x]
"""
    (tool,) = definitions_in(text.encode())
    written = convert(replace(tool, description="Another: one"), "vega")
    assert written.losses == ()
    assert bare(definitions_in(written.text)[0]) == replace(bare(tool), description="Another: one")
