from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import threading
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from toolcrib.errors import AuditUnavailable
from toolcrib.guard import AuditLog, Head, parse
from toolcrib.guard.audit.check import verify
from toolcrib.guard.audit.line import GENESIS


class Clock:
    """A second later at every look, so that nothing is put off to the next second."""

    def __init__(self) -> None:
        self.time = 1_736_434_809.0

    def __call__(self) -> float:
        self.time += 1
        return self.time


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "audit" / "tools.log"


def filled(path: Path, count: int = 5) -> AuditLog:
    log = AuditLog(path, clock=Clock())
    for number in range(count):
        log.record("TOOL_EXECUTED", name="add", params={"n": number}, status="success")
    return log


def events(path: Path) -> list[str]:
    return [parse(line).event for line in path.read_bytes().splitlines()]


def fields_of(path: Path, event: str) -> dict[str, Any]:
    (fields,) = [e.fields for e in map(parse, path.read_bytes().splitlines()) if e.event == event]
    return fields


def test_lines_are_numbered_chained_and_in_utc(path: Path) -> None:
    with AuditLog(path, clock=lambda: 1_736_434_810.9) as log:
        log.record("TOOL_CREATED", name="weather", creator="claude")
        log.record("TOOL_EXECUTED", name="weather", params={"location": "NYC"}, status="success")
    first, second = path.read_bytes().splitlines(keepends=True)
    assert first.decode() == (
        f"[2025-01-09T15:00:10] TOOL_CREATED name=weather creator=claude seq=1 prev={GENESIS}\n"
    )
    assert second.decode() == (
        '[2025-01-09T15:00:10] TOOL_EXECUTED name=weather params={"location":"NYC"} status=success'
        f" seq=2 prev={sha256(first).hexdigest()}\n"
    )
    assert verify(path).head == Head(2, sha256(second).hexdigest())


def test_nothing_is_made_before_the_first_record(path: Path) -> None:
    log = AuditLog(path)
    assert not path.parent.exists()
    assert log.head == Head()
    log.ensure()
    assert path.read_bytes() == b""


def test_only_the_owner_can_read_it(path: Path) -> None:
    filled(path)
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_log_is_continued_by_the_next_process(path: Path) -> None:
    head = filled(path, 3).head
    with AuditLog(path) as log:
        log.ensure()
        assert log.head == head
        log.record("TOOL_REFUSED", name="rm", code="denied")
        log.close()
        log.record("TOOL_APPROVED", name="rm", approver="user")
    verdict = verify(path)
    assert verdict.ok
    assert verdict.lines == verdict.head.seq == 5
    assert verify(path, head).ok


def test_two_objects_on_one_file_take_turns(path: Path) -> None:
    logs = [AuditLog(path) for _ in range(3)]
    for number in range(30):
        logs[number % 3].record("TOOL_EXECUTED", name=f"t{number}")
    names = [parse(line).fields["name"] for line in path.read_bytes().splitlines()]
    assert names == [f"t{number}" for number in range(30)]
    assert verify(path).ok


def test_threads_share_a_log(path: Path) -> None:
    log = AuditLog(path)

    def write() -> None:
        for _ in range(100):
            log.record("TOOL_EXECUTED", name="t")

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert verify(path, log.head).ok
    assert verify(path).lines == 400


def test_a_durable_log_is_as_readable(path: Path) -> None:
    with AuditLog(path, durable=True) as log:
        log.record("TOOL_EXECUTED", name="t")
    assert verify(path).ok


@pytest.mark.parametrize("event", ["tool_executed", "TOOL EXECUTED", "", "AUDIT_GAP", "X\n"])
def test_a_badly_named_event_is_the_programmers_error(path: Path, event: str) -> None:
    with pytest.raises(ValueError, match="UPPER_CASE"):
        AuditLog(path).record(event)
    assert not path.exists()


# After a crash


@example(cut=2, again=123)  # The recovery's own newline was lost.
@given(cut=st.integers(min_value=1, max_value=400), again=st.integers(min_value=0, max_value=200))
def test_a_half_line_is_kept_named_and_covered(
    tmp_path_factory: pytest.TempPathFactory, cut: int, again: int
) -> None:
    path = tmp_path_factory.mktemp("log") / "tools.log"
    filled(path, 3).close()
    whole = path.read_bytes()
    last = len(whole.splitlines(keepends=True)[-1])
    left = whole[: max(len(whole) - cut, len(whole) - last + 1)]
    path.write_bytes(left)
    missing_newline_only = cut == 1
    assert verify(path).ok == missing_newline_only

    with AuditLog(path) as log:
        log.record("TOOL_EXECUTED", name="after")
    healed = path.read_bytes()
    assert healed.startswith(left)
    assert verify(path).ok
    assert verify(path).notices == ({} if missing_newline_only else {"AUDIT_RECOVERED": 1})

    # A second crash, while the recovery itself was being written.
    path.write_bytes(healed[: len(left) + 1 + again])
    with AuditLog(path) as log:
        log.record("TOOL_EXECUTED", name="after")
    assert verify(path).ok
    assert parse(path.read_bytes().splitlines()[-1]).fields == {"name": "after"}

    # What was cut off cannot be changed afterwards either.
    if not missing_newline_only:
        data = bytearray(path.read_bytes())
        data[len(left) - 1] ^= 1
        path.write_bytes(data)
        assert not verify(path).ok


@pytest.mark.parametrize("junk", [b"x", b"\n", b"\n\n", b"a\nb", b"a\nb\n", b"\x00" * 5000, b"\xff\n" * 9000])
@pytest.mark.parametrize("count", [0, 2])
def test_strange_bytes_are_taken_into_the_chain(path: Path, junk: bytes, count: int) -> None:
    filled(path, count).close()
    path.parent.mkdir(exist_ok=True)
    with path.open("ab") as file:
        file.write(junk)
    assert not verify(path).ok
    with AuditLog(path) as log:
        log.record("TOOL_EXECUTED", name="after")
        log.record("TOOL_EXECUTED", name="after")
    verdict = verify(path)
    assert verdict.ok
    assert verdict.head.seq == count + 3
    assert verdict.notices == {"AUDIT_RECOVERED": 1}


def test_a_log_without_a_chain_is_continued_with_one(path: Path) -> None:
    path.parent.mkdir()
    path.write_text("[2025-01-09T15:00:05] TOOL_APPROVED name=weather approver=user\n")
    filled(path, 2)
    assert path.read_text().startswith("[2025-01-09T15:00:05] TOOL_APPROVED name=weather approver=user\n[")
    assert verify(path).ok
    path.write_text(path.read_text().replace("approver=user", "approver=nobo"))
    assert not verify(path).ok


def test_a_line_longer_than_the_first_look_is_found(path: Path) -> None:
    log = filled(path, 1)
    log.record("TOOL_EXECUTED", a="x" * 16_000, b="y" * 16_000, c="z " * 8_000)
    with AuditLog(path) as other:
        other.record("TOOL_EXECUTED", name="after")
    assert verify(path).ok
    assert verify(path).lines == 3


def test_a_file_that_is_something_else_is_refused(path: Path) -> None:
    path.parent.mkdir()
    with path.open("wb") as file:
        file.truncate(17 * 1024 * 1024)
    with pytest.raises(AuditUnavailable, match="does not end like an audit log"):
        AuditLog(path).ensure()


# Removed, replaced or changed while in use


def test_a_removed_log_is_begun_anew_and_says_so(path: Path) -> None:
    log = filled(path)
    head = log.head
    path.unlink()
    log.record("TOOL_EXECUTED", name="after")
    assert events(path) == ["AUDIT_GAP", "TOOL_EXECUTED"]
    gap = {"reason": "removed", "after_seq": head.seq, "after": head.hash}
    assert fields_of(path, "AUDIT_GAP") == gap
    problem = verify(path).problem
    assert problem is not None
    assert (problem.line, problem.kind) == (1, "gap")
    assert f"seq {head.seq}" in problem.message


def test_a_folder_that_was_removed_comes_back(path: Path) -> None:
    log = filled(path)
    path.unlink()
    path.parent.rmdir()
    log.record("TOOL_EXECUTED", name="after")
    assert events(path) == ["AUDIT_GAP", "TOOL_EXECUTED"]


def test_a_replaced_log_is_followed_and_says_so(path: Path) -> None:
    log = filled(path)
    path.rename(path.with_suffix(".1"))
    filled(path, 2).close()
    log.record("TOOL_EXECUTED", name="after")
    assert events(path) == ["TOOL_EXECUTED", "TOOL_EXECUTED", "AUDIT_GAP", "TOOL_EXECUTED"]
    assert fields_of(path, "AUDIT_GAP")["reason"] == "replaced"
    assert verify(path.with_suffix(".1"), log_head(path)).ok


def log_head(path: Path) -> Head:
    gap = fields_of(path, "AUDIT_GAP")
    return Head(gap["after_seq"], gap["after"])


def test_a_shortened_log_says_so(path: Path) -> None:
    log = filled(path)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:3]))
    log.record("TOOL_EXECUTED", name="after")
    assert fields_of(path, "AUDIT_GAP")["reason"] == "cut"
    assert fields_of(path, "AUDIT_GAP")["after_seq"] == 5


def test_an_emptied_log_says_so(path: Path) -> None:
    log = filled(path)
    path.write_bytes(b"")
    log.record("TOOL_EXECUTED", name="after")
    assert events(path) == ["AUDIT_GAP", "TOOL_EXECUTED"]


def test_a_changed_last_line_says_so(path: Path) -> None:
    log = filled(path)
    path.write_bytes(path.read_bytes().replace(b'{"n":4}', b'{"n":44}'))
    log.record("TOOL_EXECUTED", name="after")
    assert fields_of(path, "AUDIT_GAP")["reason"] == "altered"
    assert not verify(path).ok


# Where it cannot be written


def test_a_link_is_refused(path: Path, tmp_path: Path) -> None:
    path.parent.mkdir()
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(AuditUnavailable) as caught:
        AuditLog(path).record("TOOL_EXECUTED")
    assert caught.value.details["error"] == "ELOOP"
    assert "symbolic link" in (caught.value.hint or "")
    assert not (tmp_path / "elsewhere").exists()


def test_a_linked_folder_is_refused(path: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    path.parent.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(AuditUnavailable) as caught:
        AuditLog(path).record("TOOL_EXECUTED")
    assert "symbolic link" in (caught.value.hint or "")
    assert not list((tmp_path / "elsewhere").iterdir())


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_is_no_file_is_refused(path: Path, make: Any) -> None:
    path.parent.mkdir()
    make(path)
    with pytest.raises(AuditUnavailable, match="cannot be written"):
        AuditLog(path).ensure()


def test_a_link_put_in_the_place_of_an_open_log_is_refused(path: Path, tmp_path: Path) -> None:
    log = filled(path)
    path.unlink()
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(AuditUnavailable):
        log.record("TOOL_EXECUTED")
    path.unlink()
    log.ensure()
    assert events(path) == ["AUDIT_GAP", "AUDIT_RESUMED"]
    assert fields_of(path, "AUDIT_RESUMED") == {"lost": 1, "error": "ELOOP"}


def test_a_lock_held_by_a_stopped_process_does_not_hold_this_one(path: Path) -> None:
    log = filled(path, 1)
    impatient = AuditLog(path, lock_timeout=0.05)
    with path.open("rb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(AuditUnavailable, match="another process") as caught:
            impatient.record("TOOL_EXECUTED")
        assert caught.value.retryable
        with pytest.raises(AuditUnavailable):
            impatient.ensure()
    impatient.ensure()
    log.record("TOOL_EXECUTED")
    assert verify(path).ok
    assert verify(path).notices == {"AUDIT_RESUMED": 1}


def test_the_error_says_what_to_do(path: Path) -> None:
    path.parent.write_text("a file where the folder should be")
    with pytest.raises(AuditUnavailable) as caught:
        AuditLog(path).ensure()
    error = caught.value.as_dict()
    assert error["code"] == "audit_unavailable"
    assert str(path) in error["message"]
    assert error["hint"]


FORK = """
import os, sys
from pathlib import Path
from toolcrib.guard import AuditLog

log = AuditLog(Path(sys.argv[1]))
log.record("TOOL_EXECUTED", name="parent")
child = os.fork()
for _ in range(50):
    log.record("TOOL_EXECUTED", name="parent" if child else "child")
if child:
    sys.exit(os.waitpid(child, 0)[1])
"""


def test_a_forked_child_writes_by_itself(path: Path) -> None:
    subprocess.run([sys.executable, "-c", FORK, str(path)], check=True)
    verdict = verify(path)
    assert verdict.ok
    assert verdict.lines == 101
    assert verdict.notices == {}


def test_an_anchor_that_cannot_be_written_is_named(path: Path, tmp_path: Path) -> None:
    (tmp_path / "data").write_text("in its place")
    anchor = tmp_path / "data" / "anchor"
    with AuditLog(path, anchor) as log, pytest.raises(AuditUnavailable, match=str(tmp_path / "data")):
        log.record("TOOL_APPROVED", name="rm", approver="user")
