"""Groups in the kernel: limits hold, slots are used again, nothing is left behind."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import toolcrib
from tests.conftest import need
from tests.integration.sandbox.alone import NOBODY, interpreters, runs_as_nobody
from tests.integration.sandbox.ground import eventually
from tests.patience import patient
from toolcrib.sandbox.kernel import hierarchy
from toolcrib.sandbox.kernel.cgroup import CgroupPool, CgroupSlot, open_pool

MIB = 1 << 20
JOIN = 'for file; do echo 0 >"$file" || exit 99; done; exec "$PYTHON" -I -S -c "$CODE"'
FORKS = """
import os, sys, time
children = []
try:
    while len(children) < 200:
        child = os.fork()
        if child == 0:
            time.sleep(60)
        children.append(child)
except OSError as error:
    print(len(children), error.errno)
for child in children:
    os.kill(child, 9)
    os.wait()
"""
FOUR = """
import os, time
for _ in range(4):
    if os.fork() == 0:
        os.close(1)
        os.close(2)
        x = b"x" * (30 << 20)
        time.sleep(60)
        os._exit(0)
print(os.wait()[1])
"""
UNREAD = """
import socket
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
receivers = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(400)]
held = 0
for receiver in receivers:
    receiver.bind(("127.0.0.1", 0))
    receiver.setblocking(False)
    for _ in range(8):
        sender.sendto(bytes(50_000), receiver.getsockname())
for receiver in receivers:
    try:
        while data := receiver.recv(50_000):
            held += len(data)
    except BlockingIOError:
        pass
print(held)
"""


@pytest.fixture
def pool() -> Iterator[CgroupPool]:
    found, reason = open_pool(keep=4)
    need(f"writable cgroups ({reason})", found is not None, of_root=True)
    assert found is not None
    yield found
    found.close()
    for parent in (found.memory, found.pids):
        assert not Path(parent.folder).exists()


def start(slot: CgroupSlot, code: str) -> subprocess.Popen[str]:
    """Run Python in a slot."""
    return subprocess.Popen(
        ["/bin/sh", "-c", JOIN, "sh", *slot.join_files],
        env={"PYTHON": os.path.realpath(sys.executable), "CODE": code},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(slot: CgroupSlot, code: str) -> tuple[int, str]:
    """Run Python in a slot to its end."""
    with start(slot, code) as child:
        out, _ = child.communicate()
    return child.returncode, out


def test_memory_of_the_whole_tree_is_bounded(pool: CgroupPool) -> None:
    slot = pool.acquire(64 * MIB, 50)
    assert run(slot, "x = b'x' * (20 << 20); print('fits')") == (0, "fits\n")
    assert slot.events().oom_kills == 0
    # Each of four processes has less than the limit.
    code, out = run(slot, FOUR)
    assert code == -signal.SIGKILL or out == f"{int(signal.SIGKILL)}\n"
    assert slot.events().oom_kills >= 1
    pool.release(slot)


def test_files_in_memory_count(pool: CgroupPool) -> None:
    slot = pool.acquire(64 * MIB, 50)
    script = "import os\nf = os.memfd_create('x')\nfor _ in range(200): os.write(f, bytes(1 << 20))"
    assert run(slot, script)[0] == -signal.SIGKILL
    assert slot.events().oom_kills >= 1
    pool.release(slot)


def test_what_is_sent_and_not_received_counts(pool: CgroupPool) -> None:
    slot = pool.acquire(32 * MIB, 50)
    code, held = run(slot, UNREAD)
    assert code == 0
    assert MIB < int(held) < 32 * MIB
    pool.release(slot)


def test_processes_are_bounded_for_root_too(pool: CgroupPool) -> None:
    slot = pool.acquire(256 * MIB, 10)
    assert run(slot, FORKS) == (0, f"9 {errno.EAGAIN}\n")
    assert slot.events().pids_max == 1
    pool.release(slot)


def test_a_slot_is_used_again_and_remembers_nothing(pool: CgroupPool) -> None:
    slot = pool.acquire(256 * MIB, 10)
    fds = slot.join_fds
    run(slot, FORKS)
    run(slot, "x = b'x' * (100 << 20)")
    pool.release(slot)
    again = pool.acquire(32 * MIB, 5)
    assert again is slot
    assert again.join_fds == fds
    assert again.events() == (0, 0, 0)
    assert run(again, FORKS) == (0, f"4 {errno.EAGAIN}\n")
    assert run(again, "x = b'x' * (100 << 20)")[0] == -signal.SIGKILL
    assert again.events().oom_kills == 1
    assert again.events().memory_max >= 1
    pool.release(again)
    wide = pool.acquire(512 * MIB, 300)
    assert wide is slot
    assert run(wide, FORKS)[1] == ""
    pool.release(wide)


def test_descriptors_join_as_well(pool: CgroupPool) -> None:
    slot = pool.acquire(64 * MIB, 5)
    code = "import os, sys\nfor fd in sys.argv[1:]: os.write(int(fd), b'0')\n" + FORKS
    fds = [str(fd) for fd in slot.join_fds]
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code, *fds],
        pass_fds=slot.join_fds,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == f"4 {errno.EAGAIN}\n"
    pool.release(slot)


def test_what_still_runs_is_killed(pool: CgroupPool) -> None:
    slot = pool.acquire(256 * MIB, 100)
    # Out of reach of a signal to the group or the session, one of them stopped, and forking on.
    code = """
import os, signal, time
for n in range(5):
    if os.fork() == 0:
        os.setsid()
        if n == 0:
            os.kill(os.getpid(), signal.SIGSTOP)
        while n == 1:
            if os.fork() == 0:
                time.sleep(0.01)
                os._exit(0)
            try:
                os.waitpid(-1, os.WNOHANG)
            except OSError:
                pass
        time.sleep(60)
print("ready", flush=True)
time.sleep(60)
"""
    with start(slot, code) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        folders = slot.folders
        pool.release(slot)
        assert child.wait(patient(60)) == -signal.SIGKILL
    assert eventually(lambda: not any(Path(f).exists() and hierarchy.members(f) for f in folders))
    assert pool.acquire(MIB, 1) is not None


def test_after_a_kill_the_same_limits_are_set_again(pool: CgroupPool) -> None:
    slot = pool.acquire(64 * MIB, 10)
    with start(slot, "import time; print('ready', flush=True); time.sleep(60)") as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        waiting = threading.Thread(target=child.wait)
        waiting.start()
        pool.release(slot)
        waiting.join()
    again = pool.acquire(64 * MIB, 10)
    assert run(again, FORKS) == (0, f"9 {errno.EAGAIN}\n")
    pool.release(again)


def test_a_pool_keeps_some_groups_and_removes_others() -> None:
    pool, reason = open_pool(keep=1)
    need(f"writable cgroups ({reason})", pool is not None, of_root=True)
    assert pool is not None
    try:
        first, second = pool.acquire(64 * MIB, 50), pool.acquire(64 * MIB, 50)
        pool.release(first)
        pool.release(second)
        assert not Path(second.memory_folder).exists()
        pool.release(second)  # twice does no harm
        assert pool.acquire(64 * MIB, 50) is first
    finally:
        pool.close()
    with pytest.raises(BlockingIOError, match="closed"):
        pool.acquire(64 * MIB, 50)


def test_many_threads_share_a_pool(pool: CgroupPool) -> None:
    mine = threading.local()

    def turn(number: int) -> tuple[int, str]:
        mine.slot = pool.acquire((100 + number) * MIB, 10 + number % 3)
        try:
            return run(mine.slot, "import os; print(os.getpid())")
        finally:
            pool.release(mine.slot)

    with ThreadPoolExecutor(8) as threads:
        results = list(threads.map(turn, range(40)))
    assert [code for code, _ in results] == [0] * 40
    assert not pool.used
    assert not pool.stuck
    assert len(pool.free) <= 4


def test_two_pools_of_one_server(pool: CgroupPool) -> None:
    other, _ = open_pool()
    assert other is not None
    assert other.memory.folder != pool.memory.folder
    other.close()
    assert Path(pool.memory.folder).exists()


SERVER = """
import os, subprocess, sys, time
sys.path.insert(0, sys.argv[1])
from toolcrib.sandbox.kernel.cgroup import open_pool
pool, reason = open_pool()
slot = pool.acquire(64 << 20, 50)
join = 'for file; do echo 0 >"$file"; done; echo in; exec sleep 60'
child = subprocess.Popen(["/bin/sh", "-c", join, "sh", *slot.join_files], stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, pool.memory.folder, pool.pids.folder, flush=True)
if sys.argv[2] == "ends":
    sys.exit()
if sys.argv[2] == "forks":
    if os.fork() == 0:
        sys.exit()
    os.wait()
    print(all(map(os.path.isdir, slot.folders)), flush=True)
time.sleep(60)
"""


def server(what: str) -> tuple[subprocess.Popen[str], int, list[Path]]:
    source = str(Path(str(toolcrib.__file__)).parents[1])
    argv = [sys.executable, "-c", SERVER, source, what]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    pid, *folders = process.stdout.readline().split()
    return process, int(pid), [Path(folder) for folder in folders]


def gone(pid: int) -> bool:
    """Whether a process has ended, waited for or not."""
    try:
        return "State:\tZ" in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True


def test_a_server_that_ends_leaves_nothing(pool: CgroupPool) -> None:
    process, pid, folders = server("ends")
    with process:
        assert process.wait() == 0
    assert eventually(lambda: gone(pid))
    assert not any(folder.exists() for folder in folders)


def test_a_fork_of_a_server_takes_nothing_away(pool: CgroupPool) -> None:
    process, _, _ = server("forks")
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "True\n"
        process.terminate()
    again, _ = open_pool()
    assert again is not None
    again.close()


def test_the_next_server_clears_up_after_a_dead_one(pool: CgroupPool) -> None:
    living, living_pid, living_folders = server("stays")
    process, pid, folders = server("stays")
    with process:
        process.kill()
    again, _ = open_pool()
    assert again is not None
    again.close()
    assert eventually(lambda: gone(pid))
    assert not any(folder.exists() for folder in folders)
    assert all(folder.exists() for folder in living_folders)
    assert not gone(living_pid)
    with living:
        living.kill()
    again, _ = open_pool()
    assert again is not None
    again.close()
    assert eventually(lambda: gone(living_pid))


def test_a_leftover_is_no_obstacle(pool: CgroupPool, tmp_path: Path) -> None:
    """Pages of files stay charged to the group that read them first, and go when they must."""
    slot = pool.acquire(512 * MIB, 10)
    big = tmp_path / "big"
    run(
        slot,
        f"import os\nwith open({str(big)!r}, 'wb') as f:\n    for _ in range(150): f.write(bytes(1 << 20))",
    )
    pool.release(slot)
    small = pool.acquire(16 * MIB, 10)
    assert run(small, "print('fits')") == (0, "fits\n")
    pool.release(small)


def test_a_file_in_memory_that_stays_takes_no_room_from_the_next(pool: CgroupPool) -> None:
    need("a tmpfs", Path("/dev/shm").is_dir())
    slot = pool.acquire(512 * MIB, 10)
    with tempfile.NamedTemporaryFile(dir="/dev/shm") as big:
        run(slot, f"f = open({big.name!r}, 'wb')\nfor _ in range(50): f.write(bytes(1 << 20))")
        assert Path(big.name).stat().st_size == 50 * MIB
        pool.release(slot)
        small = pool.acquire(16 * MIB, 10)
        assert run(small, "print('fits')") == (0, "fits\n")
        pool.release(small)


def test_the_report_says_which_version(pool: CgroupPool) -> None:
    assert pool.description.startswith("cgroup v")
    assert {"memory", "pids"} <= set(pool.description.split())


def test_an_ordinary_user_gets_a_reason_or_a_pool_that_works() -> None:
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from toolcrib.sandbox.kernel.cgroup import open_pool\n"
        "pool, reason = open_pool()\nprint(reason)\nif pool: pool.close()"
    )
    source = Path(str(toolcrib.__file__)).parents[1]
    need("root, to become an ordinary user", os.geteuid() == 0, of_root=True)
    python = next((path for path in interpreters() if runs_as_nobody(path)), None)
    need("a Python that an ordinary user may run", python is not None)
    assert python is not None
    done = subprocess.run(
        [python, "-c", code, str(source)],
        user=NOBODY,
        group=NOBODY,
        extra_groups=[],
        capture_output=True,
        text=True,
        check=False,
    )
    if "ModuleNotFoundError" in done.stderr:
        pytest.skip("the sources are not readable for an ordinary user")
    assert done.stdout.startswith(("no writable cgroup: ", "cgroup v")), done.stderr
