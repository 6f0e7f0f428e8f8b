"""A first manifest of a tool, for a person to continue: it has no error and no warning."""

from __future__ import annotations

import keyword
import re
import shlex
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from toolcrib.errors import ConflictError, UsageError
from toolcrib.manifest import FILE_NAME, dump
from toolcrib.project.root import Place, require_inside
from toolcrib.spec.record import record
from toolcrib.state.private import unwritable

KINDS = ("command", "python", "http", "file", "sql", "composite")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PLACEHOLDER = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_SQL_TEXT = re.compile(r"'[^']*'")
_SQL_NAME = re.compile(r"[:@$]([A-Za-z_]\w*)")
_BARE = re.compile(r"(?<!\$)\{+\w*\}+")
_FOR_SHELL = ("|", "||", "&&", ">", ">>", "<", "2>&1")
_TYPES = {
    "string": "str", "integer": "int", "number": "float", "boolean": "bool", "array": "list",
    "object": "dict",
}  # fmt: skip
"""JSON type to that of Python."""
_HEAD = "# yaml-language-server: $schema=../../schemas/tool.schema.json\n"


@record
class Scaffold:
    """The choices of a person who makes a new tool."""

    name: str
    kind: str
    description: str
    runs: str
    """A command line, a URL, a folder, an SQL statement or another tool, by the kind; unused for python."""
    arguments: Mapping[str, str]
    """Name to JSON type. Placeholders in `runs` that are missing here are texts."""
    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    database: str = "data.db"

    def manifest(self) -> dict[str, Any]:
        """Return the manifest. Raises UsageError for a text that its kind cannot use."""
        arguments = dict.fromkeys(_PLACEHOLDER.findall(self.runs), "string") | dict(self.arguments)
        if self.kind == "file":
            arguments = {"path": "string"}
        for name, of in arguments.items():
            check_argument(name, of)
        block, permissions = getattr(self, f"_{self.kind}")(arguments)
        schema: dict[str, Any] = {"type": "object", "additionalProperties": False}
        if arguments:
            schema["required"] = list(arguments)
        schema["properties"] = {
            name: {"type": of, "description": self._about(name)} for name, of in arguments.items()
        }
        manifest = {
            "name": self.name,
            "description": self.description,
            "kind": self.kind,
            "version": 1,
            "inputs": {"schema": schema},
            "outputs": {"format": "text" if self.kind in ("command", "file", "http") else "json"},
            "exec": {self.kind: block},
        }
        if self.kind != "composite":  # It has the permissions of its steps' tools.
            own = {"network": False, "fs": {"read": [*self.read], "write": [*self.write]}}
            manifest["permissions"] = own | permissions
        return manifest

    def example(self) -> str:
        """Return the arguments of a first call, with `…` for each value."""
        if self.kind == "file":
            return f"path={self._folders()[0]}/…".replace("=./", "=")
        return " ".join(f"{one}=…" for one in self.manifest()["inputs"]["schema"]["properties"])

    def code(self) -> dict[str, str]:
        """Return the files beside the manifest by name."""
        if self.kind != "python":
            return {}
        parameters = ", ".join(f"{name}: {_TYPES[of]}" for name, of in self.arguments.items())
        shown = "".join(f'"{name}": {name}, ' for name in self.arguments).removesuffix(", ")
        about = self.description.replace("\\", r"\\").replace('"', r"\"")
        return {
            f"{self._module}.py": f'"""{about}."""\n\n\ndef run({parameters}) -> dict:\n'
            f'    """Return what the tool answers, as JSON."""\n    return {{{shown}}}\n'
        }

    @property
    def _module(self) -> str:
        return f"{self.name}_tool" if self.name in sys.stdlib_module_names else self.name

    def _command(self, arguments: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, Any]]:
        try:
            words = shlex.split(self.runs)
            quoted = shlex.split(self.runs, posix=False)
        except ValueError as error:
            raise UsageError(f"the command line cannot be read: {error}") from None
        if not words:
            raise UsageError("a command needs the command line that it runs", hint="--run 'wc -l ${path}'")
        if for_shell := next((word for word in quoted if word in _FOR_SHELL), None):
            raise UsageError(
                f"`{for_shell}` is for a shell, and a command runs without one",
                hint="Write the line into a script, and its path here; or put `sh -c '…'` around it.",
            )
        used = set(_PLACEHOLDER.findall(self.runs))
        words += [f"${{{name}}}" for name in arguments if name not in used]
        return {"entrypoint": words[0], "args": words[1:], "stdout": {"format": "text"}}, {}

    def _python(self, arguments: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, Any]]:
        if self.runs:
            raise UsageError("a Python tool runs a file of its own", hint="Leave out --run.")
        if word := next(filter(keyword.iskeyword, arguments), None):
            raise UsageError(f"`{word}` is a keyword of Python", hint="Give the argument another name.")
        args = [f"${{{name}}}" for name in arguments]
        return {"module": self._module, "function": "run", "args": args, "return": "json"}, {}

    def _about(self, argument: str) -> str:
        if self.kind == "file":
            return f"The file, from the project root; it is below {' or '.join(self._folders())}"
        return f"The {argument.replace('_', ' ')}"

    def _folders(self) -> list[str]:
        return [*self.read] or [self.runs or "."]

    def _http(self, arguments: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, Any]]:
        try:
            host = urlsplit(self.runs).hostname
        except ValueError:  # such as an unclosed bracket
            host = None
        if not self.runs.startswith(("https://", "http://")) or not host or "$" in host:
            hint = "--run 'https://api.example.com/v1/${id}'"
            raise UsageError("an HTTP tool needs a URL that begins with https:// and a host", hint=hint)
        if bare := _BARE.search(self.runs):
            hint = f"Write ${{{bare[0].strip('{}')}}}"
            raise UsageError(f"`{bare[0]}` is not a placeholder", hint=hint)
        url, _, query = self.runs.partition("?")
        pairs = dict(pair.partition("=")[::2] for pair in query.split("&") if pair)
        pairs |= {name: f"${{{name}}}" for name in arguments if f"${{{name}}}" not in self.runs}
        block = {"method": "GET", "url": url, **({"query": pairs} if pairs else {})}
        return block, {"network": {"allow": [host]}}

    def _file(self, _arguments: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, Any]]:
        return {"action": "read", "path": "${path}"}, {"fs": {"read": self._folders(), "write": []}}

    def _sql(self, arguments: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, Any]]:
        if not self.runs:
            raise UsageError("an SQL tool needs a statement", hint="--run 'SELECT * FROM t WHERE id = ${id}'")
        if named := _SQL_NAME.search(_SQL_TEXT.sub("", self.runs)):
            raise UsageError(f"`{named[0]}` has no value", hint=f"Write ${{{named[1]}}} in its place.")
        if quoted := _PLACEHOLDER.search("".join(_SQL_TEXT.findall(self.runs))):
            raise UsageError(f"{quoted[0]} in quotes is not a value", hint="Remove the quotes around it.")
        values = [f"${{{name}}}" for name in _PLACEHOLDER.findall(self.runs)]
        values += [f"${{{name}}}" for name in arguments if f"${{{name}}}" not in values]
        statement = _PLACEHOLDER.sub("?", self.runs)
        block = {"engine": "sqlite", "database": self.database, "statement": statement}
        if values:
            block["parameters"] = values  # type: ignore[assignment]
        return block, {"fs": {"read": [*self.read, self.database], "write": [*self.write]}}

    def _composite(self, arguments: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, Any]]:
        if not self.runs:
            raise UsageError("a composite tool needs a tool for its first step", hint="--run TOOL")
        args = {name: f"${{{name}}}" for name in arguments}
        steps = [{"id": "first", "tool": self.runs, "args": args}]
        return {"steps": steps, "output": "${steps.first.value}"}, {}


def check_argument(name: str, of: str) -> None:
    """Raise UsageError for what is not a name of an argument, or no JSON type."""
    if not _NAME.fullmatch(name) or of not in _TYPES:
        raise UsageError(
            f"{name}:{of} is not an argument", hint=f"Write NAME or NAME:TYPE; types: {', '.join(_TYPES)}"
        )


def require_free(place: Place, name: str, files: Iterable[str] = (FILE_NAME,)) -> None:
    """Raise ConflictError if one of these files of a tool is there already."""
    if taken := [str(path) for file in files if (path := place.tools / name / file).exists()]:
        raise ConflictError(f"these files exist already: {', '.join(taken)}", hint="Give another name.")


def write(place: Place, tool: Scaffold) -> list[Path]:
    """Write the manifest and its code; return their paths. Raises ConflictError if one is there already."""
    made = {FILE_NAME: _HEAD + dump(tool.manifest()), **tool.code()}
    files = {place.tools / tool.name / name: text for name, text in made.items()}
    require_free(place, tool.name, made)
    require_inside(place.root, place.tools / tool.name)
    for path, text in files.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("x", encoding="utf-8") as file:
                file.write(text)
        except OSError as error:
            raise unwritable(path, error) from None
    return list(files)
