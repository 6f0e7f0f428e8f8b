"""What a tool sees of its call: run variables with their types, ids, time left, progress."""

from __future__ import annotations

import asyncio
import threading
import uuid
from dataclasses import fields
from typing import Any

import pytest

from toolcrib import (
    Call,
    Context,
    Toolset,
    get_run_context,
    get_run_id,
    get_session_id,
    get_variable,
    get_variable_or,
    get_variables,
    must_get_variable,
)
from toolcrib.spec import CallEvent
from toolcrib.spec.identifier import new_id

ANY: Any = object()
VARIABLES = {"story": "s-1", "pages": 7, "ratio": 2, "draft": True, "tags": ["a"], "none": None}


async def inside(look: Any, **options: Any) -> Any:
    """What `look` sees inside a tool."""
    found: list[Any] = []
    tools = Toolset()

    @tools.tool
    async def tool() -> None:
        found.append(look())

    (await tools.call("tool", **{"variables": VARIABLES, **options})).unwrap()
    return found[0]


@pytest.mark.parametrize(
    ("look", "expected"),
    [
        (lambda: get_variable("story", str), "s-1"),
        (lambda: get_variable("pages", int), 7),
        (lambda: get_variable("tags", list), ["a"]),
        (lambda: get_variable("draft", bool), True),
        (lambda: get_variable("ratio", float), 2),
        (lambda: get_variable("pages", object), 7),
        (lambda: get_variable("story", int), None),
        (lambda: get_variable("draft", int), None),
        (lambda: get_variable("draft", float), None),
        (lambda: get_variable("missing", str), None),
        (lambda: get_variable_or("pages", 1), 7),
        (lambda: get_variable_or("ratio", 0.5), 2),
        (lambda: get_variable_or("pages", "many"), "many"),
        (lambda: get_variable_or("draft", 3), 3),
        (lambda: get_variable_or("missing", 3), 3),
        (lambda: get_variable_or("none", 3), None),
        (lambda: get_variable_or("none", ANY), None),
        (lambda: get_variable_or("missing", ANY), ANY),
        (lambda: get_variable_or("story", None), "s-1"),
        (lambda: get_variable_or("missing", None), None),
        (lambda: must_get_variable("story", str), "s-1"),
        (lambda: must_get_variable("draft", bool), True),
        (lambda: must_get_variable("none", object), None),
        (get_variables, VARIABLES),
    ],
)
async def test_a_variable_is_given_if_it_has_the_type(look: Any, expected: Any) -> None:
    assert await inside(look) == expected


async def test_a_variable_that_must_be_there() -> None:
    def look() -> list[str]:
        told = []
        for key, of in (("missing", str), ("pages", str), ("draft", int)):
            with pytest.raises((LookupError, TypeError)) as caught:
                must_get_variable(key, of)
            told.append(f"{type(caught.value).__name__}: {caught.value.args[0]}")
        return told

    assert await inside(look) == [
        "LookupError: the run variable 'missing' is not set",
        "TypeError: the run variable 'pages' is int, not str",
        "TypeError: the run variable 'draft' is bool, not int",
    ]


async def test_the_run() -> None:
    def look() -> Any:
        context = get_run_context()
        assert context is not None
        return context.run_id, context.session_id, dict(context.variables), get_run_id(), get_session_id()

    assert await inside(look, run_id="r", session_id="s") == ("r", "s", VARIABLES, "r", "s")
    assert await inside(look, variables=None) == (None, None, {}, None, None)


def test_outside_of_a_call_there_is_nothing() -> None:
    assert get_run_context() is None
    assert get_variables() == {}
    assert get_variable("story", str) is None
    assert (get_run_id(), get_session_id()) == (None, None)


async def test_variables_cannot_be_changed_by_a_tool() -> None:
    def look() -> None:
        get_variables()["story"] = "other"
        context = get_run_context()
        assert context is not None
        with pytest.raises(TypeError):
            context.variables["story"] = "other"  # type: ignore[index]

    await inside(look)
    assert VARIABLES["story"] == "s-1"


async def test_calls_side_by_side_see_their_own_variables() -> None:
    tools = Toolset()

    @tools.tool
    async def slow() -> Any:
        await asyncio.sleep(0)
        return get_variable("n", int)

    @tools.tool
    def threaded() -> Any:
        return get_variable("n", int)

    for name in ("slow", "threaded"):
        results = await asyncio.gather(*(tools.call(name, variables={"n": n}) for n in range(50)))
        assert [result.value for result in results] == list(range(50))


async def test_a_call_inside_a_call_has_a_context_of_its_own() -> None:
    tools = Toolset()

    @tools.tool
    async def inner() -> Any:
        return get_variables()

    @tools.tool
    async def outer() -> Any:
        first = await tools.execute("inner", variables={"inner": 1})
        return [first, get_variables()]

    assert await tools.execute("outer", variables={"outer": 1}) == [{"inner": 1}, {"outer": 1}]


async def test_the_context_as_a_parameter() -> None:
    tools = Toolset()

    @tools.tool
    def look(ctx: Context, n: int) -> Any:
        return {
            "tool": ctx.tool,
            "caller": ctx.caller,
            "n": n,
            "attempt": ctx.attempt,
            "limit": ctx.limit_ms,
            "remaining": 0 < ctx.remaining <= 50,
            "id": ctx.identify() == ctx.identify(),
            "secrets": dict(ctx.secrets),
        }

    result = await tools.invoke(Call("look", {"n": 1}, caller="me", timeout_ms=50_000))
    assert result.value == {
        "tool": "look",
        "caller": "me",
        "n": 1,
        "attempt": 1,
        "limit": 50_000,
        "remaining": True,
        "id": True,
        "secrets": {},
    }
    assert result.call_id is not None
    assert uuid.UUID(result.call_id).version == 7


async def test_a_call_can_be_made_twice() -> None:
    tools = Toolset()

    @tools.tool
    async def look(ctx: Context, a: int = 1) -> Any:
        return ctx.identify()

    call = Call("look", b"{}")
    first, second = await tools.invoke(call), await tools.invoke(call)

    assert first.value != second.value
    assert call == call
    assert (call.arguments, call.call_id) == (b"{}", None)


@pytest.mark.parametrize("isolation", ["async", "thread", "inline"])
async def test_progress_is_heard_on_the_event_loop(isolation: str) -> None:
    tools = Toolset()
    heard: list[Any] = []

    def work(ctx: Context) -> None:
        ctx.progress(1)
        ctx.progress(2, 4, "half")

    async def work_async(ctx: Context) -> None:
        work(ctx)

    tools.register("work", work_async if isolation == "async" else work, isolation=isolation)
    home = threading.get_ident()

    def listen(event: CallEvent) -> None:
        if event.kind == "progress":
            heard.append((event.done, event.total, event.message, threading.get_ident() == home))

    await tools.execute("work", on_event=listen)
    await tools.execute("work")

    assert heard == [(1, None, "", True), (2, 4, "half", True)]


def test_ids_are_ordered_by_time_and_unique() -> None:
    ids = [new_id() for _ in range(1_000)]

    assert len(set(ids)) == 1_000
    assert [text[:13] for text in ids] == sorted(text[:13] for text in ids)
    assert all(uuid.UUID(text).version == 7 and uuid.UUID(text).variant == uuid.RFC_4122 for text in ids)


def test_a_context_has_all_that_its_call_says() -> None:
    call = Call("name", {})
    for field in fields(Call):
        setattr(call, field.name, object())

    context = Context.of(call)

    assert all(getattr(context, field.name) is getattr(call, field.name) for field in fields(Call))
    assert (context.attempt, context.snoozes) == (1, 0)


def test_a_context_shows_itself_without_the_values_of_its_secrets() -> None:
    context = Context.of(Call("pay", {}, call_id="c-1"))
    context.secrets = {"KEY": "s3cret"}
    assert repr(context) == "<Context of pay, attempt 1, call c-1>"
