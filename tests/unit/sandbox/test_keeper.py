"""The folder that replaces a private `/tmp`: nothing that a tool makes of it keeps it there."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from toolcrib.sandbox.child import keeper


def test_the_folder_goes_whatever_a_tool_has_made_in_it(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("stays")
    folder = tmp_path / "home"
    (folder / "closed/inner").mkdir(parents=True)
    (folder / "closed/inner/file").touch()
    (folder / "link").symlink_to(outside)
    # A tool knows the number of the process that removes the folder.
    (folder / f".moved-{os.getpid()}-1/inner").mkdir(parents=True)
    deep = os.open(folder, os.O_RDONLY)
    for _ in range(1_100):  # Deeper than a recursion goes, and longer than a path can be.
        os.mkdir("folder", dir_fd=deep)
        inner = os.open("folder", os.O_RDONLY, dir_fd=deep)
        os.close(deep)
        deep = inner
    os.close(deep)
    for name in ("closed/inner", "closed"):
        (folder / name).chmod(0)
    try:
        keeper.remove_folder(str(folder))
        assert not folder.exists()
        assert outside.read_text() == "stays"
    finally:  # pytest itself cannot remove such a tree.
        subprocess.run(["rm", "-rf", folder], check=True)


def test_a_link_in_the_place_of_the_folder_is_not_followed(tmp_path: Path) -> None:
    inside = tmp_path / "other/file"
    inside.parent.mkdir()
    inside.touch()
    (tmp_path / "home").symlink_to("other")
    keeper.remove_folder(str(tmp_path / "home"))
    assert inside.exists()
