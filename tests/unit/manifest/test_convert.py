"""From one format to another: what is read is what was written, and what is lost is told."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from toolcrib.errors import ManifestError, UsageError
from toolcrib.manifest import entries, load, parse_tool, read_dialect
from toolcrib.manifest.convert import TARGETS, convert, losses, read_all
from toolcrib.manifest.flexigpt import record_of
from toolcrib.manifest.source import dump
from toolcrib.manifest.writer import manifest_of
from toolcrib.spec import Approval, HttpExec, Tool

ROOT = Path(__file__).parents[3]
DATA = ROOT / "tests" / "data"
EXAMPLES = sorted(
    [
        *DATA.glob("glee/*/tool.yml"),
        *(ROOT / "src").rglob("starter_files/**/tool.yml"),
        *DATA.glob("dialects/*.*"),
        *(ROOT / "examples").rglob("tool.yml"),
        *DATA.glob("dialects/*/SKILL.md"),
    ]
)


few = settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)
"""These manifests are large: to shrink one takes longer than a unit test may."""


def bare(tool: Tool) -> Tool:
    return replace(tool, source=None)


def through(tool: Tool, to: str) -> Tool:
    """There and back, by a text that is really written."""
    text = TARGETS[to].write(tool)
    found = entries(f"{tool.name}/{TARGETS[to].file_name}", text, to)[0]
    assert found.tool is not None, found.found
    return found.tool


def test_there_are_examples_of_every_format() -> None:
    assert {path.name for path in EXAMPLES} >= {
        "tool.yml",
        "tool.json",
        "tools.yaml",
        "skillpack.yaml",
        "SKILL.md",
    }


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_every_example_goes_to_the_native_format_and_back_without_loss(path: Path) -> None:
    for tool in read_all(str(path), path.read_bytes()):
        written = convert(tool, "native")
        assert written.losses == ()
        assert bare(through(tool, "native")) == bare(tool)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_what_is_unchanged_is_written_byte_for_byte(path: Path) -> None:
    for tool in read_all(str(path), path.read_bytes()):
        assert tool.source is not None
        if tool.source.dialect in TARGETS:
            assert convert(tool, tool.source.dialect).text == path.read_bytes()
            changed = replace(tool, description=tool.description + " Changed.")
            written = convert(changed, tool.source.dialect)
            assert written.losses == ()
            assert b"Changed." in written.text


# -- generated manifests ------------------------------------------------------------------------------

TEXT = st.text(st.characters(exclude_categories=["Cs", "Cc"], include_characters="\n\t"), max_size=12)
SAID = TEXT.filter(lambda text: text.strip() and "${" not in text)
NAME = st.from_regex(r"[A-Za-z][A-Za-z0-9_-]{0,8}", fullmatch=True)
VARIABLE = st.from_regex(r"[A-Z][A-Z0-9_]{0,6}", fullmatch=True)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | SAID
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(
        ["no", "0o17", "017", "1e3", "~", "null", "2024-01-01", "- a", "a: b", "#", "'", "\\", " x "]
    ),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(SAID, inner, max_size=3),
    max_leaves=8,
)
MS = st.integers(1, 2**31 - 1)
SCHEMA = st.fixed_dictionaries(
    {"type": st.just("object")},
    optional={
        "properties": st.dictionaries(NAME, st.fixed_dictionaries({"default": JSON})),
        "description": TEXT,
    },
)
EXECS = st.one_of(
    st.fixed_dictionaries(
        {"url": st.just("https://api.example.com/x")},
        optional={
            "method": st.sampled_from(["GET", "POST", "PUT", "DELETE"]),
            "headers": st.dictionaries(NAME, SAID, max_size=2),
            "query": st.dictionaries(NAME, SAID, max_size=2),
            "cookies": st.dictionaries(NAME, SAID, max_size=2),
            "body": JSON,
            "body_format": st.sampled_from(["json", "text", "form"]),
            "timeout_ms": st.integers(0, 2**31 - 1),
            "success_codes": st.lists(st.integers(200, 299), min_size=1, max_size=2, unique=True),
            "error_mode": st.sampled_from(["fail", "empty"]),
            "response": st.fixed_dictionaries(
                {},
                optional={
                    "json_path": st.just("a.b"),
                    "regex": st.just("x(.)"),
                    "max_bytes": st.integers(1, 10**9),
                    "fields": st.just([{"name": "a", "path": "b.c"}]),
                },
            ),
        },
    ).map(lambda block: {"http": block}),
    st.fixed_dictionaries(
        {"entrypoint": SAID},
        optional={
            "args": st.lists(SAID, max_size=3),
            "cwd": SAID,
            "env": st.dictionaries(VARIABLE, SAID, max_size=2),
            "stdin": SAID | st.dictionaries(NAME, JSON, max_size=2),
            "stdout": st.fixed_dictionaries({"format": st.sampled_from(["json", "text"])}),
            "exit_codes_ok": st.lists(st.integers(0, 255), min_size=1, max_size=3, unique=True),
            "timeout_ms": MS,
        },
    ).map(lambda block: {"command": block}),
    st.fixed_dictionaries(
        {"module": st.just("tools.stats"), "function": st.just("run")},
        optional={
            "args": st.lists(JSON, max_size=3),
            "kwargs": st.dictionaries(NAME.map(lambda name: name.replace("-", "_")), JSON, max_size=2),
            "venv": SAID,
            "return": st.sampled_from(["json", "text"]),
        },
    ).map(lambda block: {"python": block}),
    st.fixed_dictionaries(
        {"action": st.sampled_from(["read", "write"]), "path": SAID, "content": SAID},
        optional={
            "mode": st.sampled_from(["0644", "0600", "755"]),
            "mkdir": st.booleans(),
            "encoding": st.sampled_from(["utf-8", "base64", "binary"]),
        },
    ).map(lambda block: {"file": block}),
    st.fixed_dictionaries(
        {"engine": st.just("sqlite"), "database": SAID, "statement": SAID},
        optional={
            "parameters": st.lists(SAID, max_size=2),
            "connection": st.dictionaries(SAID, JSON, max_size=2),
        },
    ).map(lambda block: {"sql": block}),
    st.fixed_dictionaries({"reference": SAID}).map(lambda block: {"function": block}),
)
PERMISSIONS = st.fixed_dictionaries(
    {},
    optional={
        "network": st.sampled_from([False, True, "host", {"allow": ["a.example.com", "*.b.org:8443"]}]),
        "fs": st.fixed_dictionaries(
            {}, optional={"read": st.lists(SAID, max_size=2), "write": st.lists(SAID, max_size=2)}
        ),
        "secrets": st.dictionaries(
            VARIABLE, st.fixed_dictionaries({}, optional={"required": st.booleans()}), max_size=2
        ),
        "env": st.lists(VARIABLE, max_size=2, unique=True),
    },
)
MANIFESTS = st.fixed_dictionaries(
    {"name": NAME, "description": SAID, "version": st.integers(1, 99) | NAME, "exec": EXECS},
    optional={
        "tags": st.lists(NAME, max_size=2, unique=True),
        "annotations": st.dictionaries(
            st.sampled_from(["read_only", "idempotent", "open_world"]), st.booleans()
        ),
        "inputs": st.fixed_dictionaries({"schema": SCHEMA}),
        "outputs": st.fixed_dictionaries(
            {},
            optional={
                "format": st.sampled_from(["json", "text"]),
                "on_violation": st.sampled_from(["warn", "fail"]),
                "schema": st.booleans() | st.just({}) | st.just({"type": "array"}),
            },
        ),
        "permissions": PERMISSIONS,
        "approval": st.fixed_dictionaries({"reason": SAID}, optional={"required": st.booleans()}),
        "retry": st.fixed_dictionaries(
            {}, optional={"max_attempts": st.integers(1, 9), "backoff_ms": MS, "jitter": st.floats(0, 1)}
        ),
        "limits": st.fixed_dictionaries(
            {}, optional={"timeout_ms": MS, "output_bytes": MS, "concurrent_calls": MS}
        ),
        "examples": st.lists(
            st.fixed_dictionaries(
                {"params": st.dictionaries(NAME, JSON, max_size=2)},
                optional={"description": SAID, "expected_output": SAID},
            ),
            max_size=2,
        ),
        "extensions": st.dictionaries(NAME, st.dictionaries(SAID, JSON, max_size=2), max_size=2),
    },
).map(lambda manifest: {**manifest, "kind": next(iter(manifest["exec"]))})


@few
@given(MANIFESTS)
def test_any_manifest_reads_back_as_the_same_tool(manifest: dict[str, Any]) -> None:
    tool = parse_tool(load(json.dumps(manifest, ensure_ascii=False).encode(), "tool.yml"))
    assert bare(through(tool, "native")) == bare(tool)
    assert list(losses(tool, through(tool, "native"), "native")) == []


@few
@given(MANIFESTS)
def test_any_tool_of_flexigpt_reads_back_or_its_losses_are_told(manifest: dict[str, Any]) -> None:
    tool = parse_tool(load(json.dumps(manifest, ensure_ascii=False).encode(), "tool.yml"))
    try:
        written = convert(tool, "flexigpt")
    except ManifestError:
        return
    back = entries("tool.json", written.text, "flexigpt")[0].tool
    assert back is not None
    same = replace(bare(back), extensions=tool.extensions) == bare(tool)
    assert same == (not written.losses), written.losses
    # What FlexiGPT made of it stays the same from then on.
    assert bare(through(back, "flexigpt")) == bare(back)


@few
@given(JSON)
def test_any_data_reads_back_from_what_is_written(data: Any) -> None:
    assert load(dump({"x": data}).encode(), "x.yml").data == {"x": data}


# -- losses -------------------------------------------------------------------------------------------


def test_a_record_goes_to_the_native_format_and_back_without_loss() -> None:
    path = DATA / "dialects" / "tool.json"
    tool = read_all(str(path), path.read_bytes())[0]
    native = convert(tool, "native")
    again = read_dialect("weather/tool.yml", native.text, "native").tools[0]
    back = convert(again, "flexigpt")
    assert back.losses == ()
    theirs = json.loads(back.text)
    assert theirs["bundleID"] == "018faf50-b7b6-7a01-9a05-a22a6e0af101"
    assert theirs["impl"]["urlTemplate"].endswith("key=${WEATHER_API_KEY}")


def test_what_flexigpt_cannot_say_is_told() -> None:
    path = DATA / "dialects" / "tool.json"
    tool = read_all(str(path), path.read_bytes())[0]
    asked = replace(tool, source=None, approval=Approval(True, "Costs money"), tags=("weather",))
    written = convert(asked, "flexigpt")
    assert [loss.path for loss in written.losses] == ["$.approval"]
    assert str(written.losses[0]) == '$.approval: {"required": true, "reason": "Costs money"} is lost'


def test_what_cannot_be_written_at_all_is_refused() -> None:
    path = DATA / "glee" / "repo_scan" / "tool.yml"
    scan = read_all(str(path), path.read_bytes())[0]
    with pytest.raises(ManifestError, match="of kind command; FlexiGPT has http and go"):
        convert(scan, "flexigpt")
    path = DATA / "glee" / "web_search" / "tool.yml"
    search = read_all(str(path), path.read_bytes())[0]
    with pytest.raises(ManifestError, match=r"`slug` holds U\+005F"):
        convert(search, "flexigpt")
    with pytest.raises(UsageError, match="no format 'flexgpt'"):
        convert(scan, "flexgpt")


def test_a_query_becomes_a_part_of_flexigpts_url() -> None:
    path = DATA / "glee" / "web_search" / "tool.yml"
    search = replace(read_all(str(path), path.read_bytes())[0], name="search", source=None)
    assert record_of(search)["impl"]["urlTemplate"].endswith(
        "?q=${query}&count=${count}&freshness=${freshness}"
    )
    told = {loss.path for loss in convert(search, "flexigpt").losses}
    assert {"$.exec.http.query", "$.exec.http.url", "$.approval", "$.examples"} <= told


def test_a_manifest_leaves_out_what_holds_anyway() -> None:
    text = b"name: a\ndescription: A\nkind: command\nversion: 1\nexec: {command: {entrypoint: ls, cwd: .}}\n"
    manifest = manifest_of(parse_tool(load(text, "tool.yml")))
    assert list(manifest) == ["name", "description", "kind", "version", "inputs", "exec"]
    assert manifest["exec"] == {"command": {"entrypoint": "ls"}}


def test_a_value_that_is_no_text_stands_bare_in_flexigpts_body() -> None:
    path = DATA / "dialects" / "tools.yaml"
    person = next(tool for tool in read_all(str(path), path.read_bytes()) if tool.name == "find-person")
    template = record_of(person)["impl"]["bodyTemplate"]
    assert template == '{"age": ${age}, "names": ${names}, "note": "age ${age}"}'
    back = through(person, "flexigpt").config
    assert isinstance(back, HttpExec)
    assert back.body == {"age": "${age}", "names": "${names}", "note": "age ${age}"}
