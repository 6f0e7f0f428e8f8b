"""The tools under test, what they are called with, and what must be refused."""

# ruff: noqa: ARG001 - a tool under test has the parameters its schema shall show, used or not.

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field


def add(a: int, b: int) -> int:
    """Add two whole numbers."""
    return a + b


async def add_async(a: int, b: int) -> int:
    """Add two whole numbers."""
    return a + b


async def noop() -> int:
    """Do nothing."""
    return 0


class Assignee(BaseModel):
    """The person who does it."""

    name: str = Field(description="Full name")
    email: str | None = Field(default=None, description="Email address")


Title = Annotated[str, Field(min_length=3, max_length=100, description="Task title")]
Priority = Annotated[Literal["low", "medium", "high", "critical"], Field(description="How urgent it is")]
Score = Annotated[float, Field(ge=0, le=100, description="Confidence score (0-100)")]
Tags = Annotated[list[str], Field(max_length=5, description="Labels")]
Person = Annotated[Assignee | None, Field(description="Who shall do it")]


def create_task(
    title: Title,
    priority: Priority,
    score: Score = 0.0,
    tags: Tags = [],  # noqa: B006 - a tool's default is data, and this one is never written to
    assignee: Person = None,
) -> str:
    """Create a task.

    Args:
        title: Task title
        priority: How urgent it is
        score: Confidence score
        tags: Labels
        assignee: Who shall do it
    """
    return title


async def create_task_async(
    title: Title,
    priority: Priority,
    score: Score = 0.0,
    tags: Tags = [],  # noqa: B006 - a tool's default is data, and this one is never written to
    assignee: Person = None,
) -> str:
    """Create a task.

    Args:
        title: Task title
        priority: How urgent it is
        score: Confidence score
        tags: Labels
        assignee: Who shall do it
    """
    return title


async def create_task_plain(
    title: str,
    priority: str,
    score: float = 0.0,
    tags: list[str] | None = None,
    assignee: dict[str, str] | None = None,
) -> str:
    """Create a task: JSON values as they come, as the limit takes them."""
    return title


ADD_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
    "required": ["a", "b"],
    "additionalProperties": False,
}
TASK_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "title": {"type": "string", "minLength": 3, "maxLength": 100},
        "priority": {"type": "string", "enum": ["low", "medium", "high", "critical"]},
        "score": {"type": "number", "minimum": 0, "maximum": 100},
        "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 5},
        "assignee": {
            "type": "object",
            "properties": {"name": {"type": "string"}, "email": {"type": "string"}},
            "required": ["name"],
        },
    },
    "required": ["title", "priority"],
}

ADD_CALL = b'{"a":2,"b":3}'
ADD_VALUE = 5
TASK_CALL = (
    b'{"title":"Sharpen the drills","priority":"high","score":87.5,"tags":["shop","drills","today"],'
    b'"assignee":{"name":"Grace Hopper","email":"grace@example.org"}}'
)
TASK_VALUE = "Sharpen the drills"
TASK_INVALID = {
    "title too short": b'{"title":"ab","priority":"high"}',
    "priority not one of the four": b'{"title":"Oil the lathe","priority":"soon"}',
    "score above 100": b'{"title":"Oil the lathe","priority":"low","score":101}',
    "six tags": b'{"title":"Oil the lathe","priority":"low","tags":["a","b","c","d","e","f"]}',
    "assignee without a name": b'{"title":"Oil the lathe","priority":"low","assignee":{"email":"x@y.org"}}',
    "no title": b'{"priority":"low"}',
}


FIVE = '''
async def five_{number}(
    title: Annotated[str, Field(min_length=3, max_length=100)],
    priority: Annotated[Literal["low", "medium", "high"], Field(description="How urgent it is")],
    score: Annotated[float, Field(ge=0, le=100)] = 0.0,
    tags: list[str] | None = None,
    limit: int = 10,
) -> str:
    """Find tasks, way {number}.

    Args:
        title: Task title
        priority: How urgent it is
        score: Confidence score
        tags: Labels
        limit: How many to give at most
    """
    return title
'''
FIVE_CALL = b'{"title":"drill","priority":"high","score":87.5,"tags":["shop"],"limit":3}'


def five_parameters(number: int) -> Callable[..., Any]:
    """A new async function each time, with five annotated parameters and a docstring."""
    namespace: dict[str, Any] = {}
    # Compiled by itself: a function of this module would have its annotations as text.
    code = compile(FIVE.format(number=number), __name__, "exec", dont_inherit=True)
    exec(code, {"__name__": __name__, **globals()}, namespace)
    function: Callable[..., Any] = namespace[f"five_{number}"]
    return function
