"""In-process file access while another process swaps a folder with a link that leads out."""

from __future__ import annotations

import os
import time
from multiprocessing.synchronize import Event
from pathlib import Path

import pytest

from tests.processes import FORKS
from toolcrib.errors import DeniedError, NotFoundError, UnavailableError
from toolcrib.sandbox import Root, Roots
from toolcrib.sandbox.files import beneath

SECONDS = 0.5
# A slow or busy machine gets this long to come to the least number of reads and writes.
PATIENCE = 60.0
READS, WRITES = 100, 10
INSIDE, OUTSIDE = b"inside", b"outside"
EXCHANGE = 2


def swap(first: str, second: str, done: Event) -> None:
    import ctypes

    renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    a, b = os.fsencode(first), os.fsencode(second)
    while not done.is_set():
        if renameat2(-100, a, -100, b, EXCHANGE) < 0:
            raise OSError(ctypes.get_errno(), "renameat2")


@pytest.mark.parametrize("openat2", [True, False], ids=["openat2", "checked"])
@pytest.mark.parametrize("hide", [(), ("hidden",)], ids=["open", "with rules"])
def test_nothing_outside_is_read_or_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, openat2: bool, hide: tuple[str, ...]
) -> None:
    if not openat2:
        monkeypatch.setattr(beneath, "has_openat2", lambda: False)
    root, outside = tmp_path / "root", tmp_path / "outside"
    for folder, content in ((root / "folder", INSIDE), (outside, OUTSIDE)):
        folder.mkdir(parents=True)
        (folder / "file").write_bytes(content)
    (root / "other").symlink_to(outside)
    done = FORKS.Event()
    process = FORKS.Process(target=swap, args=(str(root / "folder"), str(root / "other"), done))
    process.start()
    reads = writes = 0
    try:
        with Roots(Root(str(root), hidden=hide)) as roots:
            start = time.monotonic()
            while (spent := time.monotonic() - start) < SECONDS or (
                spent < PATIENCE and (reads <= READS or writes <= WRITES)
            ):
                try:
                    assert roots.read("folder/file").data == INSIDE
                    small = roots.read_at_once("folder/file", 100, root.stat().st_dev)
                    assert small is None or small.data == INSIDE
                    reads += 1
                    roots.write("folder/new", INSIDE)
                    roots.write("folder/deep/new", INSIDE, mkdir=True)
                    writes += 1
                except (DeniedError, NotFoundError, UnavailableError):
                    pass
    finally:
        done.set()
        process.join()
    assert process.exitcode == 0
    assert [path.name for path in outside.iterdir()] == ["file"]
    assert (outside / "file").read_bytes() == OUTSIDE
    assert reads > READS
    assert writes > WRITES
