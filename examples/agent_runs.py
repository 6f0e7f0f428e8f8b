"""Agents: tools in a run, side by side, with retries, error types, variables, three levels and a database.

The model is scripted, so no key is needed. Run it: python examples/agent_runs.py
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import tempfile
from pathlib import Path
from typing import Any, Literal

from toolcrib import (
    Agent,
    Project,
    RetryableError,
    ToolCancel,
    ToolDiscard,
    ToolSnooze,
    get_run_context,
    must_get_variable,
)
from toolcrib.runs.sessions import Run

tried: dict[str, int] = {}


class UserLookup:
    """A tool with state: it holds a connection to a database."""

    name = "lookup_user"
    description = "Look up a user by id"
    input_schema = {  # noqa: RUF012 - read only
        "type": "object",
        "properties": {"user_id": {"type": "string"}},
        "required": ["user_id"],
    }

    def __init__(self, path: str) -> None:
        self._database = sqlite3.connect(path, check_same_thread=False)
        self._database.execute("CREATE TABLE users (id TEXT, name TEXT, tenant TEXT)")
        self._database.execute("INSERT INTO users VALUES ('u-1', 'Ada', 'tenant-1')")

    def execute(self, arguments: dict[str, Any]) -> str:
        """Read one row; the tenant is a variable of the run, which no model can choose."""
        query = "SELECT name FROM users WHERE id = ? AND tenant = ?"
        values = (arguments["user_id"], must_get_variable("tenant_id", str))
        row = self._database.execute(query, values).fetchone()
        return "User not found" if row is None else f"User: {row[0]}"


def attempts(name: str) -> int:
    """Count the attempts of a tool."""
    tried[name] = tried.get(name, 0) + 1
    return tried[name]


def register(project: Project, folder: str) -> None:
    """Add the tools."""
    tool = project.toolset.tool
    project.toolset.register(UserLookup(f"{folder}/users.db"))

    @tool
    def get_time(timezone: str) -> str:
        """Return the time in a timezone."""
        return f"noon in {timezone}"

    @tool
    def create_task(title: str, priority: Literal["low", "high"]) -> str:
        """Create a task."""
        return f"{title}: {priority}"

    @tool
    def flaky() -> str:
        """Fail once; a run tries a function twice."""
        if attempts("flaky") == 1:
            raise ConnectionError("the line was cut")
        return "got through"

    @tool
    def limited() -> str:
        """Ask to be tried later; that uses up no attempt."""
        if attempts("limited") <= 3:
            raise ToolSnooze(0.01, "rate limit")
        return "in the end"

    @tool
    def transient() -> str:
        """Fail for a moment."""
        if attempts("transient") == 1:
            raise RetryableError("busy")
        return "free again"

    @tool
    def locked() -> str:
        """Give up: trying again will not help."""
        raise ToolCancel("authentication failed")

    @tool
    def picky() -> str:
        """Refuse input that no schema can rule out."""
        raise ToolDiscard("there is no such user")

    @tool
    def story() -> str:
        """Return what the run is about."""
        run = get_run_context()
        assert run is not None
        return f"{run.variables['story_id']} in {must_get_variable('tenant_id', str)}"


def agent(name: str, *calls: tuple[str, dict[str, Any]], agents: tuple[str, ...] = ()) -> Agent:
    """Return an agent that makes these calls at once, and answers with their results."""
    asked = [{"tool": tool, "arguments": arguments} for tool, arguments in calls]
    tools = tuple(dict.fromkeys(tool for tool, _ in calls if tool not in agents))
    script = ({"calls": asked}, {"text": "{{results}}"})
    return Agent(name, "scripted", tools=tools, agents=agents, script=script)


async def show(project: Project, title: str, member: Agent) -> Run:
    """Run an agent and print its answer."""
    variables = {"tenant_id": "tenant-1", "story_id": "story-7"}
    run = await project.runs.run(None, member, "Go on.", variables)
    print(f"{title}: {' | '.join((run.answer or '').splitlines())}")
    return run


async def main() -> None:
    """Run one agent for each feature."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / ".toolcrib").mkdir()
        async with Project.open(folder, accept="all", data=Path(folder, "data")) as project:
            register(project, folder)
            await show(project, "func tool", agent("a", ("get_time", {"timezone": "UTC"})))
            await show(
                project, "struct tool with a database", agent("b", ("lookup_user", {"user_id": "u-1"}))
            )
            await show(project, "schema", agent("c", ("create_task", {"title": "x", "priority": "urgent"})))
            side = [("get_time", {"timezone": zone}) for zone in ("Oslo", "Rome", "Lima")]
            await show(project, "side by side", agent("d", *side))
            names = ("flaky", "limited", "transient", "locked", "picky")
            empty: dict[str, Any] = {}
            await show(project, "errors", agent("e", *[(name, empty) for name in names]))
            project.agents.add(agent("writer", ("story", {})))
            project.agents.add(agent("editor", ("writer", {"prompt": "Write."}), agents=("writer",)))
            boss = agent("boss", ("editor", {"prompt": "Edit."}), agents=("editor",))
            run = await show(project, "three levels", boss)
            tree = project.runs.tree(run.id)
            print("tree:", json.dumps([(one.agent, one.depth, one.state) for one in tree]))


if __name__ == "__main__":
    asyncio.run(main())
