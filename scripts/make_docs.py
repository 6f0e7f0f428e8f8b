"""Write the generated parts of the docs; with `--check` only list the pages that are out of date.

`--kind NAME` prints those of one kind, for the documentation of the package that it is installed from.

A generated part is between `<!-- made by scripts/make_docs.py: NAME -->` and `<!-- end -->`.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
import sys
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

import click

sys.path.insert(1, str(Path(__file__).resolve().parent.parent))  # A script sees its own folder only.

from benchmarks.table import Table, headlines, missed
from toolcrib import errors
from toolcrib.cli.examples import examples_of
from toolcrib.cli.group import COMMANDS, toolcrib
from toolcrib.cli.options import project_options
from toolcrib.manifest import DIALECTS, KINDS, Dialect, Kind, tool_schema
from toolcrib.project import Config
from toolcrib.serve.http import Route, errors_of
from toolcrib.serve.rest import ROUTES, openapi

ROOT = Path(__file__).resolve().parent.parent
MEASURED = ROOT / "benchmarks" / "results.json"
"""One run of `benchmarks/run.py --json`."""
SOURCE = ROOT / "src" / "toolcrib"
PART = re.compile(r"(<!-- made by scripts/make_docs\.py: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def error_classes(
    root: type[errors.ToolcribError] = errors.ToolcribError,
) -> Iterator[type[errors.ToolcribError]]:
    """Yield every error class, each before those below it, in the order of the source."""
    yield root
    for kind in root.__subclasses__():
        if kind.__module__ == errors.__name__:
            yield from error_classes(kind)


def first_sentence(text: str | None) -> str:
    """Return the first paragraph of a docstring on one line."""
    return " ".join((text or "").strip().split("\n\n")[0].split())


def error_table() -> Iterator[str]:
    """Yield a row for each error code."""
    yield "| code | class | HTTP | exit | retryable | meaning |"
    yield "|---|---|---|---|---|---|"
    for kind in error_classes():
        retryable = "yes" if kind.retryable else "no"
        cells = (f"`{kind.code}`", f"`{kind.__name__}`", kind.status, kind.exit_code, retryable)
        yield f"| {' | '.join(map(str, cells))} | {first_sentence(kind.__doc__)} |"


def exit_table() -> Iterator[str]:
    """Yield a row for each exit code, with the error codes that lead to it."""
    yield "| exit | error codes |"
    yield "|---|---|"
    by_exit: dict[int, list[str]] = {}
    for kind in error_classes():
        by_exit.setdefault(kind.exit_code, []).append(f"`{kind.code}`")
    yield "| 0 | none: it worked |"
    for number in sorted(by_exit):
        yield f"| {number} | {', '.join(by_exit[number])} |"


def command_reference() -> Iterator[str]:
    """Yield each command with its usage, what it does and its options, as `--help` shows them."""
    top = click.Context(toolcrib, info_name="toolcrib", **toolcrib.context_settings)
    yield "| command | |"
    yield "|---|---|"
    for name, (_, help_line) in sorted(COMMANDS.items()):
        yield f"| [`toolcrib {name}`](#toolcrib-{name}) | {help_line} |"
    yield ""
    own = [one for one in records_of(toolcrib, top) if "--root" not in one[0]]
    yield from table_of([*own, *SHARED])
    yield ""
    yield "The last three are options of most commands. `--root` may also be given before the command."
    for name in sorted(COMMANDS):
        command = toolcrib.get_command(top, name)
        assert command is not None
        yield from reference(command, click.Context(command, info_name=name, parent=top), "###")


def reference(command: click.Command, context: click.Context, heading: str) -> Iterator[str]:
    """Yield a command's usage, what it does and its options, and then its own commands."""
    yield ""
    yield f"{heading} {context.command_path}"
    yield ""
    yield f"`{context.command_path} {' '.join(command.collect_usage_pieces(context))}`"
    yield ""
    paragraphs = [" ".join(paragraph.split()) for paragraph in (command.help or "").split("\n\n")]
    yield "\n\n".join(paragraphs)
    yield ""
    yield "```text"
    yield from examples_of(context.command_path)
    yield "```"
    records = [one for one in records_of(command, context) if "--help" not in one[0]]
    if own := [one for one in records if one not in SHARED]:
        yield ""
        yield from table_of(own)
    if shared := [f"`{names.split()[0]}`" for names, meaning in records if (names, meaning) in SHARED]:
        yield ""
        yield f"{'Also' if own else 'Options:'} {', '.join(shared)}."
    if isinstance(command, click.Group):
        for name, one in sorted(command.commands.items()):
            yield from reference(one, click.Context(one, info_name=name, parent=context), f"{heading}#")


def records_of(command: click.Command, context: click.Context) -> list[tuple[str, str]]:
    """Return the options of a command, each as its names and its meaning."""
    options = (one for one in command.get_params(context) if isinstance(one, click.Option))
    records = (one.get_help_record(context) for one in options)
    return [(names, " ".join(meaning.split())) for names, meaning in filter(None, records)]


_NOTHING = click.command(project_options(lambda **_: None))
SHARED = [one for one in records_of(_NOTHING, click.Context(_NOTHING)) if "--help" not in one[0]]
"""The options of nearly every command, which are described once."""


def table_of(records: list[tuple[str, str]]) -> Iterator[str]:
    """Yield a table of options."""
    yield "| option | meaning |"
    yield "|---|---|"
    for names, meaning in records:
        yield f"| `{names.replace('|', chr(92) + '|')}` | {meaning} |"


def settings_table() -> Iterator[str]:
    """Yield a row for each setting of a project, by name. Its meaning is the docstring of its field."""
    source = SOURCE / "project" / "config" / "settings.py"
    tree = ast.parse(source.read_text(encoding="utf-8"))
    (table,) = (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Config")
    meanings = {
        field.target.id: " ".join(str(text.value.value).split())
        for field, text in pairwise(table.body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)
    }
    found = {
        field.metadata["setting"].key: (shown_default(field.default), meanings[field.name])
        for field in fields(Config)
        if "setting" in field.metadata
    }
    yield "| key | default | meaning |"
    yield "|---|---|---|"
    for key, (default, meaning) in sorted(found.items()):
        yield f"| `{key}` | {default} | {meaning} |"


def shown_default(value: Any) -> str:
    """Return the default of a setting as the docs show it."""
    if value is None:
        return "not set"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, tuple):
        return ", ".join(one if isinstance(one, str) else one.kind for one in value) or "none"
    return f"{value:g}" if isinstance(value, float) else "none" if is_dataclass(value) else str(value)


def parts_of_toolcrib() -> list[Path]:
    """List the packages and modules directly below `toolcrib`."""
    return [
        path
        for path in sorted(SOURCE.iterdir())
        if (path.suffix == ".py" and path.stem != "__init__") or (path / "__init__.py").is_file()
    ]


def package_table() -> Iterator[str]:
    """Yield each package with its first line."""
    yield "| package | contents |"
    yield "|---|---|"
    for path in sorted(SOURCE.rglob("__init__.py")):
        # Not the package itself, and no files for new projects.
        if path.parent != SOURCE and "starter_files" not in path.parts:
            name = ".".join(path.parent.relative_to(SOURCE).parts)
            doc = first_sentence(ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))))
            yield f"| `{name}` | {doc.replace('|', chr(92) + '|')} |"


def native_fields(*roots: str) -> Iterator[str]:
    """Yield a row for each field of a manifest at these places and below, as its JSON Schema has it."""
    yield "| Field | Type | Default | Meaning |"
    yield "|---|---|---|---|"
    for path, rule, needed in fields_of(tool_schema()):
        if root_of(path) in roots:
            default = (
                "required" if needed else f"`{shown_value(rule['default'])}`" if "default" in rule else ""
            )
            yield f"| `{path}` | {type_of(rule)} | {default} | {rule['description']} |"


def kind_table(*names: str) -> Iterator[str]:
    """Yield a row for each kind of these names, or each built-in one."""
    yield "| kind | where it runs | enforced by |"
    yield "|---|---|---|"
    for kind in map(KINDS.__getitem__, names) if names else KINDS.builtin:
        yield f"| `{kind.name}` | {kind.docs[0]} | {kind.docs[1]} |"


def other_kinds(*names: str) -> Iterator[str]:
    """Yield a section for each kind of these names, or each one that the page of manifests does not have."""
    for name in names or [one for one in kinds_of_manifests() if f"exec_{one}" not in NATIVE]:
        rule = resolved(tool_schema()["properties"]["exec"]["properties"][name])
        yield from (f"### {name}", "", rule["description"], "", *native_fields(f"exec.{name}"), "")


def kinds_of_manifests() -> list[str]:
    """Return the names of the kinds that a manifest may be of."""
    return list(tool_schema()["properties"]["exec"]["properties"])


def root_of(path: str) -> str:
    """Return the longest path of `NATIVE`, or of a kind, that is the field's own or one above it."""
    every = [root for roots in NATIVE.values() for root in roots]
    every += [f"exec.{kind}" for kind in kinds_of_manifests()]
    found = (one for one in every if path == one or path.startswith((f"{one}.", f"{one}[")))
    # A field of no table is with those that say what the tool is.
    return max(found, key=len, default="name")


def fields_of(rule: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any], bool]]:
    """Yield every field below a part of the schema: its path, its rule, and True if it is required."""
    if path == "inputs.schema":
        return
    for name, inner in rule.get("properties", {}).items():
        dotted = f"{path}.{name}" if path else name
        whole = resolved(inner)
        yield dotted, whole, name in rule.get("required", ())
        yield from fields_of(whole, dotted)
    for keyword, end in (("items", "[]"), ("additionalProperties", ".<name>")):
        # One entry, or a list of such entries, has its fields once.
        if isinstance(rule.get(keyword), dict) and not (keyword == "items" and "properties" in rule):
            yield from fields_of(resolved(rule[keyword]), path + end)
    for one in rule.get("anyOf", ()):
        yield from fields_of(resolved(one), path)


def resolved(rule: dict[str, Any]) -> dict[str, Any]:
    """Return a part of the schema with its reference resolved."""
    named = tool_schema()["$defs"].get(rule.get("$ref", "").rsplit("/", 1)[-1], {})
    return {**named, **rule}


TYPES = {"string": "text", "integer": "whole number", "boolean": "true or false", "object": "mapping"}


def type_of(rule: dict[str, Any]) -> str:
    """Return the type of a field in words."""
    if "enum" in rule:
        return ", ".join(f"`{value}`" for value in rule["enum"])
    if "anyOf" in rule:
        return " or ".join(type_of(resolved(one)) for one in rule["anyOf"])
    names = rule.get("type", "any")
    words = [TYPES.get(str(name), str(name)) for name in (names if isinstance(names, list) else [names])]
    if words == ["array"]:
        return (
            f"list of {type_of(resolved(rule['items']))}" if isinstance(rule.get("items"), dict) else "list"
        )
    return ", ".join(word if word != "array" else "list" for word in words)


def shown_value(value: Any) -> str:
    """Return a default as it is written in a manifest."""
    return str(value) if isinstance(value, str) else json.dumps(value)


def record_table(record: type) -> Iterator[str]:
    """Yield a row for each field of a record, with the docstring below it."""
    yield "| Field | Default | Meaning |"
    yield "|---|---|---|"
    (node,) = ast.parse(textwrap.dedent(inspect.getsource(record))).body
    assert isinstance(node, ast.ClassDef)
    for field, doc in pairwise([*node.body, ast.Pass()]):
        if not isinstance(field, ast.AnnAssign) or ast.unparse(field.target) == "_":
            continue
        documented = isinstance(doc, ast.Expr) and isinstance(doc.value, ast.Constant)
        meaning = " ".join(str(doc.value.value).split()) if documented else ""  # type: ignore[attr-defined]
        value = field.value
        plain = isinstance(value, ast.Constant) or (isinstance(value, ast.Tuple) and not value.elts)
        default = "required" if value is None else f"`{ast.unparse(value)}`" if plain else ""
        yield f"| `{ast.unparse(field.target)}` | {default} | {meaning} |"


def rest_reference() -> Iterator[str]:
    """Yield each route with its scope, query, body, answers and errors, and each record of them."""
    document = openapi()
    routes = [(route, document["paths"][route.path][route.method.lower()]) for route in ROUTES]
    scoped = set.intersection(*(set(errors_of(route)) for route in ROUTES if route.scope))
    with_body = (route for route, operation in routes if "requestBody" in operation)
    read = set.intersection(*(set(errors_of(route)) for route in with_body)) - scoped
    rows = Counter(row for _, operation in routes for row in rest_query(operation).values())
    shared = {row for row, number in rows.items() if number >= SHARED_ROW}
    yield f"Each route with a scope may also answer {codes_of(scoped)}."
    yield f"Each route with a body may also answer {codes_of(read)}. Many take these parameters:\n"
    yield from QUERY_HEAD
    yield from sorted(shared)
    yield ""
    for route, operation in routes:
        yield f"### {route.method} {route.path}\n"
        scope = f"`{route.scope}`" if route.scope else "No scope"
        yield f"{scope}: {inspect.cleandoc(route.handler.__doc__ or '')}\n"
        query = rest_query(operation)
        if own := [row for row in query.values() if row not in shared]:
            yield from (*QUERY_HEAD, *own, "")
        if also := [f"`{name}`" for name, row in query.items() if row in shared]:
            yield f"- {'Also takes' if own else 'Takes'} {', '.join(also)}."
        yield from rest_content(route, operation)
        usual = (scoped if route.scope else set()) | (read if "requestBody" in operation else set())
        if failures := set(errors_of(route)) - usual:
            yield f"- Errors: {codes_of(failures)}."
        yield ""
    yield "## Records\n"
    yield "A field without *optional* is always there, and required in a body.\n"
    for name, schema in sorted(document["components"]["schemas"].items()):
        yield f"### {name}\n"
        yield f"{schema['description']}\n"
        required = schema.get("required", ())
        for field, rule in schema["properties"].items():
            may = "" if field in required else ", *optional*"
            meaning = rule.get("description")
            yield f"- `{field}`: {rest_type(rule)}{may}" + (f". {meaning}" if meaning else "")
        yield ""


def codes_of(kinds: set[type[errors.ToolcribError]]) -> str:
    """Return the statuses and codes of errors as a list in words."""
    return ", ".join(
        f"{status} `{code}`" for status, code in sorted((kind.status, kind.code) for kind in kinds)
    )


def rest_query(operation: dict[str, Any]) -> dict[str, str]:
    """Return a row for each parameter of an operation by its name, but for those of its path."""
    rows = {}
    for one in operation["parameters"]:
        rule = one["schema"]
        default = f"`{json.dumps(rule['default'])}`" if rule.get("default") else ""
        default = "required" if one["required"] else default
        cells = (f"`{one['name']}`", one["in"], rest_type(rule), default, rule.get("description", ""))
        if one["in"] != "path":
            rows[one["name"]] = f"| {' | '.join(cells)} |"
    return rows


def rest_content(route: Route, operation: dict[str, Any]) -> Iterator[str]:
    """Yield the body and the answers of a route in words."""
    for kind, content in operation.get("requestBody", {}).get("content", {}).items():
        rule = content["schema"]
        text = rule["description"] if kind in route.raw else f"{rest_type(rule)}."
        yield f"- Body, `{kind}`: {text}"
    for status, answer in operation["responses"].items():
        if int(status) < 400:
            types = [rest_type(one["schema"]) if kind == "application/json" else f"`{kind}`"
                     for kind, one in answer.get("content", {}).items()]  # fmt: skip
            yield f"- Answer {status}: {', or '.join(types) or 'no body'}."


def rest_type(rule: dict[str, Any]) -> str:
    """Return the type of a JSON value in words, with links to records."""
    if "$ref" in rule:
        name = rule["$ref"].rsplit("/", 1)[-1]
        return f"[{name}](#{name.lower()})"
    if "enum" in rule:
        return ", ".join(f"`{value}`" for value in rule["enum"])
    if "anyOf" in rule:
        return " or ".join(rest_type(one) for one in rule["anyOf"])
    if rule.get("type") == "array":
        return f"list of {rest_type(rule.get('items', {}))}"
    return str(rule.get("type", "any value")).replace("object", "JSON object")


def measured() -> tuple[str, list[Any]]:
    """Return when and where the benchmarks were run, and their tables."""
    run = json.loads(MEASURED.read_text(encoding="utf-8"))
    return run["about"], [Table.of(table) for tables in run["parts"].values() for table in tables]


def performance() -> Iterator[str]:
    """Yield what is not reached, and all tables of the run."""
    about, tables = measured()
    yield from (about, "", "## Missed", "", *missed(tables), "", "## All rows")
    for table in tables:
        yield from ("", *table.markdown().rstrip().splitlines())


def performance_lines() -> Iterator[str]:
    """Yield five rows of the run: four of the usual ways in, and the one furthest from its reach."""
    about, tables = measured()
    yield from (*headlines(tables, HEADLINES), "", f"Measured {about}")


OWN_SECTION = re.findall(r"make_docs\.py: native_exec_(\w+)", (ROOT / "docs" / "manifest.md").read_text())
"""The kinds that the page of manifests describes in words of its own."""
NATIVE: dict[str, tuple[str, ...]] = {
    "identity": ("name", "description", "kind", "version", "tags", "annotations", "mcp", "extensions"),
    "data": ("inputs", "outputs"),
    "exec": ("exec",),
    "files": ("files",),
    **{f"exec_{kind}": (f"exec.{kind}",) for kind in OWN_SECTION},
    "permissions": ("permissions",),
    "auth": ("auth",),
    "calls": ("approval", "limits", "retry"),
    "examples": ("examples",),
}
"""The tables of a manifest's fields, by name."""
HEADLINES = (
    "Toolset.call",
    "toolcrib serve app.py --stdio, 2025-11-25",
    "toolcrib serve --http",
    "Project, tool of kind python, a spare ready",
)
"""Rows of the benchmarks that the README shows, besides the worst one."""
QUERY_HEAD = ("| parameter | in | type | default | |", "|---|---|---|---|---|")
SHARED_ROW = 4
"""Routes from which on a parameter that is the same in all of them is described once."""
PARTS: dict[str, Callable[[], Iterator[str]]] = {
    "commands": command_reference,
    "errors": error_table,
    "exits": exit_table,
    "packages": package_table,
    "kind": partial(record_table, Kind),
    "kinds": kind_table,
    "other_kinds": other_kinds,
    "dialect": partial(record_table, Dialect),
    "settings": settings_table,
    "performance": performance,
    "performance_lines": performance_lines,
    "rest": rest_reference,
    **{f"native_{name}": partial(native_fields, *roots) for name, roots in NATIVE.items()},
}


def renewed(page: Path) -> str:
    """Return the text of a page with its generated parts as they should be, without installed packages."""
    text = page.read_text(encoding="utf-8")
    with patch.dict(vars(KINDS), _installed={}), patch.dict(vars(DIALECTS), _installed={}):
        return PART.sub(lambda found: f"{found[1]}\n{chr(10).join(PARTS[found[2]]())}\n\n{found[3]}", text)


def pages() -> list[Path]:
    """List every page of the documentation."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def outdated() -> list[Path]:
    """List the pages whose generated parts differ from the code."""
    return [page for page in pages() if renewed(page) != page.read_text(encoding="utf-8")]


def main(arguments: list[str]) -> int:
    """Write the pages. With `--check`, list those that are out of date and return 1 if there are any."""
    if arguments[:1] == ["--kind"]:
        print(*kind_table(*arguments[1:]), "", *other_kinds(*arguments[1:]), sep="\n")
        return 0
    found = outdated()
    for page in found:
        if arguments != ["--check"]:
            page.write_text(renewed(page), encoding="utf-8")
    status = "out of date; run `make docs`" if arguments == ["--check"] else "written"
    for page in found:
        print(f"{page.relative_to(ROOT)}: {status}")
    return 1 if found and arguments == ["--check"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
