"""The published JSON Schema, and that the documentation keeps up with it."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import jsonschema_rs
import pytest

from scripts.make_docs import fields_of
from toolcrib import manifest
from toolcrib.manifest import RULES, load, parse_tool, tool_schema

ROOT = Path(__file__).parents[4]
DOCS = (ROOT / "docs/manifest.md").read_text()


FIELDS = {path: rule for path, rule, _ in fields_of(tool_schema())}
NATIVE, _, OTHERS = DOCS.partition("\n## Other formats\n")
READERS = {
    "Vega": "dialects/vega",
    "FlexiGPT": "dialects/flexigpt",
    "Sympozium": "dialects/sympozium",
    "Agent Skills": "dialects/skill",
    "MCP servers": "dialects/mcp_servers.py",
    "OpenAPI": "openapi",
}
"""Heading of a table of fields to the code that reads the format."""


def test_the_schema_is_a_valid_2020_12_schema() -> None:
    assert tool_schema()["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert jsonschema_rs.meta.is_valid(tool_schema())


def test_every_field_is_documented_as_editors_show_it() -> None:
    for field, schema in FIELDS.items():
        assert schema["description"].endswith("."), field
        line = next((line for line in NATIVE.splitlines() if line.startswith(f"| `{field}` |")), field)
        assert line.endswith(f"| {schema['description']} |")


def test_the_documentation_names_no_field_that_does_not_exist() -> None:
    table = NATIVE.partition("## Rules")[0]
    assert set(re.findall(r"^\| `([a-z][^`]*)` \|", table, re.MULTILINE)) == set(FIELDS)


def test_every_rule_is_documented_with_its_weight_and_meaning() -> None:
    table = NATIVE.partition("## Rules")[2]
    rows = re.findall(r"^\| `([a-z-]+)` \| (error|warning) \| .*\. \|$", table, re.MULTILINE)
    assert dict(rows) == RULES


@pytest.mark.parametrize("heading", READERS)
def test_readers_look_for_the_documented_keys_and_no_others(heading: str) -> None:
    table = OTHERS.partition(f"\n### {heading}\n")[2].partition("\n##")[0]
    rows = [
        (place.rpartition(".")[2], meaning)
        for cell, meaning in re.findall(r"^\| (`.*?) \| .*\| (.*) \|$", table, re.MULTILINE)
        for place in re.findall("`([^`]+)`", cell)
    ]
    documented = {key.removesuffix("[]") for key, _ in rows}
    place = ROOT / "src/toolcrib/manifest" / READERS[heading]
    files = [place] if place.is_file() else sorted(place.iterdir())
    sources = [file.read_text() for file in files if file.suffix in (".py", ".json")]
    asked = {key for file in files if file.name in READING for key in looked_up(file.read_text())}
    assert {key for key in asked if KEY.fullmatch(key)} - documented - NOT_KEYS == set()
    if heading != "OpenAPI":  # Most keys of a schema are those of JSON Schema itself.
        read = {key for key, meaning in rows if "ignored" not in meaning}
        assert {key for key in read if not any(f'"{key}"' in source for source in sources)} == set()


KEY = re.compile(r"\$?[A-Za-z][\w-]+")
NOT_KEYS = {"DEFAULT", "tools", "null", "form", "multipart", "json", "value", "mcpServers", "servers",
            "exec", "properties", "$defs", "contentSchema", "oauth2"}  # fmt: skip
"""Words that are looked for and are no keys of a format: values, and what readers have made themselves."""
READING = ("reader.py", "form.py", "mcp_servers.py", "operation.py", "parameters.py", "bodies.py",
           "security.py", "translation.py", "schemas.py", "importer.py")  # fmt: skip


def looked_up(source: str) -> Iterator[str]:
    """Every text that a module gives to `get` or `at`, or looks for by `in`."""
    for node in ast.walk(ast.parse(source.partition("# -- writing")[0])):
        found: list[ast.expr] = []
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            found = {"at": node.args, "get": node.args[:1]}.get(node.func.attr, [])
        elif isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In | ast.NotIn):
            found = [node.left]
        for one in found:
            if isinstance(one, ast.Constant) and isinstance(one.value, str):
                yield one.value


def test_the_manifests_in_the_documentation_load() -> None:
    blocks = re.findall(r"```yaml\n(name:.*?)```", DOCS, re.DOTALL)
    assert blocks
    for block in blocks:
        document = load(block.encode(), "docs/manifest.md")
        assert manifest.check_tool(parse_tool(document), document) == []


def test_the_schema_file_goes_into_the_wheel() -> None:
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert wheel["packages"] == ["src/toolcrib"]
    assert (ROOT / "src/toolcrib/manifest/native/schema.json").is_file()
