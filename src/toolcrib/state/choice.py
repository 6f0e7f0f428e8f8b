"""The database that the user names, for one process or for all projects, as no project can."""

from __future__ import annotations

import os
import re

from toolcrib.errors import UsageError

IN_FILE = "sqlite"
"""The name of the project's own file."""
_VARIABLE = "DATABASE_URL"
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
    variable = os.environ.get(_VARIABLE)
    return _named or (variable if is_database(variable) else None)
