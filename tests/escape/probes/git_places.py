"""Git's own folder: what a tool writes there must not run as the person who uses git next."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from tests.escape.arena import Arena, words
from tests.escape.probe import Found, probe
from tests.escape.probes.grants import judged, script


@probe(
    "grants",
    "plant a hook or change settings of git: written, moved, replaced with its parent",
    ours_only=True,
)
def git_hooks(arena: Arena) -> Found:
    watched = [arena.project / ".git/config", arena.project / ".git/hooks"]
    before = arena.snapshot(*watched)
    result = script(
        arena,
        "echo evil > .git/config; echo evil >> .git/hooks/pre-commit; echo evil > .git/hooks/post-checkout; "
        "mv .git/hooks .git/h; mv .git g; mkdir -p .git/hooks; echo evil > .git/hooks/pre-commit; rm -rf "
        ".git; "
        "git config core.fsmonitor evil; git config --local alias.x '!evil'; mv x .git/config; "
        "echo evil > c; mv -f c .git/config; ln -f c .git/config; ln -sf c .git/config; chmod 777 "
        ".git/hooks/pre-commit; "
        "cp -r .git new; mv -T new .git; rmdir .git/hooks; echo evil > .git/hooks",
    )
    changed = arena.changes(before, *watched)
    return judged(arena, result, changed, changed)


def outside_git(arena: Arena, folder: Path, *extra: str) -> str:
    """What a person's own git does in the project after a tool was there."""
    done = subprocess.run(
        ["git", "-C", str(folder), *extra, "status"],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": os.environ.get("PATH", ""), "HOME": str(arena.outside), "GIT_CONFIG_NOSYSTEM": "1"},
    )
    return done.stdout + done.stderr


def repository(folder: Path) -> None:
    """A repository with one commit, made from outside."""
    shutil.rmtree(folder / ".git", ignore_errors=True)
    git = ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@b"]
    for words_of_git in (["init", "-q"], ["add", "-A", "src"], ["commit", "-q", "-m", "one"]):
        subprocess.run(
            [*git, *words_of_git], check=True, capture_output=True, env={"PATH": os.environ["PATH"]}
        )
    (folder / ".git/hooks").mkdir(exist_ok=True)


@probe("grants", "have the person's git take its settings from elsewhere (.git/commondir)", ours_only=True)
def git_common_folder(arena: Arena) -> Found:
    repository(arena.project)
    mark = arena.outside / "ran"
    result = script(
        arena,
        "cp -r .git/. evil/ 2>/dev/null || { mkdir evil; cp -r .git/. evil/; }; rm -f evil/config; "
        f"printf '[core]\\n\\trepositoryformatversion = 0\\n\\tfsmonitor = touch {mark}; false\\n' > "
        f"evil/config; "
        "echo ../evil > .git/commondir",
    )
    said = outside_git(arena, arena.project)
    return judged(
        arena, result, mark.exists(), f"a program of the tool's ran as the person: {mark.exists()}; {said}"
    )


@probe(
    "grants", "have the person's git run a program by a submodule's settings in .git/modules", ours_only=True
)
def git_modules(arena: Arena) -> Found:
    repository(arena.project)
    module, work = arena.project / ".git/modules/sub", arena.project / "sub"
    work.mkdir()
    (work / "src").mkdir()
    (work / "src/file").write_text("x\n")
    repository(work)
    module.parent.mkdir()
    (work / ".git").rename(module)
    (work / ".git").write_text("gitdir: ../.git/modules/sub\n")
    mark = arena.outside / "ran"
    result = script(
        arena,
        f"printf '[core]\\n\\trepositoryformatversion = 0\\n\\tfsmonitor = touch {mark}; false\\n' "
        "> .git/modules/sub/config",
    )
    said = outside_git(arena, work)
    return judged(
        arena, result, mark.exists(), f"a program of the tool's ran as the person: {mark.exists()}; {said}"
    )


@probe("grants", "replace a .git that is a link by a folder with settings of one's own", ours_only=True)
def git_folder_is_a_link(arena: Arena) -> Found:
    repository(arena.project)
    (arena.project / "store").mkdir()
    (arena.project / ".git").rename(arena.project / "store/git")
    (arena.project / ".git").symlink_to("store/git")
    mark = arena.outside / "ran"
    result = script(
        arena,
        "cp -r store/git new; rm -f .git; mv new .git; rm -f .git/config; "
        f"printf '[core]\\n\\trepositoryformatversion = 0\\n\\tfsmonitor = touch {mark}; false\\n' > "
        f".git/config",
    )
    said = outside_git(arena, arena.project)
    refused = result.error is not None and result.error.code == "permission_denied"
    said = f"a program of the tool's ran as the person: {mark.exists()}; {said}"
    return arena.answered(result, mark.exists(), refused or "tried" in words(result), said)
