"""A database-aware tool: it holds a connection, and filters by a variable that no model can choose.

Run it: python examples/database_tool.py
"""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
from pathlib import Path
from typing import Any

from toolcrib import Agent, Project, must_get_variable

USERS = [("u-1", "Ada", "ada@example.com", "tenant-1"), ("u-2", "Ben", "ben@example.com", "tenant-2")]


class UserLookup:
    """Looks up users of the run's tenant."""

    name = "lookup_user"
    description = "Look up user information by ID"
    input_schema: dict[str, Any] = {  # noqa: RUF012 - never changed
        "type": "object",
        "properties": {"user_id": {"type": "string", "description": "The user's ID"}},
        "required": ["user_id"],
    }

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database

    def execute(self, arguments: dict[str, Any]) -> str:
        """Read one row. A database error is tried again, as any other."""
        query = "SELECT name, email FROM users WHERE id = ? AND tenant = ?"
        key = (arguments["user_id"], must_get_variable("tenant_id", str))
        row = self._database.execute(query, key).fetchone()
        return "User not found" if row is None else f"User: {row[0]} <{row[1]}>"


CALLS = {"calls": [{"tool": "lookup_user", "arguments": {"user_id": user}} for user in ("u-1", "u-2")]}
AGENT = Agent("clerk", "scripted", tools=("lookup_user",), script=(CALLS, {"text": "{{result}}"}))


async def main() -> None:
    """Look up two users, as one tenant and as the other."""
    with tempfile.TemporaryDirectory() as folder:
        database = sqlite3.connect(Path(folder, "users.db"), check_same_thread=False)
        database.execute("CREATE TABLE users (id TEXT, name TEXT, email TEXT, tenant TEXT)")
        database.executemany("INSERT INTO users VALUES (?, ?, ?, ?)", USERS)
        Path(folder, ".toolcrib").mkdir()
        async with Project.open(folder, accept="all", data=Path(folder, "data")) as project:
            project.toolset.register(UserLookup(database))
            for tenant in ("tenant-1", "tenant-2"):
                run = await project.runs.run(None, AGENT, "Who are they?", {"tenant_id": tenant})
                print(f"{tenant}: {(run.answer or '').replace(chr(10), ', ')}")
        database.close()


if __name__ == "__main__":
    asyncio.run(main())
