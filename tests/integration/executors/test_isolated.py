"""Functions in a process of their own: whatever they do, this process and its other calls go on."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.integration.executors import isolated_tools
from tests.integration.sandbox.ground import eventually
from tests.patience import GROWING_MS, patient
from toolcrib import Result, Retry, Toolset
from toolcrib.errors import DefinitionError
from toolcrib.sandbox.host.pool import shared

ROOT = Path(__file__).parents[3]
ONCE = Retry(max_attempts=1)


def toolset(**options: Any) -> Toolset:
    tools = Toolset(retry=ONCE)
    names = ("where", "where_async", "end", "give", "fail", "snooze_once", "hang", "start_and_die")
    for name in (*names, "hang_and_stop", "surroundings", "pools", "variables"):
        tools.register(name, getattr(isolated_tools, name), isolation="process", **options)
    return tools


def message_of(result: Result) -> str:
    assert result.error is not None, result
    assert result.error.code == "tool_failed"
    return result.error.message


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


def gone(pids: Path) -> bool:
    """Whether both processes written down end."""
    assert is_written(pids)
    return ended(pids)


def ended(pids: Path) -> bool:
    """Whether the processes written down so far end."""
    numbers = [int(number) for number in pids.read_text().split()]
    return eventually(lambda: not any(map(alive, numbers)))


def is_written(pids: Path) -> bool:
    return pids.exists() and pids.read_text().endswith("\n")


async def written(pids: Path) -> None:
    deadline = time.monotonic() + patient(20)
    while not is_written(pids):
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


async def test_it_runs_elsewhere_and_types_go_along() -> None:
    result = await toolset().execute("where", {"x": 1, "when": "2026-01-02"})

    assert result.pop("pid") != os.getpid()
    assert result == {"point": {"x": 1, "when": "2026-01-02"}, "type": "date"}


async def test_it_gets_no_variables() -> None:
    assert await toolset().execute("variables", variables={"tenant": "t"}) == {}


async def test_a_coroutine_function() -> None:
    assert await toolset().execute("where_async", {"n": 1}) == 2


async def test_many_at_once() -> None:
    tools = toolset()
    found = await asyncio.gather(*(tools.execute("where_async", {"n": n}) for n in range(8)))

    assert found == list(range(1, 9))


@pytest.mark.parametrize(
    ("how", "says", "code"),
    [
        ("exit", "ended with exit code 3 before it answered", 3),
        ("abort", "was ended by signal 6 (Aborted)", -6),
        ("segv", "was ended by signal 11 (Segmentation fault)", -11),
        ("kill", "was ended by signal 9 (Killed)", -9),
        ("rt", "was ended by signal 39", -39),
    ],
)
async def test_a_crash_is_an_error_of_that_call(how: str, says: str, code: int) -> None:
    tools = toolset()
    crashed, other = await asyncio.gather(
        tools.call("end", {"how": how}), tools.call("where_async", {"n": 1})
    )

    assert says in message_of(crashed)
    assert crashed.error is not None
    assert crashed.error.details["exitCode"] == code
    assert other.value == 2


async def test_a_crash_is_tried_again_like_any_failure() -> None:
    tools = Toolset()
    tools.register("end", isolated_tools.end, isolation="process", idempotent=True)

    assert (await tools.call("end", {"how": "exit"})).attempts == 2


async def test_sys_exit_is_a_failure() -> None:
    assert message_of(await toolset().call("end", {"how": "sys.exit"})) == "the tool called sys.exit(4)"


async def test_a_value_without_a_json_form_is_a_failure() -> None:
    assert "that is not JSON" in message_of(await toolset().call("give", {"what": "lambda"}))


async def test_bytes_are_content_as_in_this_process() -> None:
    (block,) = (await toolset().call("give", {"what": "bytes"})).blocks
    assert (block["type"], block["resource"]["blob"]) == ("resource", "eA==")


async def test_large_and_odd_values_come_back() -> None:
    tools = toolset()

    assert len(await tools.execute("give", {"what": "big"})) == 5_000_000
    assert await tools.execute("give", {"what": "set"}) == [1, 2]


@pytest.mark.parametrize(
    ("how", "code", "message"),
    [
        ("cancel", "tool_cancelled", "no use"),
        ("discard", "invalid_input", "no such id"),
        ("retry", "tool_failed", "busy"),
        ("value", "tool_failed", "ValueError: bad"),
        ("plain", "tool_failed", "bad"),
        ("failed", "tool_failed", "bad"),
        ("interrupt", "tool_failed", "KeyboardInterrupt"),
        ("stop", "tool_failed", "StopIteration: x"),
    ],
)
async def test_what_it_raises_means_the_same_as_here(how: str, code: str, message: str) -> None:
    result = await toolset().call("fail", {"how": how})

    assert result.error is not None
    assert (result.error.code, result.error.message) == (code, message)


async def test_it_may_snooze(tmp_path: Path) -> None:
    result = await toolset().call("snooze_once", {"marker": str(tmp_path / "marker")})

    assert (result.value, result.snoozes, result.attempts) == ("done", 1, 1)


@pytest.mark.parametrize("spin", [False, True], ids=["sleeping", "spinning"])
async def test_a_hang_is_killed_at_its_limit_with_what_it_started(tmp_path: Path, spin: bool) -> None:
    pids = tmp_path / "pids"
    for limit_ms in GROWING_MS:
        result = await toolset(timeout_ms=limit_ms).call("hang", {"pids": str(pids), "spin": spin})
        if is_written(pids):
            break
    else:
        raise AssertionError("no limit is long enough")

    assert result.error is not None
    assert result.error.code == "timed_out"
    assert gone(pids)


@pytest.mark.parametrize("often", [False, True], ids=["once", "often"])
async def test_what_stops_its_keeper_is_ended_all_the_same(tmp_path: Path, often: bool) -> None:
    pids = tmp_path / "pids"
    tools = toolset()
    call = asyncio.create_task(tools.call("hang_and_stop", {"pids": str(pids), "often": often}))
    await written(pids)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(call, patient(60))

    assert gone(pids)
    assert await tools.execute("where_async", {"n": 1}) == 2


async def test_a_cancelled_call_is_killed_with_what_it_started(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    call = asyncio.create_task(toolset().call("hang", {"pids": str(pids)}))
    await written(pids)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call

    assert gone(pids)


async def test_what_was_started_goes_when_the_tool_has_answered(tmp_path: Path) -> None:
    pids = tmp_path / "pids"

    assert await toolset().execute("hang", {"pids": str(pids), "answer": True}) == "answered"
    assert gone(pids)


async def test_a_child_left_behind_does_not_hold_up_the_call(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    result = await toolset(timeout_ms=100_000).call("start_and_die", {"pids": str(pids)})

    assert "exit code 5" in message_of(result)
    assert gone(pids)


@pytest.mark.parametrize("after", [0.0, 0.001, 0.01, 0.05])
async def test_cancelled_while_being_started_nothing_is_left(tmp_path: Path, after: float) -> None:
    pids = tmp_path / "pids"
    tools = toolset()
    await tools.execute("where_async", {"n": 1})
    call = asyncio.create_task(tools.call("hang", {"pids": str(pids)}))
    await asyncio.sleep(after)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await asyncio.sleep(0.5)

    assert not pids.exists() or ended(pids)  # it may have been stopped between writing one and two


SCRIPT = """
import asyncio, json, sys
from tests.integration.executors import isolated_tools
from toolcrib import Toolset

tools = Toolset()
tools.register("tool", getattr(isolated_tools, sys.argv[1]), isolation="process")
if __name__ == "__main__":
    asyncio.run(tools.call("tool", sys.argv[2]))
"""


def start(folder: Path, tool: str, arguments: dict[str, Any]) -> subprocess.Popen[bytes]:
    """Another process that calls this tool."""
    script = folder / "script.py"
    script.write_text(SCRIPT)
    return subprocess.Popen(
        [sys.executable, str(script), tool, json.dumps(arguments)],
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"},
        stdout=subprocess.PIPE,
    )


@pytest.mark.parametrize("spin", [False, True], ids=["sleeping", "spinning"])
async def test_a_server_that_is_killed_leaves_no_child(tmp_path: Path, spin: bool) -> None:
    pids = tmp_path / "pids"
    with start(tmp_path, "hang", {"pids": str(pids), "spin": spin}) as server:
        try:
            await written(pids)
        finally:
            server.kill()

    assert gone(pids)


async def test_a_server_that_is_killed_leaves_no_child_whose_keeper_was_stopped(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    with start(tmp_path, "hang_and_stop", {"pids": str(pids)}) as server:
        try:
            await written(pids)
        finally:
            server.kill()

    assert gone(pids)


def test_what_is_printed_is_not_lost(tmp_path: Path) -> None:
    with start(tmp_path, "tell", {"text": "hello"}) as process:
        printed, _ = process.communicate()

    assert printed == b"hello"


def environment_of(pid: int) -> str:
    """Return what others can read of a process's environment: only root can read a launcher's."""
    try:
        return Path(f"/proc/{pid}/environ").read_text()
    except PermissionError:
        return ""


async def spare_ready() -> bool:
    deadline = time.monotonic() + patient(20)
    while not shared().waiting():
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(0.01)
    return True


async def test_spares_are_used_once_and_find_what_the_server_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ISOLATED_TEST", "secret-5c1e")
    monkeypatch.setattr(sys, "path", [*sys.path, "/nowhere"])
    tools = toolset()
    found = []
    for number in range(4):
        found.append(await tools.execute("surroundings", {"word": f"call {number}"}))
        assert number == 0 or await spare_ready()

    assert [one["seen"] for one in found] == [[f"call {number}"] for number in range(4)]
    for one in found:
        assert one["env"] == one["at_import"] == "secret-5c1e"
        assert (one["cwd"], one["path"]) == (str(tmp_path), "/nowhere")
        assert one["prefix"] == sys.prefix
    assert "secret-5c1e" not in environment_of(shared().pids()["functions"])


async def test_a_changed_environment_is_never_that_of_a_spare(monkeypatch: pytest.MonkeyPatch) -> None:
    tools = toolset()
    for word in ("one", "one", "two", "three"):
        monkeypatch.setenv("ISOLATED_TEST", word)
        found = await tools.execute("surroundings", {"word": ""})
        assert (found["env"], found["at_import"]) == (word, word)


async def test_it_may_have_processes_of_its_own() -> None:
    assert await toolset().execute("pools", {}) == [1, 2]


SCRIPTED = """
import asyncio, sys
from toolcrib import Toolset

print("imported as", __name__, flush=True)
tools = Toolset()

@tools.tool("double", isolation="process")
def double(n: int) -> int:
    return n * FACTOR

FACTOR = 2
{guard}
async def main():
    print([await tools.execute("double", {{"n": n}}) for n in (1, 2, 3)])
{indent}asyncio.run(main())
"""


def test_functions_of_a_script_work(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPTED.format(guard="", indent="if __name__ == '__main__': "))
    done = subprocess.run([sys.executable, "script.py"], capture_output=True, check=False, cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == b"imported as __main__"
    assert b"imported as __mp_main__" in done.stdout
    assert b"[2, 4, 6]" in done.stdout


def test_functions_of_a_module_run_by_name_work(tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package/tools.py").write_text(
        SCRIPTED.format(guard="", indent="if __name__ == '__main__': ")
    )
    argv = [sys.executable, "-m", "package.tools"]
    done = subprocess.run(argv, capture_output=True, check=False, cwd=tmp_path)

    # What waits for a next call may write at the same time.
    assert b"[2, 4, 6]" in done.stdout, done.stderr


def test_a_script_without_a_guard_is_reported_and_does_not_call_itself(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPTED.format(guard="", indent=""))
    argv = [sys.executable, "script.py"]
    done = subprocess.run(argv, capture_output=True, check=False, cwd=tmp_path)

    assert done.returncode == 1
    assert b'if __name__ == "__main__"' in done.stderr


def test_a_script_that_cannot_be_imported_again_is_reported_as_the_error_of_the_call(tmp_path: Path) -> None:
    body = SCRIPTED.format(guard="", indent="if __name__ == '__main__': ")
    (tmp_path / "script.py").write_text(f"assert __name__ == '__main__', 'only once'\n{body}")
    argv = [sys.executable, "script.py"]
    done = subprocess.run(argv, capture_output=True, check=False, cwd=tmp_path)

    assert done.returncode == 1
    assert b"AssertionError: only once" in done.stderr


def shadowed(n: int) -> int:
    return n


original, shadowed = shadowed, lambda n: n


async def test_a_function_that_a_child_cannot_find_is_reported() -> None:
    tools = Toolset()
    tools.register("shadowed", original, isolation="process")
    result = await tools.call("shadowed", {"n": 1})

    assert isinstance(result.error, DefinitionError)
    assert "cannot be sent to a process of its own" in result.error.message
