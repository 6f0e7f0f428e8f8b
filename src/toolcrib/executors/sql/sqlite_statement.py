"""Runs inside the sandbox, called by the child of Python tools: one SQL statement on one SQLite file.

Standard library only.
"""

import base64
import json
import sqlite3
from urllib.parse import quote


def run_statement(database: str, writable: bool, statement: str, parameters: list) -> object:  # type: ignore[type-arg]
    """Open the file, run the statement, read all rows, commit."""
    connection = sqlite3.connect(
        f"file:{quote(database)}?mode={'rw' if writable else 'ro'}", uri=True, timeout=5
    )
    denied = {sqlite3.SQLITE_ATTACH, sqlite3.SQLITE_DETACH}
    try:
        if not writable:
            connection.execute("PRAGMA query_only = ON")
            # `mode=ro` holds for this file only, and PRAGMA could switch `query_only` off again.
            denied.add(sqlite3.SQLITE_PRAGMA)
        # A statement can neither open a second file nor make this one writable again.
        connection.set_authorizer(
            lambda action, *_: sqlite3.SQLITE_DENY if action in denied else sqlite3.SQLITE_OK
        )
        cursor = connection.execute(statement, [bound(value) for value in parameters])
        names = [column[0] for column in cursor.description or ()]
        if len(set(names)) != len(names):
            twice = sorted({name for name in names if names.count(name) > 1})
            raise ValueError(f"the columns {', '.join(twice)} appear twice: rename them with AS")
        rows = [dict(zip(names, map(value_of, row))) for row in cursor]  # noqa: B905 - runs on any Python 3
        connection.commit()
        return rows if names else {"changed": max(cursor.rowcount, 0)}
    except sqlite3.OperationalError as error:
        if "readonly database" not in str(error):
            raise
        where = "to write, name its folder under permissions.fs.write in the manifest"
        raise sqlite3.OperationalError(f"{error} ({where})") from None
    finally:
        connection.close()


def value_of(cell: object) -> object:
    """Return a cell as JSON: bytes become base64 text."""
    return base64.b64encode(cell).decode() if isinstance(cell, bytes) else cell


def bound(value: object) -> object:
    """Return an argument for SQLite: lists and objects become JSON text, for `json_each`."""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, (dict, list)) else value
