"""The image: the steps of its Containerfile, on a copy of this machine's files."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import need

SCRIPT = Path(__file__).parents[3] / "scripts" / "image_in_folder.py"


@pytest.mark.soak
def test_the_steps_of_the_containerfile_make_an_image_that_runs_as_its_user(tmp_path: Path) -> None:
    need("root", os.geteuid() == 0, of_root=True)
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(tmp_path), "doctor"], capture_output=True, text=True, check=False
    )
    # As in a container: no namespaces can be made in another root folder.
    assert "level: landlock" in done.stdout, done.stderr[-3000:]
    workspace = (tmp_path / "image" / "changed" / "workspace").stat()
    assert (workspace.st_uid, workspace.st_gid) == (10001, 10001)
