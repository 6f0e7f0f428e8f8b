"""Rotation and the anchor: the chain goes on over files, and what is gone from its end shows."""

from __future__ import annotations

import os
import stat
from hashlib import sha256
from pathlib import Path

import pytest

from toolcrib.errors import AuditUnavailable
from toolcrib.guard import AuditLog, Head, parse
from toolcrib.guard.audit.anchor import read_anchor
from toolcrib.guard.audit.check import BrokenChain, verify
from toolcrib.guard.audit.files import rotated_files

SMALL = 700
"""Bytes after which a file is closed: a few lines."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "audit" / "tools.log"


@pytest.fixture
def anchor(tmp_path: Path) -> Path:
    return tmp_path / "vault" / "audit-head"


def write(log: AuditLog, count: int = 20) -> None:
    for number in range(count):
        log.record("TOOL_EXECUTED", name="add", number=number)


def files(path: Path) -> list[Path]:
    return [part for _, _, part in rotated_files(path)]


def problem(path: Path, anchor: Path | None = None) -> BrokenChain:
    found = verify(path, anchor=anchor).problem
    assert found is not None
    return found


# Rotation


def test_a_large_file_is_closed_and_the_chain_goes_on(path: Path) -> None:
    with AuditLog(path, max_bytes=SMALL) as log:
        write(log)
        head = log.head
    parts = files(path)
    assert len(parts) > 2
    before = 0
    for part in parts:
        entries = [parse(line) for line in part.read_bytes().splitlines()]
        first, last = entries[0].seq, entries[-1].seq
        assert part.name == f"tools.{first}-{last}.log"
        assert first == before + 1
        assert entries[-1].event == "AUDIT_ROTATED"
        assert entries[-1].fields == {"file": part.name, "next": last + 1}
        assert part.stat().st_size < SMALL * 2
        before = last
    assert parse(path.read_bytes().splitlines()[0]).seq == before + 1
    verdict = verify(path)
    assert verdict.ok
    assert verdict.head == head
    assert verdict.lines == head.seq == 20 + len(parts)
    assert verdict.notices == {"AUDIT_ROTATED": len(parts)}
    assert verdict.files == (*(part.name for part in parts), "tools.log")


def test_a_file_that_was_locked_after_the_time_limit_is_written(path: Path) -> None:
    with AuditLog(path, max_bytes=SMALL, lock_timeout=0.0) as log:
        write(log)
    assert verify(path).ok
    assert len(files(path)) > 2


def test_rotated_files_are_in_the_order_of_numbers_not_of_names(path: Path) -> None:
    with AuditLog(path, max_bytes=1) as log:
        write(log, 30)
    assert verify(path).ok
    assert len(files(path)) == 29


def test_other_writers_follow_a_rotation_without_a_gap(path: Path, anchor: Path) -> None:
    logs = [AuditLog(path, anchor, max_bytes=SMALL if n else 10**9) for n in range(3)]
    for number in range(60):
        logs[number % 3].record("TOOL_EXECUTED", number=number)
    assert len(files(path)) > 5
    verdict = verify(path, anchor=anchor)
    assert verdict.ok
    assert set(verdict.notices) == {"AUDIT_ROTATED"}
    assert verdict.lines == 60 + len(files(path))


def test_a_new_process_goes_on_after_a_rotation(path: Path) -> None:
    with AuditLog(path, max_bytes=1) as log:
        write(log, 2)
    with AuditLog(path, max_bytes=1) as log:
        log.ensure()
        write(log, 2)
    assert verify(path).ok
    assert verify(path).lines == 4 + len(files(path))


def test_a_rotation_that_a_crash_cut_short_is_carried_on(path: Path) -> None:
    """The closing line is written, the file not yet renamed; and renamed, with no new one begun."""
    with AuditLog(path, max_bytes=1) as log:
        write(log, 2)
    (closed,) = files(path)
    path.unlink()
    closed.rename(path)
    assert verify(path).ok
    with AuditLog(path) as log:
        log.record("TOOL_EXECUTED", name="after")
    assert files(path) == [closed]
    assert verify(path).ok
    path.unlink()
    assert verify(path).ok
    with AuditLog(path) as log:
        log.record("TOOL_EXECUTED", name="after")
    assert verify(path).ok
    assert parse(path.read_bytes()).seq == 3


def test_lines_of_others_between_the_two_files_of_a_rotation_are_no_gap(
    path: Path, anchor: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(5, "killed")

    with AuditLog(path, anchor, max_bytes=1) as killed:
        write(killed, 1)
        with monkeypatch.context() as patch:
            patch.setattr(Path, "rename", fail)
            with pytest.raises(AuditUnavailable):
                write(killed, 1)
    other, close = AuditLog(path, anchor), os.close
    waiting = [other]

    def after_the_rename(fd: int) -> None:
        close(fd)
        if waiting and not path.exists():  # The lock of the old file is free, the new file not yet there.
            write(waiting.pop(), 2)

    with AuditLog(path, anchor) as log, monkeypatch.context() as patch:
        patch.setattr(os, "close", after_the_rename)
        write(log, 1)
    assert not waiting
    other.close()
    verdict = verify(path, anchor=anchor)
    assert verdict.ok, verdict.problem
    assert (verdict.head.seq, verdict.notices) == (5, {"AUDIT_ROTATED": 1})


def test_a_name_that_is_taken_stops_the_rotation_and_nothing_is_overwritten(path: Path) -> None:
    log = AuditLog(path, max_bytes=1)
    log.record("TOOL_EXECUTED")
    taken = path.with_name("tools.1-2.log")
    taken.write_text("mine")
    with pytest.raises(AuditUnavailable, match=r"tools\.1-2\.log exists"):
        log.record("TOOL_EXECUTED")
    assert taken.read_text() == "mine"
    taken.unlink()
    log.record("TOOL_EXECUTED")
    assert verify(path).ok


def test_a_replaced_file_is_still_told_apart_from_a_rotation(path: Path) -> None:
    log = AuditLog(path, clock=iter(range(1, 100)).__next__)
    write(log, 3)
    path.rename(path.with_name("tools.1-3.log"))
    log.record("TOOL_EXECUTED")
    first = parse(path.read_bytes().splitlines()[0])
    assert (first.event, first.fields["reason"]) == ("AUDIT_GAP", "removed")


@pytest.mark.parametrize("gone", [0, 1, 2])
def test_a_missing_rotated_file_is_named(path: Path, gone: int) -> None:
    with AuditLog(path, max_bytes=SMALL) as log:
        write(log)
    parts = files(path)
    parts[gone].unlink()
    found = problem(path)
    assert (found.kind, found.line) == ("missing", 1)
    assert found.file == (parts[gone + 1].name if gone + 1 < len(parts) else "tools.log")
    assert parts[gone].name in found.message


def test_a_changed_line_of_a_rotated_file_is_named_with_its_file(path: Path) -> None:
    with AuditLog(path, max_bytes=SMALL) as log:
        write(log)
    part = files(path)[1]
    lines = part.read_bytes().splitlines(keepends=True)
    lines[1] = lines[1].replace(b"name=add", b"name=adf")
    part.write_bytes(b"".join(lines))
    found = problem(path)
    assert (found.file, found.line, found.kind) == (part.name, 2, "altered")


def test_the_last_line_of_a_rotated_file_is_vouched_for_by_the_next_file(path: Path) -> None:
    with AuditLog(path, max_bytes=SMALL) as log:
        write(log)
    part = files(path)[0]
    data = part.read_bytes()
    part.write_bytes(data.replace(b"next=", b"nxet="))
    found = problem(path)
    assert (found.file, found.line, found.kind) == (part.name, len(data.splitlines()), "altered")
    part.write_bytes(b"".join(data.splitlines(keepends=True)[:-1]))
    found = problem(path)
    assert (found.file, found.line, found.kind) == (files(path)[1].name, 1, "missing")


def test_what_is_added_to_a_rotated_file_is_named(path: Path) -> None:
    with AuditLog(path, max_bytes=SMALL) as log:
        write(log)
    part = files(path)[0]
    count = len(part.read_bytes().splitlines())
    with part.open("ab") as file:
        file.write(b"hello\n")
    found = problem(path)
    assert (found.file, found.line, found.kind) == (part.name, count + 1, "altered")


# The anchor


def test_the_anchor_is_the_last_line_after_every_record(path: Path, anchor: Path) -> None:
    assert read_anchor(anchor) is None
    log = AuditLog(path, anchor, max_bytes=SMALL)
    for _ in range(12):
        log.record("TOOL_EXECUTED", name="add")
        assert head_of(anchor) == log.head == verify(path).head
    assert verify(path, anchor=anchor).anchor == log.head
    assert stat.S_IMODE(anchor.stat().st_mode) == 0o600


def test_a_log_without_an_anchor_says_so(path: Path, anchor: Path) -> None:
    with AuditLog(path) as log:
        write(log, 3)
    verdict = verify(path, anchor=anchor)
    assert verdict.ok
    assert verdict.anchor is None
    with AuditLog(path, anchor) as log:
        write(log, 1)
    assert verify(path, anchor=anchor).anchor == verify(path).head
    assert verify(path).notices == {}


def anchored(path: Path, anchor: Path, count: int = 6) -> list[bytes]:
    with AuditLog(path, anchor) as log:
        write(log, count)
    return path.read_bytes().splitlines(keepends=True)


def test_lines_cut_from_the_end_show_and_cannot_be_hidden_by_new_ones(path: Path, anchor: Path) -> None:
    lines = anchored(path, anchor)
    known = head_of(anchor)
    path.write_bytes(b"".join(lines[:4]))
    found = problem(path, anchor)
    assert (found.file, found.line, found.kind) == ("tools.log", 5, "cut")
    with AuditLog(path, anchor) as log:
        write(log, 5)
    found = problem(path, anchor)
    assert (found.line, found.kind) == (5, "gap")
    assert f"seq 6, {known.hash}" in found.message


@pytest.mark.parametrize("how", ["removed", "emptied", "with its folder"])
def test_a_log_that_is_gone_while_nobody_writes_shows(path: Path, anchor: Path, how: str) -> None:
    anchored(path, anchor)
    if how == "emptied":
        path.write_bytes(b"")
    else:
        path.unlink()
    if how == "with its folder":
        path.parent.rmdir()
    assert problem(path, anchor).kind == "cut"
    with AuditLog(path, anchor) as log:
        write(log, 8)
    assert problem(path, anchor).kind == "gap"


def test_a_log_written_anew_shows_whether_shorter_longer_or_equal(path: Path, anchor: Path) -> None:
    for count in (3, 6, 9):
        anchored(path, anchor, 6)
        path.unlink()
        with AuditLog(path) as forger:
            for number in range(count):
                forger.record("TOOL_EXECUTED", name="sub", number=number)
        assert problem(path, anchor).kind == ("cut" if count < 6 else "altered")
        with AuditLog(path, anchor) as log:
            write(log, 12)
        assert problem(path, anchor).kind == "gap", count
        path.unlink()
        anchor.unlink()


def test_an_altered_last_line_shows(path: Path, anchor: Path) -> None:
    lines = anchored(path, anchor)
    path.write_bytes(b"".join(lines).replace(b"number=5", b"number=7"))
    found = problem(path, anchor)
    assert (found.line, found.kind) == (6, "altered")
    with AuditLog(path, anchor) as log:
        write(log, 1)
    assert problem(path, anchor).kind == "gap"


def test_lines_that_another_removed_show_to_one_that_never_saw_them(path: Path, anchor: Path) -> None:
    """This process has line 3 as its last, others wrote up to 8, and two of theirs are taken away."""
    log = AuditLog(path, anchor)
    write(log, 3)
    with AuditLog(path, anchor) as other:
        write(other, 5)
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:6]))
    log.record("TOOL_EXECUTED")
    assert problem(path, anchor).kind == "gap"


def append_fitting_line(path: Path) -> None:
    """Append a line whose number and digest are right, as a program without the user's folder could."""
    last = path.read_bytes().splitlines(keepends=True)[-1]
    with path.open("a") as file:
        file.write(
            f"[2025-01-09T15:00:10] TOOL_EXECUTED name=forged status=success"
            f" seq={parse(last).seq + 1} prev={sha256(last).hexdigest()}\n"
        )


@pytest.mark.parametrize("key", ["present", "missing"])
def test_an_added_line_fails_although_its_digest_fits(path: Path, anchor: Path, key: str) -> None:
    anchored(path, anchor, 4)
    append_fitting_line(path)
    if key == "missing":
        (anchor.parent / "audit-key").unlink()
    assert verify(path).ok
    found = problem(path, anchor)
    assert (found.line, found.kind) == (5, "added")
    assert "seq 5" in found.message
    with AuditLog(path, anchor) as log:  # Later lines do not hide it.
        write(log, 2)
    assert problem(path, anchor).kind == "gap"


def test_a_line_added_while_the_log_is_open_shows(path: Path, anchor: Path) -> None:
    with AuditLog(path, anchor) as log:
        write(log, 2)
        append_fitting_line(path)
        write(log, 1)
    found = problem(path, anchor)
    assert (found.kind, found.line) == ("gap", 4)
    assert "added" in found.message


def test_stray_bytes_do_not_hide_an_altered_last_line(path: Path, anchor: Path) -> None:
    lines = anchored(path, anchor)
    path.write_bytes(b"".join(lines).replace(b"number=5", b"number=7") + b"stray")
    with AuditLog(path, anchor) as log:
        write(log, 1)
    assert problem(path, anchor).kind == "gap"


def test_the_checks_that_are_not_possible_are_named(path: Path, anchor: Path) -> None:
    anchored(path, anchor)
    assert verify(path, anchor=anchor).skipped == ()
    (anchor.parent / "audit-key").unlink()
    verdict = verify(path, anchor=anchor)
    assert verdict.ok
    assert [text.partition(":")[0] for text in verdict.skipped] == ["the keyed digest of the anchor"]
    with AuditLog(path, anchor) as log:  # Makes another key.
        log.ensure()
    assert verify(path, anchor=anchor).skipped == ()
    anchor.unlink()
    assert [text.partition(":")[0] for text in verify(path, anchor=anchor).skipped] == ["the end of the log"]


def test_a_key_that_is_no_text_fits_no_anchor(path: Path, anchor: Path) -> None:
    anchored(path, anchor)
    (anchor.parent / "audit-key").write_bytes(b"\xff" * 128)
    with pytest.raises(AuditUnavailable, match="is damaged"):
        verify(path, anchor=anchor)
    with AuditLog(path, anchor) as log, pytest.raises(AuditUnavailable, match="is damaged"):
        write(log, 1)


def test_an_anchor_that_was_not_written_with_the_key_is_damaged(path: Path, anchor: Path) -> None:
    lines = anchored(path, anchor)
    path.write_bytes(b"".join(lines[:-1]))
    record = anchor.read_text().splitlines()[0].split(" ")
    record[0] = sha256(lines[-2]).hexdigest()
    anchor.write_text(" ".join(record) + "\n" + lines[-2].decode())
    with pytest.raises(AuditUnavailable, match="anchor"):
        verify(path, anchor=anchor)


def test_a_damaged_anchor_stops_and_says_what_to_do(path: Path, anchor: Path) -> None:
    anchored(path, anchor)
    anchor.write_bytes(b"x" * 86)
    with pytest.raises(AuditUnavailable, match="anchor") as caught:
        AuditLog(path, anchor).ensure()
    assert "Remove it" in (caught.value.hint or "")
    with pytest.raises(AuditUnavailable):
        verify(path, anchor=anchor)
    anchor.unlink()
    with AuditLog(path, anchor) as log:
        write(log, 1)
    assert verify(path, anchor=anchor).ok


@pytest.mark.parametrize("left", [b"", b"\0" * 86])
def test_an_anchor_that_a_power_cut_emptied_is_none(path: Path, anchor: Path, left: bytes) -> None:
    anchored(path, anchor)
    anchor.write_bytes(left)
    assert verify(path, anchor=anchor).anchor is None
    with AuditLog(path, anchor) as log:
        write(log, 1)
    assert verify(path, anchor=anchor).anchor == head_of(anchor)
    assert head_of(anchor).seq == 7


def head_of(anchor: Path) -> Head:
    found = read_anchor(anchor)
    assert found is not None
    return found.head


def test_an_anchor_that_is_removed_while_in_use_comes_back(path: Path, anchor: Path) -> None:
    log = AuditLog(path, anchor, clock=iter(range(1, 100)).__next__)
    write(log, 3)
    anchor.unlink()
    write(log, 1)
    assert head_of(anchor) == log.head


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_an_anchor_that_is_no_file_is_refused(path: Path, anchor: Path, make: object) -> None:
    anchor.parent.mkdir()
    assert callable(make)
    make(anchor)
    with pytest.raises(AuditUnavailable):
        AuditLog(path, anchor).record("TOOL_EXECUTED")
    assert path.read_bytes() == b""


def test_a_linked_anchor_is_refused(path: Path, anchor: Path, tmp_path: Path) -> None:
    anchor.parent.mkdir()
    anchor.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(AuditUnavailable):
        AuditLog(path, anchor).record("TOOL_EXECUTED")
    assert not (tmp_path / "elsewhere").exists()


def test_a_record_whose_anchor_cannot_be_set_is_taken_back(path: Path, anchor: Path) -> None:
    log = AuditLog(path, anchor, clock=iter(range(1, 100)).__next__)
    write(log, 2)
    anchor.unlink()
    anchor.mkdir()
    with pytest.raises(AuditUnavailable):
        log.record("TOOL_EXECUTED", name="lost")
    assert verify(path).lines == 2
    anchor.rmdir()
    log.record("TOOL_EXECUTED", name="after")
    verdict = verify(path, anchor=anchor)
    assert verdict.ok
    assert verdict.notices == {"AUDIT_RESUMED": 1}
