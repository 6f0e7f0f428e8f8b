"""The published JSON Schema, and that the documentation keeps up with it."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import jsonschema_rs
import pytest

from scripts.make_docs import fields_of
from toolcrib import manifest
from toolcrib.manifest import RULES, load, parse_tool, tool_schema

ROOT = Path(__file__).parents[4]
DOCS = (ROOT / "docs/manifest.md").read_text()


FIELDS = {path: rule for path, rule, _ in fields_of(tool_schema())}
NATIVE, _, OTHERS = DOCS.partition("\n## Other formats\n")
READERS = [
    module
    for found in pkgutil.walk_packages(manifest.__path__, "toolcrib.manifest.")
    if hasattr(module := importlib.import_module(found.name), "FIELDS")
    if module.__name__ != "toolcrib.manifest.openapi"  # it hands on those of its own module
]
"""Every module that reads a format by a table of its fields."""


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
    for rule, (severity, meaning) in RULES.items():
        assert f"| `{rule}` | {severity} | {meaning} |" in DOCS
    table = NATIVE.partition("## Rules")[2]
    assert re.findall(r"^\| `([a-z-]+)` \| ", table, re.MULTILINE) == list(RULES)


def test_every_key_that_a_reader_knows_is_documented() -> None:
    for module in READERS:
        for where, keys in module.FIELDS.items():
            place, bracket, kind = where.partition(" (")
            for key, field in keys.items():
                path = f"{place}.{key}" if place else key
                name = f"`{path}`" if key != "*" else f"others of `{place}`"
                assert (
                    f"\n| {name}{bracket}{kind} | {field.type} | {field.default} | {field.means} |" in OTHERS
                )
                assert "" not in (field.type, field.means)


@pytest.mark.parametrize("module", READERS, ids=lambda module: module.__name__.rpartition(".")[2])
def test_no_reader_looks_for_a_key_that_is_not_in_its_table(module: ModuleType) -> None:
    path = Path(str(module.__file__))
    openapi = path.parent.name == "openapi"
    files = sorted(path.parent.glob("*.py")) if openapi else [path]
    known = {key for keys in module.FIELDS.values() for key in keys}
    for file in files:
        if file.name not in ("slim.py", "writer.py", "syntax.py", "text.py", "report.py", "source.py"):
            asked = {key for key in looked_up(file.read_text()) if KEY.fullmatch(key)}
            assert asked - known - NOT_KEYS == set(), file.name


KEY = re.compile(r"\$?[A-Za-z][\w-]+")
NOT_KEYS = {"DEFAULT", "null", "form", "multipart", "json", "value", "mcpServers", "servers",
            "exec", "properties", "$defs", "contentSchema"}  # fmt: skip
"""Words that are looked for and are no keys of a format: values, and what readers have made themselves."""


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
