"""Vega's definitions: what is read, and what is reported of a file that is wrong."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from toolcrib.errors import ManifestError
from toolcrib.manifest import DIALECTS, Diagnostic, check_tool, diagnostics_of, failure, read_dialect
from toolcrib.manifest.dialects.vega import form
from toolcrib.spec import BuiltinExec, CommandExec, FileExec, HttpExec, Network, Permissions, Tool
from toolcrib.template import Namespaces, Values, parse, render_value
from toolcrib.template.url import parse_query, render_query

SLACK = """\
# tools/definitions/send_slack.yaml
name: send_slack
description: Send a message to a Slack channel
params:
  - name: channel
    type: string
    description: Channel name (without #)
    required: true
  - name: message
    type: string
    description: Message to send
    required: true
implementation:
  type: http
  method: POST
  url: https://slack.com/api/chat.postMessage
  headers:
    Authorization: Bearer ${SLACK_BOT_TOKEN}
    Content-Type: application/json
  body:
    channel: "{{channel}}"
    text: "{{message}}"
"""
HEAD = """\
name: tool_name                    # Required: unique identifier
description: What this tool does   # Required: shown to LLM
params:                            # Required: input parameters
  - name: param1
    type: string                   # string, integer, number, boolean, array, object
    description: What this param is
    required: true
  - name: param2
    type: integer
    default: 10
    description: Another (default 10)
"""
HTTP = """\
implementation:
  type: http
  method: POST                     # GET, POST, PUT, DELETE, PATCH
  url: https://api.example.com/endpoint
  headers:
    Authorization: Bearer ${API_KEY}
    Content-Type: application/json
  query:                           # URL query parameters
    format: json
  body:                            # Request body (for POST/PUT/PATCH)
    field1: "{{param1}}"
    field2: "{{param2}}"
  timeout: 30s                     # Request timeout
  retry:
    attempts: 3
    backoff: 1s
"""
CONDITION = """\
name: search
description: Search
params:
  - {name: query, type: string, description: What for, required: true}
  - {name: advanced_mode, type: boolean, description: Say more}
implementation:
  type: http
  method: POST
  url: https://api.example.com/search
  body:
    query: "{{query}}"
    {{if advanced_mode}}
    options:
      detailed: true
    {{end}}
"""


def definition(*names: str, implementation: str, kinds: dict[str, str] | None = None) -> str:
    params = "".join(
        f"  - {{name: {name}, type: {(kinds or {}).get(name, 'string')}, description: It}}\n"
        for name in names
    )
    return f"name: t\ndescription: A tool\nparams:\n{params}implementation:\n{implementation}"


def tool(text: str) -> Tool:
    loaded = read_dialect("tools/t.yaml", text.encode(), "vega")
    if loaded.diagnostics:
        raise failure(loaded.diagnostics)
    return loaded.tools[0]


def faults(text: str) -> list[Diagnostic]:
    """Everything that is wrong with a file."""
    try:
        return [finding for finding in check_tool(tool(text)) if finding.is_error]
    except ManifestError as error:
        return list(diagnostics_of(error))


def test_the_printed_slack_tool() -> None:
    found = tool(SLACK)
    assert (found.name, found.kind, found.source and found.source.dialect) == ("send_slack", "http", "vega")
    assert found.source is not None
    assert found.source.raw == SLACK.encode()
    assert found.input_schema == {
        "type": "object",
        "properties": {
            # The rest of the printed line, ` #)`, is a comment to YAML.
            "channel": {"type": "string", "description": "Channel name (without"},
            "message": {"type": "string", "description": "Message to send"},
        },
        "additionalProperties": False,
        "required": ["channel", "message"],
    }
    assert found.permissions.network == Network("hosts", ("slack.com",))
    assert [secret.name for secret in found.permissions.secrets] == ["SLACK_BOT_TOKEN"]
    assert not found.permissions.read
    assert check_tool(found) == []


def test_the_printed_http_implementation() -> None:
    found = tool(HEAD + HTTP)
    assert isinstance(found.config, HttpExec)
    assert (found.config.method, found.config.timeout_ms) == ("POST", 30_000)
    assert found.retry is not None
    assert (found.retry.max_attempts, found.retry.jitter, found.retry.backoff_ms) == (3, 0.0, 1000)
    assert [finding.rule for finding in check_tool(found)] == ["retry"]
    assert found.input_schema["properties"]["param2"]["default"] == 10


def test_the_printed_exec_implementation() -> None:
    found = tool(
        definition(
            "url",
            "filter",
            implementation=(
                "  type: exec\n  command: \"curl -s '{{url}}' | jq '{{filter}}'\"\n  timeout: 60s\n"
                "  env:\n    PATH: /usr/local/bin:/usr/bin\n"
            ),
        )
    )
    assert isinstance(found.config, CommandExec)
    assert found.config.shell == "curl -s '{{url}}' | jq '{{filter}}'"
    assert found.config.timeout_ms == 60_000
    assert found.permissions == Permissions(read=(".",))
    assert check_tool(found) == []


@pytest.mark.parametrize(
    ("mode", "number"), [("0644", 0o644), ("0o644", 0o644), ('"0600"', 0o600), ("0755", 0o755)]
)
def test_the_printed_file_implementations(mode: str, number: int) -> None:
    written = tool(
        definition(
            "path",
            "content",
            implementation=(
                f'  type: file_write\n  path: "{{{{path}}}}"\n  content: "{{{{content}}}}"\n  mode: {mode}\n'
                "  mkdir: true                      # Create parent directories\n"
            ),
        )
    )
    assert written.config == FileExec("write", "{{path}}", "{{content}}", mode=number, mkdir=True)
    granted = Permissions(read=(".",), write=("out",))
    assert DIALECTS["vega"].granted(written, granted) == granted
    reading = (
        '  type: file_read\n  path: "{{path}}"\n  encoding: utf-8                  # utf-8, base64, binary\n'
    )
    read = tool(definition("path", implementation=reading))
    assert read.config == FileExec("read", "{{path}}")
    assert read.permissions == Permissions(read=(".",))
    assert check_tool(written) + check_tool(read) == []


def test_an_octal_mode_is_read_in_flow_style_too() -> None:
    block = '  {type: file_write, path: a, content: "b, mode: 640", mode: 0o640}\n'
    written = tool(definition(implementation=block))
    assert written.config == FileExec("write", "a", "b, mode: 640", mode=0o640)


def test_the_printed_builtin_implementation() -> None:
    text = "  type: builtin\n  function: myCustomFunction       # Must be registered in Tools\n"
    found = tool(definition(implementation=text).replace("params:\n", "params: []\n"))
    assert found.config == BuiltinExec("myCustomFunction")
    assert check_tool(found) == []


def test_the_printed_templates() -> None:
    found = tool(
        definition(
            "user_id",
            "count",
            implementation=(
                "  type: http\n  url: https://api.example.com/users/{{user_id}}\n"
                "  method: PUT\n  headers:\n    Authorization: Bearer ${API_KEY}\n"
                '  body:\n    count: "{{count | default:10}}"\n'
            ),
            kinds={"count": "integer"},
        )
    )
    assert check_tool(found) == []
    assert isinstance(found.config, HttpExec)
    body = parse(found.config.body, Namespaces.of(found))
    assert render_value(body, Values({})) == {"count": 10}
    assert render_value(body, Values({"count": 3})) == {"count": 3}


def rendered(text: str, **values: Any) -> Any:
    found = tool(text)
    assert faults(text) == []
    assert isinstance(found.config, HttpExec)
    return render_value(parse(found.config.body, Namespaces.of(found)), Values(values))


def test_the_printed_condition_in_a_body() -> None:
    assert rendered(CONDITION, query="q", advanced_mode=True) == {"query": "q", "options": {"detailed": True}}
    for off in (False, None):
        assert rendered(CONDITION, query="q", advanced_mode=off) == {"query": "q"}
    assert rendered(CONDITION, query='x", "options": 1') == {"query": 'x", "options": 1'}


def test_conditions_nest_and_have_other_branches_in_mappings_and_lists() -> None:
    text = definition(
        "a",
        "b",
        implementation="""\
  type: http
  method: POST
  url: https://api.example.com/
  body:
    {{if a}}
    kind: a
    {{ if .b }}
    both: "{{a}} and {{b}}"
    {{end}}
    {{else if b}}
    kind: b
    {{else}}
    kind: none
    note: |
      {{if a}}never{{end}}nothing
      {{if b}}
      b
      {{end}}
    {{end}}
    items:
      - first
      {{if a}}
      - a: "{{a}}"
        more: [1]
      {{else}}
      - none
      - twice
      {{end}}
      - last
""",
    )
    assert rendered(text, a="x") == {"kind": "a", "items": ["first", {"a": "x", "more": [1]}, "last"]}
    assert rendered(text, a="x", b="y")["both"] == "x and y"
    assert rendered(text, b="y") == {"kind": "b", "items": ["first", "none", "twice", "last"]}
    assert rendered(text) == {
        "kind": "none",
        "note": "nothing\n\n",
        "items": ["first", "none", "twice", "last"],
    }


def test_conditions_nest_in_lists() -> None:
    text = definition(
        "a",
        "b",
        implementation=BODY
        + """\
    items:
      {{if a}}
      - a
      {{if b}}
      - b: "{{b}}"
      {{else}}
      - no b
      {{end}}
      {{end}}
      - last
""",
    )
    assert rendered(text, a="x", b="y") == {"items": ["a", {"b": "y"}, "last"]}
    assert rendered(text, a="x") == {"items": ["a", "no b", "last"]}
    assert rendered(text, b="y") == {"items": ["last"]}


def test_an_item_that_only_holds_a_condition_is_an_item() -> None:
    items = """\
    items:
      -
        {{if a}}
        a: "{{a}}"
        {{end}}
      - "{{if b}}b{{end}}"
"""
    text = definition("a", "b", implementation=BODY + items)
    assert rendered(text, a="x", b="y") == {"items": [{"a": "x"}, "b"]}
    assert rendered(text) == {"items": [{}, ""]}


def test_conditions_round_headers_and_query_entries() -> None:
    text = definition(
        "a",
        implementation="""\
  type: http
  url: https://api.example.com/
  query:
    fixed: 1
{{if a}}
    q: "{{a}}"
{{else}}
    none: true
{{end}}
""",
    )
    found = tool(text)
    assert faults(text) == []
    assert isinstance(found.config, HttpExec)
    query = parse_query(found.config.query, Namespaces.of(found))
    assert render_query(query, Values({"a": "x&y=1"})) == "fixed=1&q=x%26y%3D1"
    assert render_query(query, Values({})) == "fixed=1&none=true"


LIMITED = "{{if query}}\n  timeout: 1s\n{{end}}\n  body:"
BODY = "  type: http\n  method: POST\n  url: https://a.example/\n  body:\n"


@pytest.mark.parametrize(
    ("text", "line", "column", "rule", "expected"),
    [
        ("[]", 1, 1, "not-a-mapping", "instead of a mapping"),
        (SLACK.replace("name: send", "nam: send"), 2, 1, "name", "needs the key `name`"),
        (SLACK.replace("type: http", "type: htpp"), 14, 9, "exec-kind", "`htpp`"),
        (SLACK.replace("  url:", "  uri:"), 13, 1, "missing-key", "needs the key `url`"),
        (SLACK.replace("{{channel}}", "{{chanel}}"), 21, 15, "placeholder", "`chanel` is not a parameter"),
        (SLACK.replace("type: string", "type: text", 1), 6, 11, "wrong-value", "not `text`"),
        (SLACK.replace("name: message", "name: channel"), 9, 11, "wrong-value", "is defined twice"),
        (SLACK.replace("POST", "SEND"), 15, 11, "wrong-value", "must be one of GET"),
        (SLACK.replace("slack.com", "{{channel}}.com"), 16, 8, "url", "must be literal"),
        (SLACK.replace("{{message}}", "{{range .x}}"), 22, 12, "placeholder", "`range .x` is not supported"),
        (SLACK.replace("{{message}}", "{{message | upper}}"), 22, 12, "placeholder", "`upper`"),
        (HEAD + HTTP.replace("30s", "30 sec"), 24, 12, "wrong-value", "not a duration"),
        (HEAD + HTTP.replace("30s", "1e306"), 24, 12, "wrong-value", "not a duration"),
        (HEAD + HTTP.replace("attempts: 3", "attempts: 0"), 26, 15, "wrong-value", "must be at least 1"),
        (CONDITION.replace("advanced_mode}}", "advanced}}"), 12, 5, "placeholder", "`advanced`"),
        (CONDITION.replace("    {{end}}\n", ""), 12, 5, "condition", "has no `{{end}}`"),
        (CONDITION.replace("    {{if advanced_mode}}\n", ""), 14, 5, "condition", "without an `{{if}}`"),
        (CONDITION.replace("{{if adv", "{{if not adv"), 12, 5, "placeholder", "`not advanced_mode`"),
        (CONDITION.replace("detailed: true", "detailed: [true"), 14, 22, "yaml-syntax", "not closed"),
        (CONDITION.replace("detailed: true", 'detailed: "{{qery}}"'), 14, 18, "placeholder", "`qery`"),
        (CONDITION.replace("    options:", "    query: 1\n    options:"), 13, 5, "condition", "than once"),
        (CONDITION.replace("  body:", LIMITED), 11, 3, "condition", "is not allowed here"),
        (definition("x", implementation='  type: exec\n  command: "set {{x}}"\n'), 7, 17, "shell", "`set`"),
        (
            definition("x", implementation='  type: exec\n  command: "ls"\n  env: {PATH: "{{x}}"}\n'),
            8, 9, "shell", "PATH",
        ),
        (
            definition("x", implementation='  type: file_write\n  path: a\n  content: "b"\n  mode: 644\n'),
            9, 9, "wrong-value", "not a file mode",
        ),
        (definition("x", implementation=BODY + "    'a{{x}}': 1\n"), 10, 5, "placeholder", "in a key"),
        (
            definition("x", implementation=BODY + "    a: 'one\n      {{if x}}\n      two\n      {{end}}'\n"),
            11, 7, "condition", "has no `{{end}}`",
        ),
    ],
)  # fmt: skip
def test_what_is_wrong_is_reported_with_its_place(
    text: str, line: int, column: int, rule: str, expected: str
) -> None:
    found = faults(text)
    assert [(finding.line, finding.column, finding.rule) for finding in found][:1] == [
        (line, column, rule)
    ], found
    assert expected in found[0].message
    assert found[0].path == "tools/t.yaml"
    lines = text.split("\n")
    assert found[0].source == lines[line - 1]


def test_secrets_are_what_is_no_parameter_and_no_name_known_everywhere() -> None:
    text = definition(
        "a", implementation=BODY + "    x: ${a} ${TOKEN} ${run_id} ${OPT | default:none} $${TEXT}\n"
    )
    found = tool(text)
    assert [(s.name, s.required) for s in found.permissions.secrets] == [("TOKEN", True), ("OPT", False)]
    assert faults(text) == []


def test_each_documented_field_is_allowed_and_no_other() -> None:
    schema = json.loads(Path(form.__file__).with_name("schema.json").read_bytes())
    table = (Path(__file__).parents[4] / "docs/manifest.md").read_text().partition("\n### Vega\n")[2]
    cells = re.findall(r"^\| (`.*?) \|", table.partition("\n### ")[0], re.MULTILINE)
    documented = re.findall(r"`([^`]+)`(?: \((\w+)\))?", "\n".join(cells))
    common = {"type", "timeout", "retry"}
    for kind in schema["properties"]["implementation"]["properties"]["type"]["enum"]:
        allowed = {f"implementation.{key}" for key in schema["$defs"][kind]["properties"].keys() - common}
        assert allowed == {place for place, of in documented if of == kind}
    params = {f"params[].{key}" for key in schema["$defs"]["param"]["properties"]}
    assert params == {place for place, _ in documented if place.startswith("params[].")}


def test_nested_parameters() -> None:
    text = """\
name: t
description: A tool
params:
  - name: data
    type: object
    description: Action payload
    properties:
      id: {type: string, required: true}
      tags: {type: array, items: {type: string, enum: [a, b]}}
implementation:
  type: http
  method: POST
  url: https://a.example/{{data.id}}
  body: "{{data}}"
"""
    assert faults(text) == []
    rule = tool(text).input_schema["properties"]["data"]
    assert rule["required"] == ["id"]
    assert rule["properties"]["tags"]["items"] == {"type": "string", "enum": ["a", "b"]}
