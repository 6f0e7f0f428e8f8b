"""The first manifest of an SQL tool."""

from __future__ import annotations

import re
from typing import Any

from toolcrib.errors import UsageError
from toolcrib.manifest.starter import Answers, Made, placeholders, replaced

_TEXT = re.compile(r"'[^']*'")
_NAME = re.compile(r"[:@$]([A-Za-z_]\w*)")


def make(answers: Answers) -> Made:
    """Return a query of an SQLite file, the first path that it may read."""
    runs = answers.runs
    if not runs:
        raise UsageError("an SQL tool needs a statement", hint="--run 'SELECT * FROM t WHERE id = ${id}'")
    if named := _NAME.search(_TEXT.sub("", runs)):
        raise UsageError(f"`{named[0]}` has no value", hint=f"Write ${{{named[1]}}} in its place.")
    if quoted := placeholders("".join(_TEXT.findall(runs))):
        raise UsageError(f"${{{quoted[0]}}} in quotes is not a value", hint="Remove the quotes around it.")
    used = placeholders(runs)
    read = answers.read or ("data.db",)
    block: dict[str, Any] = {"engine": "sqlite", "database": read[0], "statement": replaced(runs, "?")}
    if values := [f"${{{name}}}" for name in (*used, *(one for one in answers.arguments if one not in used))]:
        block["parameters"] = values
    return Made(block, {"fs": {"read": [*read], "write": [*answers.write]}})
