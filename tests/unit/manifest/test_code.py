"""The files that count as the code of a tool: the rule, clause by clause."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from tests.crib import Crib
from toolcrib.errors import ToolUnavailable
from toolcrib.guard import Digests
from toolcrib.manifest import code, lint_tool
from toolcrib.manifest.code import code_of
from toolcrib.sandbox.files.paths import Paths

FILES = (
    "main.py", "helper.py", "scripts/s.sh", "scripts/lib/part.txt", "scripts/out/log", "data/x.db",
    "data/other.db", "work/t.py", "work/near.py", "pkg/__init__.py", "pkg/mod.py", "pkg/sub/deep.py",
    "single/mod.py", "single/near.py", "listed/a.txt", "listed/b/c.py", "node/s.js",
    "node/node_modules/x/index.js", "node/node_modules/.package-lock.json", "scripts/__pycache__/s.pyc",
    "scripts/.git/HEAD", "note.md",
)  # fmt: skip
SCRIPTS = {"scripts/s.sh", "scripts/lib/part.txt", "scripts/out/log"}


@pytest.fixture
def crib(tmp_path: Path) -> Crib:
    crib = Crib(tmp_path / "project")
    for name in FILES:
        crib.write(name, "x")
    return crib


def counted(
    crib: Crib, kind: str, config: dict[str, Any], write: tuple[str, ...] = (), **more: Any
) -> set[str]:
    """Return the files that change the digest of a tool when they change, outside its own folder."""
    permissions = {"fs": {"read": ["."], "write": [*write]}}
    own = crib.tool("t", kind, config, permissions=permissions, **more)
    tool, digests = crib.open().get("t"), Digests(crib.root)
    before, found = digests.of(tool).digest, set()
    for path in (one for one in crib.root.rglob("*") if one.is_file() and not one.is_relative_to(own)):
        text = path.read_text()
        path.write_text("changed")
        if digests.of(tool).digest != before:
            found.add(str(path.relative_to(crib.root)))
        path.write_text(text)
    assert digests.of(tool).digest == before
    return found


def of_words(crib: Crib, *words: str, write: tuple[str, ...] = (), **more: Any) -> set[str]:
    return counted(crib, "command", {"entrypoint": words[0], "args": [*words[1:]]}, write, **more)


CASES: dict[str, tuple[tuple[str, ...], tuple[str, ...], set[str]]] = {
    "a script in the root is alone": (("python3", "main.py"), (), {"main.py"}),
    "a script with its folder": (("sh", "scripts/s.sh"), (), SCRIPTS),
    "the program itself": (("scripts/s.sh",), (), SCRIPTS),
    "a folder that it may write": (("sh", "scripts/s.sh"), ("scripts",), {"scripts/s.sh"}),
    "but for what it may write in it": (
        ("sh", "scripts/s.sh"),
        ("scripts/out",),
        SCRIPTS - {"scripts/out/log"},
    ),
    "the root may be written": (("sh", "scripts/s.sh"), (".",), {"scripts/s.sh"}),
    "a file that is no script is alone": (("cat", "data/x.db"), (), {"data/x.db"}),
    "its own data": (("cat", "data/x.db"), ("data",), set()),
    "the value of an option": (("node", "--require=scripts/s.sh"), (), SCRIPTS),
    "words in a word": (("sh", "-c", "cd / && sh scripts/s.sh 'note.md'"), (), SCRIPTS | {"note.md"}),
    "a line in a line": (("sh", "-c", "echo \"$(bash -c 'sh scripts/s.sh')\""), (), SCRIPTS),
    "a module": (("python3", "-m", "pkg.mod"), (), {"pkg/__init__.py", "pkg/mod.py", "pkg/sub/deep.py"}),
    "packages by their lock": (
        ("node", "node/s.js"),
        (),
        {"node/s.js", "node/node_modules/.package-lock.json"},
    ),
    "no file": (("echo", "gone.py", "scripts", "../x", "a" * 5_000, "/etc/passwd", "a\0b"), (), set()),
}


@pytest.mark.parametrize("case", CASES)
def test_the_files_that_a_command_names_count(crib: Crib, case: str) -> None:
    words, write, expected = CASES[case]
    assert of_words(crib, *words, write=write) == expected


@pytest.mark.parametrize(
    ("write", "expected"),
    [
        ("data", {"scripts/s.sh"}),
        (".", {"scripts/s.sh", "data/x.db"}),
        ("work", {"scripts/s.sh", "data/x.db"}),
    ],
)
def test_what_another_tool_may_write_is_data(crib: Crib, write: str, expected: set[str]) -> None:
    """Not its scripts, and not where the other one may write the whole project."""
    crib.tool("writer", "command", {"entrypoint": "true"}, permissions={"fs": {"write": [write]}})
    crib.tool("t", "command", {"entrypoint": "sh", "args": ["scripts/s.sh", "data/x.db"]})
    project = crib.open()
    before, tool = project.fingerprint(project.get("t")), project.get("t")
    for path in ("scripts/s.sh", "data/x.db"):
        crib.write(path, "changed")
    assert set(project.fingerprint(tool).changed_since(before.parts)) == {
        f"{'script' if path.endswith('.sh') else 'file'}/{path}" for path in expected
    }


def test_a_placeholder_names_nothing(crib: Crib) -> None:
    schema = {"type": "object", "properties": {"x": {"type": "string"}}}
    crib.write("scripts/${x}", "x")
    assert of_words(crib, "cat", "scripts/${x}", inputs={"schema": schema}) == set()


def test_a_shell_line_and_its_working_folder(crib: Crib) -> None:
    line = "python3 t.py | sort > out; echo 'a b' # note"
    config = {"entrypoint": "sh", "args": ["-c", line], "cwd": "work"}
    assert counted(crib, "command", config) == {"work/t.py", "work/near.py"}


def test_a_quote_that_is_not_closed_hides_no_script(crib: Crib) -> None:
    assert of_words(crib, "sh", "-c", "sh scripts/s.sh 'x") == SCRIPTS


def test_a_module_counts_with_its_package_or_its_folder(crib: Crib) -> None:
    config = {"module": "pkg.sub.deep", "function": "run"}
    assert counted(crib, "python", config) == {"pkg/__init__.py", "pkg/mod.py", "pkg/sub/deep.py"}
    assert counted(crib, "python", {"module": "mod", "function": "run", "cwd": "single"}) == {
        "single/mod.py",
        "single/near.py",
    }
    assert counted(crib, "python", {"module": "main", "function": "run"}) == {"main.py"}


def test_what_files_names_counts_in_place_of_the_folder_of_the_script(crib: Crib) -> None:
    files = ["listed", "helper.py"]
    expected = {"listed/a.txt", "listed/b/c.py", "helper.py"}
    assert of_words(crib, "python3", "main.py", files=files) == expected | {"main.py"}
    assert of_words(crib, "sh", "scripts/s.sh", files=files) == expected | {"scripts/s.sh"}


def test_a_link_counts_by_where_it_leads(crib: Crib) -> None:
    (crib.root / "bin").symlink_to("scripts")
    assert of_words(crib, "bin/s.sh") == SCRIPTS
    tool, digests = crib.open().get("t"), Digests(crib.root)
    before = digests.of(tool).digest
    (crib.root / "scripts2").mkdir()
    crib.write("scripts2/s.sh", "x")
    (crib.root / "bin").unlink()
    (crib.root / "bin").symlink_to("scripts2")
    assert digests.of(tool).digest != before


def test_a_file_outside_of_the_project_is_the_machines(crib: Crib) -> None:
    outside = crib.root.parent / "outside.sh"
    outside.write_text("x")
    (crib.root / "way.sh").symlink_to(outside)
    crib.tool("t", "command", {"entrypoint": "sh", "args": ["way.sh", str(outside)]})
    tool, digests = crib.open().get("t"), Digests(crib.root)
    before = digests.of(tool).digest
    outside.write_text("changed")
    assert digests.of(tool).digest == before
    (crib.root / "way.sh").unlink()
    assert digests.of(tool).digest != before


def test_the_digest_of_one_tool_reads_nothing_of_others(crib: Crib) -> None:
    crib.tool("other", "command", {"entrypoint": "sh", "args": ["work/t.py"]})
    (crib.home / "tools/other/big").write_text("x")
    assert of_words(crib, "sh", "scripts/s.sh") == SCRIPTS


def test_a_hostile_line_is_read_at_once(crib: Crib) -> None:
    words = ("sh", "-c", "'" + "( " * 20_000 + "'" + " '\"x\" y'" * 2_000)
    crib.tool("t", "command", {"entrypoint": words[0], "args": [*words[1:]]})
    tool, began = crib.open().get("t"), time.process_time()
    code_of(tool, str(crib.root), Paths())
    assert time.process_time() - began < 20


# --- limits, and what lint says


def lint(crib: Crib) -> list[tuple[str, str, int]]:
    return [(one.rule, one.message, one.line) for one in lint_tool(crib.home / "tools/t")]


def test_too_much_code_is_refused_and_lint_names_the_folder(
    crib: Crib, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(code, "_MAX_FILES", 3)
    crib.tool("t", "command", {"entrypoint": "sh", "args": ["scripts/s.sh"]})
    tool = crib.open().get("t")
    with pytest.raises(
        ToolUnavailable, match=f"over 3 files, or 64 MiB, with those in {crib.root}/scripts"
    ) as caught:
        Digests(crib.root).of(tool)
    assert "Name the files and folders of its code under `files`" in (caught.value.hint or "")
    assert [(rule, message) for rule, message, _ in lint(crib)] == [("files", caught.value.message)]
    result = crib.call("t")
    assert result.error is not None
    assert result.error.message == caught.value.message
    crib.tool("t", "command", {"entrypoint": "sh", "args": ["scripts/s.sh"]}, files=["scripts/lib"])
    assert Digests(crib.root).of(crib.open().get("t")).digest
    assert lint(crib) == []


def test_a_file_that_is_not_there_or_not_in_the_project_is_an_error_at_its_place(crib: Crib) -> None:
    (crib.root / "out").symlink_to("/etc")
    files = ["listed", "gone", "../x", "/etc/passwd", "out/passwd"]
    crib.tool("t", "command", {"entrypoint": "sh", "args": ["scripts/s.sh"]}, files=files)
    found = lint(crib)
    assert [(rule, message) for rule, message, _ in found] == [
        ("files", "`gone` does not exist"),
        ("files", "`../x` is not in the project"),
        ("files", "`/etc/passwd` is not in the project"),
        ("files", "`out/passwd` is not in the project"),
    ]
    lines = (crib.home / "tools/t/tool.yml").read_text().splitlines()
    assert all(name in lines[line - 1] for (_, _, line), name in zip(found, files[1:], strict=True))


def test_lint_warns_of_a_script_in_the_root(crib: Crib) -> None:
    crib.tool("t", "command", {"entrypoint": "python3", "args": ["main.py"]})
    assert [(one.rule, one.severity, one.message) for one in lint_tool(crib.home / "tools/t")] == [
        (
            "files-root",
            "warning",
            "`main.py` is in the project's root, so of its code only this file is checked",
        )
    ]
    crib.tool("t", "command", {"entrypoint": "python3", "args": ["main.py"]}, files=["helper.py"])
    assert lint(crib) == []


def test_files_survive_writing_the_manifest_again(crib: Crib) -> None:
    from toolcrib.manifest.native.writer import manifest_of

    crib.tool("t", "command", {"entrypoint": "sh", "args": ["scripts/s.sh"]}, files=["listed"])
    assert manifest_of(crib.open().get("t"))["files"] == ["listed"]


def test_a_folder_that_cannot_be_listed_is_told(crib: Crib, monkeypatch: pytest.MonkeyPatch) -> None:
    crib.tool("t", "command", {"entrypoint": "sh", "args": ["scripts/s.sh"]})
    tool = crib.open().get("t")
    real = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: not str(path).endswith("lib") and real(path, mode))
    with pytest.raises(ToolUnavailable, match="scripts/lib: this user may not list it"):
        Digests(crib.root).of(tool)
