"""Named roots: what is read, written and refused."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path
from time import sleep, time

import pytest

from tests.descriptors import reads_from_memory
from toolcrib.errors import (
    InvalidInput,
    NotFoundError,
    PermissionDenied,
    ToolcribError,
    UsageError,
)
from toolcrib.sandbox import FilePart, Root, Roots
from toolcrib.sandbox.files import beneath
from toolcrib.sandbox.files.roots import OpenRoots

ESCAPES = "path escapes sandbox"


@pytest.fixture(params=["openat2", "checked"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways of opening keep the same promises; the second one refuses each `..`."""
    if request.param == "checked":
        monkeypatch.setattr(beneath, "has_openat2", lambda: False)
    return str(request.param)


@pytest.fixture
def base(tmp_path: Path) -> Path:
    (tmp_path / "root/sub").mkdir(parents=True)
    (tmp_path / "root/file").write_bytes(b"0123456789")
    (tmp_path / "root/sub/inner").write_bytes(b"inner")
    (tmp_path / "secret").write_bytes(b"secret")
    return tmp_path


@pytest.fixture
def roots(base: Path, way: str) -> Iterator[Roots]:
    with Roots(Root(str(base / "root"))) as opened:
        yield opened


def test_reads_by_relative_and_absolute_path(base: Path, roots: Roots) -> None:
    for path in ("file", "./file", "sub/../file") if beneath.has_openat2() else ("file", "./file"):
        assert roots.read(path) == FilePart(b"0123456789", 10)
    assert roots.read(str(base / "root/sub/inner")).data == b"inner"


@pytest.mark.parametrize(
    ("offset", "limit", "data"), [(0, 4, b"0123"), (8, 4, b"89"), (10, 4, b""), (99, 4, b""), (3, 0, b"")]
)
def test_reads_a_part_and_tells_the_whole_size(roots: Roots, offset: int, limit: int, data: bytes) -> None:
    assert roots.read("file", offset, limit) == FilePart(data, 10)


@pytest.mark.parametrize(
    "path",
    ["../secret", "sub/../../secret", "/etc/passwd", "..", "/", "/proc/self/root/etc/passwd", "../root/file"],
)
def test_no_path_leads_out(roots: Roots, path: str) -> None:
    for attempt in (roots.read, lambda p: roots.write(f"{p}/x", b"x", mkdir=True)):
        with pytest.raises(PermissionDenied, match=ESCAPES):
            attempt(path)


def test_an_absolute_path_with_the_roots_name_in_front_does_not_lead_out(base: Path, roots: Roots) -> None:
    for path in (f"{base}/root/../secret", f"{base}/rootless/x", f"{base}/root/sub/../../secret"):
        with pytest.raises(PermissionDenied, match=ESCAPES):
            roots.read(path)


@pytest.mark.parametrize("target", ["../secret", "/etc/passwd", "/proc/self/root/etc/passwd", "loop"])
def test_no_link_leads_out(base: Path, roots: Roots, target: str) -> None:
    (base / "root/loop").symlink_to(target)
    for attempt in (roots.read, lambda p: roots.write(p, b"x")):
        with pytest.raises(PermissionDenied, match=ESCAPES):
            attempt("loop")
    assert (base / "secret").read_bytes() == b"secret"


def test_no_link_to_a_folder_leads_out(base: Path, roots: Roots) -> None:
    (base / "root/out").symlink_to("..")
    for attempt in (
        lambda: roots.read("out/secret"),
        lambda: roots.write("out/new", b"x"),
        lambda: roots.write("out/new/new", b"x", mkdir=True),
    ):
        with pytest.raises(PermissionDenied, match=ESCAPES):
            attempt()
    assert not (base / "new").exists()


def test_magic_links_are_not_followed(base: Path, roots: Roots) -> None:
    with (base / "secret").open() as held:
        (base / "root/magic").symlink_to(f"/proc/self/fd/{held.fileno()}")
        with pytest.raises(PermissionDenied, match=ESCAPES):
            roots.read("magic")


def test_links_inside_a_root_work(base: Path, way: str) -> None:
    (base / "root/link").symlink_to("sub/inner")
    (base / "root/folder").symlink_to("sub")
    with Roots(Root(str(base / "root"))) as roots:
        assert roots.read("link").data == b"inner"
        roots.write("link", b"changed")
        roots.write("folder/new", b"new")
    assert (base / "root/link").is_symlink()
    assert (base / "root/sub/inner").read_bytes() == b"changed"
    assert (base / "root/sub/new").read_bytes() == b"new"


def test_a_link_to_nothing_is_not_written_through(base: Path, roots: Roots) -> None:
    (base / "root/dangling").symlink_to("sub/nothing")
    with pytest.raises(PermissionDenied):
        roots.write("dangling", b"x")
    assert not (base / "root/sub/nothing").exists()


def test_what_is_no_regular_file_is_refused_without_waiting(base: Path, roots: Roots) -> None:
    os.mkfifo(base / "root/fifo")
    with socket.socket(socket.AF_UNIX) as unix:
        unix.bind(str(base / "root/socket"))
        for name in ("fifo", "socket"):
            with pytest.raises(PermissionDenied, match="not a regular file"):
                roots.read(name)
            with pytest.raises(PermissionDenied, match="not a regular file"):
                roots.write(name, b"x")
            with pytest.raises(PermissionDenied, match="not a regular file"):
                roots.write(name, b"x", append=True)


def test_devices_are_refused() -> None:
    with Roots(Root("/dev")) as roots, pytest.raises(PermissionDenied, match="not a regular file"):
        roots.read("zero")


@pytest.mark.parametrize("path", ["file\0", "\0", "", "\ud800", "x" * 5000])
def test_what_is_no_path(roots: Roots, path: str) -> None:
    for attempt in (roots.read, lambda p: roots.write(p, b"")):
        with pytest.raises(InvalidInput):
            attempt(path)


def test_names_that_are_not_utf8(base: Path, roots: Roots) -> None:
    name = os.fsdecode(b"odd-\xff")
    roots.write(name, b"odd")
    assert roots.read(name).data == b"odd"


def test_missing_files_and_folders(roots: Roots) -> None:
    for attempt in (
        lambda: roots.read("nothing"),
        lambda: roots.read("file/below"),
        lambda: roots.write("nothing/file", b""),
        lambda: roots.write("nothing", b"", append=True),
    ):
        with pytest.raises(NotFoundError):
            attempt()


def test_folders_are_no_files(roots: Roots) -> None:
    for attempt in (
        lambda: roots.read("sub"),
        lambda: roots.write("sub", b""),
        lambda: roots.write("sub/", b""),
        lambda: roots.write(".", b""),
    ):
        with pytest.raises(InvalidInput):
            attempt()


def test_writes_whole_files(base: Path, roots: Roots) -> None:
    assert roots.write("file", b"new") == 3
    assert roots.write("fresh", b"x", 0o640) == 1
    assert (base / "root/file").read_bytes() == b"new"
    assert (base / "root/fresh").stat().st_mode & 0o777 == 0o640
    assert sorted(os.listdir(base / "root")) == ["file", "fresh", "sub"]


def test_an_existing_file_keeps_its_mode_and_no_file_gets_setuid(base: Path, roots: Roots) -> None:
    (base / "root/file").chmod(0o755)
    roots.write("file", b"new", 0o600)
    assert (base / "root/file").stat().st_mode & 0o7777 == 0o755
    roots.write("suid", b"", 0o6755)
    assert (base / "root/suid").stat().st_mode & 0o7000 == 0


def test_appends_to_what_exists(base: Path, roots: Roots) -> None:
    assert roots.write("file", b"+", append=True) == 1
    assert (base / "root/file").read_bytes() == b"0123456789+"


def test_does_not_append_to_a_file_with_a_second_name(base: Path, roots: Roots) -> None:
    (base / "root/alias").hardlink_to(base / "secret")
    with pytest.raises(PermissionDenied, match="hard link"):
        roots.write("alias", b"x", append=True)
    roots.write("alias", b"x")
    assert (base / "secret").read_bytes() == b"secret"


def test_makes_folders_only_when_asked(base: Path, roots: Roots) -> None:
    roots.write("a/b/c", b"x", mkdir=True)
    roots.write("a/b/d", b"x", mkdir=True)
    assert (base / "root/a/b/c").read_bytes() == b"x"
    with pytest.raises(ToolcribError):
        roots.write("file/below", b"x", mkdir=True)


@pytest.fixture
def ruled(base: Path, way: str) -> Iterator[Roots]:
    (base / "root/.toolcrib/scratch").mkdir(parents=True)
    (base / "root/.toolcrib/state.db").write_bytes(b"state")
    (base / "root/.toolcrib/config.yml").write_bytes(b"config")
    (base / "root/.env").write_bytes(b"KEY")
    root = Root(
        str(base / "root"), hidden=(".env", ".toolcrib/state.db"), protected=(".toolcrib", "sub/inner")
    )
    with Roots(root) as opened:
        yield opened


@pytest.mark.parametrize("path", [".env", "./.env", ".toolcrib/state.db", "alias", "link"])
def test_hidden_files_are_not_read_under_any_name(base: Path, ruled: Roots, path: str) -> None:
    (base / "root/alias").hardlink_to(base / "root/.env")
    (base / "root/link").symlink_to(".env")
    with pytest.raises(PermissionDenied):
        ruled.read(path)


def test_a_hidden_file_whose_folder_was_renamed_is_not_read_by_a_link_in_its_place(base: Path) -> None:
    path = base / "root/sub/inner"
    with Roots(Root(str(base / "root"), hidden=("sub/inner",))) as roots:
        (base / "root/sub").rename(base / "root/old")
        (base / "root/sub").symlink_to("old")
        with pytest.raises(PermissionDenied):
            roots.read(str(path))
        with pytest.raises(PermissionDenied):  # Or None, for a moment, as after any rename.
            any(roots.read_at_once(str(path), 9, os.stat(base).st_dev) for _ in range(100))


def test_hidden_files_are_not_written(base: Path, ruled: Roots) -> None:
    with pytest.raises(PermissionDenied):
        ruled.write(".env", b"x")
    assert (base / "root/.env").read_bytes() == b"KEY"


@pytest.mark.parametrize(
    "path",
    [".toolcrib/config.yml", ".toolcrib/new", ".toolcrib/a/b", "sub/inner", "way/config.yml", "way/new"],
)
def test_protected_files_are_read_and_not_written(base: Path, ruled: Roots, path: str) -> None:
    (base / "root/way").symlink_to(".toolcrib")
    with pytest.raises(PermissionDenied):
        ruled.write(path, b"x", mkdir=True)
    assert ruled.read(".toolcrib/config.yml").data == b"config"
    assert not (base / "root/.toolcrib/new").exists()
    assert not (base / "root/.toolcrib/a").exists()


def test_several_roots(base: Path, way: str) -> None:
    (base / "other").mkdir()
    (base / "other/file").write_bytes(b"other")
    with Roots(Root(str(base / "root")), Root(str(base / "other"), read_only=True)) as roots:
        assert roots.read("file").total == 10
        assert roots.read(str(base / "other/file")).data == b"other"
        with pytest.raises(PermissionDenied, match="read-only"):
            roots.write(str(base / "other/file"), b"x")
        with pytest.raises(PermissionDenied, match=ESCAPES):
            roots.read("../other/file")


def test_of_roots_inside_each_other_the_innermost_decides(base: Path, way: str) -> None:
    outer, inner = Root(str(base / "root")), Root(str(base / "root/sub"), read_only=True)
    with Roots(outer, inner) as roots:
        for path in ("sub/inner", str(base / "root/sub/inner"), "sub/new"):
            with pytest.raises(PermissionDenied, match="read-only"):
                roots.write(path, b"x")
        roots.write("file", b"x")
    with Roots(Root(str(base / "root"), read_only=True), Root(str(base / "root/sub"))) as roots:
        roots.write("sub/inner", b"x")
        with pytest.raises(PermissionDenied, match="read-only"):
            roots.write("file", b"y")


def test_a_root_is_never_reached_through_a_link(base: Path, way: str) -> None:
    (base / "alias").symlink_to("root")
    (base / "file").symlink_to("secret")
    for path in ("alias", "alias/sub", "file"):
        with pytest.raises(PermissionDenied, match="symbolic link"):
            Roots(Root(str(base / path)))


def test_a_single_file_can_be_a_root(base: Path, way: str) -> None:
    path = str(base / "secret")
    with Roots(Root(path)) as roots:
        assert roots.read(path).data == b"secret"
        roots.write(path, b"changed")
        for other in (
            f"{path}/x",
            str(base / "root/file"),
            str(base),
            "secret",
            "root/file",
            f"{path}/../root/file",
        ):
            with pytest.raises(PermissionDenied, match=ESCAPES):
                roots.read(other)
        (base / "secret").unlink()
        (base / "secret").symlink_to("root/file")
        with pytest.raises(PermissionDenied, match=ESCAPES):
            roots.read(path)
        with pytest.raises(PermissionDenied):
            roots.write(path, b"x")
    assert (base / "root/file").read_bytes() == b"0123456789"
    (base / "secret").unlink()
    (base / "secret").write_bytes(b"again")
    with Roots(Root(path, read_only=True)) as roots, pytest.raises(PermissionDenied, match="read-only"):
        roots.write(path, b"x")


def test_a_root_must_be_there_and_open(base: Path) -> None:
    with pytest.raises(NotFoundError):
        Roots(Root(str(base / "nothing")))
    os.mkfifo(base / "fifo")
    with pytest.raises(NotFoundError):
        Roots(Root(str(base / "root")), Root(str(base / "fifo")))
    with pytest.raises(UsageError):
        Roots()
    roots = Roots(Root(str(base / "root")))
    roots.close()
    with pytest.raises(UsageError):
        roots.read("file")


def test_a_file_that_grows_is_read_to_the_limit(base: Path, roots: Roots) -> None:
    with (base / "root/file").open("ab") as growing:
        growing.write(b"x" * 100)
        growing.flush()
        assert len(roots.read("file", 0, 50).data) == 50


def at_once(roots: Roots, path: str, limit: int, device: int) -> FilePart | None:
    """Read again for a second: somebody who renames a folder makes the kernel refuse it for a moment."""
    for _ in range(100):
        if (part := roots.read_at_once(path, limit, device)) is not None:
            return part
        sleep(0.01)
    return None


def test_only_what_needs_no_waiting_is_read_at_once(base: Path) -> None:
    here, inside = os.stat(base).st_dev, base / "root"
    (inside / "large").write_bytes(b"x" * 70_000)
    (inside / "out").symlink_to(base / "secret")
    (inside / "in").symlink_to("sub/inner")
    # A link whose time of access is due to be written is not followed without waiting.
    os.utime(inside / "in", (time() + 3600, 0), follow_symlinks=False)
    (inside / "alias").hardlink_to(inside / "sub/inner")
    os.mkfifo(inside / "fifo")
    with Roots(Root(str(inside))) as roots:
        if reads_from_memory(inside / "file"):
            for path, limit, data in (
                ("file", 100, b"0123456789"),
                ("file", 4, b"0123"),
                ("in", 9, b"inner"),
            ):
                part = FilePart(data, 5 if path == "in" else 10)
                assert at_once(roots, path, limit, here) == part
        for path in ("large", "out", "fifo", "sub", "missing"):
            assert roots.read_at_once(path, 100, here) is None, path
        assert roots.read_at_once("file", 100, here + 1) is None
    with Roots(Root(str(inside), hidden=("sub/inner",))) as roots:
        for path in ("in", "alias", "sub/inner"):
            with pytest.raises(PermissionDenied):
                at_once(roots, path, 100, here)
    with Roots(Root("/")) as roots:  # Another mount may be one that does not answer.
        assert roots.read_at_once("/proc/self/status", 100, os.stat("/").st_dev) is None


def test_roots_stay_open_until_another_folder_has_their_path(base: Path) -> None:
    kept, root = OpenRoots(), Root(str(base / "root"))
    opened = kept.get((root,))
    assert kept.get((root,)) is opened
    (base / "root").rename(base / "old")
    (base / "root").mkdir()
    (base / "root/file").write_bytes(b"new")
    assert kept.get((root,)).read("file").data == b"new"
    assert opened.read("file").data == b"0123456789"  # Whoever still uses it reads what was granted.


def test_a_root_that_became_a_link_is_not_used_open(base: Path) -> None:
    kept, root = OpenRoots(), Root(str(base / "root"))
    kept.get((root,))
    (base / "root").rename(base / "old")
    (base / "root").symlink_to(base / "old")
    with pytest.raises(PermissionDenied, match="symbolic link"):
        kept.get((root,))


def test_few_roots_stay_open(base: Path) -> None:
    kept, before = OpenRoots(most=2), len(os.listdir("/proc/self/fd"))
    for hidden in "abcde":
        kept.get((Root(str(base / "root"), hidden=(hidden,)),))
    assert len(os.listdir("/proc/self/fd")) == before + 2
