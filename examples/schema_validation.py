"""A schema with every kind of constraint. A call that breaks it runs nothing; the model reads why.

Run it: python examples/schema_validation.py
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any

from toolcrib import Agent, Project

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "title": {"type": "string", "description": "Task title", "minLength": 3, "maxLength": 20},
        "key": {"type": "string", "description": "Like AB-12", "pattern": "^[A-Z]+-[0-9]+$"},
        "priority": {"type": "string", "enum": ["low", "medium", "high"], "default": "medium"},
        "score": {"type": "number", "description": "Confidence", "minimum": 0, "maximum": 100},
        "tags": {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 5},
        "assignee": {
            "type": "object",
            "properties": {"name": {"type": "string"}, "email": {"type": "string"}},
            "required": ["name"],
        },
    },
    "required": ["title", "key"],
    "additionalProperties": False,
}
FITS = {"title": "Oil the lathe", "key": "SHOP-7", "assignee": {"name": "Ada"}}
BREAKS: list[dict[str, Any]] = [
    {"title": "No", "key": "shop 7", "priority": "urgent", "score": -1, "tags": []},
    {"title": 7, "score": 101, "tags": list("abcdef"), "assignee": {"email": "ada@example.com"}},
    {**FITS, "title": "Oil the lathe, and then the mill", "tags": ["oil", 5], "asignee": "Ada"},
]


def create_task(title: str, key: str, priority: str, **rest: Any) -> str:
    """Create a task."""
    return f"{key} {title!r}: {priority}, {sorted(rest)}"


def main() -> None:
    """Let an agent make calls that break each rule, and then one that fits."""
    calls = [{"tool": "create_task", "arguments": arguments} for arguments in (*BREAKS, FITS)]
    agent = Agent(
        "planner", "scripted", tools=("create_task",), script=({"calls": calls}, {"text": "{{result}}"})
    )
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, ".toolcrib").mkdir()
        project = Project.open(folder, accept="all", data=Path(folder, "data"))
        project.toolset.register("create_task", create_task, input_schema=SCHEMA)
        print(project.runs.run_sync(None, agent, "Plan the week.").answer)
        asyncio.run(project.aclose())


if __name__ == "__main__":
    main()
