"""The published JSON Schema, and that the documentation keeps up with it."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from toolcrib import manifest
from toolcrib.manifest import RULES, load, parse_tool, tool_schema

ROOT = Path(__file__).parents[3]
DOCS = (ROOT / "docs/manifest.md").read_text()


def fields(rule: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every key of the format by its dotted path; `<name>` is a key the author chooses, `[]` an item."""
    schema = tool_schema()
    if "$ref" in rule:
        rule = {**schema["$defs"][rule["$ref"].rsplit("/", 1)[1]], **rule}
    if path == "inputs.schema":
        return
    for name, inner in rule.get("properties", {}).items():
        dotted = f"{path}.{name}" if path else name
        yield dotted, inner
        yield from fields(inner, dotted)
    if isinstance(rule.get("items"), dict):
        yield from fields(rule["items"], f"{path}[]")
    if isinstance(rule.get("additionalProperties"), dict):
        yield from fields(rule["additionalProperties"], f"{path}.<name>")


def described(rule: dict[str, Any]) -> str:
    """What the schema says of a field."""
    named = tool_schema()["$defs"].get(rule.get("$ref", "").rsplit("/", 1)[-1], {})
    return str({**named, **rule}["description"])


FIELDS = dict(fields(tool_schema()))


def test_the_schema_is_a_valid_2020_12_schema() -> None:
    assert tool_schema()["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert jsonschema_rs.meta.is_valid(tool_schema())


@pytest.mark.parametrize("field", FIELDS)
def test_every_field_has_a_description_for_editors(field: str) -> None:
    assert described(FIELDS[field]).endswith(".")


@pytest.mark.parametrize("field", FIELDS)
def test_every_field_is_documented_as_editors_show_it(field: str) -> None:
    line = next((line for line in DOCS.splitlines() if line.startswith(f"| `{field}` |")), "")
    assert line.endswith(f"| {described(FIELDS[field])} |")


def test_the_documentation_names_no_field_that_does_not_exist() -> None:
    table = DOCS.partition("## Rules")[0]
    assert set(re.findall(r"^\| `([a-z][^`]*)` \|", table, re.MULTILINE)) == set(FIELDS)


def test_every_rule_is_documented_with_its_weight_and_meaning() -> None:
    for rule, (severity, meaning) in RULES.items():
        assert f"| `{rule}` | {severity} | {meaning} |" in DOCS
    table = DOCS.partition("## Rules")[2]
    assert re.findall(r"^\| `([a-z-]+)` \| ", table, re.MULTILINE) == list(RULES)


def test_the_manifests_in_the_documentation_load() -> None:
    blocks = re.findall(r"```yaml\n(name:.*?)```", DOCS, re.DOTALL)
    assert blocks
    for block in blocks:
        document = load(block.encode(), "docs/manifest.md")
        assert manifest.check_tool(parse_tool(document), document) == []


def test_public_names_are_sorted_and_there() -> None:
    assert manifest.__all__ == sorted(manifest.__all__, key=lambda name: (not name.isupper(), name))
    assert all(hasattr(manifest, name) for name in manifest.__all__)


def test_the_schema_file_goes_into_the_wheel() -> None:
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert wheel["packages"] == ["src/toolcrib"]
    assert (ROOT / "src/toolcrib/manifest/schemas/tool.schema.json").is_file()
