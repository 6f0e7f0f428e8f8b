"""Checks for tools of every kind: schemas, defaults, examples, placeholders, grants, texts."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from toolcrib.errors import DefinitionError, ToolUnavailable
from toolcrib.manifest.kinds import kind_of
from toolcrib.manifest.lint.wording import MAX_TEXT, hidden_characters, instructions, texts
from toolcrib.manifest.yaml.diagnostics import Diagnostic, quoted
from toolcrib.manifest.yaml.positions import KeyPath
from toolcrib.manifest.yaml.source import Document
from toolcrib.spec import Tool
from toolcrib.spec.naming import HOMES, did_you_mean, dotted, steps_of
from toolcrib.template import Namespaces, problems

_MOST_PROPERTIES = 500
_MOST_COMPARED = 100_000
_WILDCARD = "..."
_PLACEHOLDERS = re.compile(r"\$\{[^}]*\}|\{\{.*?\}\}|%\(\w+\)s|:\w+")
"""A place that names an argument; the last two in an SQL statement."""
_SAID = re.compile(r"\bdefaults?\b|\bomitted\b|\bleft out\b|\bunless\b|\botherwise\b")


def input_schema(tool: Tool, document: Document) -> Iterator[Diagnostic]:
    """Check that `inputs.schema` is a valid JSON Schema 2020-12 that needs no network."""
    yield from schema_faults(tool.input_schema, ("inputs", "schema"), "input-schema", document)


def output_schema(tool: Tool, document: Document) -> Iterator[Diagnostic]:
    """Check that `outputs.schema` is valid, and used with format json."""
    if tool.output.schema is None:
        return
    path: KeyPath = ("outputs", "schema")
    if (form := tool.output.format) != "json":
        message = (
            f"`outputs.schema` cannot be used with `format: {form}`: {form} is not checked against a schema"
        )
        hint = "remove the schema, or write `format: json`"
        yield document.diagnostic("output-schema", message, path, key=True, hint=hint)
    yield from schema_faults(tool.output.schema, path, "output-schema", document)


def schema_keywords(tool: Tool, document: Document) -> Iterator[Diagnostic]:
    """Check for keys that look like a mistake: JSON Schema ignores those that it does not know."""
    from toolcrib.schema.walk import KEYWORDS, schemas

    roots = (("inputs", tool.input_schema), ("outputs", tool.output.schema))
    unknown = (
        ((*path, key), schema[key])
        for block, root in roots
        for path, schema in schemas(root, (block, "schema"))
        for key in schema.keys() - KEYWORDS
        if not key.startswith("x-")
    )
    for path, value in islice(unknown, _MOST_PROPERTIES):
        key = str(path[-1])
        hint = did_you_mean(key, KEYWORDS)
        if value is None:
            hint = "if it belongs to the text before it, put the whole text in quotes"
        if hint is not None:
            message = f"{quoted(key)} is not a keyword of JSON Schema, so it has no effect"
            yield document.diagnostic("schema-keyword", message, path, key=True, hint=hint)


def defaults(tool: Tool, document: Document) -> Iterator[Diagnostic]:
    """Check that each default fits the schema of its property, and is mentioned in the description."""
    from toolcrib.schema import SchemaCheck

    for name, rule in islice(_properties(tool), _MOST_PROPERTIES):
        path: KeyPath = ("inputs", "schema", "properties", name)
        if not isinstance(rule.get("description"), str) or not rule["description"].strip():
            message = f"the property {quoted(name)} has no description"
            hint = "describe it: the model reads it"
            yield document.diagnostic("property-description", message, path, key=True, hint=hint)
        if "default" not in rule:
            continue
        try:
            check = SchemaCheck({"$defs": tool.input_schema.get("$defs", {}), **rule})
        except DefinitionError:
            continue
        for violation in check.violations(rule["default"])[:1]:
            message = f"the default of {quoted(name)} does not match its schema: {violation.message}"
            yield document.diagnostic("default-value", message, (*path, "default"))
        if not _mentions(rule["default"], str(rule.get("description", ""))):
            message = f"the default of {quoted(name)} is not mentioned in its description"
            hint = f"add to the description: (default {_json(rule['default'])})"
            yield document.diagnostic("default-untold", message, (*path, "default"), key=True, hint=hint)


def examples(tool: Tool, document: Document) -> Iterator[Diagnostic]:
    """Check that params and expected outputs of the examples fit the schemas."""
    from toolcrib.schema import SchemaCheck

    try:
        check = SchemaCheck(tool.input_schema)
    except DefinitionError:
        return
    for number, example in enumerate(tool.examples):
        for violation in check.violations(example.params):
            path: KeyPath = ("examples", number, "params", *steps_of(violation.path))
            message = f"the example does not match inputs.schema: {violation.path} {violation.message}"
            missing = violation.message == "is required"
            yield document.diagnostic(
                "example", message, path, key=missing or "not known" in violation.message
            )
        yield from _expected(tool, document, number)


def placeholders(tool: Tool, document: Document) -> Iterator[Diagnostic]:
    """Check that each `${name}` is declared exactly once, and that each argument is used."""
    block = document.data["exec"][tool.kind]
    names = Namespaces.of(tool)
    for name in re.findall(r"\{(\w+)\}", tool.mcp.resource or ""):
        if name not in names.arguments:
            message = f"the tool has no argument {quoted(name)}, which its resource template names"
            hint = "name an argument of `inputs.schema`"
            yield document.diagnostic("placeholder", message, ("mcp", "resource"), hint=hint)
    # Each unknown name is compared with every argument for the nearest one, which must not take unbounded
    # time.
    count = sum(_marks(block[key]) for key in kind_of(tool).templated if key in block)
    if count * len(names.arguments) > _MOST_COMPARED:
        message = f"{count:,} placeholders and {len(names.arguments):,} properties are too many to check"
        yield document.diagnostic("placeholder", message, ("exec", tool.kind), key=True)
        return
    wrong = False
    for key in kind_of(tool).templated:
        if key not in block:
            continue
        for problem in problems(block[key], names):
            wrong = True
            path: KeyPath = ("exec", tool.kind, key, *problem.path)
            text = document.value_at(path)
            literal = text[problem.offset : problem.offset + problem.length] if isinstance(text, str) else ""
            if literal.startswith(("$", "{")):
                at = document.locate_text(path, literal, text.count(literal, 0, problem.offset))
            else:
                at = document.locate(path, key=True)
            yield document.diagnostic("placeholder", problem.message, path, hint=problem.hint, at=at)
    if kind_of(tool).templated and not wrong and not tool.config.by_name:
        yield from _unused(tool, document)


def _unused(tool: Tool, document: Document) -> Iterator[Diagnostic]:
    block = f"{document.data['exec'][tool.kind]!r} {tool.auth!r}"
    # A condition names its argument without a mark.
    marks = block if "Choice(" in block else " ".join(_PLACEHOLDERS.findall(block))
    for name, _ in islice(_properties(tool), _MOST_PROPERTIES):
        if name not in marks:
            path: KeyPath = ("inputs", "schema", "properties", name)
            message = f"the argument {quoted(name)} is used nowhere"
            hint = f"write `${{{name}}}` where its value belongs, or remove it"
            yield document.diagnostic("unused-argument", message, path, key=True, hint=hint)


def _marks(value: Any) -> int:
    """Return an upper bound for the number of placeholders."""
    text = str(value)
    return text.count("${") + text.count("{{") + text.count("Choice(")


def fixed(tool: Tool, document: Document) -> Iterator[Diagnostic]:
    """Check that no placeholder decides what is run."""
    block = document.data["exec"][tool.kind]
    for key in kind_of(tool).fixed:
        if "${" in str(block.get(key, "")):
            message = f"a placeholder cannot be used in `{key}`: it decides what is run"
            yield document.diagnostic("placeholder", message, ("exec", tool.kind, key))


def of_kind(tool: Tool, document: Document) -> Iterator[Diagnostic]:
    """Run the checks of the kind, and refuse `auth` where it has no meaning."""
    kind = kind_of(tool)
    yield from kind.lint(tool, document)
    for at in range(0 if kind.takes_auth else len(tool.auth)):
        message = f"`auth` has no meaning in a tool of kind {tool.kind}"
        yield document.diagnostic(
            "auth", message, ("auth", at) if len(tool.auth) > 1 else ("auth",), key=True
        )


def grants(tool: Tool, document: Document) -> Iterator[Diagnostic]:
    """Check that no permission covers `/`, folders above the project root, or the machine's network."""
    if tool.permissions.network.mode == "host" and kind_of(tool).confined:
        message = (
            "the permission `network: host` covers all of this machine's network; such a tool needs approval"
        )
        hint = "name the hosts, if the program speaks HTTP or SOCKS: `network: {allow: [host]}`"
        yield document.diagnostic("grant", message, ("permissions", "network"), hint=hint)
    root = _project_root(document.path)
    for mode, paths in (("read", tool.permissions.read), ("write", tool.permissions.write)):
        for number, path in enumerate(paths):
            why = _too_wide(path, root)
            if why is not None:
                message = f"the permission to {mode} {quoted(path)} covers {why}; such a tool needs approval"
                place: KeyPath = ("permissions", "fs", mode, number)
                yield document.diagnostic(
                    "grant", message, place, hint="name the folders that the tool needs"
                )


def wording(tool: Tool, document: Document) -> Iterator[Diagnostic]:
    """Check that texts for the model contain no hidden characters and no instructions."""
    for path, text in texts(tool):
        hidden = hidden_characters(text)
        if hidden:
            codes = ", ".join(f"U+{ord(char):04X}" for char in hidden[:5])
            message = (
                f"{quoted(dotted(path))} contains characters that are invisible or reorder the text: {codes}"
            )
            at = document.locate_text(path, hidden[0])
            yield document.diagnostic("hidden-characters", message, path, hint="type the text again", at=at)
        if len(text) > MAX_TEXT:
            message = (
                f"{quoted(dotted(path))} is longer than {MAX_TEXT:,} characters; the rest was not checked"
            )
            yield document.diagnostic("instruction-text", message, path, hint="make it shorter")
        found = instructions(text)
        if found is not None:
            message = f"{quoted(dotted(path))} reads like an instruction to the model: {quoted(found)}"
            hint = "describe what the tool does, not what the model must do"
            yield document.diagnostic("instruction-text", message, path, hint=hint)


def tildes(tool: Tool, document: Document) -> Iterator[Diagnostic]:
    """Check for grants that only a shell would expand."""
    permissions = tool.permissions
    for mode, paths in (("read", permissions.read), ("write", permissions.write)):
        for number, granted in enumerate(paths):
            if granted.startswith("~"):
                yield tilde(document, ("permissions", "fs", mode, number))


def tilde(document: Document, at: KeyPath) -> Diagnostic:
    """Return what is wrong with a path that begins with `~`."""
    message = "`~` is not expanded: no shell reads this"
    return document.diagnostic("command-words", message, at, hint="write the whole path")


def absent(tool: Tool, document: Document) -> Iterator[Diagnostic]:
    """Check that the program or module of a project's tool is here."""
    root = _project_root(document.path)
    if root is not None:
        yield from kind_of(tool).absent(tool, document, root)
        yield from _code(tool, document, os.path.realpath(root))


def _code(tool: Tool, document: Document, root: str) -> Iterator[Diagnostic]:
    """Check `files`, and that a person can know which files are the tool's code."""
    from toolcrib.manifest.code import code_of, named_by, own_folder
    from toolcrib.sandbox.files.paths import Paths, within

    paths = Paths()
    for number, written in enumerate(tool.files):
        path = os.path.normpath(os.path.join(root, written))
        if within(path, root) and within(paths.real(path), root) and paths.leads_to(path):
            continue
        is_inside = within(path, root) and within(paths.real(path), root)
        message = f"{quoted(written)} {'does not exist' if is_inside else 'is not in the project'}"
        hint = f"write a path from the project's root, {root}"
        yield document.diagnostic("files", message, ("files", number), hint=hint)
    try:
        code_of(tool, root, paths)
    except ToolUnavailable as error:
        if "most" in error.details:
            at: KeyPath = ("files",) if tool.files else ("exec",)
            yield document.diagnostic("files", error.message, at, key=True, hint=error.hint)
    start, own = kind_of(tool).starts(tool.config), own_folder(tool, paths)
    named = () if tool.files else named_by(start, root, tool.permissions.write, paths, own)
    for kind, path, _ in named:
        if kind in ("script", "module") and os.path.dirname(path) == root:
            name = os.path.basename(path)
            message = f"{quoted(name)} is in the project's root, so of its code only this file is checked"
            hint = f"name what it loads, as in `files: [{name}, lib]`, or move it to a folder of its own"
            yield document.diagnostic("files-root", message, ("exec",), key=True, hint=hint)


CHECKS: tuple[Callable[[Tool, Document], Iterator[Diagnostic]], ...] = (
    input_schema,
    output_schema,
    schema_keywords,
    defaults,
    examples,
    placeholders,
    fixed,
    of_kind,
    tildes,
    grants,
    wording,
)
"""The checks for a manifest that matches the schema, in order."""


def schema_faults(schema: Any, path: KeyPath, rule: str, document: Document) -> Iterator[Diagnostic]:
    """Check that a schema at `path` is valid JSON Schema 2020-12, each fault at its own place."""
    from toolcrib.schema import SchemaCheck
    from toolcrib.schema.walk import MEANT_TYPES

    try:
        SchemaCheck(schema)
    except DefinitionError as error:
        steps = steps_of(error.violations[0].path) if error.violations else ()
        at: KeyPath = (*path, *steps)
        written = document.value_at(at) if steps and steps[-1] == "type" else None
        meant = MEANT_TYPES.get(written) if isinstance(written, str) else None
        hint = f"write `type: {meant}`" if meant else None
        yield document.diagnostic(rule, f"`{dotted(path)}` is {error.message}", at, key=not steps, hint=hint)


def _expected(tool: Tool, document: Document, number: int) -> Iterator[Diagnostic]:
    import orjson

    from toolcrib.schema import SchemaCheck

    expected = tool.examples[number].expected_output
    if expected is None or tool.output.format != "json" or not kind_of(tool).takes_format:
        return
    path: KeyPath = ("examples", number, "expected_output")
    try:
        value = orjson.loads(expected)
    except ValueError:
        if _WILDCARD not in expected:
            message = "the expected output is not JSON, though `outputs.format` is json"
            hint = "write JSON, with `...` for what may differ"
            yield document.diagnostic("example-output", message, path, hint=hint)
        return
    if tool.output.schema is None or _WILDCARD in expected:
        return
    try:
        violations = SchemaCheck(tool.output.schema).violations(value)
    except DefinitionError:
        return
    for violation in violations[:1]:
        message = f"the expected output does not match outputs.schema: {violation.path} {violation.message}"
        yield document.diagnostic("example-output", message, path)


def _properties(tool: Tool) -> Iterator[tuple[str, dict[str, Any]]]:
    named = tool.input_schema.get("properties")
    if isinstance(named, dict):
        for name, rule in named.items():
            if isinstance(rule, dict):
                yield name, rule


def _mentions(default: Any, description: str) -> bool:
    """Return True if a description mentions a default: its value, or what happens without one."""
    folded = description.lower()
    if _SAID.search(folded):
        return True
    plain = default.lower() if isinstance(default, str) else _json(default)
    return bool(plain.strip(" .")) and re.search(rf"(?<!\w){re.escape(plain)}(?!\w)", folded) is not None


def _json(value: Any) -> str:
    import orjson

    return orjson.dumps(value).decode()


def _project_root(path: str) -> str | None:
    """Return the project's root: the folder above `.toolcrib/tools/<name>/tool.yml`."""
    parents = Path(path).absolute().parents
    if len(parents) > 3 and parents[1].name == "tools" and parents[2].name in HOMES:
        return os.fspath(parents[3])
    return None


def _too_wide(path: str, root: str | None) -> str | None:
    plain = os.path.normpath(path)
    if plain.strip(os.sep) == "":
        return "the whole file system"
    if plain == os.pardir or plain.startswith(os.pardir + os.sep):
        return "everything above the project root"
    if plain.startswith(os.sep) and root is not None and root.startswith(plain + os.sep):
        return "a folder above the project root"
    return None
