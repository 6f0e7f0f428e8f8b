from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.guard import AuditLog, Head
from toolcrib.guard.audit.check import Verdict, verify

COUNT = 9


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    path = tmp_path_factory.mktemp("audit") / "tools.log"
    with AuditLog(path) as log:
        for number in range(1, COUNT + 1):
            log.record("TOOL_EXECUTED", name="add", params={"n": number}, status="success")
    return path.read_bytes().splitlines(keepends=True)


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("check") / "tools.log"


def check(scratch: Path, lines: list[bytes], head: Head | None = None) -> Verdict:
    scratch.write_bytes(b"".join(lines))
    return verify(scratch, head)


def problem(scratch: Path, lines: list[bytes], head: Head | None = None) -> tuple[int, str]:
    found = check(scratch, lines, head).problem
    assert found is not None
    return found.line, found.kind


def test_an_untouched_log_holds(scratch: Path, lines: list[bytes]) -> None:
    verdict = check(scratch, lines)
    assert (verdict.lines, verdict.files) == (COUNT, ("tools.log",))
    assert verdict.head == Head(COUNT, sha256(lines[-1]).hexdigest())
    assert verdict.ok


def test_a_log_that_does_not_exist_has_no_lines(tmp_path: Path) -> None:
    assert verify(tmp_path / "none.log") == Verdict(0, Head())


@pytest.mark.parametrize("line", range(1, COUNT))
def test_an_altered_line_is_named(scratch: Path, lines: list[bytes], line: int) -> None:
    changed = list(lines)
    changed[line - 1] = changed[line - 1].replace(b"success", b"failure")
    assert problem(scratch, changed) == (line, "altered")


@pytest.mark.parametrize("line", range(1, COUNT))
def test_an_altered_digest_is_named(scratch: Path, lines: list[bytes], line: int) -> None:
    changed = list(lines)
    before, digest = changed[line - 1].split(b"prev=")
    changed[line - 1] = (
        before + b"prev=" + digest.translate(bytes.maketrans(b"0123456789abcdef", b"f0123456789abcde"))
    )
    assert problem(scratch, changed) == (line, "altered")


@pytest.mark.parametrize("line", range(1, COUNT))
def test_an_altered_number_is_named(scratch: Path, lines: list[bytes], line: int) -> None:
    changed = list(lines)
    changed[line - 1] = changed[line - 1].replace(b"seq=%d" % line, b"seq=%d" % (line + 40))
    assert problem(scratch, changed) == (line, "altered")


@pytest.mark.parametrize("line", range(1, COUNT))
def test_a_missing_line_is_named(scratch: Path, lines: list[bytes], line: int) -> None:
    assert problem(scratch, lines[: line - 1] + lines[line:]) == (line, "missing")


def test_missing_lines_are_numbered(scratch: Path, lines: list[bytes]) -> None:
    found = check(scratch, lines[:3] + lines[6:]).problem
    assert found is not None
    assert found.message == "seq 4 to 6 is missing here; the line is seq 7"


@pytest.mark.parametrize(("one", "other"), [(1, 2), (3, 4), (2, 5), (8, 9), (1, 9)])
def test_reordered_lines_are_named(scratch: Path, lines: list[bytes], one: int, other: int) -> None:
    changed = list(lines)
    changed[one - 1], changed[other - 1] = changed[other - 1], changed[one - 1]
    assert problem(scratch, changed) == (one, "reordered")


def test_a_repeated_line_is_named(scratch: Path, lines: list[bytes]) -> None:
    assert problem(scratch, [*lines[:4], lines[1], *lines[4:]]) == (5, "reordered")


@pytest.mark.parametrize("line", range(1, COUNT + 1))
def test_a_line_that_breaks_off_is_named(scratch: Path, lines: list[bytes], line: int) -> None:
    assert problem(scratch, [*lines[: line - 1], lines[line - 1][:40]]) == (line, "cut")
    assert problem(scratch, [*lines[: line - 1], lines[line - 1][:40] + b"\n", *lines[line:]]) == (
        line,
        "altered",
    )


def test_where_the_last_line_cannot_tell_both_are_named(scratch: Path, lines: list[bytes]) -> None:
    changed = [*lines[:-1], lines[-1].replace(b"prev=", b"prev=f")[:-2] + b"\n"]
    found = check(scratch, changed).problem
    assert found is not None
    assert found.line == COUNT - 1
    assert "or the digest" in found.message


def test_an_inserted_line_is_named(scratch: Path, lines: list[bytes]) -> None:
    assert problem(scratch, [*lines[:4], b"hello\n", *lines[4:]]) == (5, "altered")


def test_an_altered_last_line_shows_only_with_an_anchor(scratch: Path, lines: list[bytes]) -> None:
    anchor = Head(COUNT, sha256(lines[-1]).hexdigest())
    changed = [*lines[:-1], lines[-1].replace(b"success", b"failure")]
    assert check(scratch, changed).ok
    assert problem(scratch, changed, anchor) == (COUNT, "altered")


def test_a_removed_end_shows_only_with_an_anchor(scratch: Path, lines: list[bytes]) -> None:
    anchor = Head(COUNT, sha256(lines[-1]).hexdigest())
    assert check(scratch, lines[:5]).ok
    assert problem(scratch, lines[:5], anchor) == (6, "cut")
    assert problem(scratch, [], anchor) == (1, "cut")


def test_an_anchor_in_the_middle_holds(scratch: Path, lines: list[bytes]) -> None:
    assert check(scratch, lines, Head(4, sha256(lines[3]).hexdigest())).ok
    assert problem(scratch, lines, Head(4, "f" * 64)) == (4, "altered")


def test_a_recovery_that_was_made_up_is_none(scratch: Path, lines: list[bytes]) -> None:
    """A closing line must carry the digest of exactly what it closes."""
    tail = b"[2025-01-09T15:00:00] AUDIT_RECOVERED bytes=6 seq=5 prev=%b\n"
    right = sha256(lines[3] + b"hello\n").hexdigest().encode()
    assert check(scratch, [*lines[:4], b"hello\n", tail % right]).ok
    wrong = sha256(lines[3] + b"hullo\n").hexdigest().encode()
    assert problem(scratch, [*lines[:4], b"hello\n", tail % wrong]) == (5, "altered")
    size = tail.replace(b"=6", b"=7") % right
    assert problem(scratch, [*lines[:4], b"hello\n", size]) == (5, "altered")


@given(data=st.data())
def test_no_single_change_of_a_byte_goes_unnoticed(
    scratch: Path, lines: list[bytes], data: st.DataObject
) -> None:
    whole = bytearray(b"".join(lines))
    anchor = Head(COUNT, sha256(lines[-1]).hexdigest())
    position = data.draw(st.integers(0, len(whole) - 2))  # The last newline is made up where it is missing.
    whole[position] ^= data.draw(st.integers(1, 255))
    scratch.write_bytes(whole)
    found = verify(scratch, anchor).problem
    line = b"".join(lines)[:position].count(b"\n") + 1
    assert found is not None
    assert found.line in {line, line - 1}
