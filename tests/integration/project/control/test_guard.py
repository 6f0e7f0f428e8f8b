"""What a project holds every call to: policy, people's approval, turns, calls made once."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from aiohttp import web

from tests.commands import Forked, run
from tests.crib import Crib, failed
from tests.integration.egress.servers import serving
from tests.integration.sandbox.ground import eventually
from tests.patience import wait_for
from toolcrib import Context, Project, Result
from toolcrib.errors import InvalidToken
from toolcrib.guard import Tokens
from toolcrib.middleware import Handler
from toolcrib.project.mcp_catalog import McpCatalog
from toolcrib.sandbox.host.pool import shared
from toolcrib.spec import Call, CallContext, Caller, CallEvent, Outcome
from toolcrib.state import Vault

pytestmark = pytest.mark.usefixtures("kernel")

COUNT = {"c": "echo x >> count; wc -l < count"}
ASKS: dict[str, Any] = {"approval": {"required": True, "reason": "it writes"}}


def counting(crib: Crib, **more: Any) -> None:
    """A tool that adds a line to a file, and says how many there are."""
    crib.write("count", "")
    crib.shell("count", permissions={"fs": {"read": ["."], "write": ["count"]}}, **more)


def lines(crib: Crib) -> int:
    return len((crib.root / "count").read_text().splitlines())


async def until(happened: Callable[[], object]) -> None:
    """Look again and again until it has happened."""
    async with asyncio.timeout(100):
        while not happened():  # noqa: ASYNC110 - another process does it
            await asyncio.sleep(0.01)


def approve(crib: Crib, result: Result, **more: Any) -> None:
    """What a person does at another terminal."""
    details = result.details if result.error is None else result.error.details
    assert details is not None
    project = crib.open()
    project.approval_service.approve(details["approval"], "ann", **more)
    asyncio.run(project.aclose())


# -- approval ------------------------------------------------------------------------------------


def test_a_call_waits_for_a_person_and_then_runs_once(crib: Crib) -> None:
    counting(crib, **ASKS)
    first = crib.call("count", COUNT)
    failed(first, "approval_required")
    assert lines(crib) == 0
    assert failed(crib.call("count", COUNT), "approval_required")
    approve(crib, first)

    assert crib.call("count", COUNT).value.strip() == "1"
    assert (crib.last().fields["approver"], crib.last().fields["edited"]) == ("ann", False)
    again = crib.call("count", COUNT)
    failed(again, "approval_required")
    assert again.error is not None
    assert first.error is not None
    assert again.error.details["approval"] != first.error.details["approval"]
    assert lines(crib) == 1


def test_a_yes_is_for_these_arguments_and_this_tool_alone(crib: Crib) -> None:
    counting(crib, **ASKS)
    approve(crib, crib.call("count", COUNT))
    failed(crib.call("count", {"c": "echo y >> count"}), "approval_required")
    counting(crib, **ASKS, tags=["changed"])
    failed(crib.call("count", COUNT), "approval_required")
    assert lines(crib) == 0


def test_a_yes_ends_when_a_file_beside_the_manifest_changes(crib: Crib) -> None:
    folder = crib.python("def run(): return 1", **ASKS)
    approve(crib, crib.call("py"), scope="rule")
    assert crib.call("py").value == 1
    (folder / "mod.py").write_text("def run(): return 2")
    failed(crib.call("py"), "approval_required")


def test_lasting_yeses(crib: Crib) -> None:
    counting(crib, **ASKS)
    approve(crib, crib.call("count", COUNT), scope="arguments")
    for expected in ("1", "2"):
        assert crib.call("count", COUNT).value.strip() == expected
    other = {"c": "echo x >> count; echo other"}
    approve(crib, crib.call("count", other), scope="rule")
    assert crib.call("count", {"c": "echo third"}).value.strip() == "third"


def test_a_lasting_yes_for_a_rule_without_a_name_does_not_count_for_the_one_in_its_place(crib: Crib) -> None:
    counting(crib)
    rules = ["  - {effect: ask, tools: [count], reason: is it right}", "  - {effect: allow, tools: [other]}"]
    crib.write(".toolcrib/config.yml", "\n".join(("policy:", "  rules:", *rules)))
    approve(crib, crib.call("count", COUNT), scope="rule")
    assert crib.call("count", {"c": "echo more"}).ok
    rules[0] = rules[0].replace("is it right", "does it cost too much")
    crib.write(".toolcrib/config.yml", "\n".join(("policy:", "  rules:", *rules)))
    failed(crib.call("count", COUNT), "approval_required")


def test_a_yes_for_a_session_ends_with_it(crib: Crib) -> None:
    counting(crib, **ASKS)
    approve(crib, crib.call("count", COUNT, session_id="s1"), scope="session")
    assert crib.call("count", {"c": "echo more"}, session_id="s1").ok
    failed(crib.call("count", COUNT, session_id="s2"), "approval_required")


def test_what_a_person_has_edited_runs(crib: Crib) -> None:
    counting(crib, **ASKS)
    approve(crib, crib.call("count", {"c": "rm -rf /"}), arguments={"c": "echo tame"})
    assert crib.call("count", {"c": "rm -rf /"}).value.strip() == "tame"
    entry = crib.last()
    assert entry.fields["params"] == {"c": "echo tame"}
    assert entry.fields["edited"] is True


def test_a_middleware_may_not_change_what_a_person_approved(crib: Crib) -> None:
    def changing(following: Handler) -> Handler:
        async def handle(call: Call, ctx: CallContext) -> Outcome:
            return await following(replace(call, arguments={"c": "echo more >> count"}), ctx)

        return handle

    counting(crib, **ASKS)
    approve(crib, crib.call("count", COUNT))
    project = crib.open()
    project.toolset.use(changing)
    assert "a person approved" in failed(project.toolset.call_sync("count", COUNT), "denied")
    assert lines(crib) == 0


def test_a_no_says_by_whom_and_why(crib: Crib) -> None:
    counting(crib, **ASKS)
    refused = crib.call("count", COUNT)
    assert refused.error is not None
    crib.open().approval_service.deny(refused.error.details["approval"], "ann", "not on a Sunday")
    assert "ann" in failed(crib.call("count", COUNT), "approval_denied")
    assert "not on a Sunday" in failed(crib.call("count", COUNT), "approval_denied")
    assert lines(crib) == 0


def test_a_caller_may_get_pending_instead(crib: Crib) -> None:
    counting(crib, **ASKS)
    pending = crib.call("count", COUNT, wait="pending")
    assert (pending.status, pending.value, pending.error) == ("pending", None, None)
    assert crib.last().event == "TOOL_WAITS"
    assert pending.details is not None
    assert crib.last().fields["approval"] == pending.details["approval"]
    approve(crib, pending)
    assert crib.call("count", COUNT, wait="pending").value.strip() == "1"


def test_a_missing_secret_uses_up_no_approval(crib: Crib) -> None:
    crib.shell(**ASKS, permissions={"secrets": {"KEY": {"type": "string"}}})
    script = {"c": "echo ran"}
    approve(crib, crib.call("sh", script))
    failed(crib.call("sh", script), "secret_missing")
    crib.secrets["KEY"] = "a-long-value"
    assert crib.call("sh", script).value.strip() == "ran"
    failed(crib.call("sh", script), "approval_required")


@pytest.mark.parametrize(
    "setting",
    ["limits: {calls_per_minute: 1}", "middleware: [{use: rate_limit, options: {per_minute: 1}}]"],
)
async def test_a_rate_limit_uses_up_no_approval(crib: Crib, setting: str) -> None:
    counting(crib, **ASKS)
    async with crib.open() as project:
        for script in (other := {"c": "true"}, COUNT):
            waiting = await project.call("count", script, wait="pending")
            assert waiting.details is not None
            project.approval_service.approve(waiting.details["approval"], "ann")
    crib.write(".toolcrib/config.yml", f"{setting}\n")
    async with crib.open() as project:
        assert (await project.call("count", other)).ok
        failed(await project.call("count", COUNT), "rate_limited")
    crib.write(".toolcrib/config.yml", "")
    async with crib.open() as project:
        assert (await project.call("count", COUNT)).ok
        failed(await project.call("count", COUNT), "approval_required")


async def test_a_caller_may_wait_until_a_person_decides(crib: Crib) -> None:
    counting(crib, **ASKS)
    async with crib.open() as project:
        call = asyncio.create_task(project.call("count", COUNT, wait="block"))
        await until(lambda: project.approval_service.list("pending"))
        assert not call.done()
        approval = project.approval_service.list("pending")[0].approval.id
        other = await asyncio.to_thread(run, ["approvals", "approve", "--yes", approval], crib.root)
        assert other.returncode == 0
        assert (await call).value.strip() == "1"


async def test_a_stream_reports_that_its_call_waits_and_goes_on_once_it_is_approved(crib: Crib) -> None:
    counting(crib, **ASKS)
    async with crib.open() as project:
        found: list[CallEvent | Result] = []
        async for event in project.stream("count", COUNT, wait="block"):
            found.append(event)
            if isinstance(event, CallEvent) and event.kind == "approval":
                assert (event.message, event.status) == ("it writes", None)
                assert event.approval is not None
                project.approval_service.approve(event.approval, "ann")
        *events, result = found
        assert isinstance(result, Result)
        assert result.value.strip() == "1"
        assert [event.kind for event in events if isinstance(event, CallEvent)] == [
            "started",
            "approval",
            "chunk",
            "ended",
        ]


async def test_a_meta_tool_passes_on_what_the_tool_it_calls_reports(crib: Crib) -> None:
    counting(crib, **ASKS)

    def work(ctx: Context) -> str:
        """Work."""
        ctx.progress(1, 2, "half")
        ctx.chunk("so far")
        return "done"

    async with crib.open() as project:
        project.toolset.register(work)
        McpCatalog(project)
        for tool, expected in (
            ("work", [("progress", "half"), ("chunk", "so far")]),
            ("count", [("approval", "it writes"), ("chunk", "1\n")]),
        ):
            arguments = {"name": tool, "arguments": COUNT if tool == "count" else {}}
            events: list[CallEvent] = []
            async for event in project.stream("tool_call", arguments, wait="block"):
                if isinstance(event, CallEvent):
                    events.append(event)
                    if event.approval is not None:
                        project.approval_service.approve(event.approval, "ann")
            assert [(one.kind, one.message or one.text) for one in events[1:-1]] == expected
            assert {event.tool for event in events} == {"tool_call"}
            assert len({event.call_id for event in events}) == 1


async def test_a_waiting_call_can_be_cancelled(crib: Crib) -> None:
    counting(crib, **ASKS)
    async with crib.open() as project:
        call = asyncio.create_task(project.call("count", COUNT, wait="block", idempotency_key="k"))
        await until(lambda: project.approval_service.list("pending"))
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        pending = await project.call("count", COUNT, wait="pending", idempotency_key="k")
        assert pending.status == "pending", "the key was let go of"
    assert lines(crib) == 0


def test_a_state_file_that_came_with_the_project_is_not_believed(crib: Crib) -> None:
    counting(crib, **ASKS)
    approve(crib, crib.call("count", COUNT), scope="rule")
    moved = crib.root.with_name("moved")
    crib.root.rename(moved)
    crib.root, crib.home = moved, moved / ".toolcrib"
    failed(crib.call("count", COUNT), "state_unavailable")
    assert lines(crib) == 0


# -- policy --------------------------------------------------------------------------------------

POLICY = """\
policy:
  rules:
    - name: no-root
      effect: deny
      tools: [count]
      when: {properties: {c: {pattern: "rm -rf"}}}
      reason: never
    - {name: agents-ask, effect: ask, callers: ["mcp:*"], reason: an agent calls}
    - {name: not-for-ci, effect: deny, callers: ["token:ci"], tools: [secret_*]}
"""


async def invoke(
    crib: Crib, tool: str, arguments: Any, caller: str, identity: Caller | None = None
) -> Result:
    async with crib.open() as project:
        return await project.invoke(Call(tool, arguments, caller, identity=identity))


async def trust(crib: Crib, tool: str) -> None:
    """Trust a tool that runs what its argument says, as other callers need it."""
    async with crib.open() as project:
        project.trust.trust(project.get(tool), "ann")


async def test_a_token_is_verified_on_each_call(crib: Crib) -> None:
    tokens = Tokens(Vault(crib.root))
    caller = tokens.verify(tokens.create("ci", ["invoke"], owner="ann"))
    counting(crib)
    async with crib.open() as project:
        project.trust.trust(project.get("count"), "ann")
        project.toolset.register("plain", lambda: 1)
        assert (await project.invoke(Call("plain", {}, "token:ci", identity=caller))).ok
        assert [tool.name for tool in project.tools("token:ci", caller)] == ["count", "plain"]
        events = project.subscribe("token:ci", caller)
        assert (await project.call("plain")).ok
        tokens.revoke("ci")
        assert (await project.call("plain")).ok
        events.close()
        assert [event.kind async for event in events] == ["started", "ended"]
        failed(await project.invoke(Call("plain", {}, "token:ci", identity=caller)), "invalid_token")
        for look in (project.tools, project.subscribe, partial(project.search, "count", caller="token:ci")):
            with pytest.raises(InvalidToken):
                look(identity=caller)
    assert (crib.last().event, crib.last().fields["caller"]) == ("TOOL_REFUSED", "token:ci")


async def test_events_of_calls_reach_only_those_who_may_see_the_tool(crib: Crib) -> None:
    counting(crib)
    crib.shell("secret_count")
    crib.write(".toolcrib/config.yml", POLICY)
    async with crib.open() as project:
        events = project.subscribe("token:ci", Caller("ci", frozenset({"invoke"})))
        for tool in ("secret_count", "count"):
            await project.invoke(Call(tool, COUNT, "cli"))
        events.close()
        assert [(event.tool, event.kind) async for event in events] == [
            ("count", "started"),
            ("count", "ended"),
        ]


async def test_rules_decide_by_caller_and_by_arguments(crib: Crib) -> None:
    counting(crib)
    crib.shell("secret_count")
    crib.write(".toolcrib/config.yml", POLICY)
    await trust(crib, "count")
    assert (await invoke(crib, "count", COUNT, "cli")).ok
    assert "never" in failed(await invoke(crib, "count", {"c": "rm -rf x"}, "cli"), "policy_denied")
    assert "an agent calls" in failed(await invoke(crib, "count", COUNT, "mcp:x"), "approval_required")
    failed(await invoke(crib, "secret_count", {"c": "echo"}, "token:ci"), "policy_denied")
    async with crib.open() as project:
        assert [tool.name for tool in project.tools("token:ci")] == ["count"]
        assert [tool.name for tool in project.tools("cli")] == ["count", "secret_count"]
    assert lines(crib) == 1
    crib.write(".toolcrib/config.yml", "policy: {default: ask, rules: [{effect: allow, tools: [count]}]}\n")
    crib.trust()
    assert (await invoke(crib, "count", COUNT, "cli")).ok
    failed(await invoke(crib, "secret_count", {"c": "echo"}, "cli"), "approval_required")


async def test_a_token_is_held_to_its_scopes_and_tools(crib: Crib) -> None:
    counting(crib)
    crib.shell("other")
    await trust(crib, "count")
    reader = Caller("r", frozenset({"read"}))
    narrow = Caller("n", frozenset({"invoke"}), ("cou*",))
    failed(await invoke(crib, "count", COUNT, "token:r", reader), "invalid_token")
    assert (await invoke(crib, "count", COUNT, "token:n", narrow)).ok
    failed(await invoke(crib, "other", {"c": "echo"}, "token:n", narrow), "invalid_token")
    crib.write(".toolcrib/tools/broken/tool.yml", "name: broken\nnonsense: 1\n")
    failed(await invoke(crib, "broken", {}, "token:r", reader), "invalid_manifest")
    failed(await invoke(crib, "broken", {}, "token:n", narrow), "tool_not_found")
    async with crib.open() as project:
        assert [tool.name for tool in project.tools("token:n", narrow)] == ["count"]


def test_settings_that_weaken_count_only_once_trusted(crib: Crib) -> None:
    counting(crib)
    crib.write(
        ".toolcrib/config.yml", "sandbox: {minimum: none}\npolicy: {self_approval: true, default: deny}\n"
    )
    project = crib.open()
    assert project.sandbox_level.level == "full"
    assert not project.config.policy.self_approval
    assert {waiting.name for waiting in project.waiting} == {"sandbox.minimum", "policy.self_approval"}
    failed(crib.call("count", COUNT), "policy_denied")


# -- turns and keys ------------------------------------------------------------------------------

CALLS = """
import asyncio, json, sys
from toolcrib import Project
async def main():
    async with Project.open(sys.argv[1], accept="all") as project:
        made = [project.call("count", {"c": sys.argv[2]}) for _ in range(int(sys.argv[3]))]
        results = await asyncio.gather(*made)
        print(json.dumps([r.status if r.error is None else r.error.code for r in results]))
asyncio.run(main())
"""


def test_calls_a_minute_hold_for_all_processes_together(crib: Crib) -> None:
    counting(crib, limits={"calls_per_minute": 4})
    command = [sys.executable, "-c", CALLS, str(crib.root), "echo x >> count", "3"]
    workers = [Forked(command, stdout=subprocess.PIPE) for _ in range(3)]
    codes = [code for worker in workers for code in json.loads(worker.communicate()[0])]
    assert sorted(codes) == ["ok"] * 4 + ["rate_limited"] * 5
    assert lines(crib) == 4
    late = crib.call("count", COUNT)
    failed(late, "rate_limited")
    assert late.error is not None
    assert 0 < late.error.details["retryAfterS"] <= 60
    assert late.error.status == 429
    assert crib.last().event == "TOOL_REFUSED"


def test_calls_at_one_time_hold_for_all_processes_together(crib: Crib) -> None:
    counting(crib)
    crib.write(".toolcrib/config.yml", "limits: {concurrency: 1}\n")
    script = "echo x >> count; until [ -e go ]; do sleep 0.05; done"
    command = [sys.executable, "-c", CALLS, str(crib.root), script, "1"]
    with Forked(command, stdout=subprocess.PIPE) as first:
        wait_for(lambda: lines(crib), "the first call")
        failed(crib.call("count", COUNT), "rate_limited")
        crib.write("go", "")
        assert json.loads(first.communicate()[0]) == ["ok"]
    assert crib.call("count", COUNT).ok


async def test_a_call_whose_launcher_is_killed_has_run(crib: Crib) -> None:
    crib.shell(permissions={"fs": {"write": ["."]}})
    arguments = {"c": "echo ran >> out; sleep 30"}
    async with crib.open() as project:
        calling = asyncio.ensure_future(project.call("sh", arguments, idempotency_key="k"))
        assert await asyncio.to_thread(eventually, (crib.root / "out").exists)
        os.kill(shared().pids()[""], signal.SIGKILL)
        for result in (await calling, await project.call("sh", arguments, idempotency_key="k")):
            failed(result, "unavailable")
    assert (crib.root / "out").read_text() == "ran\n"
    assert [one.event for one in crib.audit()] == ["TOOL_EXECUTED", "TOOL_REPLAYED"]


async def test_a_request_that_is_redirected_to_another_host_was_made(crib: Crib) -> None:
    made: list[str] = []

    async def handler(request: web.Request) -> web.Response:
        made.append(request.path)
        return web.Response(status=307, headers={"Location": "http://other.test/"})

    async with serving(handler) as port:
        pay = {"method": "POST", "url": f"http://127.0.0.1:{port}/pay", "body": {"sum": 1}}
        crib.tool("pay", "http", pay, permissions={"network": {"allow": [f"127.0.0.1:{port}"]}})
        async with crib.open() as project:
            for _ in range(2):
                failed(await project.call("pay", idempotency_key="k"), "host_not_allowed")
    assert made == ["/pay"]
    assert [one.event for one in crib.audit()] == ["TOOL_EXECUTED", "TOOL_REPLAYED"]


def test_a_key_runs_its_call_once(crib: Crib) -> None:
    counting(crib)
    first = crib.call("count", COUNT, idempotency_key="k1")
    again = crib.call("count", COUNT, idempotency_key="k1")
    assert (first.value, again.value, lines(crib)) == ("1\n", "1\n", 1)
    assert crib.last().event == "TOOL_REPLAYED"
    failed(crib.call("count", {"c": "echo"}, idempotency_key="k1"), "idempotency_conflict")
    assert crib.call("count", COUNT, idempotency_key="k2").value == "2\n"


def test_a_failure_is_recorded_too_but_a_refusal_is_not(crib: Crib) -> None:
    counting(crib)
    failed(crib.call("count", {"c": "echo x >> count; exit 3"}, idempotency_key="k"), "command_failed")
    failed(crib.call("count", {"c": "echo x >> count; exit 3"}, idempotency_key="k"), "command_failed")
    assert lines(crib) == 1
    crib.shell("keyed", permissions={"secrets": {"KEY": {}}})
    failed(crib.call("keyed", {"c": "echo"}, idempotency_key="s"), "secret_missing")
    crib.secrets = {"KEY": "value"}
    assert crib.call("keyed", {"c": "echo"}, idempotency_key="s").ok


async def test_a_second_call_waits_for_the_first_with_its_key(crib: Crib) -> None:
    counting(crib)
    slow = {"c": "sleep 1; echo x >> count; wc -l < count"}

    async def made(project: Project) -> str:
        return str((await project.call("count", slow, idempotency_key="k")).unwrap())

    async with crib.open() as one, crib.open() as two:
        assert set(await asyncio.gather(made(one), made(two), made(one))) == {"1\n"}
    assert lines(crib) == 1
