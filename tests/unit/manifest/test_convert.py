"""From one format to another: what is read is what was written, and what is lost is reported."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from toolcrib.errors import ManifestError, UsageError
from toolcrib.manifest import DIALECTS, entries, load, parse_tool, read_dialect
from toolcrib.manifest.convert import as_native, convert, differences, in_terms, losses, read_all, targets
from toolcrib.manifest.dialects.flexigpt.writer import record_of
from toolcrib.manifest.native.writer import manifest_of
from toolcrib.manifest.yaml.source import dump
from toolcrib.spec import ApprovalRule, HttpExec, Tool

ROOT = Path(__file__).parents[3]
DATA = ROOT / "tests" / "data"
EXAMPLES = sorted(
    [
        *DATA.glob("glee/*/tool.yml"),
        *(ROOT / "src").rglob("starter_files/**/tool.yml"),
        *DATA.glob("dialects/*.*"),
        *(ROOT / "examples").rglob("tool.yml"),
        *DATA.glob("dialects/*/SKILL.md"),
        *DATA.glob("vega/*.yaml"),
    ]
)


few = settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)
"""These manifests are large: to shrink one takes longer than a unit test may."""
ONLY_VEGA = {"builtin.yaml", "conditions.yaml", "exec.yaml"}
"""Vega's examples that no other format can say."""


def bare(tool: Tool) -> Tool:
    return replace(tool, source=None)


def through(tool: Tool, to: str) -> Tool:
    """There and back, by a text that is really written."""
    target = DIALECTS[to]
    assert target.write is not None
    text = target.write(in_terms(tool, target))
    found = entries(target.file_name.format(name=tool.name), text, to)[0]
    assert found.tool is not None, found.found
    return found.tool


def test_there_are_examples_of_every_format() -> None:
    assert {path.name for path in EXAMPLES} >= {
        "tool.yml",
        "tool.json",
        "skillpack.yaml",
        "SKILL.md",
    }


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_every_example_goes_to_the_native_format_and_back_without_loss(path: Path) -> None:
    for read in read_all(str(path), path.read_bytes()):
        if path.name in ONLY_VEGA:
            with pytest.raises(ManifestError, match="cannot be written in another format than vega"):
                convert(read, "native")
            continue
        tool = as_native(read)
        written = convert(tool, "native")
        assert written.losses == ()
        assert bare(through(tool, "native")) == bare(tool)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_what_is_unchanged_is_written_byte_for_byte(path: Path) -> None:
    for tool in read_all(str(path), path.read_bytes()):
        assert tool.source is not None
        if tool.source.dialect in targets() and not tool.source.shared:
            assert convert(tool, tool.source.dialect).text == path.read_bytes()
            changed = replace(tool, description=tool.description + " Changed.")
            written = convert(changed, tool.source.dialect)
            assert written.losses == ()
            assert b"Changed." in written.text


# -- generated manifests ------------------------------------------------------------------------------

TEXT = st.text(st.characters(exclude_categories=["Cs", "Cc"], include_characters="\n\t"), max_size=12)
SAID = TEXT.filter(lambda text: text.strip() and "${" not in text and text != "<<")
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
BYTES = st.integers(1, 2**26)
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
                    "max_bytes": BYTES,
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
        },
    ).map(lambda block: {"sql": block}),
    st.fixed_dictionaries({"reference": SAID}).map(lambda block: {"function": block}),
    st.fixed_dictionaries(
        {"id": st.just("a"), "tool": NAME},
        optional={
            "args": st.dictionaries(NAME, JSON, max_size=2),
            "needs": st.just(["b"]),
            "when": st.just("${x}")
            | st.lists(st.just({"value": "${x}", "is": None}), min_size=1, max_size=2),
            "foreach": st.lists(JSON, max_size=2) | st.just("${x}"),
            "concurrency": st.integers(1, 9),
            "on_error": st.sampled_from(["fail", "continue"]) | st.fixed_dictionaries({"default": JSON}),
        },
    ).map(lambda step: {"composite": {"steps": [step, {"id": "b", "tool": "t"}], "output": "${x}"}}),
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
            {}, optional={"timeout_ms": MS, "output_bytes": BYTES, "concurrent_calls": MS}
        ),
        "examples": st.lists(
            st.fixed_dictionaries(
                {"params": st.dictionaries(NAME, JSON, max_size=2)},
                optional={"description": SAID, "expected_output": SAID | st.just("")},
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
def test_any_tool_of_flexigpt_reads_back_or_its_losses_are_reported(manifest: dict[str, Any]) -> None:
    tool = parse_tool(load(json.dumps(manifest, ensure_ascii=False).encode(), "tool.yml"))
    try:
        written = convert(tool, "flexigpt")
    except ManifestError:
        return
    back = entries("tool.json", written.text, "flexigpt")[0].tool
    assert back is not None
    theirs = back.extensions.get("flexigpt")
    same = bare(back) == bare(tool) or (
        "flexigpt" not in tool.extensions
        and bare(back) == replace(bare(tool), extensions={**tool.extensions, "flexigpt": theirs})
    )
    assert not same or not written.losses, written.losses
    assert same or written.losses or isinstance(tool.config, HttpExec), (
        "only a request has two ways to be said"
    )
    # What FlexiGPT made of it stays the same from then on.
    assert bare(through(back, "flexigpt")) == bare(back)


@few
@given(JSON)
def test_any_data_reads_back_from_what_is_written(data: Any) -> None:
    assert load(dump({"x": data}).encode(), "x.yml").data == {"x": data}


@few
@given(MANIFESTS)
def test_any_command_of_a_sidecar_reads_back_or_its_losses_are_reported(manifest: dict[str, Any]) -> None:
    tool = parse_tool(load(json.dumps(manifest, ensure_ascii=False).encode(), "tool.yml"))
    try:
        written = convert(tool, "sympozium")
    except ManifestError:
        return
    back = entries("pack.yaml", written.text, "sympozium")[0].tool
    assert back is not None
    assert differences(tool, back) == ()
    assert bare(back) == bare(tool) or written.losses or "sympozium" in back.extensions
    assert bare(through(back, "sympozium")) == bare(back)


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


def test_what_flexigpt_cannot_say_is_reported() -> None:
    path = DATA / "dialects" / "tool.json"
    tool = read_all(str(path), path.read_bytes())[0]
    asked = replace(tool, source=None, approval=ApprovalRule(True, "Costs money"), tags=("weather",))
    written = convert(asked, "flexigpt")
    assert [loss.path for loss in written.losses] == ["$.approval"]
    expected = (
        '$.approval: {"required": true, "reason": "Costs money"} is lost (no person is asked before a call)'
    )
    assert str(written.losses[0]) == expected
    assert written.losses[0].as_dict() == {
        "path": "$.approval",
        "was": {"required": True, "reason": "Costs money"},
        "means": "no person is asked before a call",
    }


def test_everything_that_is_lost_is_reported_with_what_it_means() -> None:
    manifest = {
        "name": "t",
        "description": "A tool",
        "kind": "http",
        "version": 1,
        "annotations": {"read_only": True},
        "exec": {"http": {"url": "https://a.example/", "headers": {"X": "${KEY}", "Y": "${HOME}"},
                          "response": {"max_bytes": 9}}},
        "outputs": {"on_violation": "warn", "schema": {"type": "object"}},
        "permissions": {"network": True, "secrets": {"KEY": {"required": False}}, "env": ["HOME"]},
        "limits": {"calls_per_minute": 2},
        "retry": {"max_attempts": 3, "jitter": 0.5},
        "examples": [{"params": {}}],
        "extensions": {"other": {"a": 1}},
    }  # fmt: skip
    written = convert(parse_tool(load(json.dumps(manifest).encode(), "tool.yml")), "flexigpt")
    secret = "every ${NAME} that is not an argument is a required secret"
    assert {loss.path: loss.means for loss in written.losses} == {
        "$.version": "the format keeps no such version",
        "$.annotations": "clients do not learn what a call does",
        "$.outputs.on_violation": "the output is read or checked differently",
        "$.exec.http.response.max_bytes": "only the limits of its runner apply",
        "$.permissions.network": "the tool may reach the host of its own address, and no other",
        "$.permissions.secrets.KEY.required": secret,
        "$.permissions.secrets.HOME": secret,
        "$.permissions.env": secret,
        "$.examples": "a model is shown no such calls",
        "$.extensions": "the keys of another format are gone",
    }


@pytest.mark.parametrize(
    ("line", "args"),
    [
        ("ls | wc -l # $${x}", ["-c", "ls | wc -l # $${x}"]),
        ("ls '{{x}}'", None),
        ("ls {{if x}}-l{{end}}", None),
    ],
)
def test_a_shell_line_of_vega_becomes_a_manifest_if_it_has_no_values(
    line: str, args: list[str] | None
) -> None:
    definition = {"name": "t", "description": "T", "params": [{"name": "x", "type": "string"}],
                  "implementation": {"type": "exec", "command": line}}  # fmt: skip
    (tool,) = read_all("t.yaml", dump(definition).encode(), "vega")
    if args is None:
        with pytest.raises(ManifestError, match="its shell line contains values"):
            convert(tool, "native")
        return
    written = convert(tool, "native")
    assert written.losses == ()
    assert load(written.text, "tool.yml").data["exec"]["command"] == {
        "entrypoint": "/bin/sh",
        "args": args,
        "stdout": {"format": "text"},
    }


def test_a_record_that_does_not_say_whether_it_is_on_stays_so() -> None:
    record = {"slug": "a", "version": "1", "description": "A", "type": "go", "impl": {"goFunc": "m.f"}}
    (kept,) = read_all("tool.json", json.dumps(record).encode())
    assert bare(through(kept, "flexigpt")) == bare(kept)
    # A new one says it.
    assert record_of(replace(kept, source=None))["isEnabled"] is True


def test_headers_of_numbers_are_texts_to_flexigpt() -> None:
    manifest = {
        "name": "t",
        "description": "T",
        "kind": "http",
        "version": "1",
        "exec": {"http": {"url": "https://a.example/", "headers": {"X-Count": 1, "X-On": True}}},
        "permissions": {"network": {"allow": ["a.example"]}},
    }
    written = convert(parse_tool(load(json.dumps(manifest).encode(), "tool.yml")), "flexigpt")
    assert json.loads(written.text)["impl"]["headers"] == {"X-Count": "1", "X-On": "true"}
    assert written.losses == ()


def test_what_cannot_be_written_at_all_is_refused() -> None:
    path = DATA / "glee" / "repo_scan" / "tool.yml"
    scan = read_all(str(path), path.read_bytes())[0]
    with pytest.raises(ManifestError, match="of kind command; FlexiGPT has http and go"):
        convert(scan, "flexigpt")
    path = DATA / "glee" / "web_search" / "tool.yml"
    search = read_all(str(path), path.read_bytes())[0]
    with pytest.raises(ManifestError, match=r"`slug` contains U\+005F"):
        convert(search, "flexigpt")
    with pytest.raises(UsageError, match="no format 'flexgpt'"):
        convert(scan, "flexgpt")
    with pytest.raises(UsageError, match="the format skill is read only"):
        convert(scan, "skill")


def test_a_query_becomes_a_part_of_flexigpts_url() -> None:
    path = DATA / "glee" / "web_search" / "tool.yml"
    search = replace(read_all(str(path), path.read_bytes())[0], name="search", source=None)
    with pytest.raises(
        ManifestError, match=r"would do something else: \$\.exec\.http\.response\.fields"
    ) as caught:
        convert(search, "flexigpt")
    assert [loss["path"] for loss in caught.value.details["losses"]] == ["$.exec.http.response.fields"]
    assert isinstance(search.config, HttpExec)
    query = {**search.config.query, "a b&": "x&y=${query}", "n": 1, "many": ["1", "${count}"]}
    search = replace(search, config=replace(search.config, fields=(), query=query))
    assert record_of(search)["impl"]["urlTemplate"].endswith(
        "?q=${query}&count=${count}&freshness=${freshness}&a%20b%26=x%26y%3D${query}&n=1&many=1&many=${count}"
    )
    # To say it otherwise is to lose nothing; nor is `$.web.results` for the dotted path.
    expected = {loss.path for loss in convert(search, "flexigpt").losses}
    assert {"$.approval", "$.examples"} <= expected
    assert not any(path.startswith("$.exec") for path in expected)


def test_a_manifest_leaves_out_what_holds_anyway() -> None:
    text = b"name: a\ndescription: A\nkind: command\nversion: 1\nexec: {command: {entrypoint: ls, cwd: .}}\n"
    manifest = manifest_of(parse_tool(load(text, "tool.yml")))
    assert list(manifest) == ["name", "description", "kind", "version", "inputs", "exec"]
    assert manifest["exec"] == {"command": {"entrypoint": "ls"}}


def test_a_value_that_is_no_text_has_no_quotes_in_flexigpts_body() -> None:
    body = {"age": "${age}", "names": "${names}", "note": "age ${age}"}
    properties = {"age": {"type": "integer"}, "names": {"type": "array", "items": {"type": "string"}}}
    manifest = {
        "name": "find-person",
        "description": "Find a person",
        "kind": "http",
        "version": 1,
        "inputs": {"schema": {"type": "object", "properties": properties}},
        "exec": {"http": {"method": "POST", "url": "https://api.example.com/", "body": body}},
        "permissions": {"network": {"allow": ["api.example.com"]}},
    }
    person = parse_tool(load(json.dumps(manifest).encode(), "tool.yml"))
    template = record_of(person)["impl"]["bodyTemplate"]
    assert template == '{"age": ${age}, "names": ${names}, "note": "age ${age}"}'
    back = through(person, "flexigpt").config
    assert isinstance(back, HttpExec)
    assert back.body == body
