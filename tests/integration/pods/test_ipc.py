"""Requests and results through files: whole, half, forged and hostile ones, each answered once."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from tests.mailbox import Runner, serve_once, write_halves
from toolcrib.errors import ConflictError, StateUnavailable, TimedOut, ToolFailed
from toolcrib.pods.ipc import Client, Server
from toolcrib.pods.protocol import EXEC, FAILED, MESSAGES, ExecRequest, ExecResult, OutboundMessage, Protocol
from toolcrib.pods.spool import Spool

Handle = Callable[[str, Any], Awaitable[Any]]


class MyToolRequest(Struct):
    """The request of the guide's example of a new protocol."""

    id: str
    param1: str


class MyToolResult(Struct):
    """Its result."""

    id: str
    output: str = ""
    error: str = ""


MY_TOOL = Protocol(
    "mytool", MyToolRequest, MyToolResult, refuse=lambda key, reason: MyToolResult(key, error=reason)
)


@asynccontextmanager
async def served(ipc: Path, handle: Handle, protocol: Any = EXEC, **options: Any) -> AsyncIterator[None]:
    spool = Spool(ipc, protocol.folder, options.pop("owners", ()))
    task = asyncio.create_task(Server(spool, protocol, handle, **options).run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        spool.close()


async def echo(key: str, request: ExecRequest) -> ExecResult:
    return ExecResult(key, stdout=request.command)


async def answer(runner: Runner, name: str) -> dict[str, Any]:
    return await asyncio.to_thread(runner.answer, name)


async def test_a_request_written_in_place_and_in_halves_is_answered_once_it_is_whole(tmp_path: Path) -> None:
    runner = Runner(tmp_path)
    async with served(tmp_path, echo):
        await asyncio.to_thread(
            write_halves, runner.folder / "exec-request-1.json", '{"id": "1", "command": "one"}', 0.3
        )
        assert await answer(runner, "1") == {
            "id": "1",
            "exitCode": 0,
            "stdout": "one",
            "stderr": "",
            "timedOut": False,
        }
        assert os.listdir(runner.folder) == [".claims"]


async def test_requests_that_lie_there_at_the_start_are_answered(tmp_path: Path) -> None:
    runner = Runner(tmp_path)
    for number in range(20):
        runner.put(str(number), command=f"line {number}")
    async with served(tmp_path, echo):
        assert [(await answer(runner, str(number)))["stdout"] for number in range(20)] == [
            f"line {number}" for number in range(20)
        ]


async def test_every_bad_request_gets_a_result_that_says_why(tmp_path: Path) -> None:
    runner = Runner(tmp_path)
    there = runner.folder / "exec-request-"
    (tmp_path / "secret").write_text(json.dumps({"id": "link", "command": "from elsewhere"}))

    def put(name: str, text: str) -> None:
        Path(f"{there}{name}.json").write_text(text)

    async with served(tmp_path, echo):
        put("half", '{"id": "half", "command":')
        put("empty", "")
        put("list", "[]")
        put("number", '{"id": "number", "command": 5}')
        put("other", '{"id": "../../etc/passwd", "command": "x"}')
        put("..", "{}")
        put("big", json.dumps({"command": "x" * (5 << 20)}))
        os.symlink(tmp_path / "secret", f"{there}link.json")
        os.mkfifo(f"{there}fifo.json")
        os.mkdir(f"{there}folder.json")
        reasons = {
            "half": "truncated",
            "empty": "is empty",
            "list": "Expected `object`",
            "number": "Expected `str`",
            "other": "not the one in the name",
            "big": "larger than",
            "link": "links are not followed",
            "fifo": "is not a file",
        }
        for name, reason in reasons.items():
            found = await answer(runner, name)
            assert found["exitCode"] == FAILED, name
            assert reason in found["stderr"], name
        assert (await answer(runner, ".."))["exitCode"] == 0
        with pytest.raises(OSError, match="directory"):  # The runner cannot remove what it did not write.
            await answer(runner, "folder")
        assert "is not a file" in (runner.folder / "exec-result-folder.json").read_text()
    assert sorted(os.listdir(tmp_path)) == ["secret", "tools"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
async def test_a_request_or_result_of_a_user_who_does_not_belong_there_does_not_count(tmp_path: Path) -> None:
    runner = Runner(tmp_path)
    runner.put("1", command="x")
    os.chown(runner.folder / "exec-request-1.json", 4242, -1)
    async with served(tmp_path, echo):
        assert "user 4242" in (await answer(runner, "1"))["stderr"]
    runner.put("2", command="x")
    os.chown(runner.folder / "exec-request-2.json", 4242, -1)
    async with served(tmp_path, echo, owners=[4242]):
        assert (await answer(runner, "2"))["stdout"] == "x"
    spool = Spool(tmp_path, "tools")
    forged = runner.folder / "exec-result-3.json"
    forged.write_text(json.dumps({"id": "3", "stdout": "forged"}))
    os.chown(forged, 4242, -1)
    async with Client(spool, EXEC).opened() as client:
        with pytest.raises(TimedOut, match="nobody answered"):
            await client.ask("3", ExecRequest("3", "x"), 0.3)
    spool.close()


async def test_a_request_is_for_the_server_of_its_target_and_others_leave_it(tmp_path: Path) -> None:
    runner = Runner(tmp_path)

    async def other(key: str, request: ExecRequest) -> ExecResult:
        return ExecResult(key, stdout="other")

    async with served(tmp_path, echo, accepts=lambda request: request.target in ("", "git")):
        runner.put("1", command="x", target="kubectl")
        runner.put("2", command="x", target="git")
        assert (await answer(runner, "2"))["stdout"] == "x"
        assert not (runner.folder / "exec-result-1.json").exists()
        async with served(tmp_path, other, accepts=lambda request: request.target == "kubectl"):
            assert (await answer(runner, "1"))["stdout"] == "other"


async def test_two_servers_of_one_folder_serve_each_request_once(tmp_path: Path) -> None:
    runner, seen = Runner(tmp_path), []

    async def note(key: str, request: ExecRequest) -> ExecResult:
        seen.append(key)
        await asyncio.sleep(0.001)
        return ExecResult(key)

    async with served(tmp_path, note), served(tmp_path, note):
        for number in range(100):
            runner.put(str(number), command="x")
        for number in range(100):
            await answer(runner, str(number))
    assert sorted(seen, key=int) == [str(number) for number in range(100)]


async def test_a_request_is_not_served_again_while_it_lies_there(tmp_path: Path) -> None:
    runner, seen = Runner(tmp_path), []

    async def note(key: str, request: ExecRequest) -> ExecResult:
        seen.append(key)
        return ExecResult(key)

    runner.put("1", command="x")
    request = (runner.folder / "exec-request-1.json").read_bytes()
    for marker in ("2", "3"):  # The second server is a new one, as after a restart.
        async with served(tmp_path, note):
            runner.put(marker, command="x")
            await answer(runner, marker)
        (runner.folder / "exec-request-1.json").write_bytes(request)
        (runner.folder / "exec-result-1.json").unlink(missing_ok=True)
    assert seen.count("1") == 1


async def test_an_id_may_be_used_again_once_its_request_is_removed(tmp_path: Path) -> None:
    runner = Runner(tmp_path)
    async with served(tmp_path, echo):
        for number in range(20):
            runner.put("1", command=str(number))
            assert (await answer(runner, "1"))["stdout"] == str(number)


async def test_a_request_that_is_removed_is_cancelled(tmp_path: Path) -> None:
    runner, ended = Runner(tmp_path), asyncio.Event()

    async def wait(key: str, request: ExecRequest) -> ExecResult:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        raise AssertionError

    async with served(tmp_path, wait):
        runner.put("1", command="x")
        while not (runner.folder / ".claims" / "exec-request-1.json").exists():  # noqa: ASYNC110 - of a file
            await asyncio.sleep(0.01)
        (runner.folder / "exec-request-1.json").unlink()
        await ended.wait()
    assert not (runner.folder / "exec-result-1.json").exists()


async def test_what_nobody_came_for_is_removed_after_ten_minutes(tmp_path: Path) -> None:
    runner = Runner(tmp_path)
    late = [
        "exec-request-1.json",
        "exec-result-1.json",
        "exec-result-2.json",
        ".part-x",
        "exec-request-9.json",
    ]
    for name in (*late, "other.txt", "exec-result-3.json"):
        (runner.folder / name).write_text('{"target": "nobody"}')
    for name in (*late, "other.txt"):
        os.utime(runner.folder / name, (1, 1))
    async with served(tmp_path, echo, accepts=lambda request: request.target != "nobody"):
        runner.put("marker", command="x")
        await answer(runner, "marker")
    assert sorted(os.listdir(runner.folder)) == [".claims", "exec-result-3.json", "other.txt"]


async def test_a_folder_that_is_removed_ends_the_server_with_an_error(tmp_path: Path) -> None:
    spool = Spool(tmp_path, "tools")
    task = asyncio.create_task(Server(spool, EXEC, echo).run())
    await asyncio.sleep(0)
    (tmp_path / "tools").rename(tmp_path / "elsewhere")
    with pytest.raises(StateUnavailable, match="was removed"):
        await task
    spool.close()
    os.symlink(tmp_path / "elsewhere", tmp_path / "tools")
    with pytest.raises(StateUnavailable, match="cannot be used"):
        Spool(tmp_path, "tools")


async def test_our_client_understands_an_executor_that_polls_and_writes_in_place(tmp_path: Path) -> None:
    spool = Spool(tmp_path, "tools")
    async with Client(spool, EXEC).opened() as client:
        executor = asyncio.create_task(asyncio.to_thread(serve_once, tmp_path))
        found = await client.ask("1", ExecRequest("1", "echo lathe; exit 3"), 100)
        await executor
    assert (found.stdout, found.exit_code) == ("lathe\n", 3)
    assert os.listdir(spool.path) == []
    spool.close()


async def test_a_client_that_comes_again_takes_the_result_of_its_earlier_request(tmp_path: Path) -> None:
    seen: list[str] = []

    async def note(key: str, request: ExecRequest) -> ExecResult:
        seen.append(request.command)
        return ExecResult(key, stdout=request.command)

    runner = Runner(tmp_path)
    runner.put("1", command="earlier")  # Of a runner that has died.
    spool = Spool(tmp_path, "tools")
    async with served(tmp_path, note), Client(spool, EXEC).opened() as client:
        assert (await client.ask("1", ExecRequest("1", "again"), 15)).stdout == "earlier"
    assert seen == ["earlier"]
    spool.close()


async def test_the_new_protocol_of_the_guide_is_one_declaration(tmp_path: Path) -> None:
    async def mine(key: str, request: MyToolRequest) -> MyToolResult:
        if request.param1 == "bad":
            raise ToolFailed("it is bad", hint="Send another.")
        return MyToolResult(key, request.param1.upper())

    runner = Runner(tmp_path, "mytool", "")
    async with served(tmp_path, mine, MY_TOOL):
        runner.put("1", param1="hello")
        runner.put("2", param1="bad")
        runner.put("3")
        assert await answer(runner, "1") == {"id": "1", "output": "HELLO", "error": ""}
        assert (await answer(runner, "2"))["error"] == "it is bad. Send another."
        assert "param1" in (await answer(runner, "3"))["error"]


async def test_messages_are_handled_in_order_kept_while_they_fail_and_put_aside_if_they_are_bad(
    tmp_path: Path,
) -> None:
    folder, done = tmp_path / "messages", asyncio.Event()
    seen: list[str] = []
    folder.mkdir()
    for number in range(5):
        (folder / f"send-{number}.json").write_text(json.dumps({"channel": "slack", "text": f"{number}"}))
    (folder / "send-bad.json").write_text('{"channel": "slack"}')

    async def once_busy(key: str, message: OutboundMessage) -> None:
        if not seen and not done.is_set():
            done.set()
            raise ConflictError("busy", retryable=True)
        seen.append(message.text)

    async with served(tmp_path, once_busy, MESSAGES, concurrency=1):
        await done.wait()
        while len(os.listdir(folder)) > 2:  # noqa: ASYNC110 - of files
            await asyncio.sleep(0.01)
    assert sorted(os.listdir(folder)) == [".claims", ".rejected"]
    assert os.listdir(folder / ".rejected") == ["send-bad.json"]
    assert sorted(seen) == ["0", "1", "2", "3", "4"]
