"""Durable calls of a project's tools, by the one path."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.crib import Crib, accept
from tests.integration.runs.test_dispatchers import full_disk
from toolcrib import Context, Toolset, get_run_context
from toolcrib.errors import (
    ConflictError,
    IdempotencyConflict,
    InvalidInput,
    InvalidToken,
    ToolCancel,
    ToolDiscard,
    ToolNotFound,
    ToolSnooze,
)
from toolcrib.guard import Tokens
from toolcrib.middleware import tracing_middleware
from toolcrib.project import Project
from toolcrib.project.durable.served import ServedTools
from toolcrib.runs import ClaimedCall, Offer, Worker
from toolcrib.runs.agents import Agent
from toolcrib.runs.dispatch import EmbeddedDispatcher
from toolcrib.runs.ending import Ending
from toolcrib.runs.known_tools import KnownTools
from toolcrib.serve.auth import Client
from toolcrib.serve.rest.running import ServerCalls
from toolcrib.spec import Retry


async def test_a_submitted_call_runs_by_the_one_path(crib: Crib) -> None:
    async with crib.open() as project:

        @project.toolset.tool
        def add(a: int, b: int) -> int:
            """Add."""
            return a + b

        call = await project.calls.wait(project.submit("add", {"a": 1, "b": 2}), 30)
        assert call.state == "done"
        assert json.loads(call.result or b"")["value"] == 3
        with pytest.raises(InvalidInput):
            project.submit("add", {"a": "x"})
        with pytest.raises(ToolNotFound):
            project.submit("ad", {"a": 1})
        with pytest.raises(InvalidInput, match="1 to 255 printable characters"):
            project.submit("add", {"a": 1, "b": 2}, idempotency_key="k" * 256)


async def test_the_end_of_a_long_call_is_recorded_once_the_database_takes_it(crib: Crib) -> None:
    go_on, ended = asyncio.Event(), asyncio.Event()
    async with crib.open() as project:

        @project.toolset.tool
        async def long() -> str:
            """Return a long text, later."""
            await go_on.wait()
            ended.set()
            return "x" * 200_000

        calls = ServerCalls(project.invoke, project.calls)
        call = calls.start(Context("long", {}, "token:a"), Client("token:a"))
        await asyncio.sleep(0)
        await calls.keep(call)
        stored = project.calls.stored
        assert stored.find(call.id).state == "running"
        with full_disk(stored.database):
            go_on.set()
            await ended.wait()
            assert (await stored.wait(call.id, 1.0)).state == "running"
        assert (await stored.wait(call.id, 100)).state == "done"
        assert call.task is not None
        await asyncio.wait({call.task}, timeout=30)
        assert call.status == "ok"


@pytest.mark.parametrize(
    ("error", "state"),
    [(ToolDiscard("bad"), "discarded"), (ToolCancel("never"), "cancelled"), (OSError("x"), "failed")],
)
async def test_errors_decide_what_follows(crib: Crib, error: Exception, state: str) -> None:
    async with crib.open() as project:

        @project.toolset.tool
        def fails() -> None:
            """Fail."""
            raise error

        call = await project.calls.wait(project.submit("fails"), 30)
        assert call.state == state


async def test_a_snooze_waits_in_the_database(crib: Crib) -> None:
    left = [3]
    async with crib.open() as project:

        @project.toolset.tool
        def later() -> str:
            """Ask to be tried later."""
            left[0] -= 1
            if left[0]:
                raise ToolSnooze(0.01, "not yet")
            return "now"

        call = await project.calls.wait(project.submit("later"), 30)
        assert (call.state, call.attempts, call.snoozes) == ("done", 1, 2)


async def test_a_call_that_needs_approval_waits_without_a_worker_and_goes_on(crib: Crib) -> None:
    runs: list[int] = []

    def pay(amount: int) -> str:
        """Pay."""
        runs.append(amount)
        if len(runs) == 1:
            raise OSError("the bank is away")
        return "paid"

    retry = Retry(2)
    async with crib.open() as project:
        project.toolset.register("pay", pay, approval="it is dear", retry=retry)
        call_id = project.submit("pay", {"amount": 5})
        project.calls.serve()
        await until(lambda: project.calls.find(call_id).state == "waiting")
        approval = project.calls.find(call_id).approval
        assert approval is not None
    other = crib.open()  # Another process decides while nobody serves, without the function.
    other.approval_service.approve(approval, "ann")
    other.toolset.register("pay", pay, approval="it is dear", retry=retry)
    assert (
        other.calls.find(call_id).state == "ready"
    )  # Whoever decides lets it go on, and no look of a worker.
    assert runs == []
    async with other:
        call = await other.calls.wait(call_id, 100)
        assert (call.state, call.attempts) == ("done", 2)
        assert runs == [5, 5]  # One approval is for all attempts of its call,
        again = other.submit("pay", {"amount": 5})  # and for no other call.
        other.calls.serve()
        await until(lambda: other.calls.find(again).state == "waiting")
        other.approval_service.deny(str(other.calls.find(again).approval), "ann")
        assert (await other.calls.wait(again, 100)).state == "failed"
        last, same = (other.submit("pay", {"amount": 6}) for _ in range(2))
        await until(lambda: {other.calls.find(one).state for one in (last, same)} == {"waiting"})
        approval = str(other.calls.find(last).approval)
        other.calls.stored.cancel(last)  # Nobody is asked about a call that will not run.
        assert other.approval_service.show(approval).approval.status == "pending"  # The other one still asks.
        other.calls.stored.cancel(same)
        assert other.approval_service.show(approval).approval.status == "void"
    assert runs == [5, 5]
    kinds = [change.kind for change in other.calls.stored.changes(call_id)]
    assert kinds == ["submitted", "claimed", "waits", "decided", "claimed", "retry", "claimed", "done"]


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(100):
        while not holds():  # noqa: ASYNC110 - what is awaited is in a database
            await asyncio.sleep(0.02)


async def test_one_key_is_one_run_for_direct_and_durable_calls(crib: Crib) -> None:
    runs: list[int] = []
    async with crib.open() as project:

        @project.toolset.tool
        def count(start: int) -> int:
            """Count the runs."""
            runs.append(start)
            return len(runs)

        assert (await project.call("count", {"start": 0}, idempotency_key="direct")).value == 1
        call = await project.calls.wait(project.submit("count", {"start": 0}, idempotency_key="direct"), 30)
        assert call.outcome().value == 1
        call_id = project.submit("count", {"start": 0}, idempotency_key="durable")
        assert project.submit("count", {"start": 0}, idempotency_key="durable") == call_id
        assert (await project.calls.wait(call_id, 100)).outcome().value == 2
        assert (await project.call("count", {"start": 0}, idempotency_key="durable")).value == 2
        with pytest.raises(IdempotencyConflict):
            project.submit("count", {"start": 1}, idempotency_key="durable")
    assert len(runs) == 2


async def test_a_retry_with_a_key_runs_again(crib: Crib) -> None:
    left = [OSError("away"), ToolSnooze(0.01, "soon")]
    async with crib.open() as project:

        def shaky() -> str:
            """Fail first."""
            if left:
                raise left.pop(0)
            return "done"

        project.toolset.register("shaky", shaky, retry=Retry(2))
        call = await project.calls.wait(project.submit("shaky", idempotency_key="k"), 30)
        assert (call.state, call.attempts, call.snoozes) == ("done", 2, 1)
        assert (await project.call("shaky", idempotency_key="k")).value == "done"


async def test_the_caller_travels_with_its_call(crib: Crib) -> None:
    seen: list[Any] = []
    async with crib.open() as project:
        tokens = Tokens(project.vault)
        token = tokens.verify(tokens.create("ci", ["invoke"], ["look"], owner="ann"))

        @project.toolset.tool
        def look() -> None:
            """Look who calls."""
            context = get_run_context()
            assert context is not None
            seen.append((context.session_id, context.run_id, dict(context.variables)))

        @project.toolset.tool
        def hidden() -> None:
            """Do nothing."""

        options: dict[str, Any] = {"caller": "token:ci", "identity": token}
        with pytest.raises(InvalidToken):
            project.submit("hidden", **options)
        call_id = project.submit("look", session_id="s", run_id="r", variables={"n": 1}, **options)
        assert (await project.calls.wait(call_id, 100)).state == "done"
        assert seen == [("s", "r", {"n": 1})]
        late = project.submit("look", **options)
        tokens.revoke("ci")
        call = await project.calls.wait(late, 100)
        assert call.state == "failed"
        assert json.loads(call.error or "")["code"] == "invalid_token"


async def test_too_many_calls_wait_for_their_time(crib: Crib) -> None:
    async with crib.open() as project:
        crib.shell("slow", limits={"concurrent_calls": 1})
    async with crib.open() as project:
        ids = [project.submit("slow", {"c": "sleep 0.1"}) for _ in range(3)]
        calls = [await project.calls.wait(call_id, 100) for call_id in ids]
        assert [call.state for call in calls] == ["done"] * 3


async def test_priority_holds_where_one_call_runs_at_a_time_in_two_workers(crib: Crib) -> None:
    crib.shell("slow", limits={"concurrent_calls": 1})
    async with crib.open() as one, crib.open() as two:
        ids = one.calls.submit_many(
            {"tool": "slow", "arguments": {"c": "sleep 0.05"}, "priority": priority} for priority in range(8)
        )
        one.calls.serve()
        two.calls.serve()
        calls = [await one.calls.wait(call_id, 100) for call_id in ids]
        began = [one.calls.stored.attempts(call_id)[0].began_at for call_id in ids]
    assert [(call.state, call.snoozes) for call in calls] == [("done", 0)] * 8  # none was taken in vain
    assert began == sorted(began, reverse=True)


async def test_a_list_looks_up_a_tool_of_another_process_once(crib: Crib) -> None:
    looks: list[object] = []

    def watch(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code is KnownTools.some.__code__:
            looks.append(frame.f_locals["names"])

    async with crib.open() as worker, crib.open() as project:

        @worker.toolset.tool
        async def double(number: int) -> int:
            """Double a number."""
            return 2 * number

        await worker.calls.wait(worker.submit("double", {"number": 1}), 100)
        sys.setprofile(watch)
        ids = project.calls.submit_many(
            {"tool": "double", "arguments": {"number": number}} for number in range(3)
        )
        sys.setprofile(None)
        assert looks == [("double",)]
        ended = [await worker.calls.wait(call_id, 100) for call_id in ids]
    assert [call.outcome().unwrap() for call in ended] == [0, 2, 4]


def test_without_an_event_loop(crib: Crib) -> None:
    project = crib.open()

    @project.toolset.tool
    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    call_id = project.submit("add", {"a": 1, "b": 2}, delay_s=60)
    project.calls.cancel(call_id)
    with pytest.raises(ConflictError):
        project.calls.cancel(call_id)
    project.calls.retry(call_id)
    assert project.calls.wait_sync(call_id, 100).outcome().value == 3
    assert [one["kind"] for one in project.calls.history(call_id)["history"]["changes"]][:3] == [
        "submitted",
        "cancelled",
        "retried",
    ]


async def test_a_run_and_its_calls_are_one_trace_in_every_process(crib: Crib) -> None:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("program")

    def with_tool(project: Project) -> Project:
        @project.toolset.tool
        def look(ctx: Context) -> str:
            """Look."""
            return str(ctx.trace)

        project.toolset.use(tracing_middleware(tracer))
        return project

    once = ({"calls": [{"tool": "look"}]}, {"text": "{{result}}"})
    below = Agent("below", "scripted", tools=("look",), script=once)
    calls = {"calls": [{"tool": "look"}, {"tool": "below", "arguments": {"prompt": "go"}}]}
    above = Agent("above", "scripted", tools=("look",), agents=("below",), script=(calls, {"text": "over"}))
    async with crib.open() as project:
        with_tool(project).agents.add(below)
        with tracer.start_as_current_span("request") as request:
            run_id, call_id = project.runs.start(None, above, "go"), project.submit("look")
        alone = project.runs.start(None, above, "go")
    async with crib.open() as project:  # As a worker elsewhere, which knows nothing of the span.
        with_tool(project)
        for one in (run_id, alone):
            assert (await project.runs.wait(one, 100)).state == "done"
        assert (await project.calls.wait(call_id, 100)).state == "done"
    spans = [span for span in exporter.get_finished_spans() if span.name == "execute_tool look"]
    traces = [context.trace_id for span in spans if (context := span.get_span_context()) is not None]
    asked = request.get_span_context().trace_id
    assert (len(traces), traces.count(asked), len(set(traces))) == (5, 3, 2)


def test_a_tool_that_is_removed_while_a_worker_counts_is_left_out() -> None:
    class Stale(Toolset):
        """As another thread sees it that has read the names a moment ago."""

        @property
        def names(self) -> list[str]:
            return ["gone", *super().names]

    tools = Stale()
    tools.register("here", lambda: 1, description="Stay.")
    assert ServedTools(tools, 3)().tools == {"here": 3}


def test_a_look_at_an_unchanged_offer_lists_no_names() -> None:
    listed: list[None] = []

    class Counting(Toolset):
        """Counts how often all names are listed."""

        @property
        def names(self) -> list[str]:
            listed.append(None)
            return super().names

    tools = Counting()
    tools.register("here", lambda: 1, description="Stay.")
    served = ServedTools(tools, 3)
    assert served() is served()
    assert len(listed) == 1


async def test_a_start_reads_no_manifest_to_offer_what_was_trusted_and_recorded(crib: Crib) -> None:
    path = crib.shell("look", limits={"concurrent_calls": 2}) / "tool.yml"
    crib.accept = "trusted"

    async def offered() -> tuple[Offer, bool, Any]:
        async with crib.open() as project:
            offer = project.offer()
            is_read = project.catalog.registry.unused("look") is None
            return offer, is_read, project.calls.known.find("look").tool.description

    await asyncio.sleep(0.2)  # The state of a file that was just written is not kept.
    accept(crib.root)
    await offered()
    offer, is_read, _ = await offered()
    assert (offer.tools["look"], offer.refused, is_read) == (2, {}, False)
    path.write_text(path.read_text().replace("Does look.", "Looks anew."))
    offer, _, description = await offered()
    assert (list(offer.refused), description) == (["look"], "Does look.")
    accept(crib.root)
    assert (await offered())[2] == "Looks anew."


async def test_the_work_of_a_worker_that_looks_does_not_grow_with_the_square_of_its_tools(crib: Crib) -> None:
    asked = list[Offer]()

    def offer() -> Offer:
        asked.append(Offer({f"tool_{number}": None for number in range(100)}))
        return asked[0]

    async with crib.open() as project:
        worker = Worker(project.calls.stored, nothing, offer)
        assert len(worker.served()) == 100
    assert len(asked) <= 2


async def nothing(_: ClaimedCall) -> Ending:
    raise AssertionError


async def test_a_project_closes_whatever_has_ended_its_worker(
    crib: Crib, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(EmbeddedDispatcher):
        async def serve(self, *_: Any, **__: Any) -> None:
            raise OSError("broken")

    async with crib.open() as project:
        stored = project.calls.stored
        stored.dispatcher = Broken(stored.database)
        project.calls.serve()
        assert project.calls._served is not None
        await asyncio.wait([project.calls._served[1]], timeout=30)
    assert "broken" in caplog.text
