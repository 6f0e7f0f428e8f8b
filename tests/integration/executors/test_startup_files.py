"""Files that start other programs of the user: read-only if they exist, reported if they are created."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.crib import Crib, failed
from tests.integration.sandbox.ground import eventually
from tests.mcp_servers import RAW, mount
from tests.patience import GROWING_MS
from toolcrib import Project
from toolcrib.errors import ConflictError
from toolcrib.executors.workspace.grants import STARTUP
from toolcrib.guard import Ledger
from toolcrib.project import find
from toolcrib.spec import Result
from toolcrib.state import Vault

pytestmark = pytest.mark.usefixtures("kernel")

FILES = [
    *(
        f"{name}/settings.json"
        for name in (".claude", ".cursor", ".vscode", ".idea", ".github/workflows", ".husky")
    ),
    *(".envrc", ".mcp.json", ".gitlab-ci.yml", ".pre-commit-config.yaml", "AGENTS.md", "CLAUDE.md"),
]
"""One file of each."""
WRITE = {"fs": {"write": ["."]}}
PYTHON = """
import os

def run(path: str) -> str:
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with open(path, "a") as file:
        file.write("bad")
    return "written"
"""


def tools(crib: Crib, write: list[str]) -> None:
    """One tool of each kind that writes a file, with these grants."""
    grants: dict[str, Any] = {"permissions": {"fs": {"write": write}}}
    text = {"path": {"type": "string"}}
    crib.shell(**grants)
    crib.python(PYTHON, properties=text, config={"args": ["${path}"]}, **grants)
    crib.tool(
        "file",
        "file",
        {"action": "write", "path": "${path}", "content": "bad", "mkdir": True},
        text,
        **grants,
    )
    roots = {f"r{number}": {"path": path, "write": True} for number, path in enumerate(write)}
    crib.write(".toolcrib/config.yml", json.dumps({"builtins": ["write_file", "exec"], "roots": roots}))
    crib.trust()


def write_by(crib: Crib, kind: str, path: str) -> Result:
    """Have a tool of this kind write a file."""
    if kind in ("sh", "exec"):
        line = f"mkdir -p {Path(path).parent} 2>/dev/null; echo bad >>{path} && echo written"
        return crib.call(kind, {"c": line} if kind == "sh" else {"command": line})
    return crib.call(kind, {"path": path, "content": "bad"} if kind == "write_file" else {"path": path})


KINDS = ["sh", "py", "file", "write_file", "exec"]


def test_the_files_of_this_list_are_those_that_are_protected() -> None:
    assert {path.partition("/")[0] for path in FILES} | {".git"} == STARTUP.keys()


@pytest.mark.parametrize("kind", KINDS)
def test_no_tool_changes_one_that_exists(crib: Crib, kind: str) -> None:
    tools(crib, ["."])
    for folder in ("", "packages/a/"):
        for path in FILES:
            crib.write(f"{folder}{path}", "good")
    for path in ("packages/a/CLAUDE.md", ".vscode/settings.json", ".vscode/tasks.json", "packages/a/.envrc"):
        result = write_by(crib, kind, path)
        assert result.error is not None or "written" not in str(result.value), path
    if kind == "sh":
        crib.sh(
            "rm -rf .claude .github packages; mv .vscode v; mv packages p;"
            "for f in $(find . -name '*.md'); do echo bad >$f; done"
        )
    for folder in ("", "packages/a/"):
        for path in FILES:
            assert (crib.root / folder / path).read_text() == "good", path
    assert not (crib.root / ".vscode/tasks.json").exists()
    assert (write_by(crib, kind, "packages/a/ok.txt").error, crib.last().fields.get("created")) == (
        None,
        None,
    )


@pytest.mark.parametrize("kind", KINDS)
def test_a_grant_that_names_one_opens_it_and_no_other(crib: Crib, kind: str) -> None:
    for path in (".vscode/settings.json", ".github/workflows/ci.yml", ".github/x", "CLAUDE.md", "AGENTS.md"):
        crib.write(path, "good")
    tools(crib, [".", ".vscode", ".github/workflows", "CLAUDE.md"])
    for path in (".vscode/settings.json", ".vscode/new", ".github/workflows/ci.yml", "CLAUDE.md"):
        assert write_by(crib, kind, path).warnings == (), path
        assert "bad" in (crib.root / path).read_text(), path
    for path in (".github/x", "AGENTS.md"):
        write_by(crib, kind, path)
        assert (crib.root / path).read_text() == "good", path


def test_a_refusal_says_how_to_allow_it(crib: Crib) -> None:
    crib.write("CLAUDE.md", "good")
    tools(crib, ["."])
    for kind, place in (
        ("py", "permissions.fs.write"),
        ("file", "permissions.fs.write"),
        ("write_file", "`roots`"),
    ):
        result = write_by(crib, kind, "CLAUDE.md")
        failed(result, "permission_denied")
        assert result.error is not None
        assert place in (result.error.hint or ""), result.error.hint
        assert "CLAUDE.md" in f"{result.error.message} {result.error.hint}"


REPOSITORIES = {"sub/.git": "sub", "deep/er/.git": "deep/er"}


@pytest.mark.parametrize("kind", KINDS)
def test_repositories_inside_are_protected_and_their_settings_whatever_is_granted(
    crib: Crib, kind: str
) -> None:
    for git in (".git", *REPOSITORIES):
        for name in ("config", "hooks/pre-commit", "index"):
            crib.write(f"{git}/{name}", "good")
    crib.write("module/.git", "gitdir: ../.git/modules/module")
    crib.write(".git/modules/module/config", "good")
    tools(crib, [".", "sub/.git", ".git"])
    for git in (".git", "sub/.git"):
        for name in ("config", "hooks/pre-commit", "hooks/post-checkout"):
            write_by(crib, kind, f"{git}/{name}")
        assert write_by(crib, kind, f"{git}/index").warnings == ()
        assert "bad" in (crib.root / git / "index").read_text()
    for path in ("deep/er/.git/index", "module/.git", ".git/modules/module/config"):
        write_by(crib, kind, path)
        assert "bad" not in (crib.root / path).read_text(), path
    for git in (".git", *REPOSITORIES):
        assert (crib.root / git / "config").read_text() == "good"
        assert [path.name for path in (crib.root / git / "hooks").iterdir()] == ["pre-commit"]
    if kind == "sh":
        crib.sh("rm -rf deep; mv deep d; rm module/.git; mv module m")
        assert (crib.root / "deep/er/.git/config").read_text() == "good"
        assert (crib.root / "module/.git").read_text() == "gitdir: ../.git/modules/module"


def created(crib: Crib) -> list[str]:
    """What the next `trust` names, from the project's root."""
    return [str(Path(one.path).relative_to(crib.root)) for one in Ledger(Vault(crib.root)).created()]


@pytest.mark.parametrize("kind", KINDS)
def test_one_that_a_call_creates_is_reported(crib: Crib, kind: str) -> None:
    tools(crib, ["."])
    crib.write("src/x", "")
    for path, place in (
        (".vscode/tasks.json", ".vscode"),
        ("src/CLAUDE.md", "src/CLAUDE.md"),
        ("src/.git/config", "src/.git"),
    ):
        result = write_by(crib, kind, path)
        assert result.error is None
        (warning,) = result.warnings
        assert f"{crib.root / place} was created while the tool ran" in warning
        assert STARTUP[Path(place).name] in warning
        assert crib.last().fields["created"] == [str(crib.root / place)]
        # From the next call on it is one that exists.
        again = write_by(crib, kind, path)
        assert (again.error is None, again.warnings) == (kind in ("sh", "exec"), ()) or "written" not in str(
            again.value
        )
    assert created(crib) == [".vscode", "src/.git", "src/CLAUDE.md"]
    assert {one.tool for one in Ledger(Vault(crib.root)).created()} == {kind}


def test_one_that_a_failing_or_cancelled_call_creates_is_reported(crib: Crib) -> None:
    crib.shell(permissions=WRITE)
    result = crib.call("sh", {"c": "mkdir .husky; exit 3"})
    assert result.error is not None
    assert result.error.code == "command_failed"
    assert f"{crib.root}/.husky was created" in (result.error.hint or "")
    for limit_ms in GROWING_MS:
        result = crib.call("sh", {"c": "mkdir .idea; sleep 60"}, timeout_ms=limit_ms)
        if (crib.root / ".idea").exists():
            break
    else:
        raise AssertionError("no limit is long enough")
    assert result.error is not None
    assert result.error.code == "timed_out"
    assert f"{crib.root}/.idea was created" in (result.error.hint or "")

    async def cancelled() -> None:
        async with crib.open() as project:
            call = asyncio.create_task(project.call("sh", {"c": "touch .envrc; sleep 60"}))
            await asyncio.to_thread(eventually, (crib.root / ".envrc").exists)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call

    asyncio.run(cancelled())
    assert crib.last().fields["created"] == [f"{crib.root}/.envrc"]
    assert created(crib) == [".envrc", ".husky", ".idea"]


def test_installed_packages_may_bring_what_they_like(crib: Crib) -> None:
    crib.write("node_modules/a/.github/FUNDING.yml", "old")
    crib.shell(permissions=WRITE)
    result = crib.call("sh", {"c": "rm -r node_modules/a; mkdir -p node_modules/b/.vscode"})
    assert (result.error, result.warnings) == (None, ())
    assert not (crib.root / "node_modules/a").exists()


def test_a_link_to_one_is_protected_with_its_target(crib: Crib) -> None:
    crib.write("AGENTS.md", "good")
    crib.write("rules/all.md", "good")
    (crib.root / "CLAUDE.md").symlink_to("AGENTS.md")
    (crib.root / "rules/CLAUDE.md").symlink_to("all.md")
    crib.shell(permissions=WRITE)
    crib.sh(
        "echo bad >CLAUDE.md; rm CLAUDE.md;"
        "echo bad >rules/CLAUDE.md; echo bad >rules/all.md; rm rules/CLAUDE.md"
    )
    assert (crib.root / "CLAUDE.md").read_text() == "good"
    assert (crib.root / "rules/CLAUDE.md").read_text() == "good"


def test_a_project_below_such_a_folder_is_like_any_other(tmp_path: Path) -> None:
    (tmp_path / ".claude/worktrees").mkdir(parents=True)
    crib = Crib(tmp_path / ".claude/worktrees/project")
    crib.write(".vscode/settings.json", "good")
    crib.shell(permissions=WRITE)
    assert crib.sh("echo fine >new.txt; echo bad >.vscode/settings.json; cat new.txt").endswith("fine\n")
    assert (crib.root / ".vscode/settings.json").read_text() == "good"


WRITER = (
    RAW
    + """
def called(message):
    os.makedirs(message["params"]["arguments"]["path"], exist_ok=True)
    return {"content": [{"type": "text", "text": "made"}]}

main()
"""
)


async def test_one_that_a_server_creates_is_reported_by_the_call(crib: Crib) -> None:
    mount(crib, "writer", WRITER, out="out")
    (crib.root / "out/.vscode").mkdir()
    async with crib.open() as project:
        assert project.servers is not None
        await project.servers.ready(60)
        first = await project.call("writer__hello", {"path": ".claude"})
        assert first.error is None, first.error
        assert [f"{crib.root}/out/.claude was created" in one for one in first.warnings] == [True]
        second = await project.call("writer__hello", {"path": "deep/.idea"})
        assert [f"{crib.root}/out/deep/.idea was created" in one for one in second.warnings] == [True]
        assert (await project.call("writer__hello", {"path": "plain"})).warnings == ()
    assert created(crib) == ["out/.claude", "out/deep/.idea"]


@pytest.mark.parametrize(("first", "second"), [(".glee", ".toolcrib"), (".toolcrib", ".glee")])
def test_the_home_that_was_accepted_stays_the_projects(tmp_path: Path, first: str, second: str) -> None:
    crib = Crib(tmp_path / "project", first)
    crib.shell(permissions=WRITE)
    Project.inspect(crib.root).trust.accept("ann", settings=True)
    result = crib.call("sh", {"c": f"mkdir -p {second}/tools/sh"})
    assert f"{crib.root / second} was created while the tool ran" in " ".join(result.warnings)
    assert created(crib) == [second]
    assert find(crib.root).home == crib.root / first
    assert crib.sh("echo as before") == "as before\n"


def test_a_project_with_two_homes_that_nobody_accepted_is_refused(tmp_path: Path) -> None:
    for name in (".glee", ".toolcrib"):
        (tmp_path / name).mkdir()
    with pytest.raises(ConflictError, match=r"has both \.toolcrib/ and \.glee/"):
        find(tmp_path)
