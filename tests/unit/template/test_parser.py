"""What a name in a template is, is fixed when the template is parsed."""

from __future__ import annotations

import pytest

from toolcrib.errors import ManifestError
from toolcrib.spec import CommandExec, Permissions, SecretSpec, Tool
from toolcrib.template import (
    Constant,
    ListTemplate,
    LiteralText,
    Namespaces,
    Reference,
    TextTemplate,
    parse,
    parse_text,
    problems,
    references,
)
from toolcrib.template.tree import ObjectTemplate

NAMES = Namespaces(
    arguments=frozenset({"query", "items", "user.name", "both", "name"}),
    secrets=frozenset({"API_KEY", "both"}),
    env=frozenset({"HOME"}),
)


def test_references_are_given_with_their_place() -> None:
    assert references("a ${query} and ${secret:API_KEY}") == [
        Reference("query", 2, 8),
        Reference("API_KEY", 15, 17, "secret"),
    ]


@pytest.mark.parametrize("text", ["", "plain", "$", "$5", "$$", "a $ b", "{x}", "}", "$x", "$ {x}"])
def test_a_dollar_alone_is_itself(text: str) -> None:
    assert references(text) == []
    assert parse_text(text, NAMES).literal == text


@pytest.mark.parametrize(
    ("text", "literal"),
    [("$${query}", "${query}"), ("a$${", "a${"), ("$$$${query}", "$${query}"), ("$$ $${}", "$$ ${}")],
)
def test_two_dollars_before_a_brace_are_one_literal_dollar(text: str, literal: str) -> None:
    assert parse_text(text, NAMES).literal == literal


def test_a_dollar_can_stand_before_a_value() -> None:
    parts = parse_text("$$${query}", NAMES).parts
    assert parts == (LiteralText("$", 0), Reference("query", 2, 8, "argument"))


@pytest.mark.parametrize(
    ("text", "namespace", "name"),
    [
        ("${query}", "argument", "query"),
        ("${API_KEY}", "secret", "API_KEY"),
        ("${secret:API_KEY}", "secret", "API_KEY"),
        ("${ secret: both }", "secret", "both"),
        ("${HOME}", "env", "HOME"),
        ("${version}", "context", "version"),
        ("${run_id}", "context", "run_id"),
        ("${name}", "argument", "name"),
    ],
)
def test_each_name_has_one_namespace(text: str, namespace: str, name: str) -> None:
    lone = parse_text(text, NAMES).lone
    assert lone is not None
    assert (lone.namespace, lone.name) == (namespace, name)


def test_a_path_reaches_into_an_argument() -> None:
    lone = parse_text("${items[0].id}", NAMES).lone
    assert lone is not None
    assert (lone.name, lone.path, lone.json_path) == ("items", (0, "id"), "$.items[0].id")


def test_a_property_of_that_very_name_comes_before_a_path() -> None:
    lone = parse_text("${user.name}", NAMES).lone
    assert lone is not None
    assert (lone.name, lone.path) == ("user.name", ())


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("${quary}", "`quary` is neither", "did you mean `query`?"),
        ("x ${API_KEI}", "`API_KEI` is neither", "did you mean `API_KEY`?"),
        ("${zzz}", "`zzz` is neither", "declare it in inputs.schema or under permissions.secrets"),
        ("${both}", "ambiguous: it is an argument and also a secret", "write `${secret:both}`"),
        ("${secret:query}", "not a declared secret", "permissions.secrets"),
        ("${other:query}", "neither", "did you mean `query`?"),
        ("${}", "no name", None),
        ("${secret:}", "no name", None),
        ("${query", "not closed", "`$${`"),
        ("${a ${query}", "not closed", "`$${`"),
    ],
)
def test_a_bad_placeholder_is_refused_with_the_nearest_name(
    text: str, message: str, hint: str | None
) -> None:
    with pytest.raises(ManifestError) as caught:
        parse_text(text, NAMES)
    assert message in caught.value.message
    assert hint is None or hint in (caught.value.hint or "")
    assert caught.value.details["offset"] == text.index("${")


def test_an_argument_never_shadows_a_secret() -> None:
    ambiguous = Namespaces(frozenset({"TOKEN"}), frozenset({"TOKEN"}))
    with pytest.raises(ManifestError, match="ambiguous"):
        parse_text("Bearer ${TOKEN}", ambiguous)
    lone = parse_text("${secret:TOKEN}", ambiguous).lone
    assert lone is not None
    assert lone.namespace == "secret"


def test_a_tree_keeps_the_shape_and_folds_what_is_constant() -> None:
    tree = parse({"q": "${query}", "list": ["a ${query}", 1], "plain": {"a": [True, None]}}, NAMES)
    assert isinstance(tree, ObjectTemplate)
    kinds = {key: type(item) for key, item in tree.items}
    assert kinds == {"q": TextTemplate, "list": ListTemplate, "plain": Constant}


def test_a_placeholder_in_a_key_is_refused() -> None:
    with pytest.raises(ManifestError, match="key") as caught:
        parse({"outer": {"${query}": 1}}, NAMES)
    assert caught.value.details["path"] == ["outer", "${query}"]


def test_problems_are_all_reported_in_order_of_place() -> None:
    found = problems({"a": "${nope} ${query} ${nix} ${", "b": ["${}"]}, NAMES)
    assert [(p.path, p.offset) for p in found] == [(("a",), 0), (("a",), 17), (("a",), 24), (("b", 0), 0)]


def test_namespaces_come_from_schema_and_permissions() -> None:
    schema = {
        "type": "object",
        "properties": {"a": {}},
        "allOf": [{"properties": {"b": {}}}, {"$ref": "#/$defs/more"}, True],
        "if": {"properties": {"c": {}}},
        "$defs": {
            "more": {"properties": {"d": {}}, "allOf": [{"$ref": "#/$defs/more"}]},
            "unused": {"properties": {"e": {}}},
        },
    }
    permissions = Permissions(secrets=(SecretSpec("KEY"),), env=("HOME",))
    tool = Tool("t", "d", "command", schema, CommandExec("x"), permissions=permissions)
    names = Namespaces.of(tool)
    assert names.arguments == {"a", "b", "c", "d"}
    assert (names.secrets, names.env) == (frozenset({"KEY"}), frozenset({"HOME"}))


def test_splitting_sees_literal_marks_only() -> None:
    template = parse_text("a/${query}b/c", NAMES)
    pieces = template.split("/")
    assert [len(piece.parts) for piece in pieces] == [1, 2, 1]
    before, mark, after = parse_text("x=${query}", NAMES).cut("=&")
    assert (before.literal, mark, after.lone is not None) == ("x", "=", True)
