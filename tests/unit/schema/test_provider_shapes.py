"""Lists of tools for OpenAI, Gemini and the others: within what each takes, and nothing else changed."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.errors import DefinitionError
from toolcrib.schema import SchemaCheck
from toolcrib.schema.provider_shapes import SHAPES, Shape, gemini_tool, openai_tool, shape_tools
from toolcrib.schema.walk import schemas
from toolcrib.spec import Example, FunctionExec, Tool

SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "required": ["query"],
    "additionalProperties": False,
    "$defs": {
        "page": {
            "type": "object",
            "properties": {"at": {"type": "integer", "minimum": 0}},
            "required": ["at"],
        }
    },
    "properties": {
        "query": {"type": "string", "description": "The words", "minLength": 1, "maxLength": 80},
        "sort": {"enum": ["new", "old"], "type": "string", "default": "new"},
        "page": {"$ref": "#/$defs/page"},
        "tags": {"type": "array", "items": {"type": "string"}, "uniqueItems": True},
        "since": {"anyOf": [{"type": "string", "format": "date"}, {"type": "null"}]},
        "level": {"type": ["integer", "null"], "enum": [1, 2, None]},
    },
}


def make(name: str = "search", schema: dict[str, Any] | None = None, **more: Any) -> Tool:
    schema = SCHEMA if schema is None else schema
    return Tool(name, "Searches.", "function", schema, FunctionExec("m:f"), **more)


def words(schema: Any) -> set[str]:
    """Every word of a schema, at any depth; names of properties are none."""
    if isinstance(schema, list):
        return set().union(*map(words, schema)) if schema else set()
    if not isinstance(schema, dict):
        return set()
    found: set[str] = set()
    for word, part in schema.items():
        found.add(word)
        if word == "properties":
            found |= set().union(*map(words, part.values())) if part else set()
        elif word not in ("enum", "required", "default", "const"):
            found |= words(part)
    return found


def test_openai_gets_the_schema_as_it_is_without_references() -> None:
    entry = openai_tool(make(), "search")
    parameters = entry["function"]["parameters"]
    assert entry["type"] == "function"
    assert "strict" not in entry["function"]
    assert parameters["properties"]["page"] == SCHEMA["$defs"]["page"]
    assert parameters["properties"]["query"] == SCHEMA["properties"]["query"]
    assert not words(parameters) & {"$ref", "$defs"}


def test_openai_strict_closes_every_object_and_makes_the_optional_nullable() -> None:
    function = openai_tool(make(), "search", strict=True)["function"]
    parameters = function["parameters"]
    assert function["strict"] is True
    assert parameters["required"] == list(SCHEMA["properties"])
    assert parameters["additionalProperties"] is False
    properties = parameters["properties"]
    assert properties["query"] == {"type": "string", "description": "The words (minLength: 1, maxLength: 80)"}
    assert properties["sort"] == {
        "anyOf": [{"enum": ["new", "old"], "type": "string"}, {"type": "null"}],
        "description": '(default: "new")',
    }
    assert properties["page"]["type"] == ["object", "null"]
    assert properties["page"]["additionalProperties"] is False
    assert properties["tags"]["description"] == "(uniqueItems: true)"


def test_gemini_gets_openapi_types_and_what_it_has_no_word_for_as_text() -> None:
    entry = gemini_tool(make(), "search")
    parameters = entry["parameters"]
    assert parameters["type"] == "OBJECT"
    assert parameters["required"] == ["query"]
    properties = parameters["properties"]
    assert properties["query"]["maxLength"] == 80
    assert properties["tags"] == {
        "type": "ARRAY",
        "items": {"type": "STRING"},
        "description": "(uniqueItems: true)",
    }
    assert properties["since"] == {"type": "STRING", "nullable": True, "description": '(format: "date")'}
    assert properties["level"] == {"type": "INTEGER", "nullable": True, "description": "(enum: [1,2,null])"}
    assert properties["page"]["properties"]["at"] == {"type": "INTEGER", "minimum": 0}
    assert not words(parameters) & {"$ref", "$defs", "default", "additionalProperties", "const", "oneOf"}


def test_gemini_leaves_out_parameters_where_there_are_none() -> None:
    assert "parameters" not in gemini_tool(make(schema={"type": "object"}), "ping")


NASTY: dict[str, Any] = {
    "type": "object",
    "required": ["color", "gone"],
    "properties": {
        "color": {"type": "string", "enum": ["", "red"]},
        "empty": {"enum": [""]},
        "level": {"enum": [1, 2]},
        "map": {"type": "object", "additionalProperties": {"type": "string"}},
        "any": {"description": "Anything"},
        "true": True,
        "list": {"type": "array", "items": {}},
        "bare": {"type": "array"},
        "all": {"allOf": [{"type": "object", "properties": {"a": {}}}, {"required": ["a", "b"]}]},
        "either": {
            "description": "One",
            "type": "object",
            "properties": {"x": {"type": "string"}, "y": {"type": "integer"}},
            "anyOf": [{"required": ["x"]}, {"required": ["y"]}],
        },
        "mixed": {"type": ["string", "array", "null"], "items": {"type": "string"}, "description": "Two"},
        "nested": {"oneOf": [{"type": "string"}, {"anyOf": [{"type": "integer"}, {"type": "null"}]}]},
    },
}


def gemini_findings(rule: dict[str, Any], at: str = "$") -> list[str]:
    """What the Gemini API refuses in a `Schema`."""
    found: list[str] = []
    if "anyOf" in rule:
        found += [f"{at}: anyOf beside other fields"] if len(rule) > 1 else []
        return found + [
            one for n, part in enumerate(rule["anyOf"]) for one in gemini_findings(part, f"{at}|{n}")
        ]
    kind = rule.get("type")
    if kind not in ("STRING", "NUMBER", "INTEGER", "BOOLEAN", "ARRAY", "OBJECT"):
        found.append(f"{at}: type {kind}")
    if "enum" in rule and (kind != "STRING" or not rule["enum"] or not all(rule["enum"])):
        found.append(f"{at}: enum {rule['enum']}")
    properties = rule.get("properties", {})
    if kind == "OBJECT" and not properties:
        found.append(f"{at}: an object without properties")
    found += [f"{at}: required {name}" for name in rule.get("required", ()) if name not in properties]
    if kind == "ARRAY":
        found += gemini_findings(rule.get("items", {}), f"{at}[]")
    return found + [one for name, part in properties.items() for one in gemini_findings(part, f"{at}.{name}")]


def test_gemini_refuses_nothing_in_odd_schemas() -> None:
    parameters = gemini_tool(make(schema=NASTY), "t")["parameters"]
    assert gemini_findings(parameters) == []
    properties = parameters["properties"]
    assert properties["color"] == {"type": "STRING", "enum": ["red"], "description": "(or an empty text)"}
    assert properties["map"]["type"] == "STRING"
    assert properties["either"]["anyOf"][0]["description"] == "One"
    assert [branch["required"] for branch in properties["either"]["anyOf"]] == [["x"], ["y"]]
    assert properties["all"]["properties"]["a"]["type"] == "STRING"
    as_json = shape_tools([make(schema=NASTY)], "gemini-json").entries[0]["parametersJsonSchema"]
    assert as_json["required"] == ["color"]
    assert as_json["properties"]["map"] == {"type": "object", "additionalProperties": {"type": "string"}}
    assert as_json["properties"]["mixed"]["anyOf"][-1] == {"type": "null"}
    SchemaCheck(as_json)


@given(
    st.recursive(
        st.sampled_from(
            [{}, True, {"type": "string", "enum": ["", "a"]}, {"type": ["integer", "null"]}, {"const": 1}]
        ),
        lambda inner: st.one_of(
            st.builds(lambda part: {"type": "array", "items": part}, inner),
            st.builds(
                lambda word, parts, name: {word: parts, "required": ["a", name], "description": "d"},
                st.sampled_from(["anyOf", "oneOf", "allOf"]),
                st.lists(inner, min_size=1, max_size=3),
                st.sampled_from("bc"),
            ),
            st.builds(
                lambda a, b: {"type": "object", "properties": {"a": a, "b": b}, "required": ["a"]},
                inner,
                inner,
            ),
        ),
        max_leaves=8,
    )
)
def test_gemini_refuses_nothing_in_any_schema(inner: Any) -> None:
    tool = make(schema={"type": "object", "properties": {"a": inner}})
    assert gemini_findings(gemini_tool(tool, "t")["parameters"]) == []
    SchemaCheck(shape_tools([tool], "gemini-json").entries[0]["parametersJsonSchema"])


def test_openai_gets_1024_characters_of_a_description_and_the_list_keeps_the_rest() -> None:
    long = make("long", schema=SCHEMA)
    long = replace(long, description="word " * 300)
    shaped = shape_tools([long, make()], "openai")
    described = shaped.entries[0]["function"]["description"]
    assert len(described) <= 1024
    assert described.endswith("…")
    assert shaped.meta == {"long": {"description": "word " * 300}}
    assert shape_tools([long], "anthropic").meta == {}


def test_calls_by_a_list_lose_what_only_its_form_needs() -> None:
    schema = {
        "type": "object",
        "required": ["q"],
        "properties": {
            "q": {"type": ["string", "null"]},
            "n": {"type": "integer"},
            "deep": {"type": "object", "properties": {"x": {"type": "string"}}},
        },
    }
    shaped = shape_tools([make("a.b", schema)], "openai-strict")
    assert shaped.call("a_b", {"q": None, "n": None, "deep": {"x": None}}) == ("a.b", {"q": None, "deep": {}})
    assert shaped.call("a_b", {"q": "12"}) == ("a.b", {"q": "12"})
    mapped = shape_tools([make(schema=NASTY)], "gemini")
    assert mapped.call("search", {"color": "red", "gone": 1, "map": '{"k": "v"}'})[1]["map"] == {"k": "v"}


def test_rules_over_the_whole_input_move_to_the_description() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}, "oneOf": [{"required": ["a"]}]}
    for entry in (openai_tool(make(schema=schema), "t")["function"], gemini_tool(make(schema=schema), "t")):
        assert '{"oneOf":[{"required":["a"]}]}' in entry["description"]
        assert "oneOf" not in entry["parameters"]


def test_examples_stand_where_there_is_a_place() -> None:
    tool = make(examples=(Example("Find ants", {"query": "ants"}), Example("", {"query": "x" * 2000})))
    for shape in SHAPES:
        text = json.dumps(shape_tools([tool], shape).entries[0])
        assert "ants" in text
    description = openai_tool(tool, "search")["function"]["description"]
    assert description.endswith('Examples:\n- Find ants: {"query":"ants"}')


def test_a_reference_into_a_list_is_written_out() -> None:
    choice = {"anyOf": [{"type": "string", "maxLength": 3}, {"$ref": "#/properties/a/anyOf/0"}]}
    (entry,) = shape_tools([make(schema={"type": "object", "properties": {"a": choice}})], "openai").entries
    first, second = entry["function"]["parameters"]["properties"]["a"]["anyOf"]
    assert second == first


def test_a_schema_that_contains_itself_is_written_out_to_a_depth() -> None:
    tree = {"type": "object", "properties": {"left": {"$ref": "#/$defs/tree"}, "n": {"type": "integer"}}}
    schema = {"type": "object", "properties": {"top": {"$ref": "#/$defs/tree"}}, "$defs": {"tree": tree}}
    shaped = shape_tools([make(schema=schema)], "gemini")
    assert len(json.dumps(shaped.entries)) < 5_000
    assert "the same again" in json.dumps(shaped.entries)
    wide = {"type": "object", "properties": {f"p{at}": {"$ref": "#/$defs/tree"} for at in range(20)}}
    bomb = {**wide, "$defs": {"tree": wide}}
    shaped = shape_tools([make("bomb", bomb), make()], "openai")
    assert "search" in shaped.names.values()


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": "object", "additionalProperties": {"type": "string"}}, "$ takes any keys"),
        (
            {"type": "object", "properties": {"m": {"anyOf": [{"type": "string"}, {"type": "object"}]}}},
            "$.m takes any keys",
        ),
        (
            {"type": "object", "properties": {f"p{at}": {"enum": list(range(101))} for at in range(10)}},
            "it has 1,010 values of enums; OpenAI accepts at most 1,000",
        ),
        (
            {"type": "object", "properties": {"v": {"description": "Anything"}}},
            "$.v takes a value of any type",
        ),
    ],
)
def test_what_a_strict_schema_cannot_say_is_refused(schema: dict[str, Any], expected: str) -> None:
    with pytest.raises(DefinitionError, match=re.escape(expected)):
        openai_tool(make(schema=schema), "t", strict=True)


TEXT = {"type": "string"}
OPEN = {
    "type": "object",
    "required": ["map", "list", "shape", "both", "one", "kind"],
    "properties": {
        "map": {"type": "object", "description": "Labels.", "additionalProperties": TEXT},
        "list": {"type": "array"},
        "shape": {"oneOf": [
            {"type": "object", "required": ["r"], "properties": {"r": TEXT, "unit": TEXT}},
            {"type": "object", "required": ["w"], "properties": {"w": TEXT, "meta": {"type": "object"}}},
        ]},
        "both": {"allOf": [
            {"type": "object", "required": ["a"], "properties": {"a": TEXT}},
            {"properties": {"b": TEXT}},
        ]},
        "one": {
            "type": "object",
            "properties": {"a": TEXT, "b": TEXT},
            "anyOf": [{"required": ["a"]}, {"required": ["b"]}],
        },
        "kind": {"enum": ["x", "y"]},
        "empty": {"type": "object", "additionalProperties": False},
    },
}  # fmt: skip


def test_openai_strict_takes_alternatives_joined_rules_and_json_text_and_gives_them_back() -> None:
    shaped = shape_tools([make(schema=OPEN)], "openai-strict")
    assert shaped.refused == {}
    parameters = shaped.entries[0]["function"]["parameters"]
    properties = parameters["properties"]
    about = 'Labels. (JSON text that fits {"type":"object","additionalProperties":{"type":"string"}})'
    assert properties["map"] == {"type": "string", "description": about}
    assert properties["list"]["type"] == "string"
    round_, square = properties["shape"]["anyOf"]
    assert (round_["required"], round_["properties"]["unit"]["type"]) == (["r", "unit"], ["string", "null"])
    assert square["properties"]["meta"]["type"] == ["string", "null"]
    assert set(properties["both"]["required"]) == {"a", "b"}
    assert 'anyOf: [{"required":["a"]},{"required":["b"]}]' in properties["one"]["description"]
    assert properties["kind"]["type"] == "string"
    assert properties["empty"]["properties"] == {}
    given_ = {
        "map": '{"a": "1"}',
        "list": "[1, {}]",
        "shape": {"w": "2", "meta": '{"k": [1]}'},
        "both": {"a": "x", "b": None},
        "one": {"a": None, "b": "y"},
        "kind": "x",
        "empty": None,
    }
    _, arguments = shaped.call("search", given_)
    assert arguments == {
        "map": {"a": "1"},
        "list": [1, {}],
        "shape": {"w": "2", "meta": {"k": [1]}},
        "both": {"a": "x"},
        "one": {"b": "y"},
        "kind": "x",
    }
    _, arguments = shaped.call("search", {**given_, "shape": {"r": "1", "unit": None}})
    assert arguments["shape"] == {"r": "1"}


def test_openai_strict_takes_no_words_about_lists_for_an_object() -> None:
    (entry,) = shape_tools(
        [make(schema={"type": "object", "additionalProperties": False, "items": False})], "openai-strict"
    ).entries
    assert "items" not in entry["function"]["parameters"]


def test_openai_strict_asks_for_what_lies_too_deep_as_json_text() -> None:
    inner: dict[str, Any] = TEXT
    for _ in range(12):
        inner = {"type": "object", "required": ["a"], "properties": {"a": inner}}
    shaped = shape_tools([make(schema=inner)], "openai-strict")
    found, levels = shaped.entries[0]["function"]["parameters"], 0
    while found["type"] == "object":
        found, levels = found["properties"]["a"], levels + 1
    assert (levels, found["type"]) == (10, "string")
    value: Any = "x"
    for _ in range(2):
        value = {"a": value}
    asked, whole = json.dumps(value), value
    for _ in range(10):
        asked, whole = {"a": asked}, {"a": whole}  # type: ignore[assignment]
    assert shaped.call("search", asked)[1] == whole  # type: ignore[arg-type]


PERSON: dict[str, Any] = {
    "$ref": "#/$defs/Person",
    "$defs": {
        "Person": {
            "type": "object",
            "required": ["name"],
            "properties": {
                "name": TEXT,
                "boss": {"anyOf": [{"$ref": "#/$defs/Person"}, {"type": "null"}]},
                "friend": {"description": "The best one.", "allOf": [{"$ref": "#/$defs/Person"}]},
                "team": {"$ref": "#/$defs/a~1team%5B1%5D"},
                "home": {"$ref": "#/$defs/Place"},
            },
        },
        "a/team[1]": {
            "allOf": [
                {"$ref": "#/$defs/Place"},
                {"type": "object", "properties": {
                    "people": {"type": "array", "items": {"$ref": "#/$defs/Person"}},
                    "labels": {"type": "object", "additionalProperties": {"$ref": "#/$defs/Person"}},
                }},
            ]
        },
        "Place": {"type": "object", "properties": {"city": TEXT}},
    },
}  # fmt: skip


def test_openai_strict_keeps_recursion_and_gives_its_calls_back() -> None:
    shaped = shape_tools([make(schema=PERSON)], "openai-strict")
    assert shaped.refused == {}
    parameters = shaped.entries[0]["function"]["parameters"]
    assert "the same again" not in json.dumps(parameters)
    properties = parameters["properties"]
    assert properties["home"]["properties"]["city"]["type"] == ["string", "null"]
    team = parameters["$defs"]["a_1team_5B1_5D"]
    assert set(team["properties"]) == {"city", "people", "labels"}
    assert properties["boss"] == {"anyOf": [{"$ref": "#/$defs/Person"}, {"type": "null"}]}
    assert properties["friend"]["description"] == "The best one."
    for _, part in schemas(parameters):
        # The API takes nothing beside a reference, and no open object.
        assert "$ref" not in part or len(part) == 1
        assert part.get("type") != "object" or part["additionalProperties"] is False

    def person(name: str, **more: Any) -> dict[str, Any]:
        return {"name": name, **dict.fromkeys(("boss", "friend", "team", "home")), **more}

    given_ = person("Ann", boss=person("Bo", boss=person("Cy", boss=person("Di"))))
    given_["team"] = {"city": None, "people": [person("Ed", home={"city": "Rome"})], "labels": None}
    assert SchemaCheck(parameters).violations(given_) == []
    own = shaped.call("search", given_)[1]
    assert SchemaCheck(PERSON).violations(own) == []
    deepest = {"name": "Cy", "boss": {"name": "Di", "boss": None}}
    assert own["boss"] == {"name": "Bo", "boss": deepest}
    assert own["team"] == {"people": [{"name": "Ed", "boss": None, "home": {"city": "Rome"}}]}


def test_openai_strict_takes_types_that_all_contain_each_other() -> None:
    names = [f"T{number}" for number in range(12)]
    one = {"type": "object", "properties": {name: {"$ref": f"#/$defs/{name}"} for name in names}}
    schema = {"type": "object", "properties": {"top": {"$ref": "#/$defs/T0"}, "self": {"$ref": "#"}}}
    shaped = shape_tools([make(schema={**schema, "$defs": dict.fromkeys(names, one)})], "openai-strict")
    parameters = shaped.entries[0]["function"]["parameters"]
    assert set(parameters["$defs"]) == {*names, "_"}
    SchemaCheck(parameters)


@pytest.mark.parametrize("shape", SHAPES)
def test_one_bad_schema_leaves_out_its_tool_alone(shape: Shape) -> None:
    bad = {"type": "object", "properties": {"a": {"type": "strng"}}}
    shaped = shape_tools([make("a"), make("bad", bad), make("z")], shape)
    assert list(shaped.names.values()) == ["a", "z"]
    assert list(shaped.refused) == ["bad"]
    assert "strng" in shaped.refused["bad"]


@pytest.mark.parametrize("shape", SHAPES)
@given(
    st.lists(st.text(max_size=80) | st.sampled_from(["1a", "_1a", "a.b", "a_b", "-", "x" * 70]), unique=True)
)
def test_names_are_taken_by_the_provider_and_lead_back(shape: Shape, given_names: list[str]) -> None:
    tools = [make(name) for name in given_names]
    shaped = shape_tools(tools, shape)
    pattern = r"[a-zA-Z_][a-zA-Z0-9_-]{0,63}" if shape == "gemini" else r"[a-zA-Z0-9_-]{1,64}"
    assert all(re.fullmatch(pattern, name) for name in shaped.names)
    assert sorted(shaped.names.values()) == sorted(given_names)
    wired = [entry.get("name") or entry["function"]["name"] for entry in shaped.entries]
    assert wired == list(shaped.names)


def test_the_tools_own_schema_does_not_change() -> None:
    before = json.dumps(SCHEMA)
    for shape in SHAPES:
        shape_tools([make()], shape)
    assert json.dumps(SCHEMA) == before


JSON_SCHEMAS = st.recursive(
    st.fixed_dictionaries(
        {
            "type": st.sampled_from(
                ["string", "integer", "number", "boolean", ["string", "null"], ["integer", "string"]]
            )
        },
        optional={
            "description": st.just("d"),
            "default": st.none() | st.integers(),
            "format": st.just("date"),
            "enum": st.just(["a", "b"]),
            "minLength": st.integers(0, 9),
        },
    ),
    lambda inner: (
        st.fixed_dictionaries({"type": st.just("array"), "items": inner})
        | st.fixed_dictionaries(
            {"type": st.just("object"), "properties": st.dictionaries(st.sampled_from("abc"), inner)}
        )
        | st.fixed_dictionaries({"anyOf": st.lists(inner, min_size=1, max_size=3)})
        | st.fixed_dictionaries({"const": st.sampled_from(["x", 1, None])})
    ),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from("abcd"), JSON_SCHEMAS))
def test_any_schema_comes_out_in_words_that_gemini_and_openai_strict_take(properties: dict[str, Any]) -> None:
    tool = make(schema={"type": "object", "properties": properties})
    gemini = shape_tools([tool], "gemini")
    assert gemini.refused == {}
    assert not words(gemini.entries[0].get("parameters", {})) & {
        "const",
        "default",
        "oneOf",
        "additionalProperties",
        "$ref",
    }
    for entry in shape_tools([tool], "openai-strict").entries:
        assert not words(entry["function"]["parameters"]) & {"default", "oneOf", "minLength", "$ref"}
