"""A tool's digest: every change of what it would do shows, and nothing else."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pytest

from tests.crib import Crib
from toolcrib import Toolset
from toolcrib.errors import ConflictError, ToolUnavailable
from toolcrib.guard import Digests
from toolcrib.manifest import code
from toolcrib.project.integrity.programs import programs_of
from toolcrib.spec import CommandExec, Tool


@pytest.fixture
def crib(tmp_path: Path) -> Crib:
    crib = Crib(tmp_path / "project")
    crib.write("bin/run.sh", "#!/bin/sh\necho one\n", 0o755)
    crib.write("src/data", "x")
    folder = crib.tool(
        "run",
        "command",
        {"entrypoint": "bin/run.sh"},
        permissions={"fs": {"read": ["src"], "write": []}},
    )
    crib.write(f"{folder.relative_to(crib.root)}/lib/part.txt", "part")
    return crib


def tool_digest(tool: Tool, root: Path) -> str:
    return Digests(root).of(tool).digest


def load(crib: Crib, name: str = "run") -> Tool:
    return crib.open().get(name)


def folder(crib: Crib, name: str = "run") -> Path:
    return crib.home / "tools" / name


def rewrite_unseen(path: Path, text: str) -> None:
    """Other bytes in a file whose size, times of access and of modification, and inode stay."""
    before = path.stat()
    with path.open("r+") as file:
        file.write(text)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    after = path.stat()
    same = ("st_size", "st_mtime_ns", "st_ino")
    assert all(getattr(after, name) == getattr(before, name) for name in same)


def relink(crib: Crib) -> None:
    (crib.root / "src").rename(crib.root / "elsewhere")
    (crib.root / "src").symlink_to("elsewhere")


CHANGES: dict[str, tuple[Callable[[Crib], object], str]] = {
    "a file beside it": (lambda c: (folder(c) / "lib/part.txt").write_text("tarp"), "files/lib/part.txt"),
    "unseen by size and time": (
        lambda c: rewrite_unseen(folder(c) / "lib/part.txt", "tarp"),
        "files/lib/part.txt",
    ),
    "a new file": (lambda c: (folder(c) / "new").write_text(""), "files/new"),
    "a hidden one": (lambda c: (folder(c) / "lib/.new").write_text(""), "files/lib/.new"),
    "a file gone": (lambda c: (folder(c) / "lib/part.txt").unlink(), "files/lib/part.txt"),
    "a file renamed": (lambda c: (folder(c) / "lib/part.txt").rename(folder(c) / "p"), "files/p"),
    "a file made executable": (lambda c: (folder(c) / "lib/part.txt").chmod(0o755), "files/lib/part.txt"),
    "a link": (lambda c: (folder(c) / "link").symlink_to("/etc/passwd"), "files/link"),
    "a pipe": (lambda c: os.mkfifo(folder(c) / "pipe"), "files/pipe"),
    "the program": (lambda c: c.write("bin/run.sh", "#!/bin/sh\necho two\n", 0o755), "script/"),
    "a grant that leads elsewhere": (relink, "grants/read/src"),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("asked_before", [True, False], ids=["asked before", "asked first"])
def test_a_change_shows_and_is_named(crib: Crib, change: str, *, asked_before: bool) -> None:
    tool = load(crib)
    digests = Digests(crib.root)
    before = digests.of(tool)
    assert digests.of(tool) == before
    act, part = CHANGES[change]
    act(crib)
    after = (digests if asked_before else Digests(crib.root)).of(tool)
    assert after.digest != before.digest
    assert any(name.startswith(part) for name in after.changed_since(before.parts))
    assert before.changed_since(before.parts) == []


@pytest.mark.parametrize("change", CHANGES)
def test_of_many_only_what_has_changed_is_worked_out_again(crib: Crib, change: str) -> None:
    tool, digests = load(crib), Digests(crib.root)
    with patch("toolcrib.sandbox.files.paths.SETTLED_NS", 0):
        before = digests.of_many()(tool)
        assert digests.of_many()(tool) is before
        CHANGES[change][0](crib)
        assert digests.of_many()(tool) == digests.of(tool) != before


def test_a_digest_is_the_same_wherever_the_project_lies(crib: Crib, tmp_path: Path) -> None:
    before = Digests(crib.root).of(load(crib))
    crib.root = crib.root.rename(tmp_path / "moved")
    crib.home = crib.root / ".toolcrib"
    after = Digests(crib.root).of(load(crib))
    assert (after.digest, dict(after.parts)) == (before.digest, dict(before.parts))
    assert after.parts["grants/read/src"] == "src"


def test_a_link_that_says_something_else_shows(crib: Crib) -> None:
    link = folder(crib) / "link"
    link.symlink_to("a")
    tool = load(crib)
    before = tool_digest(tool, crib.root)
    link.unlink()
    link.symlink_to("b")
    assert tool_digest(tool, crib.root) != before


def test_a_program_behind_a_link_shows(crib: Crib) -> None:
    crib.write("bin/real.sh", "one", 0o755)
    (crib.root / "bin/run.sh").unlink()
    (crib.root / "bin/run.sh").symlink_to("real.sh")
    tool = load(crib)
    before = tool_digest(tool, crib.root)
    crib.write("bin/real.sh", "two", 0o755)
    assert tool_digest(tool, crib.root) != before


def test_touching_and_rewriting_the_same_changes_nothing(crib: Crib) -> None:
    tool = load(crib)
    before = tool_digest(tool, crib.root)
    part = folder(crib) / "lib/part.txt"
    part.unlink()
    part.write_text("part")
    os.utime(part, (1, 1))
    assert tool_digest(tool, crib.root) == before
    assert Digests(crib.root).of(load(crib)).digest == before


def test_a_manifest_that_is_no_longer_what_was_loaded_is_told(crib: Crib) -> None:
    tool = load(crib)
    path = folder(crib) / "tool.yml"
    text = path.read_text()
    path.write_text(text.replace("Does run", "Does walk"))
    with pytest.raises(ConflictError, match="has changed since it was loaded"):
        tool_digest(tool, crib.root)
    assert tool_digest(load(crib), crib.root)
    path.unlink()
    with pytest.raises(ConflictError):
        tool_digest(tool, crib.root)


def test_another_tool_is_another_digest(crib: Crib) -> None:
    crib.tool("other", "command", {"entrypoint": "bin/run.sh"})
    assert tool_digest(load(crib), crib.root) != tool_digest(load(crib, "other"), crib.root)


def test_a_system_program_does_not_belong_to_it(crib: Crib) -> None:
    crib.tool("list", "command", {"entrypoint": "ls"})
    assert [*Digests(crib.root).of(load(crib, "list")).parts] == ["manifest", "files/tool.yml"]


def test_the_module_of_a_python_tool_belongs_to_it_wherever_it_lies(crib: Crib) -> None:
    crib.tool("count", "python", {"module": "pkg.mod", "function": "run"})
    crib.write("pkg/__init__.py", "")
    crib.write("pkg/mod.py", "def run(): return 1\n")
    digests, tool = Digests(crib.root), load(crib, "count")
    before = digests.of(tool)
    crib.write("pkg/mod.py", "def run(): return 2\n")
    after = digests.of(tool)
    assert after.changed_since(before.parts) == ["module/pkg/mod.py"]
    crib.write("pkg/__init__.py", "import os\n")
    assert digests.of(tool).changed_since(after.parts) == ["module/pkg/__init__.py"]
    (crib.root / "pkg/mod").mkdir()
    crib.write("pkg/mod/__init__.py", "def run(): return 3\n")
    assert digests.of(tool).digest != after.digest


def test_a_module_that_comes_before_it_shows(crib: Crib) -> None:
    crib.write("mod.py", "def run(): return 2\n")
    crib.python("def run(): return 1\n", "count")
    (crib.home / "tools/count/mod.py").unlink()
    digests, tool = Digests(crib.root), load(crib, "count")
    before = digests.of(tool)
    crib.write(".toolcrib/mod.py", "def run(): return 2\n")
    assert digests.of(tool).digest != before.digest


def test_the_script_of_an_interpreter_belongs_to_it(crib: Crib) -> None:
    crib.write("scripts/count.sh", "echo 1\n")
    crib.tool("count", "command", {"entrypoint": "sh", "args": ["-e", "scripts/count.sh"]})
    digests, tool = Digests(crib.root), load(crib, "count")
    before = digests.of(tool)
    crib.write("scripts/count.sh", "echo 2\n")
    assert digests.of(tool).digest != before.digest


@pytest.mark.parametrize("text", ["echo " + "x" * 5_000, "a/" * 3_000, "", "/", "..", "${x}", "a\nb\0"])
def test_a_script_that_is_no_file_is_none(crib: Crib, text: str) -> None:
    config = CommandExec("sh", ("-c", text))
    assert programs_of([replace(load(crib), config=config)], crib.root) == []


def test_the_lock_of_its_environment_belongs_to_it(crib: Crib) -> None:
    site = "env/lib/python3.11/site-packages"
    crib.write("env/pyvenv.cfg", "home = /usr/bin\n")
    (crib.root / "env/bin").mkdir()
    (crib.root / "env/bin/python").symlink_to("/bin/sh")
    crib.write(f"{site}/six-1.0.dist-info/RECORD", "six.py,sha256=1,1\n")
    crib.write(f"{site}/six.py", "x = 1\n")
    crib.python("def run(): return 1\n", "count", config={"venv": "env"})
    digests, tool = Digests(crib.root), load(crib, "count")
    seen = [digests.of(tool).digest]
    for path, text in {
        f"{site}/six-1.0.dist-info/RECORD": "six.py,sha256=2,1\n",
        f"{site}/new-1.0.dist-info/METADATA": "Name: new\n",
        f"{site}/start.pth": "import os\n",
        f"{site}/six.py": "x = 2\n",
        "env/pyvenv.cfg": "home = /usr/local/bin\n",
    }.items():
        crib.write(path, text)
        seen.append(digests.of(tool).digest)
    (crib.root / "env/bin/python").unlink()
    (crib.root / "env/bin/python").symlink_to("/bin/ls")
    seen.append(digests.of(tool).digest)
    assert len(set(seen)) == len(seen)
    (crib.root / "env/pyvenv.cfg").unlink()
    with pytest.raises(ToolUnavailable, match="does not exist"):
        digests.of(tool)


def test_a_function_is_its_name_schema_and_reference(tmp_path: Path) -> None:
    def pay(amount: int) -> int:
        return amount

    def pay_more(amount: int, to: str) -> int:
        return amount

    tools = Toolset()
    tools.register("pay", pay)
    tools.register("other", pay)
    first = tool_digest(tools.get("pay"), tmp_path)
    assert first == tool_digest(tools.get("pay"), tmp_path)
    assert first != tool_digest(tools.get("other"), tmp_path)
    again = Toolset()
    again.register("pay", pay_more)
    assert first != tool_digest(again.get("pay"), tmp_path)


# --- bounds and failures


def test_too_many_files_or_bytes_are_refused(crib: Crib, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = load(crib)
    monkeypatch.setattr(code, "_MAX_FILES", 2)
    with pytest.raises(ToolUnavailable, match="more code than is checked"):
        tool_digest(tool, crib.root)
    monkeypatch.setattr(code, "_MAX_FILES", 2_000)
    with (folder(crib) / "sparse").open("wb") as file:
        file.truncate(65 * 1024**2)
    with pytest.raises(
        ToolUnavailable, match=f"over 2,000 files, or 64 MiB, with those in {folder(crib)}"
    ) as caught:
        tool_digest(tool, crib.root)
    assert "under `files`" in (caught.value.hint or "")


def test_a_folder_that_leads_into_itself_ends(crib: Crib) -> None:
    (folder(crib) / "loop").symlink_to(".")
    assert tool_digest(load(crib), crib.root)


def test_what_cannot_be_read_is_told(crib: Crib) -> None:
    tool = load(crib)
    with (
        patch("os.open", side_effect=PermissionError(13, "Permission denied")),
        pytest.raises(ToolUnavailable, match="Permission denied"),
    ):
        tool_digest(tool, crib.root)


def test_a_file_that_never_rests_is_told(crib: Crib, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = load(crib)
    part = folder(crib) / "lib/part.txt"
    real = os.open

    def restless(path: str, *args: int) -> int:
        descriptor = real(path, *args)
        with part.open("a") as file:
            file.write("x")
        return descriptor

    monkeypatch.setattr(os, "open", restless)
    with pytest.raises(ToolUnavailable, match="changes while it is read"):
        tool_digest(tool, crib.root)


# --- asked again


def test_asked_again_nothing_is_read_that_rests(crib: Crib) -> None:
    tool, digests = load(crib), Digests(crib.root)
    deadline = time.monotonic() + 100
    while time.monotonic() < deadline:
        first = digests.of(tool)
        with patch("os.open", side_effect=AssertionError("a file was read")):
            try:
                assert digests.of(tool) == first
            except AssertionError:
                continue
            return
    pytest.fail("files were read again and again")


def test_a_file_that_changed_just_now_is_read_again(crib: Crib) -> None:
    """Within one tick of the kernel's clock a second change would have the same times."""
    tool, digests = load(crib), Digests(crib.root)
    part = folder(crib) / "lib/part.txt"
    for text in ("aaaa", "bbbb", "cccc", "dddd") * 25:
        part.write_text(text)
        assert digests.of(tool).digest == tool_digest(tool, crib.root)
