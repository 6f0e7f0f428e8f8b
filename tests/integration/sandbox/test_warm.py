"""Launchers that stay and spare sandboxes: fast, and still nothing passes from one call to the next."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import need
from tests.descriptors import descriptors
from tests.integration.sandbox.ground import (
    CANARY,
    PATH,
    Ground,
    eventually,
    processes_knowing,
    processes_with,
    said,
)
from toolcrib.errors import UnavailableError
from toolcrib.sandbox import Completed, Confinement, Script, Warmth, configure, run
from toolcrib.sandbox.host.enforcement import groups
from toolcrib.sandbox.host.pool import shared

SOURCE = str(Path(__file__).parents[3] / "src")
BASE = os.path.realpath(sys.executable)
SCRIPT = """
import json, os, sys
def main():
    job = json.loads(sys.stdin.buffer.read())
    sys.path[:0] = job["path"]
    import tool
    os.write(3, json.dumps(tool.run(*job["args"])).encode())
"""
STATEFUL = """
import builtins, json, os
seen = []
def run(word):
    seen.append(word)
    json.marks = getattr(json, "marks", []) + [word]
    open("/tmp/left", "a").write(word)
    builtins.left = getattr(builtins, "left", "") + word
    before = dict(os.environ)
    os.environ["LEFT"] = word
    return [seen, json.marks, open("/tmp/left").read(), builtins.left, before, os.getcwd()]
"""


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    configure(Warmth())
    yield
    configure(Warmth())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A tool's folder with the script that calls it."""
    folder = Path(os.path.realpath(tmp_path)) / "tool"
    folder.mkdir()
    (folder / "script.py").write_text(SCRIPT)
    (folder / "tool.py").write_text(STATEFUL)
    return folder


def python_job(
    folder: Path, *args: Any, interpreter: str = BASE, timeout_ms: int = 120_000, **more: Any
) -> Confinement:
    script = str(folder / "script.py")
    return Confinement(
        argv=(BASE, "-I", "-c", f"exec(open({script!r}).read()); main()"),
        cwd="/tmp",
        read=(str(folder), os.path.realpath(sys.base_prefix)),
        stdin=json.dumps({"path": [str(folder)], "args": args}).encode(),
        result_limit=100_000,
        timeout_ms=timeout_ms,
        script=Script(script, interpreter, BASE),
        **more,
    )


def command(script: str, **more: Any) -> Confinement:
    more = {"cwd": "/tmp", "env": {"PATH": PATH}, "timeout_ms": 120_000, **more}
    return Confinement(argv=("/bin/sh", "-c", script), **more)


async def spare_ready(count: int = 1) -> bool:
    return await asyncio.to_thread(eventually, lambda: shared().waiting() >= count)


async def warmed(job: Confinement) -> None:
    """Call until a spare waits."""
    await run(job)
    await run(job)
    assert await spare_ready()


def answer(done: Completed) -> Any:
    assert done.result, said(done)
    return json.loads(done.result)


def alive(pids: set[int]) -> set[int]:
    return {pid for pid in pids if Path(f"/proc/{pid}").exists()}


def below(pid: int) -> set[int]:
    """A process and all that descend from it."""
    found = {pid}
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return set()
    for child in children:
        found |= below(int(child))
    return found


def ours() -> set[int]:
    return {pid for launcher in shared().pids().values() for pid in below(launcher)}


# Spares


async def test_a_spare_waits_after_the_second_call_and_is_used_once(folder: Path) -> None:
    await run(command(":"))
    await asyncio.sleep(0.05)
    assert shared().waiting() == 0
    await run(command(":"))
    assert await spare_ready()
    waiting = ours()
    done = await run(command("echo x"))
    assert done.stdout == b"x\n"
    assert await spare_ready()
    assert waiting - ours(), "the spare that waited is gone"


async def test_nothing_passes_from_one_call_to_the_next(folder: Path) -> None:
    for number in range(5):
        word = f"w{number}"
        found = answer(await run(python_job(folder, word, env={"ONLY": word})))
        assert found == [[word], [word], word, word, {"ONLY": word}, "/tmp"]
        assert number < 1 or await spare_ready()


async def test_secrets_come_with_the_call_alone(folder: Path) -> None:
    first, second = f"first-{os.getpid()}", f"second-{os.getpid()}"

    def call_python(env: dict[str, str]) -> Confinement:
        return python_job(folder, "x", env=env)

    def call_command(env: dict[str, str]) -> Confinement:
        return command("env", env=env)

    for make in (call_python, call_command):
        await warmed(make({"KEY": first}))
        assert not processes_knowing(first)
        done = await run(make({"KEY": second}))
        told = said(done) + done.result.decode()
        assert second in told
        assert first not in told
        assert await spare_ready()
        done = await run(make({}))
        told = said(done) + done.result.decode()
        assert second not in told
        assert "KEY" not in told


async def test_launchers_hold_no_secret_and_no_environment(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SERVER_SECRET", CANARY)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(folder))  # A folder that a tool could have written to.
    await warmed(python_job(folder, CANARY, env={"KEY": CANARY}))

    def know_nothing() -> bool:
        held = [b"".join(writable_memory(pid)) for pid in ours()]
        return len(held) > 2 and all(len(one) > 100_000 and CANARY.encode() not in one for one in held)

    assert await asyncio.to_thread(eventually, know_nothing)  # Once what was used has gone.
    assert all(initial_environment(pid) == {""} for pid in ours())


def initial_environment(pid: int) -> set[str]:
    entries = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return {entry.partition(b"=")[0].decode() for entry in entries}


def writable_memory(pid: int) -> Iterator[bytes]:
    try:
        lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
        memory = Path(f"/proc/{pid}/mem").open("rb", buffering=0)  # noqa: SIM115
    except PermissionError:
        pytest.skip("only root may look into what is not dumpable")
    except (FileNotFoundError, ProcessLookupError):
        return
    with memory:
        for line in lines:
            places, mode = line.split()[:2]
            if mode.startswith("rw"):
                begin, end = (int(place, 16) for place in places.split("-"))
                memory.seek(begin)
                yield memory.read(end - begin)


async def test_spares_are_apart_by_what_is_granted(ground: Ground) -> None:
    project = str(ground.project)
    await warmed(command("cat src/file", cwd=project, read=(project,)))
    done = await run(command("cat src/file", cwd=project, empty=(project,)))
    assert done.exit_code != 0
    done = await run(command("touch src/new", cwd=project, read=(project,)))
    assert done.exit_code != 0
    done = await run(command("ulimit -n", cwd=project, read=(project,), open_files=77))
    assert done.stdout == b"77\n"


async def test_a_changed_grant_is_seen_at_once(ground: Ground) -> None:
    folder = ground.project / "src"
    job = command("cat file", cwd=str(folder), read=(str(folder),))
    await warmed(job)
    folder.rename(ground.project / "old")
    folder.mkdir()
    (folder / "file").write_text("new\n")
    assert (await run(job)).stdout == b"new\n"
    assert await spare_ready()
    folder.rename(ground.project / "older")
    (ground.project / "src").symlink_to(ground.outside)
    with pytest.raises(Exception, match="symbolic link"):
        await run(job)


async def test_a_secret_file_that_came_later_is_hidden(ground: Ground) -> None:
    project = ground.project
    late, replaced = project / "late.env", project / ".env"
    job = command(
        "cat late.env .env", cwd=str(project), read=(str(project),), hide=(str(late), str(replaced))
    )
    await warmed(job)
    late.write_text(CANARY)
    assert CANARY not in said(await run(job))
    assert await spare_ready()
    (project / "x").write_text(CANARY)
    (project / "x").rename(replaced)
    assert CANARY not in said(await run(job))


async def test_a_protected_place_that_came_later_is_protected(ground: Ground) -> None:
    project = ground.project
    job = command(
        "touch .glee/new", cwd=str(project), write=(str(project),), protect=(str(project / ".glee"),)
    )
    await warmed(job)
    (project / ".glee").mkdir()
    done = await run(job)
    assert done.exit_code != 0
    assert not (project / ".glee/new").exists()


async def test_a_killed_spare_is_not_used() -> None:
    await warmed(command(":"))
    launcher = shared().pids()[""]
    for pid in below(launcher) - {launcher}:
        with suppress(ProcessLookupError):  # One goes with another.
            os.kill(pid, signal.SIGKILL)
    assert (await run(command("echo x"))).stdout == b"x\n"


# Python


async def test_a_call_in_a_running_interpreter_is_like_one_in_a_fresh_one(folder: Path) -> None:
    (folder / "tool.py").write_text("""
import builtins, os, signal, sys, __main__
def run():
    flags = {name: getattr(sys.flags, name) for name in sys.flags.__match_args__}
    del flags["no_site"]  # documented: the launcher runs `site` later, in the sandbox
    return [sys.argv[0], sys.executable, flags, sys.path[1:], sys.stdin.read(), sorted(vars(builtins)),
            [str(signal.getsignal(number)) for number in sorted(signal.valid_signals())],
            sorted(name for name in sys.modules if "toolcrib" in name), __main__.__name__,
            os.getpid(), sorted(os.listdir("/proc/self/fd")), sys.prefix]
""")
    argv = (BASE, "-I", "-X", "utf8", str(folder / "runner.py"))
    (folder / "runner.py").write_text(f"{SCRIPT}\nif __name__ == '__main__':\n    main()\n")
    job = python_job(folder)
    warm = answer(await run(job))
    fresh = Confinement(argv=argv, cwd="/tmp", read=job.read, stdin=job.stdin, result_limit=100_000)
    cold = answer(await run(fresh))
    assert warm[1:] == cold[1:]


async def test_each_call_has_random_numbers_threads_and_locks_of_its_own(folder: Path) -> None:
    (folder / "tool.py").write_text("""
import logging, os, random, ssl, tempfile, threading, uuid
from concurrent.futures import ThreadPoolExecutor
def run():
    main = threading.main_thread()
    with ThreadPoolExecutor(3) as pool:
        squares = sum(pool.map(lambda n: n * n, range(10)))
    logging.getLogger("x").warning("told")
    own = main is threading.current_thread() and threading.get_native_id() == os.getpid()
    names = [random.random(), tempfile.mktemp(), uuid.uuid4().hex, ssl.RAND_bytes(8).hex()]
    return [names, own, main.ident == threading.get_ident(), squares, threading.active_count()]
""")
    seen: set[Any] = set()
    for number in range(4):  # the first without a spare, the last with one
        names, *rest = answer(await run(python_job(folder)))
        assert rest == [True, True, 285, 1]
        assert not seen & set(names)
        seen |= set(names)
        assert number < 1 or await spare_ready()


async def test_tools_may_have_modules_of_our_names(folder: Path) -> None:
    for name in ("toolcrib", "launcher", "kernel", "warm"):
        (folder / f"{name}.py").write_text(f"NAME = {str(folder)!r}")
    (folder / "tool.py").write_text(
        "import toolcrib, launcher, kernel, warm\n"
        "def run():\n    return [m.NAME for m in (toolcrib, launcher, kernel, warm)]"
    )
    assert answer(await run(python_job(folder))) == [str(folder)] * 4


async def test_children_of_a_tool_find_its_packages_and_end_as_they_like(folder: Path) -> None:
    (folder / "tool.py").write_text("""
import multiprocessing, os, sys
def double(number):
    return 2 * number
def run():
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        doubled = pool.map(double, [4])
    child = os.fork()
    if child == 0:
        sys.exit(7)
    return [doubled, os.waitstatus_to_exitcode(os.wait()[1])]
""")
    done = await run(python_job(folder, network="host"))
    assert answer(done) == [[8], 7], said(done)


async def test_threads_exit_functions_and_buffers_are_seen_to(folder: Path) -> None:
    (folder / "tool.py").write_text("""
import atexit, threading, time
def late():
    time.sleep(0.1)
    print("thread")
def run():
    atexit.register(print, "exit")
    threading.Thread(target=late).start()
    print("main", end=" ")
    return 1
""")
    done = await run(python_job(folder))
    assert done.stdout == b"main thread\nexit\n", said(done)
    assert done.exit_code == 0


async def test_an_interpreter_that_has_no_launcher_is_started_for_each_call(folder: Path) -> None:
    for _ in range(2):
        done = await run(python_job(folder, "w", interpreter="/bin/false"))
        assert answer(done)[0] == ["w"]
    assert "/bin/false" in shared().unfit
    shared().unfit.clear()


async def test_an_interpreter_whose_launcher_was_killed_gets_another(folder: Path) -> None:
    seen = 0
    while seen < 2:
        task = asyncio.create_task(run(python_job(folder, "w")))
        for _ in range(3):
            await asyncio.sleep(0)
        assert eventually(lambda: BASE in shared().pids())
        os.kill(shared().pids()[BASE], signal.SIGKILL)
        with suppress(UnavailableError):  # The call has begun before the signal came.
            assert answer(await task)[0] == ["w"]
            assert BASE in shared().pids()
            assert not shared().unfit
            seen += 1
        configure(Warmth())


async def test_an_interpreter_that_had_no_launcher_is_tried_again_later(folder: Path) -> None:
    shared().unfit[BASE] = time.monotonic() + 100
    assert answer(await run(python_job(folder, "w")))[0] == ["w"]
    assert BASE not in shared().pids()
    shared().unfit[BASE] = time.monotonic() - 1
    assert answer(await run(python_job(folder, "w")))[0] == ["w"]
    assert BASE in shared().pids()
    shared().unfit.clear()


async def test_a_crash_is_one_call_s_only(folder: Path) -> None:
    (folder / "tool.py").write_text("def run():\n    import ctypes; ctypes.string_at(0)")
    launchers = [shared().pids()]
    for _ in range(3):
        done = await run(python_job(folder))
        assert done.signal == signal.SIGSEGV
        launchers.append(shared().pids())
    assert launchers[1] == launchers[2] == launchers[3]


# Launchers


async def test_a_killed_launcher_fails_its_calls_and_is_started_anew(ground: Ground) -> None:
    marker = f"marker-{os.getpid()}"
    hold = f"setsid sleep 60 & sleep 60; : {marker}"
    await warmed(command(":"))
    task = asyncio.create_task(run(command(hold)))
    assert await asyncio.to_thread(eventually, lambda: processes_with(marker))
    before = ours()
    os.kill(shared().pids()[""], signal.SIGKILL)
    with pytest.raises(UnavailableError, match="launcher") as caught:
        await task
    assert caught.value.retryable
    assert (await run(command("echo x"))).stdout == b"x\n"
    assert await asyncio.to_thread(eventually, lambda: not alive(before))
    assert not processes_with(marker)


SERVER = """
import asyncio, json, os, sys
sys.path.insert(0, sys.argv[1])
from toolcrib.sandbox import Confinement, Script, run
from toolcrib.sandbox.host.pool import shared
job, python = (Confinement(**dict(given, script=Script(*given["script"]) if given["script"] else None))
               for given in json.loads(sys.argv[2], object_hook=lambda d: {
                   k: tuple(v) if isinstance(v, list) else v for k, v in d.items()}))
async def main():
    import dataclasses
    python_ = dataclasses.replace(python, stdin=python.stdin.encode())
    for _ in range(2):
        await run(job)
        await run(python_)
    while shared().waiting() < 2:
        await asyncio.sleep(0.01)
    hold = dataclasses.replace(job, argv=("/bin/sh", "-c", "setsid sleep 60 & sleep 60"), tmp_size=1 << 20)
    task = asyncio.create_task(run(hold))
    await asyncio.sleep(0.5)
    print(json.dumps(shared().pids()), flush=True)
    await task
asyncio.run(main())
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM], ids=["kill -9", "terminated"])
def test_a_dead_server_leaves_no_launcher_spare_or_tool(folder: Path, how: signal.Signals) -> None:
    job, python = command(":"), python_job(folder, "x")
    given = json.dumps([
        {"argv": job.argv, "cwd": "/tmp", "script": None},
        {
            "argv": python.argv, "cwd": "/tmp", "read": python.read, "stdin": python.stdin.decode(),
            "result_limit": 1000, "script": [str(folder / "script.py"), BASE, BASE],
        },
    ])  # fmt: skip
    with subprocess.Popen([sys.executable, "-c", SERVER, SOURCE, given], stdout=subprocess.PIPE) as server:
        try:
            assert server.stdout is not None
            launchers = json.loads(server.stdout.readline())
            assert set(launchers) == {"", BASE}
            pids: set[int] = set()
            # Two launchers, two spares of two processes, and a tool of four: pid 1, a shell, two sleeps.
            while len(pids) < 9:
                pids = {pid for launcher in launchers.values() for pid in below(launcher)}
            server.send_signal(how)
            server.wait()
        finally:
            server.kill()
    assert eventually(lambda: not alive(pids))


async def test_what_is_not_used_is_ended(folder: Path) -> None:
    configure(Warmth(idle_s=2.0, spare_idle_s=1.5))
    for job in (python_job(folder, "x"), command(":")):
        await run(job)
        await run(job)
    pids = ours()
    assert await asyncio.to_thread(eventually, lambda: not shared().pids())
    assert await asyncio.to_thread(eventually, lambda: not alive(pids))
    assert (await run(command("echo x"))).stdout == b"x\n"


async def test_a_launcher_in_use_is_not_idle() -> None:
    configure(Warmth(idle_s=0.2, spare_idle_s=0.1))
    assert (await run(command("sleep 1; echo x"))).stdout == b"x\n"


async def test_launchers_are_bounded_in_number(folder: Path, tmp_path: Path) -> None:
    configure(Warmth(launchers=2))
    for number in range(4):
        link = tmp_path / f"python{number}"
        link.symlink_to(BASE)
        assert answer(await run(python_job(folder, "w", interpreter=str(link))))[0] == ["w"]
        assert len(shared().pids()) <= 2
    assert str(tmp_path / "python3") in shared().pids()


def remove_group(folder: Path) -> None:
    for path in (*folder.glob("slot-*"), folder):
        assert eventually(partial(removed, path)), f"{path} stays busy"


def removed(path: Path) -> bool:
    with suppress(OSError):  # busy while the last process of another test ends
        path.rmdir()
    return not path.exists()


async def test_control_groups_that_were_removed_are_made_anew() -> None:
    configure(Warmth(spares=0))
    job = command("echo x", memory_bytes=64 << 20)
    pool, reason = groups()
    need(f"control groups ({reason})", pool is not None, of_root=True)
    assert pool is not None
    before = (await run(job)).enforcement
    assert await asyncio.to_thread(eventually, lambda: not pool.used)
    for folder in {pool.memory.folder, pool.pids.folder}:
        remove_group(Path(folder))
    for _ in range(2):
        done = await run(job)
        assert (done.stdout, done.enforcement) == (b"x\n", before)


async def test_spares_are_bounded_in_number() -> None:
    configure(Warmth(spares=3))
    for size in range(6):
        for _ in range(2):
            await run(command(":", tmp_size=(1 << 20) + size * 4096))
        await asyncio.sleep(0.05)
    assert await spare_ready(3)
    assert shared().waiting() == 3


# Many


def mixed(folder: Path, number: int) -> Confinement:
    if number % 4 == 0:
        return python_job(folder, f"w{number}", env={"N": str(number)}, timeout_ms=300_000)
    if number % 4 == 1:
        return command(f"cat; echo {number} >&2", stdin=b"x" * 100_000, timeout_ms=300_000)
    if number % 4 == 2:
        return command(f"(setsid sleep 60 &); exit {number % 7}", timeout_ms=300_000)
    return command("sleep 60", timeout_ms=1_000)


async def test_two_hundred_at_once(folder: Path) -> None:
    await run(python_job(folder, "x"))
    done = await asyncio.gather(*(run(mixed(folder, number)) for number in range(200)))
    for number, one in enumerate(done):
        if number % 4 == 0:
            assert answer(one)[0] == [f"w{number}"]
        elif number % 4 == 1:
            assert (len(one.stdout), one.stderr) == (100_000, f"{number}\n".encode())
        elif number % 4 == 2:
            assert one.exit_code == number % 7
        else:
            assert one.timed_out


def open_in(pid: int) -> int:
    """Open descriptors; none of a process that only root may look at."""
    try:
        return descriptors(pid)
    except PermissionError:
        return 0


async def test_calls_leave_nothing(folder: Path) -> None:
    async def some(count: int) -> None:
        gate = asyncio.Semaphore(8)

        async def one(number: int) -> None:
            async with gate:
                await run(python_job(folder, "w") if number % 4 == 0 else command(f"exit {number % 5}"))

        await asyncio.gather(*(one(number) for number in range(count)))

    def state() -> tuple[int, int, int]:
        shared().drop_spares()
        held = sum(open_in(pid) for pid in shared().pids().values())
        return open_in(os.getpid()), held, len(ours())

    await some(20)
    assert await asyncio.to_thread(eventually, lambda: state()[2] == 2)
    settled = state()
    await some(60)
    assert await asyncio.to_thread(eventually, lambda: state() <= settled), (settled, state())
