"""The user's own settings, for all projects: one YAML file outside of every project, and the database.

The file is `$TOOLCRIB_CONFIG`, else `$XDG_CONFIG_HOME/toolcrib/config.yml`, else
`~/.config/toolcrib/config.yml` (XDG Base Directory). No project can bring it, and no tool may see it.
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from toolcrib.errors import ConfigError, DeniedError, ManifestError, UsageError
from toolcrib.spec.record import record
from toolcrib.state.private import is_shared
from toolcrib.state.vault import first_place

if TYPE_CHECKING:
    from toolcrib.manifest import Document


IN_FILE = "sqlite"
"""The name of the project's own file."""
_DATABASE_VARIABLE = "DATABASE_URL"
_is_postgres = re.compile(r"postgres(ql)?://[!-~]+\Z").match
_named: str | None = None


def is_database(text: object) -> bool:
    """Return True for `sqlite` and for the address of a Postgres server."""
    return isinstance(text, str) and (text == IN_FILE or _is_postgres(text) is not None)


def require_database(text: object) -> None:
    """Raise UsageError unless the text is `sqlite` or the address of a Postgres server."""
    if not is_database(text):
        raise UsageError(
            "a database is named by `sqlite` or by postgresql://USER:PASSWORD@HOST:PORT/DATABASE",
            hint="The password can also be in PGPASSWORD or in ~/.pgpass.",
        )


def name_database(database: str | None) -> None:
    """Use this database in this process, whatever the environment and the settings say. Raises UsageError.

    It is not put into the environment, where tools and their helpers could read its password.
    """
    global _named
    if database is not None:
        require_database(database)
    _named = database


def named_database() -> str | None:
    """Return what `name_database` was given, else `$DATABASE_URL`; None without any.

    An address of another kind in the environment is for another program.
    """
    variable = os.environ.get(_DATABASE_VARIABLE)
    return _named or (variable if is_database(variable) else None)


_VARIABLE = "TOOLCRIB_CONFIG"
_HOMES = (".toolcrib", ".glee")

Decision = Literal["trust", "approve", "token"]
"""A decision that is a person's: what may run in a project, one call, or who may call."""
DECISIONS: dict[Decision, str] = {"trust": "trust", "approve": "approvals", "token": "tokens"}
"""Each decision, by its subject in messages."""


@record
class Allowed:
    """Decisions that need no terminal in these projects."""

    what: tuple[Decision, ...]
    where: tuple[str, ...]
    """Real paths of projects."""


@record
class UserSettings:
    """The settings of this user. Without a file they are the defaults."""

    decide_without_terminal: tuple[Allowed, ...] = ()
    database: str | None = None
    """The database of all projects: `sqlite`, or the address of a Postgres server."""

    def allows(self, what: Decision, root: Path) -> bool:
        """Return True if this decision needs no terminal in the project with this real path."""
        return any(what in one.what and str(root) in one.where for one in self.decide_without_terminal)


def user_settings_place() -> Path | None:
    """Return the path to hide from tools: the folder of the file, or the file that is named; None without a
    home folder."""
    if named := os.environ.get(_VARIABLE):
        return Path(named).absolute()
    return first_place(("XDG_CONFIG_HOME", "toolcrib"), ("HOME", ".config/toolcrib"))


def user_settings_file() -> Path | None:
    """Return the path of the file, which may not exist; None without a home folder."""
    place = user_settings_place()
    return place if place is None or os.environ.get(_VARIABLE) else place / "config.yml"


def load_user_settings() -> UserSettings:
    """Read the user's settings.

    Raises ConfigError for a wrong key or value with its line, for a file in a project, for one that another
    user could write, and if `$TOOLCRIB_CONFIG` names none.
    """
    path = user_settings_file()
    if path is None or not (os.path.lexists(path) or os.environ.get(_VARIABLE)):
        return UserSettings()
    from toolcrib.manifest import load, read

    try:
        raw = read(str(path))
        _require_private(path)
        return _settings(load(raw, str(path)))
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be read: {error.strerror}", hint=f"Create it, or unset {_VARIABLE}."
        ) from None
    except ManifestError as error:
        raise ConfigError(error.message, hint=error.hint, details=error.details) from None


def _require_private(path: Path) -> None:
    """Refuse a file that a project could bring or another user could write, by its real path."""
    real = path.resolve()
    for folder in real.parents:
        if any((folder / home).is_dir() for home in _HOMES):
            raise ConfigError(
                f"{path} is in the project {folder}, so it is not the user's own",
                hint=f"Move it out of the project, and set {_VARIABLE} to its new path.",
            )
    for part in (real, *real.parents):
        found = part.stat()
        # In a folder of root's with the sticky bit, as /tmp, others can add files but not replace this one.
        if is_shared(found) and not (found.st_uid == 0 and found.st_mode & stat.S_ISVTX):
            raise ConfigError(
                f"other users can write {part}, so {path} is not this user's own",
                hint=f"Make it yours alone: chown {os.geteuid()} {part} && chmod go-w {part}",
            )


def token_refused(what: Decision, command: str) -> DeniedError:
    """Return the error for a token that tries to decide; `command` is that of a person."""
    return DeniedError(f"a token cannot decide about {DECISIONS[what]}", hint=f"A person can: {command}")


def _settings(document: Document) -> UserSettings:
    data: Any = {} if document.data is None else document.data
    if not isinstance(data, dict):
        raise _wrong(document, (), "the file must be a mapping of settings")
    known = ("database", "decide_without_terminal")
    for key in data:
        if key not in known:
            raise _wrong(document, (key,), f"`{key}` is not a setting; known here: {', '.join(known)}")
    database = data.get("database")
    if database is not None and not is_database(database):
        raise _wrong(document, ("database",), "must be `sqlite` or postgresql://USER@HOST:PORT/DATABASE")
    return UserSettings(_allowed(document, data.get("decide_without_terminal", [])), database)


def _allowed(document: Document, entries: Any) -> tuple[Allowed, ...]:
    name = "decide_without_terminal"
    if not isinstance(entries, list):
        raise _wrong(document, (name,), "must be a list of `what` and `where`")
    found = []
    for n, entry in enumerate(entries):
        if not isinstance(entry, dict) or entry.keys() != {"what", "where"}:
            raise _wrong(document, (name, n), "each entry has exactly `what` and `where`")
        what, where = entry["what"], entry["where"]
        if not isinstance(what, list) or not what or any(one not in DECISIONS for one in what):
            raise _wrong(document, (name, n, "what"), f"must be a list of {', '.join(DECISIONS)}")
        if not isinstance(where, list) or not all(isinstance(one, str) and one[:1] == "/" for one in where):
            raise _wrong(document, (name, n, "where"), "must be a list of absolute paths of projects")
        found.append(Allowed(tuple(what), tuple(os.path.normpath(one) for one in where)))
    return tuple(found)


def _wrong(document: Document, at: tuple[str | int, ...], problem: str) -> ConfigError:
    line, column = document.locate(at, key=len(at) == 1)
    name = f"{at[0]}: " if at and not problem.startswith("`") else ""
    return ConfigError(
        f"{document.path}:{line}:{column}: {name}{problem}", hint="See docs/project.md, Your own settings."
    )
