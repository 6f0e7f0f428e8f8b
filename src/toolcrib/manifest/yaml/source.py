"""Read manifests: bytes from disk, YAML to JSON-shaped data, and back.

Only this and `positions` know YAML.

The YAML here is the part of YAML 1.2 that JSON can hold. Refused is what the parser would silently read as
something else (tags, merge keys, keys that are not text, invisible line breaks), and what costs without
bound.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from itertools import islice
from typing import Any

from toolcrib.errors import ManifestError
from toolcrib.manifest.yaml.diagnostics import (
    BREAK,
    Diagnostic,
    failure,
    make,
    quoted,
    source_line,
)
from toolcrib.manifest.yaml.positions import (
    KeyPath,
    Positions,
    Spot,
    expansion_fault,
    first_tag,
)
from toolcrib.spec.naming import json_path, printable
from toolcrib.spec.record import record


@record
class SourceFiles:
    """The folders that files may be read from, and the files and folders in them that are closed.

    A manifest may be a symbolic link, as in a mounted ConfigMap of Kubernetes (`tool.yml` to
    `..data/tool.yml`). But a link to a file of secrets would show its lines in the errors about it. So each
    file is opened first, and then the place that it really has is checked: nothing can be swapped in between.
    """

    folders: tuple[str, ...] = ("/",)
    """Real paths."""
    closed: tuple[str, ...] = ()
    """Absolute paths."""

    def check(self, descriptor: int, path: str) -> None:
        """Refuse the file that was opened by a path, if it may not be read. Raises ManifestError."""
        if self is ANY_FILE:
            return
        # The kernel names the file that is open now. The path could lead to another one by the time it is
        # looked up.
        real = os.readlink(f"/proc/self/fd/{descriptor}")
        place, closed = f"{real}/", self.closed
        # Reached by a link: a closed place may be a link too, so its target is closed as well.
        if real != path:
            closed = (*closed, *map(os.path.realpath, closed))
        why = ""
        if place.startswith(_prefixes(closed)):
            why = "which no tool may read"
        elif not place.startswith(_prefixes(self.folders)):
            why = "outside of the project"
        if why:
            message = f"this leads to {real}, {why}, so it is not read"
            hint = "put the file itself here, or a link to another file of the project"
            raise failure([make(path, (1, 1), "unreadable", message, hint=hint)])


ANY_FILE = SourceFiles()
"""No limits: for a file that its owner names."""


@lru_cache(maxsize=64)
def _prefixes(paths: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f"{path.rstrip('/')}/" for path in paths)


MAX_BYTES = 1 << 20
_USUAL_BYTES = 1 << 16
_MAX_BRACKETS = 10_000

_LONE_CR = r"\r(?!\n)"
_UNSEEN_BREAK = "[\x85\u2028\u2029]"
_CONTROL = "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ufffe\uffff]"
_BRACES = r"\{\{[^{}\n]*\}\}"
_DIRECTIVE = re.compile(r"\A(?:[ \t]*(?:#.*)?\r?\n)*%", re.MULTILINE)
_ANCHOR = r"(?<![^\s\[{,:])&([\w-]+)"
_ALIAS = re.compile(r"(?<![^\s\[{,:])\*([\w-]+)")
_ADDED = re.compile(rf"\\[xuU]|{_ALIAS.pattern}")
"""The ways to put a `!` into the data that is not in the text: an escape, an alias."""
_HEAD = r"(?:[ \t]*(?:#.*)?\r?\n)*(?:---(?!\S))?"
_DOCUMENT = re.compile(r"^(?:---|\.\.\.)(?!\S)", re.MULTILINE)
_NOT_FINITE = re.compile(r"\.(?:nan|inf)", re.IGNORECASE)
_REPORTED_PLACE = r" at line (\d+) column (\d+)"
_UNSEEN = "[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ufffe\uffff\ufeff]"


class Document:
    """One YAML file: its data, its text, and the position of each value; without a text none is known."""

    __slots__ = ("_lines", "_positions", "data", "json", "path", "raw", "text")

    def __init__(self, path: str, raw: bytes, text: str, data: Any) -> None:
        self.path = path
        self.raw = raw
        self.text = text
        self.data = data
        """JSON-shaped: dict with text keys, list, str, int, float, bool, None."""
        self.json = b""
        """The same as JSON, where it was read from YAML."""
        self._lines: list[str] | None = None
        self._positions: Positions | None = None

    def locate(self, path: KeyPath, key: bool = False) -> tuple[int, int]:
        """Return line and column, from 1, of the value at `path` or its key, or the nearest one above."""
        spot, exact = self._spot(path)
        if spot is None:
            return 1, 1
        if spot.key is not None and (key or not exact):
            return spot.key.at
        return spot.start.at

    def locate_text(self, path: KeyPath, literal: str, number: int = 0) -> tuple[int, int]:
        """Return line and column of the occurrence `number` (from 0) of `literal` in the text at `path`."""
        spot, exact = self._spot(path)
        if spot is None or not exact:
            return self.locate(path)
        at = spot.start.index - 1
        for _ in range(number + 1):
            at = self.text.find(literal, at + 1, spot.end)
            if at < 0:
                return spot.start.at
        line_start = max(self.text.rfind("\n", 0, at), self.text.rfind("\r", 0, at)) + 1
        line = spot.start.line + self.text.count("\n", spot.start.index, at)
        return line, at - line_start + 1

    def diagnostic(
        self,
        rule: str,
        message: str,
        path: KeyPath = (),
        *,
        key: bool = False,
        hint: str | None = None,
        at: tuple[int, int] | None = None,
    ) -> Diagnostic:
        """Return a finding at `path`, or at the given line and column."""
        place = self.locate(path, key) if at is None else at
        if self._lines is None:
            self._lines = BREAK.split(self.text)
        source = self._lines[place[0] - 1] if place[0] <= len(self._lines) else ""
        where = json_path(self.source_path(path))
        return make(self.path, place, rule, message, hint=hint, where=where, source=source)

    def source_path(self, path: KeyPath) -> KeyPath:
        """Return the path in the file of the value at `path` of the data."""
        return path

    def value_at(self, path: KeyPath) -> Any:
        """Return the value at `path` as written in the file; None if there is none."""
        return value_at(self.data, path)

    def _spot(self, path: KeyPath) -> tuple[Spot | None, bool]:
        if not self.text:
            return None, False
        if self._positions is None:
            self._positions = Positions(self._as_yaml())
        return self._positions.find(path)

    def _as_yaml(self) -> str:
        """Return the text as YAML, with every value at its place."""
        return self.text


def value_at(data: Any, path: KeyPath) -> Any:
    """Return the value below `data`; None if there is none."""
    for step in path:
        try:
            data = data[step]
        except (KeyError, IndexError, TypeError):
            return None
    return data


def read(path: str, files: SourceFiles = ANY_FILE) -> bytes:
    """Return the bytes of a manifest.

    Raises FileNotFoundError or NotADirectoryError when there is none, ManifestError when it cannot be read,
    is not one of `files`, is not a regular file, or is larger than `MAX_BYTES`. Never waits: a pipe or a
    device is refused.
    """
    return read_with_facts(path, files)[0]


def read_with_facts(path: str, files: SourceFiles) -> tuple[bytes, os.stat_result]:
    """Return the bytes as `read`, and the state of the file just before."""
    try:
        # Without blocking: a named pipe in the place of a manifest would hang the start.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except (FileNotFoundError, NotADirectoryError):
        raise
    except (OSError, ValueError) as error:
        raise failure([_unreadable(path, error)]) from None
    try:
        files.check(descriptor, path)
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode):
            kind = "a folder" if stat.S_ISDIR(facts.st_mode) else "not a regular file"
            raise failure([make(path, (1, 1), "unreadable", f"this is {kind}")])
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            raw = file.read(_USUAL_BYTES)
            # The size does not say if there is more: a file may grow, and those of the kernel have size 0.
            if len(raw) == _USUAL_BYTES:
                raw += file.read(MAX_BYTES + 1 - _USUAL_BYTES)
    except OSError as error:
        raise failure([_unreadable(path, error)]) from None
    finally:
        os.close(descriptor)
    if len(raw) > MAX_BYTES:
        raise failure([make(path, (1, 1), "too-large", "the file is larger than 1 MiB")])
    return raw, facts


def load(raw: bytes, path: str) -> Document:
    """Return the document of a YAML file. Raises ManifestError with one finding if it is not like JSON.

    `path` is only used in findings. The data of an empty file are None. Values are read by the YAML 1.2 core
    schema: `no` and `017` are text, `0o17` is 15.
    """
    import orjson
    from ryaml import loads

    text = decode(raw, path)
    document = Document(path, raw, text, None)
    _refuse_before(document)
    try:
        data = document.data = loads(text)
    except ValueError as error:
        raise failure([_explain(str(error), document)]) from None
    # The parser reads merge keys and `.nan` as something else. The quick looks at the text keep the usual
    # manifest free of the slow checks.
    if "<<" in text or _NOT_FINITE.search(text):
        _refuse_foreign(document)
    try:
        document.json = b"%b" % orjson.dumps(data)  # orjson keeps a buffer of 4 KiB for a short text
    except TypeError:
        _refuse_foreign(document)
        message = "the file contains a value that JSON does not have"
        raise _refuse(document, "yaml-syntax", message, (1, 1)) from None
    if "!" in text:
        _refuse_tags(document)
    return document


def dump(data: Any) -> str:
    """Return JSON-shaped data as YAML without invisible characters; as JSON if YAML cannot do that."""
    return dumped(data, "manifest").text


def dumped(data: Any, path: str, head: str = "") -> Document:
    """Return a new file of these data, as `dump` writes them below the lines of `head`, read back.

    Raises ManifestError if it cannot be read.
    """
    from ryaml import dumps

    body: str = dumps(data)
    if not re.search(_UNSEEN, body):
        with suppress(ManifestError):
            document = load(f"{head}{body}".encode(), path)
            # Compared, because the written text must mean the same data to the next reader.
            if document.data == data:
                return document
    text = json.dumps(data, indent=1, ensure_ascii=False)
    text = re.sub(_UNSEEN, lambda found: f"\\U{ord(found[0]):08x}", text)
    return load(f"{head}{text}\n".encode(), path)


def _unreadable(path: str, error: OSError | ValueError) -> Diagnostic:
    reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
    hint = "make it readable for this user" if isinstance(error, PermissionError) else None
    return make(path, (1, 1), "unreadable", f"the file cannot be read: {reason}", hint=hint)


def decode(raw: bytes, path: str) -> str:
    if len(raw) > MAX_BYTES:
        raise failure([make(path, (1, 1), "too-large", "the file is larger than 1 MiB")])
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        good = raw[: error.start].decode().removeprefix("\ufeff")
        line, column = place_of(good, len(good))
        message = f"byte {error.start} (0x{raw[error.start]:02x}) is not UTF-8"
        utf16 = raw[:2] in (b"\xff\xfe", b"\xfe\xff")
        hint = "the file is UTF-16; save it as UTF-8" if utf16 else "save the file as UTF-8"
        rest = raw[error.start : error.start + 200].decode(errors="replace")
        source = source_line(good, line) + source_line(rest, 1)
        raise failure([make(path, (line, column), "encoding", message, hint=hint, source=source)]) from None
    return text[1:] if text[:1] == "\ufeff" else text


def place_of(text: str, index: int) -> tuple[int, int]:
    """Return line and column of an index, by the line ends that editors know."""
    before = text[:index].replace("\r\n", "\n\n").replace("\r", "\n")
    doubled = text.count("\r\n", 0, index)
    return before.count("\n") + 1 - doubled, index - (before.rfind("\n") + 1) + 1


def _refuse(
    document: Document, rule: str, message: str, at: tuple[int, int], hint: str | None = None
) -> ManifestError:
    return failure([document.diagnostic(rule, message, at=at, hint=hint)])


def _refuse_before(document: Document) -> None:
    """Refuse what must not reach the parser."""
    text = document.text
    if len(text) > _MAX_BRACKETS and text.count("[") + text.count("{") > _MAX_BRACKETS:
        bracket = next(islice(re.finditer(r"[\[{]", text), _MAX_BRACKETS, None))
        message = f"more than {_MAX_BRACKETS:,} `[` and `{{`: nested too deep, or not a manifest"
        raise _refuse(document, "yaml-depth", message, place_of(text, bracket.start()))
    # A comment would end at these breaks: a reviewer sees one comment line, and the parser a key.
    if "\r" in text and (found := re.search(_LONE_CR, text)):
        message = "a carriage return that ends no line; editors do not show the line break that it is"
        raise _refuse(document, "yaml-character", message, place_of(text, found.start()))
    if not text.isascii() and (found := re.search(_UNSEEN_BREAK, text)):
        message = f"U+{ord(found.group()):04X} is a line break to YAML that editors do not show"
        hint = f'write it as "\\u{ord(found.group()):04x}" in double quotes'
        raise _refuse(document, "yaml-character", message, place_of(text, found.start()), hint)
    if "%" in text and (found := _DIRECTIVE.search(text)):
        message = "a `%` directive; manifests are YAML 1.2 without directives"
        at = place_of(text, found.end() - 1)
        raise _refuse(document, "yaml-directive", message, at, "remove the line")
    if "&" in text and "*" in text:
        _refuse_expansion(document)


def _refuse_expansion(document: Document) -> None:
    used = set(_ALIAS.findall(document.text))
    if not used or used.isdisjoint(re.findall(_ANCHOR, document.text)):
        return
    fault = expansion_fault(document.text)
    if fault is not None:
        rule, message, mark = fault
        at = mark.at if mark is not None else (1, 1)
        raise _refuse(document, rule, message, at, "write the value out, or quote it if it is text")


def _refuse_tags(document: Document) -> None:
    """Refuse tags, which the parser silently drops, or makes the key of a mapping."""
    text, data = document.text, document.json
    # The scan is slow, and a `!` that is in the data is no tag, unless it begins a mapping.
    if text.count("!") == data.count(b"!") and b'{"!' not in data and not _ADDED.search(text):
        return
    if (span := first_tag(text)) is not None:
        message = f"{quoted(text[slice(*span)])} is a YAML tag; manifests contain plain values only"
        hint = "remove the tag, or quote the value if it begins with `!`"
        raise _refuse(document, "yaml-tag", message, place_of(text, span[0]), hint)


def _refuse_foreign(document: Document) -> None:
    """Refuse what the parser reads and JSON does not have: other keys, other numbers, and merge keys."""
    for path, node in walk(document.data):
        # Not a number and the infinities are the only floats whose difference to themselves is not 0.
        if isinstance(node, float) and node - node != 0:
            message = f"{node!r} is not a number that JSON has"
            raise failure([document.diagnostic("yaml-number", message, path, hint="quote it if it is text")])
        for key in node if isinstance(node, dict) else ():
            if not isinstance(key, str):
                # The key as it is usually written: positions know nothing else of it.
                written = "null" if key is None else str(key).lower()
                at = document.locate((*path, written), key=True)
                message = f"the key {quoted(key)} is not text"
                raise _refuse(document, "yaml-key", message, at, "quote the key")
            if key == "<<":
                at = document.locate((*path, key), key=True)
                message = "the merge key `<<` is not part of YAML 1.2; it would be an ordinary key"
                raise _refuse(document, "yaml-merge-key", message, at, "write the keys out")


def walk(data: Any, path: KeyPath = ()) -> Iterator[tuple[KeyPath, Any]]:
    """Yield every value with its path, in the order of the document."""
    waiting = [(path, data)]  # No recursion: a schema of a server may be nested deeper than Python's limit.
    while waiting:
        path, node = waiting.pop()
        yield path, node
        inside = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
        waiting += reversed([((*path, step), value) for step, value in inside])


_UNPLACED = (
    # (part of the parser's message, rule, message, hint)
    ("unhashable", "yaml-key", "a key is a list or mapping instead of text", None),
    ("repetition limit", "too-large", "the aliases multiply beyond bounds", "write the values out"),
    ("recursion limit", "yaml-depth", "lists and mappings are nested more than 128 deep", None),
    ("invalid type: integer", "yaml-number", "a whole number beyond 64 bits", "quote it if it is text"),
    ("unknown anchor", "yaml-alias", "the alias refers to nothing: there is no such anchor before it",
     "quote the value if it begins with `*`"),
    ("more than one document", "yaml-documents", "a second YAML document begins here",
     "remove the `---`, or make it a manifest of its own"),
    ("unexpected end of stream", "yaml-syntax", "what begins here is never closed",
     "write the quote or bracket that ends it"),
    ("mapping values are not allowed", "yaml-syntax", "a `:` where no key is allowed",
     "indent as the line above, or put the value in quotes"),
    ("expected node content", "yaml-syntax", "a value is missing here", None),
    ("did not find expected ',' or", "yaml-syntax", "the bracket opened before this is not closed here",
     "put text with brackets or `${…}` inside `[…]` in quotes"),
    ("scanning a tag", "yaml-tag", "a YAML tag; manifests contain plain values only",
     "quote the value if it begins with `!`"),
    ("did not find expected key", "yaml-syntax", "a key is missing here",
     "indent as the lines of the same mapping; put the whole of a value with quotes in it in quotes"),
)  # fmt: skip


def _explain(message: str, document: Document) -> Diagnostic:
    """Explain an error of the parser, with a position that it may not name."""
    # By its code: nobody sees it in the line that is shown.
    if control := re.search(_CONTROL, document.text):
        explanation = f"the control character U+{ord(control.group()):04X} is not allowed in YAML"
        return document.diagnostic("yaml-character", explanation, at=place_of(document.text, control.start()))
    if "unhashable" in message and (braces := re.search(_BRACES, document.text)):
        at = place_of(document.text, braces.start())
        explanation = f"{quoted(braces.group())} is a mapping in a mapping"
        return document.diagnostic("yaml-key", explanation, at=at, hint="put the text with `{{…}}` in quotes")
    if "duplicate entry" in message and (twice := Positions(document.text).twice):
        key, second, first = twice
        explanation = f"the key {quoted(key)} is used twice in one mapping; first in line {first.line}"
        return document.diagnostic(
            "yaml-duplicate-key", explanation, at=second.at, hint="remove one of the two"
        )
    at = _reported_place(message, document)
    if "more than one document" in message:
        head = re.match(_HEAD, document.text)
        if head and (begin := _DOCUMENT.search(document.text, head.end())):
            at = place_of(document.text, begin.start())
    if "cannot start any token" in message:
        return _bad_start(document, at)
    if "tab character" in message:
        return document.diagnostic("yaml-tab", "a tab indents this line", at=at, hint="use spaces")
    for part, rule, explanation, hint in _UNPLACED:
        if part in message:
            return document.diagnostic(rule, explanation, at=at, hint=hint)
    if "duplicate entry" in message:
        return document.diagnostic("yaml-duplicate-key", "a key is used twice in one mapping", at=at)
    problem = re.sub(_REPORTED_PLACE, "", message.partition(", while ")[0])
    return document.diagnostic("yaml-syntax", f"not YAML: {printable(problem)[:200]}", at=at)


def _reported_place(message: str, document: Document) -> tuple[int, int]:
    """Return the parser's position; the start of what is never closed; never beyond the last line."""
    problem, _, context = message.partition(", while ")
    ended = "end of stream" in problem
    for part in (context, problem) if ended else (problem, context):
        explanation = re.search(_REPORTED_PLACE, part)
        if explanation is not None:
            at = int(explanation[1]), int(explanation[2])
            return min(at, place_of(document.text, len(document.text.rstrip())))
    return 1, 1


def _bad_start(document: Document, at: tuple[int, int]) -> Diagnostic:
    line = source_line(document.text, at[0])
    char = line[at[1] - 1 : at[1]]
    if char == "\t":
        return document.diagnostic("yaml-tab", "a tab indents this line", at=at, hint="use spaces")
    return document.diagnostic(
        "yaml-syntax", f"a value cannot begin with {quoted(char)}", at=at, hint="put it in quotes"
    )
