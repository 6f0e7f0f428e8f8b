"""Lists for hosts: within what each accepts, and nothing else changed."""

from __future__ import annotations

import re
from typing import Any

import pytest

from toolcrib.errors import DefinitionError
from toolcrib.schema.hosts import HOSTS, changes_of, fitted, rules_of
from toolcrib.schema.provider_shapes import shape_tools
from toolcrib.schema.walk import schemas
from toolcrib.spec import FunctionExec, Tool

TEXT = {"type": "string"}
AWKWARD: dict[str, dict[str, Any]] = {
    "union": {"anyOf": [{"properties": {"id": TEXT}, "required": ["id"]}, {"$ref": "#/$defs/named"}],
              "$defs": {"named": {"properties": {"name": TEXT}}}},
    "names": {"properties": {"filter[id]": TEXT, "filter_id": TEXT, "x" * 70: TEXT, "$top": TEXT},
              "required": ["$top"]},
    "pointing": {"properties": {"a b": {"type": "array"}, "c": {"$ref": "#/properties/a%20b"}}},
    "lists": {"properties": {"rows": {"type": "array"}, "grid": {"type": ["array", "null"]}}},
    "root": {"$ref": "#/$defs/Input", "$defs": {"Input": {"properties": {"q": TEXT}}}},
    "bare": {},
}  # fmt: skip


def entry_of(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "description": "Does it.", "inputSchema": schema}


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("name", AWKWARD)
def test_an_entry_keeps_the_rules_of_its_host(host: str, name: str) -> None:
    rules = HOSTS[host]
    made, own = fitted(entry_of(f"{name}_{'n' * 58}"[:64], AWKWARD[name]), rules)
    if rules.before:
        assert len(rules.before % ("s" * 16) + made["name"]) <= rules.longest
        assert made["title"] == f"{name}_{'n' * 58}"[:64]
    schema = made["inputSchema"]
    assert schema["type"] == "object"
    assert not {"anyOf", "oneOf", "allOf", "$ref"} & set(schema)
    if rules.form in ("anthropic", "all"):
        assert all(re.fullmatch(r"[a-zA-Z0-9_.-]{1,64}", one) for one in schema["properties"])
    if rules.form != "anthropic":
        arrays = [part for _, part in schemas(schema) if "array" in str(part.get("type"))]
        assert all("items" in part for part in arrays)
    names = {own.get(one, one) for one in schema["properties"]}
    expected = {"union": {"id", "name"}, "root": {"q"}}.get(name, set(AWKWARD[name].get("properties", ())))
    assert names == expected
    assert {own.get(one, one) for one in schema.get("required", ())} == set(AWKWARD[name].get("required", ()))


def test_renamed_arguments_are_different_from_the_others_and_stay_referred_to() -> None:
    made, own = fitted(entry_of("t", AWKWARD["names"]), HOSTS["anthropic"])
    assert sorted(own.values()) == ["$top", "filter[id]", "x" * 70]
    assert own["top"] == "$top"
    assert len(made["inputSchema"]["properties"]) == 4
    made, own = fitted(entry_of("t", AWKWARD["pointing"]), HOSTS["anthropic"])
    assert own == {"a_b": "a b"}
    assert made["inputSchema"]["properties"]["c"] == {"$ref": "#/properties/a_b"}


def test_calls_by_a_provider_list_have_the_own_names_again() -> None:
    tool = Tool(
        "t", description="Does it.", kind="function", input_schema={"type": "object", **AWKWARD["names"]},
        config=FunctionExec("m:f"),
    )  # fmt: skip
    shaped = shape_tools([tool], "anthropic")
    assert "top" in shaped.entries[0]["input_schema"]["properties"]
    assert shaped.call("t", {"top": "5", "filter_id": "a"}) == ("t", {"$top": "5", "filter_id": "a"})


@pytest.mark.parametrize(
    ("client", "title"),
    [
        ("mcp:claude-code", "Claude Code"),
        ("mcp:claude-ai", "Claude Desktop"),
        ("mcp:Visual-Studio-Code", "Visual Studio Code"),
        ("mcp:cursor-vscode", "Cursor"),
        ("mcp:codex-mcp-client", "Codex"),
        ("mcp:gemini-cli-mcp-client", "Gemini CLI"),
        ("mcp:other", None),
        ("mcp", None),
        ("", None),
    ],
)
def test_a_host_is_known_by_the_name_of_its_client(client: str, title: str | None) -> None:
    rules = rules_of(client)
    assert (None if rules is None else rules.title) == title


def test_what_is_changed_is_said() -> None:
    changes = changes_of(entry_of("n" * 60, AWKWARD["names"]), HOSTS["claude-code"], "s" * 30)
    assert changes[0].startswith("its name is nnn")
    assert "too long beside the server's name sss" in changes[1]
    assert "the argument '$top' is named top" in changes
    assert changes_of(entry_of("t", AWKWARD["union"]), HOSTS["codex"], "toolcrib") == [
        "a rule about all arguments is in its description"
    ]
    assert changes_of(entry_of("t", {"properties": {"q": TEXT}}), HOSTS["cursor"], "toolcrib") == []
    long = {**entry_of("t", {"properties": {"q": TEXT}}), "description": "x" * 3_000}
    assert len(fitted(long, HOSTS["codex"])[0]["description"]) == 1_024
    assert changes_of(long, HOSTS["codex"], "toolcrib") == ["its description is cut to 1,024 characters"]
    assert fitted(long, HOSTS["claude-code"])[0]["description"] == "x" * 3_000
    wide = {"$defs": {"a": {"properties": {str(n): {"$ref": "#/$defs/b"} for n in range(200)}},
                      "b": {"properties": {str(n): TEXT for n in range(200)}}},
            "properties": {"a": {"$ref": "#/$defs/a"}}}  # fmt: skip
    with pytest.raises(DefinitionError, match="references written out"):
        changes_of(entry_of("t", wide), HOSTS["gemini"], "toolcrib")
