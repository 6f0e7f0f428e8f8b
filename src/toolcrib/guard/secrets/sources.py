"""The secrets that a tool gets: what it declares, from the environment, files and other sources.

A source returns the value, or None if it has none of that name. A source that cannot be read raises
SecretMissing with the reason, and nothing runs: the source after it could have another value.
"""

from __future__ import annotations

import os
import re
import shlex
import stat
from collections.abc import Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Literal, NamedTuple

from toolcrib.errors import SecretMissing
from toolcrib.sandbox.files.beneath import open_beneath
from toolcrib.spec import Permissions, SecretSource
from toolcrib.state import Vault
from toolcrib.state.private import read_private, write_private

MAX_VALUE = 65_536
"""Bytes of one secret."""


class EnvironmentSecrets:
    """A secret source over environment variables: those of this process, or a given mapping."""

    label = "env"

    def __init__(self, values: Mapping[str, str] | None = None) -> None:
        self._values = os.environ if values is None else values

    def get(self, name: str) -> str | None:
        """Return the variable's value, or None if it is not set or empty."""
        return self._values.get(name) or None

    def names(self) -> Collection[str]:
        """Return the names of all variables."""
        return self._values.keys()


class ChainedSecrets:
    """Several sources: the first that has a value provides it."""

    def __init__(self, sources: Sequence[SecretSource]) -> None:
        self.sources = tuple(sources)

    def get(self, name: str) -> str | None:
        """Return the value; SecretMissing if a source that comes first cannot be read."""
        for source in self.sources:
            if value := source.get(name):
                return value
        return None


class UnreadableError(Exception):
    """A source cannot be read: the reason, and what to do."""

    def __init__(self, reason: str, hint: str) -> None:
        super().__init__(reason)
        self.reason, self.hint = reason, hint


class LabelledSource:
    """A source with a label for people. It reports what it cannot read as SecretMissing."""

    access_hint = "Make it readable for this user."
    """The advice for an OSError."""

    def __init__(self, label: str) -> None:
        self.label = label

    def find(self, name: str) -> str | None:
        """Return the value, None if there is none of that name. Raises OSError or UnreadableError."""
        raise NotImplementedError

    def names(self) -> Collection[str] | None:
        """Return the names of all that it has; None if it must be asked for each. Raises as `find`."""
        return None

    def get(self, name: str) -> str | None:
        """Return the value, or None if there is none of that name; SecretMissing if it cannot be read."""
        try:
            return self.find(name)
        except UnreadableError as error:
            reason, hint = error.reason, error.hint
        except OSError as error:
            reason, hint = error.strerror or str(error), self.access_hint
        raise SecretMissing(
            f"Secret {name} cannot be read from {self.label}: {reason}.",
            hint=hint,
            details={"unreadable": [name], "source": self.label, "reason": reason},
        )


def among(source: SecretSource, names: AbstractSet[str]) -> AbstractSet[str]:
    """Return those of these names that a source may have a value of, without asking it for each."""
    if isinstance(source, ChainedSecrets):
        return {name for one in source.sources for name in among(one, names)}
    if not isinstance(source, EnvironmentSecrets | LabelledSource):
        return names
    try:
        known = source.names()
    except (OSError, UnreadableError):  # Reported where a value is needed.
        return names
    return names if known is None else names & set(known)


def require_length(data: bytes) -> None:
    """Raise UnreadableError for a value that is too long."""
    if len(data) > MAX_VALUE:
        hint = "A secret is a token or a key, not a file."
        raise UnreadableError(f"it is longer than {MAX_VALUE:,} bytes", hint)


def value_of(data: bytes) -> str | None:
    """Return a stored value as text without its last newline, or None if it is empty. UnreadableError."""
    require_length(data)
    if b"\0" in data:
        raise UnreadableError("it contains a NUL byte", "Store it as text, for example in base64.")
    return os.fsdecode(data).removesuffix("\n").removesuffix("\r") or None


_SHORT = 8


class SecretStatus(NamedTuple):
    """The state of a secret, without its value."""

    state: Literal["resolved", "missing", "unreadable"]
    source: str = ""
    """The source that has it, or that cannot be read."""
    reason: str = ""
    hint: str | None = None
    short: bool = False
    """True if the value has fewer than 8 characters: it can be guessed, also through masking."""


def look_up(source: SecretSource, name: str) -> SecretStatus:
    """Look for a secret without revealing its value; never raises."""
    for one in source.sources if isinstance(source, ChainedSecrets) else (source,):
        label = getattr(one, "label", type(one).__name__)
        try:
            if value := one.get(name):
                return SecretStatus("resolved", label, short=len(value) < _SHORT)
        except SecretMissing as error:
            reason = str(error.details.get("reason", error.message))
            return SecretStatus("unreadable", label, reason, error.hint)
    return SecretStatus("missing")


def resolve(permissions: Permissions, source: SecretSource) -> dict[str, str]:
    """Return the declared secrets that have a value, by name.

    Raises SecretMissing with the name of every required secret without a value: then nothing may run.
    """
    found: dict[str, str] = {}
    missing: list[str] = []
    for secret in permissions.secrets:
        value = source.get(secret.name)
        if value:
            found[secret.name] = value
        elif secret.required:
            missing.append(secret.name)
    if missing:
        many = len(missing) > 1
        what = "Secrets {} are not set." if many else "Secret {} is not set."
        sets = " && ".join(f"toolcrib secrets set {shlex.quote(name)}" for name in missing)
        exports = " ".join(f"export {shlex.quote(name)}=…" for name in missing)
        raise SecretMissing(
            what.format(", ".join(missing)),
            hint=f"Set {'them' if many else 'it'}: {sets}; or in Toolcrib's environment, and start it again:"
            f" {exports} (`toolcrib secrets check` shows which secrets are set)",
            details={"missing": missing},
        )
    return found


_FILE = "secrets.json"
_MAX_FILE = 1024 * 1024
"""Bytes of a `.env` file."""

is_secret_name = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*").fullmatch
"""Match names that are safe as a file name and as an argument."""


class EnvFileSecrets(LabelledSource):
    """A `.env` file as `parse_env_file` reads it, read again when it has changed. A missing file is empty."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"env_file {path}")
        self.path = path
        self._seen: tuple[int, ...] | None = None
        self._values: dict[str, str] = {}

    def find(self, name: str) -> str | None:
        """Return the variable's value."""
        return self._current().get(name) or None

    def names(self) -> Collection[str]:
        """Return the names of all variables."""
        return self._current().keys()

    def _current(self) -> dict[str, str]:
        try:
            # O_NONBLOCK: to open a FIFO in its place must not wait for a writer.
            fd = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            return {}
        try:
            found = os.fstat(fd)
            seen = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
            if seen != self._seen:
                self._values = _parse(_read_file(fd, _MAX_FILE))
                self._seen = seen
        finally:
            os.close(fd)
        return self._values


class FolderSecrets(LabelledSource):
    """A mounted folder with one file for each secret, whose last newline is dropped.

    Links inside the folder are followed, as Kubernetes creates them (`TOKEN -> ..data/TOKEN`), none out of
    it.
    """

    access_hint = "Mount the folder with readable files, or remove it from secrets.sources."

    def __init__(self, path: Path) -> None:
        super().__init__(f"folder {path}")
        self.path = path

    def find(self, name: str) -> str | None:
        """Return the content of the file of that name."""
        if is_secret_name(name) is None:
            return None
        folder = os.open(self.path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fd = open_beneath(folder, name, os.O_RDONLY | os.O_NONBLOCK)
        except FileNotFoundError:
            return None
        finally:
            os.close(folder)
        try:
            data = _read_file(fd, MAX_VALUE)
        finally:
            os.close(fd)
        if data is None:
            raise UnreadableError("it is not a file", "One file contains one secret.")
        return value_of(data)


class UserSecrets(LabelledSource):
    """The secrets that this user has set for one project, in a file of the user's data folder."""

    access_hint = "Set the secret again: toolcrib secrets set NAME"

    def __init__(self, vault: Vault) -> None:
        super().__init__("your own file")
        self._vault = vault
        self._path = os.fspath(vault.path / _FILE)

    def find(self, name: str) -> str | None:
        """Return the value that was set last."""
        return self._values().get(name)

    def names(self) -> Collection[str]:
        """Return the names of all that are set."""
        return self._values().keys()

    def store(self, name: str, value: str | None) -> None:
        """Keep a value; None removes it. Raises UnreadableError and StateUnavailable."""
        require_length((value or "").encode())
        values = {**self._values(), name: value}
        kept = {one: text for one, text in values.items() if text is not None}
        write_private(self._vault.folder / _FILE, kept)

    def _values(self) -> dict[str, str]:
        if not os.path.lexists(self._path):
            return {}
        values = read_private(self._vault.folder / _FILE)
        if not isinstance(values, dict):
            raise UnreadableError(f"{self._path} is damaged", "Remove the file.")
        return values


def _parse(data: bytes | None) -> dict[str, str]:
    if data is None or len(data) > _MAX_FILE:
        raise UnreadableError(f"it is not a file of at most {_MAX_FILE:,} bytes", "Name a `.env` file.")
    try:
        return parse_env_file(data.decode())
    except UnicodeDecodeError:
        raise UnreadableError("it is not UTF-8", "Save it as UTF-8.") from None
    except ValueError as error:
        raise UnreadableError(str(error), "Correct the line; quotes around the value may help.") from None


def _read_file(fd: int, most: int) -> bytes | None:
    """Return a file's content, at most one byte too many; None if it is not a regular file."""
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        return None
    data = b""
    while len(data) <= most and (more := os.read(fd, most + 1 - len(data))):
        data += more
    return data


_assignment = re.compile(r"[ \t]*(?:export[ \t]+)?([A-Za-z_][A-Za-z0-9_]*)[ \t]*=[ \t]*").match
_single = re.compile(r"'([^']*)'").match
_double = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL).match
_rest = re.compile(r"[ \t]*(?:#[^\n]*)?(?:\n|\Z)").match
_plain = re.compile(r"([^\n]*?)[ \t]*(?:(?<=[ \t])#[^\n]*)?(?:\n|\Z)").match
_escape = re.compile(r"\\(.)", re.DOTALL)
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", '"': '"', "\\": "\\", "$": "$"}


def parse_env_file(text: str) -> dict[str, str]:
    """Return the variables of a `.env` file. ValueError names the line, never its content.

    Lines that other readers understand differently are refused.

        # A comment. Blank lines are ignored.
        export TOKEN=plain words up to a comment  # this one
        SINGLE='exactly ${this} \\n, and more lines'
        DOUBLE="escapes: \\n \\r \\t \\" \\\\ \\$"

    `${NAME}` and `$NAME` are never expanded, whatever the quotes.
    """
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    if "\0" in text:
        raise ValueError(f"line {text.count(chr(10), 0, text.index(chr(0))) + 1} contains a NUL character")
    found: dict[str, str] = {}
    position = 0
    while position < len(text):
        line = text.count("\n", 0, position) + 1
        blank = _rest(text, position)
        if blank is not None and blank.end() > position:
            position = blank.end()
            continue
        begin = _assignment(text, position)
        if begin is None:
            raise ValueError(f"line {line} is not NAME=value")
        name = begin[1]
        if name in found:
            raise ValueError(f"line {line} sets {name} a second time")
        found[name], position = _value(text, begin.end(), line)
    return found


def _value(text: str, position: int, line: int) -> tuple[str, int]:
    quote = text[position : position + 1]
    if quote not in ("'", '"'):
        plain = _plain(text, position)
        assert plain is not None
        return plain[1], plain.end()
    match = (_single if quote == "'" else _double)(text, position)
    if match is None:
        raise ValueError(f"line {line} has an unclosed quote")
    end = _rest(text, match.end())
    if end is None:
        raise ValueError(f"line {line} continues after the closing quote")
    if quote == "'":
        return match[1], end.end()
    unknown = next((e[1] for e in _escape.finditer(match[1]) if e[1] not in _ESCAPES), None)
    if unknown is not None:
        raise ValueError(f"line {line} has an unknown escape; write a backslash as \\\\")
    return _escape.sub(lambda e: _ESCAPES[e[1]], match[1]), end.end()
