"""Names of processes: this one, another one, a dead one, one of another boot."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from fcntl import LOCK_EX, flock
from pathlib import Path
from typing import Any

from toolcrib.spec.identifier import new_id
from toolcrib.state import boot_id, is_alive, this_process, uptime


def test_this_process_lives() -> None:
    assert is_alive(this_process(), uptime())
    assert this_process() == this_process()


def test_another_process_lives_until_it_ends_even_if_nobody_has_waited_for_it() -> None:
    code = "from toolcrib.state import this_process; print(this_process(), flush=True); input()"
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    child = subprocess.Popen([sys.executable, "-c", code], **pipes)
    assert child.stdin is not None
    assert child.stdout is not None
    with child.stdin, child.stdout:
        holder = child.stdout.readline().strip()
        assert is_alive(holder, uptime())
        child.kill()
        while os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT) is None:
            continue
        assert not is_alive(holder, uptime())  # Its remains are still there.
        child.wait()
    assert not is_alive(holder, uptime())


def test_a_process_whose_lock_is_free_after_its_death_lives_no_longer(tmp_path: Path) -> None:
    """Its files are closed a moment before it is a zombie."""
    for _ in range(20):
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            flock(os.open(tmp_path, os.O_RDONLY), LOCK_EX)
            os.write(write, this_process().encode())
            signal.pause()
        process = os.read(read, 200).decode()
        lock = os.open(tmp_path, os.O_RDONLY)
        assert is_alive(process, uptime())
        os.kill(pid, signal.SIGKILL)
        flock(lock, LOCK_EX)
        alive = is_alive(process, uptime())
        os.waitpid(pid, 0)
        for fd in (read, write, lock):
            os.close(fd)
        assert not alive


def test_a_fork_is_another() -> None:
    parent = this_process()
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(write, this_process().encode())
        os._exit(0)
    os.waitpid(pid, 0)
    os.close(write)
    assert os.read(read, 1000).decode() not in ("", parent)
    os.close(read)


def test_another_boot_is_over() -> None:
    assert not is_alive(this_process().replace(boot_id(), "another"), uptime())


def test_ids_sort_by_their_time_and_are_never_the_same() -> None:
    ids = [new_id(1_700_000_000 + number / 1000) for number in range(100)]
    assert ids == sorted(ids)
    assert len({new_id(1_700_000_000) for _ in range(1_000)}) == 1_000
    for id in (*ids, new_id(-5), new_id(0), new_id(2**60)):  # noqa: A001 - the field's name
        assert len(id) == 36
        assert id[14] == "7"
        assert id[19] in "89ab"
