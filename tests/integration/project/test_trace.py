"""A watched tool through a project's own call path, from Python."""

from __future__ import annotations

import asyncio

import pytest

from tests.crib import Crib
from toolcrib.errors import ToolNotFound, UsageError
from toolcrib.project.trace import Allowed, Trace
from toolcrib.spec import Call


def test_a_registered_function_is_refused_with_the_reason(crib: Crib) -> None:
    project = crib.open()
    project.toolset.register("add", lambda: 1)
    with pytest.raises(UsageError, match="registered function"):
        Trace.begin(project, "add", Allowed())
    with pytest.raises(ToolNotFound):
        Trace.begin(project, "gone", Allowed())


@pytest.mark.usefixtures("kernel")
def test_only_the_watched_tool_is_watched_and_only_in_this_project(crib: Crib) -> None:
    crib.write("data/a", "x")
    crib.shell("one")
    crib.shell("two", permissions={"fs": {"read": ["data"]}})
    crib.trust_tools("one")

    async def both() -> Trace:
        async with crib.open() as project:
            trace = Trace.begin(project, "one", Allowed(read=("data",), env=("TERM",)))
            for name in ("two", "one"):
                result = await project.invoke(Call(name, {"c": "cat data/a"}))
                assert result.value == "x"
                if name == "two":
                    assert trace.seen.calls == 0
            return trace

    trace = asyncio.run(both())
    assert trace.block.permissions() == {"network": False, "fs": {"read": ["data/a"]}, "env": ["TERM"]}
    assert [entry.event for entry in crib.audit()] == ["TRUSTED", "TOOL_EXECUTED", "TOOL_EXECUTED"]


@pytest.mark.usefixtures("kernel")
def test_attempts_of_one_call_add_up(crib: Crib) -> None:
    for name in ("a", "b"):
        crib.write(f"data/{name}", name)
    crib.python(
        "class RetryableError(Exception): pass\n"
        "def run():\n"
        "    n = open('.toolcrib/scratch/n', 'a+')\n"
        "    n.seek(0)\n"
        "    first = not n.read()\n"
        "    n.write('x')\n"
        "    n.close()\n"
        "    open('data/a' if first else 'data/b').read()\n"
        "    if first: raise RetryableError('again')\n"
        "    return 1\n",
        permissions={"fs": {"read": ["data"], "write": [".toolcrib/scratch"]}},
    )

    async def once() -> Trace:
        async with crib.open() as project:
            trace = Trace.begin(project, "py", Allowed())
            result = await project.invoke(Call("py", {}))
            assert (result.value, result.attempts) == (1, 2), result.error
            return trace

    fs = asyncio.run(once()).block.permissions()["fs"]
    assert fs == {"read": ["data/a", "data/b"], "write": [".toolcrib/scratch"]}


@pytest.mark.parametrize(
    ("kind", "config", "why"),
    [
        ("composite", {"steps": [{"id": "a", "tool": "t", "args": {"c": "true"}}]}, "steps"),
        ("sql", {"engine": "sqlite", "database": "a.db", "statement": "select 1"}, "query"),
    ],
)
def test_a_kind_that_cannot_be_watched_is_refused_with_its_own_reason(
    crib: Crib, kind: str, config: dict[str, object], why: str
) -> None:
    crib.shell("t")
    crib.tool("other", kind, config)
    with pytest.raises(UsageError, match=why):
        Trace.begin(crib.open(), "other", Allowed())
