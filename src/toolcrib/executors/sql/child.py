"""Runs inside the sandbox: one SQL statement on one SQLite file, answered on descriptor 3.

Standard library only. Standard input is the job as JSON: database (a path), writable, statement, parameters.
"""

import base64
import json
import os
import sqlite3
import sys
from urllib.parse import quote

DENIED = (sqlite3.SQLITE_ATTACH, sqlite3.SQLITE_DETACH)


def value_of(cell: object) -> object:
    """Return a cell as JSON: bytes become base64 text."""
    return base64.b64encode(cell).decode() if isinstance(cell, bytes) else cell


def bound(value: object) -> object:
    """Return an argument for SQLite: lists and objects become JSON text, for `json_each`."""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, (dict, list)) else value


def query(job: dict) -> object:  # type: ignore[type-arg]  # runs on any Python 3
    """Open, run, read all rows, commit."""
    mode = "rw" if job["writable"] else "ro"
    database = sqlite3.connect("file:" + quote(job["database"]) + "?mode=" + mode, uri=True, timeout=5)
    try:
        if not job["writable"]:
            database.execute("PRAGMA query_only = ON")
        # A statement can neither open a second file nor make this one writable again.
        allowed = {sqlite3.SQLITE_PRAGMA} if not job["writable"] else set()
        # `mode=ro` holds for this file only, and PRAGMA could switch `query_only` off again.
        database.set_authorizer(
            lambda action, *_: (
                sqlite3.SQLITE_DENY if action in DENIED or action in allowed else sqlite3.SQLITE_OK
            )
        )
        cursor = database.execute(job["statement"], [bound(value) for value in job["parameters"]])
        names = [column[0] for column in cursor.description or ()]
        if len(set(names)) != len(names):
            twice = sorted({name for name in names if names.count(name) > 1})
            raise ValueError("the columns " + ", ".join(twice) + " appear twice: rename them with AS")
        rows = [dict(zip(names, map(value_of, row))) for row in cursor]  # noqa: B905 - runs on any Python 3
        database.commit()
        return rows if names else {"changed": max(cursor.rowcount, 0)}
    finally:
        database.close()


def answer() -> bytes:
    """Return the rows as JSON, or the error with its name."""
    try:
        done = {"value": query(json.loads(sys.stdin.buffer.read()))}
        return json.dumps(done, allow_nan=False, ensure_ascii=False).encode()
    except Exception as error:
        message = str(error)
        if "readonly database" in message:
            message += " (to write, name its folder under permissions.fs.write in the manifest)"
        failed = {"error": type(error).__name__, "message": message, "signal": None, "delay": 0}
        return json.dumps(failed, ensure_ascii=False).encode(errors="replace")


if __name__ == "__main__":
    written = answer()
    with os.fdopen(3, "wb") as answers:
        answers.write(written)
