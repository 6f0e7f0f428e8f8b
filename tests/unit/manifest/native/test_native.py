"""Manifests become tools, or say why not."""

from __future__ import annotations

import dataclasses
import gc
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.commands import complete
from tests.unit.manifest.native.samples import COMMAND, FILE, HTTP, PYTHON, change, findings, tool
from toolcrib.errors import ManifestError
from toolcrib.manifest import Loaded, diagnostics_of, load_tools
from toolcrib.spec import (
    Annotations,
    ApprovalRule,
    CommandExec,
    FieldMap,
    FileExec,
    HttpExec,
    Limits,
    Network,
    Output,
    Permissions,
    PythonExec,
    Retry,
    SecretSpec,
)

GLEE = Path(__file__).parents[3] / "data/glee"


@pytest.fixture(scope="module")
def glee() -> Loaded:
    return load_tools(GLEE)


def test_the_printed_manifests_load_as_they_stand(glee: Loaded) -> None:
    assert glee.diagnostics == ()
    assert [found.name for found in glee.tools] == [
        "repo_scan",
        "repo_stats",
        "slack_notify",
        "weather",
        "web_search",
    ]


def test_web_search_keeps_everything_it_says(glee: Loaded) -> None:
    found = glee.tools[4]
    assert found.description == "Search the web for information using Brave Search API"
    assert (found.kind, found.version, found.bundle) == ("http", 1, "project")
    assert found.input_schema["required"] == ["query"]
    assert found.input_schema["properties"]["count"]["default"] == 10
    assert found.config == HttpExec(
        method="GET",
        url="https://api.search.brave.com/res/v1/web/search",
        headers={"Accept": "application/json", "X-Subscription-Token": "${BRAVE_API_KEY}"},
        query={"q": "${query}", "count": "${count}", "freshness": "${freshness}"},
        json_path="web.results",
        fields=(FieldMap("title", "title"), FieldMap("url", "url"), FieldMap("description", "description")),
    )
    assert found.output.schema is not None
    assert found.permissions == Permissions(
        network=Network("any"), secrets=(SecretSpec("BRAVE_API_KEY", "string", True),)
    )
    assert found.approval == ApprovalRule(True, "Accesses external API with secrets")
    assert [example.params for example in found.examples] == [
        {"query": "best python web frameworks 2025", "count": 5},
        {"query": "artificial intelligence news", "count": 10, "freshness": "week"},
    ]
    assert (
        found.examples[1].expected_output == '[{"title": "...", "url": "...", "description": "..."}, ...]\n'
    )


def test_slack_notify_keeps_its_body(glee: Loaded) -> None:
    config = glee.tools[2].config
    assert isinstance(config, HttpExec)
    assert config.method == "POST"
    assert config.body == {"channel": "${channel}", "text": "${message}", "thread_ts": "${thread_ts}"}


def test_repo_scan_and_repo_stats_keep_how_they_run(glee: Loaded) -> None:
    scan, stats = glee.tools[0], glee.tools[1]
    assert scan.config == CommandExec(
        "./scripts/scan_todos.sh",
        ("${path}",),
        ".",
        stdout_format="text",
        exit_codes_ok=(0,),
        timeout_ms=30_000,
    )
    assert scan.output == Output("text")
    assert scan.permissions == Permissions(read=(".",))
    assert scan.approval == ApprovalRule(False)
    assert stats.config == PythonExec(
        "tools.repo_stats", "run", ("${path}",), venv=".venv", returns="json", timeout_ms=30_000
    )
    assert stats.output == Output("json")


def test_a_tool_keeps_its_manifest_byte_for_byte(glee: Loaded) -> None:
    source = glee.tools[4].source
    assert source is not None
    assert source.dialect == "native"
    assert source.raw == (GLEE / "web_search/tool.yml").read_bytes()
    assert source.path.endswith("glee/web_search/tool.yml")
    assert len(source.sha256) == 64


def test_what_is_left_out_grants_nothing() -> None:
    found = tool(PYTHON)
    assert found.permissions == Permissions()
    assert found.permissions.network.mode == "none"
    assert found.input_schema == {"type": "object", "properties": {}, "additionalProperties": False}
    assert found.output == Output("json", None, "warn")
    assert found.approval == ApprovalRule()
    assert found.retry is None
    assert found.limits == Limits()
    assert found.annotations == Annotations()
    assert (found.tags, found.examples) == ((), ())
    assert found.config == PythonExec("tools.stats", "run", None, None, None, ".", "json", None)


def test_every_further_field_is_read() -> None:
    found = tool(
        HTTP
        + """\
  fs: {read: [src], write: [out]}
  env: [LANG]
tags: [web, find_it]
annotations: {read_only: true, destructive: false, idempotent: true, open_world: true}
limits: {timeout_ms: 5000, output_bytes: 1000}
retry: {max_attempts: 3, jitter: 0.5, backoff_ms: 100}
outputs: {format: json, schema: {type: array}, on_violation: fail}
approval: {required: true, reason: Costs money}
"""
    )
    assert found.permissions == Permissions(Network("any"), ("src",), ("out",), (), ("LANG",))
    assert found.tags == ("web", "find_it")
    assert found.annotations == Annotations(True, False, True, True)
    assert found.limits == Limits(timeout_ms=5000, output_bytes=1000)
    assert found.retry == Retry(3, 0.5, 100)
    assert found.output == Output("json", {"type": "array"}, "fail")
    assert found.approval == ApprovalRule(True, "Costs money")


def test_every_http_field_is_read() -> None:
    text = change(
        HTTP,
        "    query:\n      q: ${query}\n",
        """\
    method: post
    headers: {X-Count: 5, X-On: true}
    body: [1, {a: "${query}"}]
    timeout_ms: 1000
    success_codes: [200, 404]
    error_mode: empty
    response: {jsonpath: "$.a", fields: [{name: x, path: y.z}], max_bytes: 99}
""",
    )
    assert tool(text).config == HttpExec(
        "POST",
        "https://api.example.com/find",
        {"X-Count": 5, "X-On": True},
        {},
        [1, {"a": "${query}"}],
        1000,
        (200, 404),
        "empty",
        None,
        "$.a",
        None,
        (FieldMap("x", "y.z"),),
        99,
    )
    config = tool(change(HTTP, "    url:", "    response: {regex: a}\n    url:")).config
    assert isinstance(config, HttpExec)
    assert config.regex == "a"


def test_every_command_python_and_file_field_is_read() -> None:
    command = change(
        COMMAND,
        '    args: ["${path}"]\n',
        "    cwd: src\n    env: {LANG: C}\n    stdin: {a: 1}\n"
        "    stdout: {format: json}\n    exit_codes_ok: [0, 3]\n",
    )
    assert tool(command).config == CommandExec(
        "./scan.sh", (), "src", {"LANG": "C"}, {"a": 1}, "json", (0, 3), None
    )
    python = PYTHON + "    kwargs: {a: 1}\n    args: [1, {b: 2}]\n    return: text\n    cwd: x\n"
    assert tool(python).config == PythonExec(
        "tools.stats", "run", (1, {"b": 2}), {"a": 1}, None, "x", "text", None
    )
    file = change(FILE, "    content: ${text}\n", "    content: ${text}\n    mode: 0600\n    mkdir: true\n")
    assert tool(file).config == FileExec("write", "notes/today.txt", "${text}", "utf-8", 0o600, True)


@pytest.mark.parametrize(
    ("written", "network"),
    [
        ("false", Network()),
        ("true", Network("any")),
        ("host", Network("host")),
        (
            "{allow: [API.example.com, '*.example.org:8443']}",
            Network("hosts", ("api.example.com", "*.example.org:8443")),
        ),
    ],
)
def test_the_forms_of_the_network_permission(written: str, network: Network) -> None:
    assert tool(change(HTTP, "network: true", f"network: {written}")).permissions.network == network


@pytest.mark.parametrize("written", ["1", "7", '"2025-01-09"', "v1.2", '"1.10"'])
def test_a_version_is_a_whole_number_or_text(written: str) -> None:
    assert tool(change(PYTHON, "version: 1", f"version: {written}")).version in (
        1,
        7,
        "2025-01-09",
        "v1.2",
        "1.10",
    )


def test_a_timeout_of_zero_leaves_the_limit_to_the_project() -> None:
    config = tool(PYTHON + "    timeout_ms: 0\n").config
    assert isinstance(config, PythonExec)
    assert config.timeout_ms is None
    assert tool(PYTHON + "limits: {timeout_ms: 0}\n").limits.timeout_ms is None


def test_numbers_written_with_a_point_are_still_whole() -> None:
    config = tool(PYTHON + "    timeout_ms: 30000.0\n").config
    assert isinstance(config, PythonExec)
    assert config.timeout_ms == 30_000
    assert type(config.timeout_ms) is int


KINDS = "http, command, python, file, composite, function, sql"
MISFITS: list[tuple[str, str, str, str, int, int, str | None]] = [
    # (text, old, new, rule, line, column, part of message or hint)
    (PYTHON, "version: 1\n", "version: 1\nnmae: x\n", "unknown-key", 5, 1, None),
    (PYTHON, "description", "descripton", "unknown-key", 2, 1, "did you mean `description`?"),
    (PYTHON, "    module", "    retry: {}\n    module", "unknown-key", 7, 5, "at the top level"),
    (PYTHON, "    module", "    limits: {}\n    module", "unknown-key", 7, 5, "not in `exec.python`"),
    (COMMAND, "entrypoint", "entry_point", "unknown-key", 14, 5, "did you mean `entrypoint`?"),
    (COMMAND, "    args", "    secrets: {}\n    args", "unknown-key", 15, 5, "`permissions.secrets`?"),
    (COMMAND, "inputs:\n", "parameters: {}\ninputs:\n", "unknown-key", 5, 1, "under `inputs.schema`"),
    (COMMAND, "inputs:\n", "input_schema: {}\ninputs:\n", "unknown-key", 5, 1, "under `inputs.schema`"),
    (COMMAND, "inputs:\n", "inputs:\n  required: []\n", "unknown-key", 6, 3, "below `inputs.schema`"),
    (PYTHON, "name: stats\n", "", "name", 1, 1, "`name`"),
    (PYTHON, "name: stats", "name: 5", "name", 1, 7, 'put it in quotes: "5"'),
    (PYTHON, "name: stats", "name: a/b", "name", 1, 7, "folder name"),
    (PYTHON, "name: stats", "name: .x", "name", 1, 7, "folder name"),
    (PYTHON, "name: stats", "name: ''", "name", 1, 7, "folder name"),
    (PYTHON, "name: stats", "name: e\u0301", "name", 1, 7, "normal form"),
    (PYTHON, "name: stats", "name: a\u200bb", "name", 1, 7, "invisible"),
    (PYTHON, "name: stats", "name: a\u3164", "name", 1, 7, "invisible"),
    (PYTHON, "name: stats", "name: " + "名" * 90, "name", 1, 7, "255 bytes"),
    (PYTHON, "description: Counts lines\n", "", "description", 1, 1, "`description`"),
    (PYTHON, "Counts lines", "' '", "description", 2, 14, "must not be empty"),
    (PYTHON, "kind: python", "kind: pythn", "wrong-value", 3, 7, "did you mean `python`?"),
    (PYTHON, "kind: python", "kind: http", "exec-kind", 3, 7, "`exec` has `python`"),
    (PYTHON, "version: 1\n", "", "version", 1, 1, "`version`"),
    (PYTHON, "version: 1", "version: 0", "version", 4, 10, "at least 1"),
    (PYTHON, "version: 1", "version: 1.0", "version", 4, 10, "put it in quotes, as it is written"),
    (PYTHON, "version: 1", "version: 1.10", "version", 4, 10, "put it in quotes, as it is written"),
    (PYTHON, "version: 1", "version: true", "version", 4, 10, "not true"),
    (PYTHON, "version: 1", "version: ''", "version", 4, 10, "not empty"),
    (PYTHON, "version: 1", "version:", "version", 4, 1, "not nothing"),
    (PYTHON, "kind: python", "kind: python\nauth: {}", "missing-key", 4, 1, "`type`"),
    (PYTHON, "  python:\n", "  command: {entrypoint: x}\n  python:\n", "exec-kind", 5, 1, "exactly one of"),
    (HTTP, "    url: https://api.example.com/find\n", "", "missing-key", 13, 3, "needs the key `url`"),
    (HTTP, "    url:", "    method: FETCH\n    url:", "wrong-value", 14, 13, "must be one of GET, POST"),
    (HTTP, "    url:", "    timeout_ms: -1\n    url:", "wrong-value", 14, 17, "at least 0"),
    (HTTP, "    url:", "    timeout_ms: 30s\n    url:", "wrong-type", 14, 17, "not the text `30s`"),
    (HTTP, "    url:", "    headers: {A: [1]}\n    url:", "wrong-type", 14, 18, "not a list"),
    (HTTP, "    url:", "    success_codes: [99]\n    url:", "wrong-value", 14, 21, "at least 100"),
    (HTTP, "    url:", "    response: {fields: [{name: a}]}\n    url:", "response", 14, 25, "`path`"),
    (HTTP, "    url:", "    response: {fields: [{name: '', path: a}]}\n    url:", "response", 14, 32, "y"),
    (HTTP, "network: true", "network: localhost", "wrong-value", 18, 12, "{allow: [hosts]}"),
    (HTTP, "network: true", "network: {alow: [x]}", "unknown-key", 18, 13, "did you mean `allow`?"),
    (HTTP, "network: true", "network: {allow: ['https://x']}", "wrong-value", 18, 21, "without scheme"),
    (HTTP, "network: true", "network: no", "wrong-value", 18, 12, "must be false, true"),
    (HTTP, "network: true", "network: [a.com]", "wrong-type", 18, 12, "write `network: {allow: ["),
    (HTTP, "network: true", "network: {allow: a.com}", "wrong-type", 18, 20, "write it as a list"),
    (PYTHON, "version: 1", "version: 1\napproval: true", "wrong-type", 5, 11, "`approval: {required: true"),
    (HTTP, "network: true", "secrets: [TOKEN]", "wrong-type", 18, 12, "write each name as a key"),
    (HTTP, "network: true", "secrets: {TOKEN: }", "wrong-type", 18, 13, "{type: string, required: true}"),
    (HTTP, "network: true", "secrets: {9T: {}}", "wrong-value", 18, 13, "name of an environment variable"),
    (HTTP, "network: true", "secrets: {T: {type: int}}", "wrong-value", 18, 23, "must be string"),
    (HTTP, "network: true", "fs: {read: .}", "wrong-type", 18, 14, "write it as a list"),
    (HTTP, "network: true", "env: [A, A]", "wrong-value", 18, 8, "same item twice"),
    (COMMAND, '["${path}"]', '["${path}"]\n    exit_codes_ok: []', "exit-codes", 16, 20, "at least 1"),
    (COMMAND, '["${path}"]', "[-n, 5]", "wrong-type", 15, 16, 'put it in quotes: "5"'),
    (COMMAND, '["${path}"]', '["${path}"]\n    env: {A: no, B: true}', "wrong-type", 16, 21, '"true"'),
    (COMMAND, "    type: object\n", "    type: objct\n", "input-schema", 7, 11, "must be object"),
    (COMMAND, "    type: object\n", "", "input-schema", 6, 3, "add `type: object`"),
    (COMMAND, "    type: object\n", "    type: object\n    required: path\n", "input-schema", 8, 15, "list"),
    (COMMAND, "inputs:\n", "approval: {required: true}\ninputs:\n", "approval-reason", 5, 1, "no `reason`"),
    (PYTHON, "exec:\n", "approval: {required: true, reason: ''}\nexec:\n", "approval-reason", 5, 36, "why"),
    (COMMAND, "inputs:\n", "approval: {required: yes}\ninputs:\n", "wrong-type", 5, 22, "write `true`"),
    (COMMAND, "inputs:\n", "tags: [a b]\ninputs:\n", "wrong-value", 5, 8, "`tags[0]`"),
    (COMMAND, "inputs:\n", "outputs:\ninputs:\n", "wrong-type", 5, 1, "remove the key"),
    (FILE, "    content: ${text}\n", "", "missing-key", 11, 3, "`content`"),
    (FILE, "    content", "    mode: 0o644\n    content", "wrong-type", 14, 11, 'as text: "0644"'),
    (FILE, "    content", "    mode: '4755'\n    content", "wrong-value", 14, 11, "three octal digits"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "old", "new", "rule", "line", "column", "expected"),
    MISFITS,
    ids=[f"{at}-{case[3]}" for at, case in enumerate(MISFITS)],
)
def test_a_misfit_is_reported_at_its_place_with_the_fix(
    text: str, old: str, new: str, rule: str, line: int, column: int, expected: str | None
) -> None:
    changed = change(text, old, new)
    with pytest.raises(ManifestError) as caught:
        tool(changed)
    found = [(f.rule, f.line, f.column) for f in diagnostics_of(caught.value)]
    assert (rule, line, column) in found
    finding = diagnostics_of(caught.value)[found.index((rule, line, column))]
    assert expected is None or expected in f"{finding.message}\n{finding.hint}"


def test_all_misfits_of_a_manifest_are_reported_at_once_in_order() -> None:
    text = change(change(change(HTTP, "kind: http", "kind: htp"), "version: 1", "version: 0"), "url:", "uri:")
    assert [(f.rule, f.line) for f in findings(text)] == [
        ("wrong-value", 3),
        ("version", 4),
        ("missing-key", 13),
        ("unknown-key", 14),
    ]


@pytest.mark.parametrize(
    ("text", "expected"), [("", "empty"), ("- a\n", "a list"), ("hello", "a single value")]
)
def test_a_manifest_that_is_no_mapping_says_what_it_is(text: str, expected: str) -> None:
    (finding,) = findings(text)
    assert (finding.rule, finding.line) == ("not-a-mapping", 1)
    assert expected in finding.message


def test_a_name_that_differs_from_its_folder_names_both() -> None:
    (finding,) = findings(PYTHON, "statistics")
    assert (finding.rule, finding.line, finding.column) == ("name-folder", 1, 7)
    assert "`stats`" in finding.message
    assert "`statistics`" in finding.message


def test_the_error_carries_the_rendered_finding_and_all_of_them_as_json() -> None:
    with pytest.raises(ManifestError) as caught:
        tool(change(PYTHON, "kind: python", "kind: pythn"))
    error = caught.value
    assert error.message.splitlines() == [
        f"tool.yml:3:7: error[wrong-value]: `kind` must be one of {KINDS}, not `pythn`",
        "  kind: pythn",
        "        ^",
    ]
    assert error.hint == "did you mean `python`?"
    assert error.exit_code == 4
    assert error.violations[0].path == "$.kind"
    assert error.as_dict()["details"]["diagnostics"][0]["rule"] == "wrong-value"


def write(root: Path, name: str, text: str | bytes, file: str = "tool.yml") -> None:
    (root / name).mkdir(parents=True, exist_ok=True)
    (root / name / file).write_bytes(text.encode() if isinstance(text, str) else text)


def test_one_bad_file_never_hides_the_others(tmp_path: Path) -> None:
    for name in ("zeta", "alpha"):
        write(tmp_path, name, change(PYTHON, "name: stats", f"name: {name}"))
    write(tmp_path, "half", 'name: half\nexec:\n  http:\n    url: "ht')
    write(tmp_path, "list", "- a\n")
    write(tmp_path, "bytes", b"name: \xff\n")
    write(tmp_path, "deep", "[" * 200_000)
    write(tmp_path, "wrong", PYTHON)
    write(tmp_path, "empty", "")
    (tmp_path / "pipe").mkdir()
    os.mkfifo(tmp_path / "pipe/tool.yml")
    (tmp_path / "link").mkdir()
    (tmp_path / "link/tool.yml").symlink_to("nowhere")
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    (tmp_path / "folder/tool.yml").mkdir(parents=True)
    loaded = load_tools(tmp_path)
    assert [found.name for found in loaded.tools] == ["alpha", "zeta"]
    assert {(Path(f.path).relative_to(tmp_path).parts[0], f.rule) for f in loaded.diagnostics} == {
        ("bytes", "encoding"),
        ("circle", "unreadable"),
        ("deep", "yaml-depth"),
        ("empty", "not-a-mapping"),
        ("folder", "unreadable"),
        ("half", "yaml-syntax"),
        ("link", "unreadable"),
        ("list", "not-a-mapping"),
        ("pipe", "unreadable"),
        ("wrong", "name-folder"),
    }


def test_files_and_folders_without_a_manifest_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "notes.txt").write_text("x")
    write(tmp_path, ".hidden", "bad: [")
    assert load_tools(tmp_path) == Loaded((), ())
    assert load_tools(tmp_path / "nowhere") == Loaded((), ())


def test_a_folder_of_tools_that_is_a_file_is_reported(tmp_path: Path) -> None:
    (tmp_path / "tools").write_text("x")
    (finding,) = load_tools(tmp_path / "tools").diagnostics
    assert finding.rule == "unreadable"


def test_tool_yaml_is_read_with_a_warning(tmp_path: Path) -> None:
    write(tmp_path, "stats", PYTHON, "tool.yaml")
    loaded = load_tools(tmp_path)
    assert [found.name for found in loaded.tools] == ["stats"]
    assert [(f.rule, f.severity, f.hint) for f in loaded.diagnostics] == [
        ("file-name", "warning", "rename it to tool.yml")
    ]


def test_folder_names_that_are_not_text_are_reported_and_can_be_written(tmp_path: Path) -> None:
    write(tmp_path, os.fsdecode(b"\xff"), PYTHON)
    (finding,) = load_tools(tmp_path).diagnostics
    assert finding.rule == "name-folder"
    assert finding.render().encode()
    assert str(finding.as_dict()).encode()


def test_loading_leaves_the_cycle_collector_as_it_was() -> None:
    assert gc.isenabled()
    load_tools(GLEE)
    assert gc.isenabled()


def test_a_json_definition_has_the_same_form() -> None:
    """JSON is YAML: what an agent sends as a definition is read by the same rules."""
    import orjson

    definition: dict[str, Any] = {
        "name": "stats",
        "description": "Counts",
        "kind": "python",
        "version": 1,
        "exec": {"python": {"module": "a", "function": "b"}},
    }
    found = tool(orjson.dumps(definition).decode())
    assert dataclasses.replace(found, source=None).name == "stats"


@pytest.mark.parametrize(
    ("name", "most"),
    [
        ("output_bytes", 64 << 20),
        ("memory_bytes", 2**53 - 1),
        ("processes", 4_194_303),  # the kernel counts the one that waits as well
        ("cpu_ms", 2**31 - 1),
        ("file_bytes", 2**53 - 1),
        ("open_files", 2**20),
        ("calls_per_minute", 2**31 - 1),
        ("min_interval_ms", 2**31 - 1),
        ("concurrent_calls", 2**31 - 1),
    ],
)
def test_a_limit_that_nothing_could_hold_is_reported_in_the_manifest(name: str, most: int) -> None:
    text = COMMAND + "limits: {%s: %d}\n"
    assert getattr(tool(text % (name, most)).limits, name) == most
    (found,) = findings(text % (name, most + 1))
    assert (found.rule, found.where) == ("wrong-value", f"$.limits.{name}")
    assert found.message == f"`limits.{name}` must be at most {most}"


def test_what_a_server_has_frozen_is_counted_once() -> None:
    script = """
import gc, sys
from toolcrib.manifest import load_tools
count, counted = gc.get_freeze_count, []
gc.get_freeze_count = lambda: counted.append(1) or count()
gc.freeze()
for _ in range(3):
    load_tools(sys.argv[1])
assert len(counted) == 1, counted
assert count() > 0
"""
    complete([sys.executable, "-c", script, str(GLEE)], check=True)
