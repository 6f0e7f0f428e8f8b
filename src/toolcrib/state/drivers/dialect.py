"""The SQL that SQLite and Postgres share, and its form for Postgres. Nothing else knows of a difference.

Shared are: `SELECT`, `INSERT`, `UPDATE`, `DELETE`, `RETURNING`, `ON CONFLICT`, `CAST` and partial indexes.
Columns have the types TEXT, INTEGER, REAL and BLOB. `?` is never in a literal. A sum of integers is
`CAST(SUM(…) AS BIGINT)`, since Postgres makes it numeric.
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import count

POSTGRES_NOW = "CAST(EXTRACT(EPOCH FROM clock_timestamp()) AS DOUBLE PRECISION)"
"""The time on the server, in seconds since the epoch."""

_TYPES = {"TEXT": 'TEXT COLLATE "C"', "INTEGER": "BIGINT", "REAL": "DOUBLE PRECISION", "BLOB": "BYTEA"}
"""SQLite sorts texts by their bytes and has integers of 64 bits."""
_TYPE = re.compile(rf"\b({'|'.join(_TYPES)})\b")


def statements(script: str) -> list[str]:
    """Split a script at each `;` that ends a line."""
    return [one for one in script.split(";\n") if one.strip()]


@lru_cache(maxsize=1024)
def postgres_statement(sql: str) -> str:
    """Return a statement of the shared SQL for Postgres."""
    if sql.lstrip().startswith(("CREATE TABLE", "ALTER TABLE")):
        return _TYPE.sub(lambda found: _TYPES[found[0]], sql)
    numbers = count(1)
    return re.sub(r"\?", lambda _: f"${next(numbers)}", sql)
