"""An explicit schema with every kind of constraint, and the error of a call that breaks each of them.

Run it: python examples/schema_validation.py
"""

from __future__ import annotations

from typing import Any

from toolcrib import Toolset

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "title": {"type": "string", "description": "Task title", "minLength": 3, "maxLength": 20},
        "key": {"type": "string", "description": "Like AB-12", "pattern": "^[A-Z]+-[0-9]+$"},
        "priority": {
            "type": "string",
            "description": "Task priority level",
            "enum": ["low", "medium", "high", "critical"],
            "default": "medium",
        },
        "score": {"type": "number", "description": "Confidence (0-100)", "minimum": 0, "maximum": 100},
        "tags": {
            "type": "array",
            "description": "Labels for the task",
            "items": {"type": "string"},
            "minItems": 1,
            "maxItems": 5,
        },
        "assignee": {
            "type": "object",
            "description": "Person assigned to the task",
            "properties": {
                "name": {"type": "string", "description": "Full name"},
                "email": {"type": "string", "description": "Email address"},
            },
            "required": ["name"],
        },
    },
    "required": ["title", "key"],
    "additionalProperties": False,
}

tools = Toolset()


def create_task(title: str, key: str, priority: str, **rest: Any) -> str:
    """Create a task."""
    return f"{key} {title!r}: {priority}, {sorted(rest)}"


tools.register("create_task", create_task, input_schema=SCHEMA)

GOOD = {
    "title": "Oil the lathe",
    "key": "SHOP-7",
    "score": 99.5,
    "tags": ["oil"],
    "assignee": {"name": "Ada"},
}
"""A call that fits; `priority` is filled in."""

BAD: dict[str, dict[str, Any]] = {
    "required": {"title": "Oil the lathe"},
    "type": {"title": 7, "key": "SHOP-7"},
    "minLength": {"title": "No", "key": "SHOP-7"},
    "maxLength": {"title": "Oil the lathe, and then the mill", "key": "SHOP-7"},
    "pattern": {"title": "Oil the lathe", "key": "shop 7"},
    "enum": {"title": "Oil the lathe", "key": "SHOP-7", "priority": "urgent"},
    "minimum": {"title": "Oil the lathe", "key": "SHOP-7", "score": -1},
    "maximum": {"title": "Oil the lathe", "key": "SHOP-7", "score": 101},
    "items": {"title": "Oil the lathe", "key": "SHOP-7", "tags": ["oil", 5]},
    "minItems": {"title": "Oil the lathe", "key": "SHOP-7", "tags": []},
    "maxItems": {"title": "Oil the lathe", "key": "SHOP-7", "tags": list("abcdef")},
    "nested required": {"title": "Oil the lathe", "key": "SHOP-7", "assignee": {"email": "ada@example.com"}},
    "unknown name": {"title": "Oil the lathe", "key": "SHOP-7", "asignee": {"name": "Ada"}},
}
"""A call for each rule, which breaks it."""


def main() -> None:
    """Make all the calls."""
    print("good:", tools.call_sync("create_task", GOOD).unwrap())
    for rule, arguments in BAD.items():
        result = tools.call_sync("create_task", arguments)
        assert result.error is not None
        for violation in result.error.violations:
            print(f"{rule}: {violation.path} {violation.message}")


if __name__ == "__main__":
    main()
