"""What a tool says, held against itself: schemas, examples, placeholders, address, response, grants."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path as FilePath
from typing import Any

from toolcrib.errors import DefinitionError, ManifestError
from toolcrib.manifest.http.addresses import url_faults
from toolcrib.manifest.http.requests import request_faults
from toolcrib.manifest.lint.steps import steps
from toolcrib.manifest.lint.wording import MAX_TEXT, hidden_characters, instructions, is_plain, texts
from toolcrib.manifest.yaml.diagnostics import Diagnostic, quoted
from toolcrib.manifest.yaml.positions import Path
from toolcrib.manifest.yaml.source import Document
from toolcrib.spec import Choice, CommandExec, FileExec, HttpExec, Tool

__all__ = ["CHECKS", "TEMPLATED"]

_STEP = re.compile(r'\.([^\W\d]\w*)|\[(\d+)\]|\["((?:[^"\\]|\\.)*)"\]')
_MOST_PROPERTIES = 500
_MOST_COMPARED = 100_000
_WILDCARD = "..."
_SAID = re.compile(r"\bdefaults?\b|\bomitted\b|\bleft out\b|\bunless\b|\botherwise\b")
DIRECT = frozenset((
    "ping", "ping6", "traceroute", "tracepath", "mtr", "nmap", "dig", "host", "nslookup", "drill",
    "whois", "ssh", "scp", "sftp", "ssh-keyscan", "ssh-copy-id", "mosh", "rsync", "telnet", "nc",
    "ncat", "netcat", "socat", "psql", "pg_dump", "pg_dumpall", "pg_restore", "pg_isready", "mysql",
    "mysqldump", "mysqladmin", "mariadb", "mariadb-dump", "mongosh", "mongodump", "mongorestore",
    "redis-cli", "valkey-cli", "sqlcmd", "sqlplus", "mosquitto_pub", "mosquitto_sub", "nats", "kcat",
    "ldapsearch", "snmpget", "snmpwalk", "smbclient", "ntpdate", "sendmail", "iperf3",
))  # fmt: skip
"""Programs that speak a protocol of their own, and do not read the variables that name a proxy."""
_PROCESSES = ("command", "python", "sql")
"""Kinds that run in a process, which has the network that the permission gives."""
TEMPLATED: dict[str, tuple[str, ...]] = {
    "http": ("url", "headers", "query", "cookies", "body", "parts"),
    "builtin": (),
    "command": ("args", "env", "stdin", "shell"),
    "python": ("args", "kwargs"),
    "file": ("path", "content"),
    "composite": (),
    "function": (),
    "sql": ("parameters", "connection"),
}
"""The keys of each kind's block that hold templates; those of a composite tool are checked by step."""


def input_schema(tool: Tool, document: Document) -> Iterator[Diagnostic]:
    """`inputs.schema` is a valid 2020-12 schema of an object that can be compiled offline."""
    yield from _schema_faults(tool.input_schema, ("inputs", "schema"), "input-schema", document)


def output_schema(tool: Tool, document: Document) -> Iterator[Diagnostic]:
    """`outputs.schema` is valid, and stands with format json only."""
    if tool.output.schema is None:
        return
    path: Path = ("outputs", "schema")
    if tool.output.format == "text":
        told = "`outputs.schema` cannot stand with `format: text`: text is not checked against a schema"
        hint = "remove the schema, or write `format: json`"
        yield document.diagnostic("output-schema", told, path, key=True, hint=hint)
    yield from _schema_faults(tool.output.schema, path, "output-schema", document)


def defaults(tool: Tool, document: Document) -> Iterator[Diagnostic]:
    """Each property's default fits its own schema, and is told in its description."""
    from toolcrib.schema import SchemaCheck

    for name, rule in islice(_properties(tool), _MOST_PROPERTIES):
        path: Path = ("inputs", "schema", "properties", name)
        if not isinstance(rule.get("description"), str) or not rule["description"].strip():
            told = f"the property {quoted(name)} has no description"
            hint = "say what it is: the model reads it"
            yield document.diagnostic("property-description", told, path, key=True, hint=hint)
        if "default" not in rule:
            continue
        try:
            check = SchemaCheck({"$defs": tool.input_schema.get("$defs", {}), **rule})
        except DefinitionError:
            continue
        for violation in check.violations(rule["default"])[:1]:
            told = f"the default of {quoted(name)} does not fit its schema: {violation.message}"
            yield document.diagnostic("default-value", told, (*path, "default"))
        if not _told(rule["default"], str(rule.get("description", ""))):
            told = f"the default of {quoted(name)} is not told in its description"
            hint = f"add to the description: (default {_json(rule['default'])})"
            yield document.diagnostic("default-untold", told, (*path, "default"), key=True, hint=hint)


def examples(tool: Tool, document: Document) -> Iterator[Diagnostic]:
    """Each example's params fit the input schema, its expected output the outputs block."""
    from toolcrib.schema import SchemaCheck

    try:
        check = SchemaCheck(tool.input_schema)
    except DefinitionError:
        return
    for number, example in enumerate(tool.examples):
        for violation in check.violations(example.params):
            path: Path = ("examples", number, "params", *_steps(violation.path))
            told = f"the example does not fit inputs.schema: {violation.path} {violation.message}"
            missing = violation.message == "is required"
            yield document.diagnostic("example", told, path, key=missing or "not known" in violation.message)
        yield from _expected(tool, document, number)


def placeholders(tool: Tool, document: Document) -> Iterator[Diagnostic]:
    """Each `${name}` is declared, once, and stands in a value."""
    from toolcrib.template import Namespaces, problems

    block = document.data["exec"][tool.kind]
    names = Namespaces.of(tool)
    count = sum(_marks(block[key]) for key in TEMPLATED[tool.kind] if key in block)
    if count * len(names.arguments) > _MOST_COMPARED:
        told = f"{count:,} placeholders and {len(names.arguments):,} properties are too many to check"
        yield document.diagnostic("placeholder", told, ("exec", tool.kind), key=True)
        return
    for key in TEMPLATED[tool.kind]:
        if key not in block:
            continue
        for problem in problems(block[key], names):
            path: Path = ("exec", tool.kind, key, *problem.path)
            text = document.value_at(path)
            literal = text[problem.offset : problem.offset + problem.length] if isinstance(text, str) else ""
            if literal.startswith(("$", "{")):
                at = document.locate_text(path, literal, text.count(literal, 0, problem.offset))
            else:
                at = document.locate(path, key=True)
            yield document.diagnostic("placeholder", problem.message, path, hint=problem.hint, at=at)


def _marks(value: Any) -> int:
    """How many placeholders there may be."""
    if isinstance(value, str):
        return value.count("${") + value.count("{{")
    if isinstance(value, Choice):
        return sum(1 + _marks(item) for _, item in value.branches)
    if isinstance(value, dict):
        return sum(map(_marks, value)) + sum(map(_marks, value.values()))
    return sum(map(_marks, value)) if isinstance(value, list) else 0


def shell(tool: Tool, document: Document) -> Iterator[Diagnostic]:
    """In a shell line each placeholder stands where its value cannot become code."""
    config = tool.config
    if not isinstance(config, CommandExec) or config.shell is None:
        return
    from toolcrib.template import Namespaces, held_variables, parse_conditional, shell_problems

    names = Namespaces.of(tool)
    try:
        line = parse_conditional(config.shell, names)
        held = held_variables(config.env, names)
    except ManifestError as error:
        if error.details.get("path"):
            path: Path = ("exec", "command", "env", *error.details["path"])
            yield document.diagnostic("shell", error.message, path, key=True)
        return
    for unknown in set(config.allow_dash) - names.arguments:
        told = f"{quoted(unknown)} is not a parameter"
        yield document.diagnostic("shell", told, ("exec", "command", "allow_dash"))
    place: Path = ("exec", "command", "shell")
    for problem in shell_problems(line, held):
        literal = config.shell[problem.offset : problem.offset + max(1, problem.length)]
        at = document.locate_text(place, literal, config.shell.count(literal, 0, problem.offset))
        yield document.diagnostic("shell", problem.message, place, hint=problem.hint, at=at)


def fixed(tool: Tool, document: Document) -> Iterator[Diagnostic]:
    """What decides which program runs where is written out: no placeholder stands in it."""
    block = document.data["exec"][tool.kind]
    for key in ("entrypoint", "cwd", "venv", "module", "function", "reference", "statement", "database"):
        if "${" in str(block.get(key, "")):
            told = f"a placeholder cannot stand in `{key}`: it decides what is run"
            yield document.diagnostic("placeholder", told, ("exec", tool.kind, key))
    if isinstance(tool.config, CommandExec):
        secrets = {secret.name for secret in tool.permissions.secrets}
        for number, element in enumerate(tool.config.args):
            if any(f"${{{mark}{name}}}" in element for name in secrets for mark in ("", "secret:")):
                told = "a secret cannot be an argument: any user of the machine can read those"
                hint = "the program finds it in its environment; or hand it over by `stdin`"
                path: Path = ("exec", "command", "args", number)
                yield document.diagnostic("secret-argument", told, path, hint=hint)


def network(tool: Tool, document: Document) -> Iterator[Diagnostic]:
    """An http tool may use the network, and its address is one it may have."""
    if not isinstance(tool.config, HttpExec):
        return
    permission = tool.permissions.network
    if permission.mode == "none":
        path: Path = ("permissions", "network")
        told = "an http tool needs the network, but `permissions.network` is " + (
            "false" if document.value_at(path) is False else "not given"
        )
        hint = "write `permissions.network: true`, or better `{allow: [host]}`"
        yield document.diagnostic("network", told, path, hint=hint)
    from toolcrib.template import Namespaces

    for fault in url_faults(tool.config.url, permission, Namespaces.of(tool)):
        yield document.diagnostic(fault.rule, fault.message, ("exec", "http", "url"), hint=fault.hint)


def request(tool: Tool, document: Document) -> Iterator[Diagnostic]:
    """Styles, body and auth fit the request and each other."""
    from toolcrib.template import Namespaces

    for fault in request_faults(tool, Namespaces.of(tool)):
        yield document.diagnostic(fault.rule, fault.message, fault.path, key=True, hint=fault.hint)


def response(tool: Tool, document: Document) -> Iterator[Diagnostic]:
    """One way of extraction, patterns that compile, field names that differ."""
    config = tool.config
    if not isinstance(config, HttpExec):
        return
    start: Path = ("exec", "http", "response")
    ways = [way for way in ("json_path", "jsonpath", "regex") if getattr(config, way) is not None]
    if len(ways) > 1:
        told = f"`response` has {' and '.join(f'`{way}`' for way in ways)}; only one of them can be used"
        yield document.diagnostic("response", told, (*start, ways[1]), key=True, hint="remove all but one")
    if config.regex is not None and (reason := _bad_regex(config.regex)):
        yield document.diagnostic("response", f"`regex` is not a pattern of RE2: {reason}", (*start, "regex"))
    if config.jsonpath is not None and (reason := _bad_jsonpath(config.jsonpath)):
        yield document.diagnostic("response", f"`jsonpath` is not RFC 9535: {reason}", (*start, "jsonpath"))
    seen: set[str] = set()
    for number, entry in enumerate(config.fields):
        if entry.name in seen:
            path = (*start, "fields", number, "name")
            yield document.diagnostic("response", f"the field name {quoted(entry.name)} stands twice", path)
        seen.add(entry.name)


def retry(tool: Tool, document: Document) -> Iterator[Diagnostic]:
    """A request that is not idempotent is not sent again by default."""
    config = tool.config
    if not isinstance(config, HttpExec) or tool.retry is None or tool.retry.max_attempts < 2:
        return
    if config.method in ("POST", "PATCH") and tool.annotations.idempotent is not True:
        told = f"a {config.method} that is tried again may act twice"
        hint = "set `annotations.idempotent: true` if the server takes it only once, or remove `retry`"
        yield document.diagnostic("retry", told, ("retry", "max_attempts"), hint=hint)


def programs(tool: Tool, document: Document) -> Iterator[Diagnostic]:
    """A program that speaks neither HTTP nor SOCKS finds no way through the proxy."""
    config, network = tool.config, tool.permissions.network
    if not isinstance(config, CommandExec) or network.mode not in ("any", "hosts"):
        return
    program = FilePath(config.entrypoint).name
    if program in DIRECT:
        told = f"{quoted(program)} speaks neither HTTP nor SOCKS, so it cannot reach the hosts it is granted"
        hint = "write `network: host`: this machine's own network, which a person has to approve"
        yield document.diagnostic("program-network", told, ("permissions", "network"), key=True, hint=hint)


def grants(tool: Tool, document: Document) -> Iterator[Diagnostic]:
    """No permission covers `/`, what lies above the project root, or the machine's own network."""
    if tool.permissions.network.mode == "host" and tool.kind in _PROCESSES:
        told = (
            "the permission `network: host` covers all of this machine's network; such a tool needs approval"
        )
        hint = "name the hosts, if the program speaks HTTP or SOCKS: `network: {allow: [host]}`"
        yield document.diagnostic("grant", told, ("permissions", "network"), hint=hint)
    root = _project_root(document.path)
    for mode, paths in (("read", tool.permissions.read), ("write", tool.permissions.write)):
        for number, path in enumerate(paths):
            why = _too_wide(path, root)
            if why is not None:
                told = f"the permission to {mode} {quoted(path)} covers {why}; such a tool needs approval"
                place: Path = ("permissions", "fs", mode, number)
                yield document.diagnostic("grant", told, place, hint="name the folders that the tool needs")


def wording(tool: Tool, document: Document) -> Iterator[Diagnostic]:
    """No hidden characters and no instructions in the texts that a model reads."""
    if is_plain(tool):
        return
    for path, text in texts(tool):
        hidden = hidden_characters(text)
        if hidden:
            codes = ", ".join(f"U+{ord(char):04X}" for char in hidden[:5])
            told = f"{quoted(_dotted(path))} holds characters that are not seen, or reorder the text: {codes}"
            at = document.locate_text(path, hidden[0])
            yield document.diagnostic("hidden-characters", told, path, hint="type the text anew", at=at)
        if len(text) > MAX_TEXT:
            told = f"{quoted(_dotted(path))} is longer than {MAX_TEXT:,} characters; the rest was not checked"
            yield document.diagnostic("instruction-text", told, path, hint="say it shortly")
        said = instructions(text)
        if said is not None:
            told = f"{quoted(_dotted(path))} reads like an instruction to the model: {quoted(said)}"
            hint = "say what the tool does, not what the model has to do"
            yield document.diagnostic("instruction-text", told, path, hint=hint)


CHECKS: tuple[Callable[[Tool, Document], Iterator[Diagnostic]], ...] = (
    input_schema,
    output_schema,
    defaults,
    examples,
    placeholders,
    shell,
    fixed,
    network,
    request,
    response,
    steps,
    retry,
    programs,
    grants,
    wording,
)
"""Everything a tool of the right form is still held to."""


def _schema_faults(schema: dict[str, Any], path: Path, rule: str, document: Document) -> Iterator[Diagnostic]:
    from toolcrib.schema import SchemaCheck

    try:
        SchemaCheck(schema)
    except DefinitionError as error:
        steps = _steps(error.violations[0].path) if error.violations else ()
        yield document.diagnostic(
            rule, f"`{_dotted(path)}` is {error.message}", (*path, *steps), key=not steps
        )


def _expected(tool: Tool, document: Document, number: int) -> Iterator[Diagnostic]:
    import orjson

    from toolcrib.schema import SchemaCheck

    expected = tool.examples[number].expected_output
    if expected is None or tool.output.format != "json" or isinstance(tool.config, FileExec):
        return
    path: Path = ("examples", number, "expected_output")
    try:
        value = orjson.loads(expected)
    except ValueError:
        if _WILDCARD not in expected:
            told = "the expected output is not JSON, though `outputs.format` is json"
            hint = "write JSON, with `...` for what may differ"
            yield document.diagnostic("example-output", told, path, hint=hint)
        return
    if tool.output.schema is None or _WILDCARD in expected:
        return
    try:
        violations = SchemaCheck(tool.output.schema).violations(value)
    except DefinitionError:
        return
    for violation in violations[:1]:
        told = f"the expected output does not fit outputs.schema: {violation.path} {violation.message}"
        yield document.diagnostic("example-output", told, path)


def _properties(tool: Tool) -> Iterator[tuple[str, dict[str, Any]]]:
    named = tool.input_schema.get("properties")
    if isinstance(named, dict):
        for name, rule in named.items():
            if isinstance(rule, dict):
                yield name, rule


def _told(default: Any, description: str) -> bool:
    """Whether a description tells a default: by its value, or by saying what holds without one."""
    folded = description.lower()
    if _SAID.search(folded):
        return True
    plain = default.lower() if isinstance(default, str) else _json(default)
    return bool(plain.strip(" .")) and re.search(rf"(?<!\w){re.escape(plain)}(?!\w)", folded) is not None


def _json(value: Any) -> str:
    import orjson

    return orjson.dumps(value).decode()


def _steps(path: str) -> Path:
    """`$.a[0]["b c"]` as `("a", 0, "b c")`."""
    return tuple(
        int(index) if index else name or re.sub(r"\\(.)", r"\1", key)
        for name, index, key in _STEP.findall(path)
    )


def _bad_regex(pattern: str) -> str | None:
    import re2

    options = re2.Options()
    options.log_errors = False
    try:
        re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0] if error.args else error
        return reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
    return None


def _bad_jsonpath(expression: str) -> str | None:
    import jsonpath

    try:
        jsonpath.JSONPathEnvironment(strict=True).compile(expression)
    except jsonpath.JSONPathError as error:
        return str(error).splitlines()[0]
    return None


def _project_root(path: str) -> str | None:
    """The project a manifest lies in: the folder above `.toolcrib/tools/<name>/tool.yml`."""
    parents = FilePath(path).absolute().parents
    if len(parents) > 3 and parents[1].name == "tools" and parents[2].name in (".toolcrib", ".glee"):
        return os.fspath(parents[3])
    return None


def _too_wide(path: str, root: str | None) -> str | None:
    plain = os.path.normpath(path)
    if plain.strip(os.sep) == "":
        return "the whole file system"
    if plain == os.pardir or plain.startswith(os.pardir + os.sep):
        return "what lies above the project root"
    if plain.startswith(os.sep) and root is not None and root.startswith(plain + os.sep):
        return "a folder above the project root"
    return None


def _dotted(path: Path) -> str:
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).removeprefix(".")
