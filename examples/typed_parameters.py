"""Parameters with structure: dataclasses, constraints in `Annotated`, lists, enums, dates.

Run it: python examples/typed_parameters.py
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import date
from enum import Enum
from typing import Annotated

from pydantic import Field

from toolcrib import Toolset


class Priority(Enum):
    """The urgency of a reminder."""

    LOW = "low"
    HIGH = "high"


@dataclass
class Person:
    """Who does it."""

    name: str
    email: str | None = None


@dataclass
class Task:
    """A task to be created."""

    title: Annotated[str, Field(min_length=3, max_length=100), "Task title"]
    due: date
    priority: Priority = Priority.LOW
    tags: Annotated[list[str], Field(max_length=5)] = field(default_factory=list)
    assignee: Person | None = None


tools = Toolset()


@tools.tool
def create_task(task: Task) -> str:
    """Create a task. A single structured parameter is the arguments object itself."""
    who = task.assignee.name if task.assignee else "nobody"
    return f"{task.title!r} by {who} until {task.due:%d.%m.%Y}, {task.priority.name}, tags {task.tags}"


def main() -> None:
    """Show the schema, then a good call and a bad one."""
    schema = tools.get("create_task").input_schema
    print("properties:", ", ".join(schema["properties"]))
    print("title:", json.dumps(schema["properties"]["title"]))

    good = {"title": "Oil the lathe", "due": "2026-03-01", "priority": "high", "assignee": {"name": "Ada"}}
    print(tools.call_sync("create_task", good).unwrap())

    bad = {"title": "No", "due": "2026-03-01", "priority": "urgent", "assignee": {"nam": "Ada"}}
    result = tools.call_sync("create_task", bad)
    assert result.error is not None
    for violation in result.error.violations:
        print(f"  {violation.path} {violation.message}")


if __name__ == "__main__":
    main()
