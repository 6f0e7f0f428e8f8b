"""A new project."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import venv
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from threading import Barrier

import pytest

from tests.commands import complete
from toolcrib.errors import StateUnavailable, UsageError
from toolcrib.manifest import lint_tree, load
from toolcrib.project import Config, find, load_config
from toolcrib.project.authoring.starter import make, trust
from toolcrib.project.config.settings import KEYS


def test_the_base(tmp_path: Path) -> None:
    made = make(tmp_path / "new")
    place = find(tmp_path / "new")
    assert made.root == place.root
    assert {str(path) for path in made.created} == {
        ".toolcrib/config.yml",
        ".toolcrib/.gitignore",
        ".toolcrib/schemas/tool.schema.json",
        ".toolcrib/tools/README.md",
    }
    assert load_config(place.config) == Config()
    assert "audit/" in (place.home / ".gitignore").read_text().splitlines()


def test_the_settings_in_comments_are_settings(tmp_path: Path) -> None:
    make(tmp_path)
    file = tmp_path / ".toolcrib/config.yml"
    lines = [line.removeprefix("#").removeprefix(" ") for line in file.read_text().splitlines()[2:]]

    file.write_text("\n".join(lines))
    assert load_config(file) == Config()
    assert load_config(file).weakening() == []

    examples = "\n".join(re.sub(r"^( *)# ", r"\1", line) for line in lines)
    file.write_text(examples)
    load_config(file)
    told = load(examples.encode(), str(file)).data
    for key in KEYS:
        at = told
        for part in key.split("."):
            assert part in at, f"{key} is not in the file that init writes"
            at = at[part]


def test_lint_says_nothing_of_the_examples(tmp_path: Path) -> None:
    make(tmp_path, examples=True)
    found = lint_tree(find(tmp_path).tools)
    assert [finding.render() for finding in found] == []
    assert os.access(tmp_path / "scripts/scan_todos.sh", os.X_OK)
    assert (tmp_path / ".venv/bin/python").exists()
    assert (tmp_path / ".venv/bin/pip").exists() is (find_spec("ensurepip") is not None)
    assert make(tmp_path, examples=True).created == ()


@pytest.mark.parametrize(
    ("before", "lines", "code", "told"),
    [
        ("", 2, 0, "Matches found: 2"),
        ("", 0, 0, "Matches found: 0"),
        ("ulimit -f 1; trap '' XFSZ;", 500, 1, "the scan failed (2): grep: write error"),
        ("ulimit -f 1;", 500, 1, "the scan failed (153)"),
        ("PATH=$PWD/few;", 2, 1, "the scan failed (127)"),
    ],
    ids=["some", "none", "no room", "killed", "no grep"],
)
def test_a_scan_that_fails_does_not_say_that_it_is_complete(
    tmp_path: Path, before: str, lines: int, code: int, told: str
) -> None:
    (tmp_path / ".venv").mkdir()
    make(tmp_path, examples=True)
    (tmp_path / "few").mkdir()
    for name in ("cat", "mktemp", "wc"):
        (tmp_path / "few" / name).symlink_to(str(shutil.which(name)))
    (tmp_path / "work").mkdir()
    (tmp_path / "work/notes.txt").write_text("TODO: oil the lathe\n" * lines)
    done = subprocess.run(
        ["/bin/sh", "-c", f"{before} exec /bin/sh scripts/scan_todos.sh work"],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stderr
    assert told in done.stdout + done.stderr
    assert ("Scan complete." in done.stdout) is (code == 0)


def test_what_is_there_is_left_alone_and_links_are_not_followed(tmp_path: Path) -> None:
    home = tmp_path / "project/.toolcrib"
    home.mkdir(parents=True)
    (home / "config.yml").symlink_to(tmp_path / "elsewhere")
    (home / ".gitignore").write_text("mine")
    make(tmp_path / "project")
    assert not (tmp_path / "elsewhere").exists()
    assert (home / ".gitignore").read_text() == "mine"


def test_a_tool_is_trusted_only_if_all_of_its_files_were_written_here(tmp_path: Path) -> None:
    assert trust(make(tmp_path / "new", examples=True), "ann") == 3
    for name, text in (("tools/repo_stats.py", "import evil"), ("scripts/scan_todos.sh", "evil")):
        file = tmp_path / "old" / name
        file.parent.mkdir(parents=True)
        file.write_text(text)
    venv.create(tmp_path / "old/.venv", symlinks=True)
    assert trust(make(tmp_path / "old", examples=True), "ann") == 1


def test_who_makes_the_same_project_at_once_makes_one(tmp_path: Path) -> None:
    together = Barrier(4)

    def begin(folder: Path) -> int:
        together.wait()
        return len(make(folder).created)

    with ThreadPoolExecutor(4) as pool:
        for number in range(10):
            assert sum(pool.map(begin, [tmp_path / str(number)] * 4)) == 4


def test_a_glee_project_is_added_to(tmp_path: Path) -> None:
    (tmp_path / ".glee").mkdir()
    make(tmp_path)
    assert (tmp_path / ".glee/config.yml").exists()
    assert not (tmp_path / ".toolcrib").exists()


def test_a_place_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="file"):
        make(tmp_path / "file/below")
    with pytest.raises(UsageError, match="virtual environment"):
        make(tmp_path / "a:b", examples=True)
    assert not any((tmp_path / "a:b").iterdir())


def test_what_the_machine_does_not_allow_is_no_wrong_use(tmp_path: Path) -> None:
    with pytest.raises(StateUnavailable):
        make("/sys/new")
    (tmp_path / "file").touch()
    with pytest.raises(UsageError):
        make(tmp_path / "file")
    with pytest.raises(UsageError):
        make(tmp_path / "file/new")


def test_a_file_that_could_not_be_written_whole_is_not_left(tmp_path: Path) -> None:
    assert "too large" in refusal(tmp_path, most=200)
    assert make(tmp_path).created
    assert load_config(tmp_path / ".toolcrib/config.yml") == Config()
    assert len((tmp_path / ".toolcrib/schemas/tool.schema.json").read_bytes()) > 200


@pytest.mark.skipif(find_spec("ensurepip") is None, reason="this Python cannot make an environment with pip")
def test_an_environment_without_room_for_pip_is_not_left(tmp_path: Path) -> None:
    assert "pip cannot be installed in" in refusal(tmp_path, most=100_000, examples=True)
    assert not (tmp_path / ".venv").exists()


def refusal(root: Path, *, most: int, examples: bool = False) -> str:
    """Return why no project is made where a file has at most so many bytes."""
    # In a process of its own: every thread of a process has its limit.
    code = f"""
import resource, signal
from toolcrib.errors import StateUnavailable
from toolcrib.project.authoring.starter import make
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, ({most}, {most}))
try:
    make(".", examples={examples})
except StateUnavailable as error:
    print(error)
"""
    done = complete([sys.executable, "-c", code], cwd=root, capture_output=True, text=True)
    said: str = done.stdout + done.stderr
    return said
