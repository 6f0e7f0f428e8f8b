"""Tools of kind `file` run inside the server's process: nothing but the way they open files holds them."""

from __future__ import annotations

import os
import socket
import stat
import threading
import time
from pathlib import Path

from tests.escape.arena import Arena, words
from tests.escape.probe import Found, Outcome, probe
from toolcrib.errors import ToolcribError
from toolcrib.sandbox import Root, Roots
from toolcrib.spec import Result

GRANTS = {"fs": {"read": [], "write": ["."]}}
PATH_SCHEMA = {
    "schema": {"type": "object", "properties": {"path": {"type": "string", "description": "A file"}}}
}


def reader(arena: Arena) -> None:
    """A tool that reads any file of the project."""
    arena.tool(
        "reader", inputs=PATH_SCHEMA, exec={"file": {"action": "read", "path": "${path}"}}, permissions=GRANTS
    )


def writer(arena: Arena, mode: str = "0644") -> None:
    """A tool that writes any file of the project."""
    action = {"action": "write", "path": "${path}", "content": "evil", "mkdir": True, "mode": mode}
    arena.tool("writer", inputs=PATH_SCHEMA, exec={"file": action}, permissions=GRANTS)


def read_all(arena: Arena, *paths: str) -> Found:
    """Try to read each; the token may be in no answer, and an ordinary file must still be readable."""
    reader(arena)
    said = "".join(words(arena.call("reader", {"path": path})) for path in paths)
    fine = words(arena.call("reader", {"path": "src/file"}))
    if "as it was" not in fine:
        return Found(Outcome.NOT_RUN, fine[-300:], {})
    return Found(Outcome.ESCAPED if arena.token in said else Outcome.BLOCKED, said[-300:], {})


def write_all(arena: Arena, before: dict[str, tuple[object, ...]], watched: list[Path], *paths: str) -> Found:
    """Try to write each; nothing watched may change, and an ordinary file must still be writable."""
    writer(arena)
    results: list[Result] = [arena.call("writer", {"path": path}) for path in paths]
    fine = arena.call("writer", {"path": "scripts/fine"})
    changed = arena.changes(before, *watched)
    if fine.error is not None:
        return Found(Outcome.NOT_RUN, words(fine), {})
    said = changed or "; ".join(result.error.code if result.error else "written" for result in results)
    return Found(Outcome.ESCAPED if changed else Outcome.BLOCKED, said[-300:], {})


@probe(
    "file tools", "read outside by .., absolute paths, links, magic links and odd spellings", ours_only=True
)
def read_outside(arena: Arena) -> Found:
    links: dict[str, str | Path] = {
        "out": arena.outside,
        "up": "..",
        "file-link": arena.canary,
        "root": "/proc/self/root",
        "cwd": "/proc/self/cwd",
    }
    for name, target in links.items():
        (arena.project / name).symlink_to(target)
    c = str(arena.canary)
    return read_all(
        arena, "../outside/canary", "src/../../outside/canary", c, "/" + c, f"/proc/self/root{c}",
        "out/canary",
        "up/outside/canary", "file-link", f"root{c}", "cwd/../outside/canary", "src//..//../outside/canary",
        f"{arena.project}/../outside/canary", "./././../outside/canary", "out/../canary",
        "../project/../outside/canary",
        "src/file/../../../outside/canary", "~/../outside/canary", f"file://{c}", "..\\outside\\canary",
    )  # fmt: skip


@probe("file tools", "read .env and the state database under any other name", ours_only=True)
def read_hidden(arena: Arena) -> Found:
    project = arena.project
    (project / "link").symlink_to(".env")
    (project / "link2").symlink_to("link")
    (project / "folder-link").symlink_to(".")
    os.link(project / ".env", project / "hard")
    (project / "home").symlink_to(".toolcrib")
    return read_all(
        arena, ".env", "./.env", "src/../.env", ".env/", ".env/.", str(project / ".env"), "link", "link2",
        "hard",
        "folder-link/.env", ".ENV", ".Env", ".env\0", ".env\0.txt", "\uff0eenv", ".e\u0301nv",
        ".en\u200bv", ".env ", " .env",
        ".toolcrib/state.db", "home/state.db", ".toolcrib/../.toolcrib/state.db", "//.env",
        f"{project}//.env",
    )  # fmt: skip


@probe(
    "file tools", "read what is no file: devices, pipes, sockets, folders, without waiting", ours_only=True
)
def read_no_file(arena: Arena) -> Found:
    reader(arena)
    project = arena.project
    os.mkfifo(project / "pipe")
    (project / "zero").symlink_to("/dev/zero")
    (project / "stdin").symlink_to("/proc/self/fd/0")
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(project / "sock"))
        results = [
            arena.call("reader", {"path": path})
            for path in ("pipe", "zero", "sock", "stdin", "src", ".", "/dev/zero")
        ]
    read = [words(result) for result in results if result.error is None]
    said = "; ".join(result.error.code if result.error else "read" for result in results)
    return Found(Outcome.ESCAPED if read else Outcome.BLOCKED, said, {})


@probe("file tools", "write outside by .., links, links that lead nowhere, and new folders", ours_only=True)
def write_outside(arena: Arena) -> Found:
    project, out = arena.project, arena.outside
    (project / "out").symlink_to(out)
    (project / "dangling").symlink_to(out / "new")
    (project / "dangling2").symlink_to("../outside/new2")
    (project / "file-link").symlink_to(arena.canary)
    (project / "chain").symlink_to("dangling")
    before = arena.snapshot()
    return write_all(
        arena, before, [out], "../outside/canary", "out/canary", "out/new", "dangling", "dangling2",
        "chain", "file-link",
        str(arena.canary), "out/a/b/c", "../outside/a/b", "src/../../outside/x", "out/../outside/y",
        "dangling/a/b",
        f"/proc/self/cwd/{arena.canary}", "new/../../outside/z", "scripts/../out/q",
    )  # fmt: skip


@probe("file tools", "write manifests, settings, the log, git's hooks and hidden files", ours_only=True)
def write_protected(arena: Arena) -> Found:
    project = arena.project
    other = arena.tool("other", exec={"command": {"entrypoint": "true"}})
    (project / "home").symlink_to(".toolcrib")
    (project / "g").symlink_to(".git")
    (project / "hook").symlink_to(".git/hooks/pre-commit")
    watched = [
        other,
        project / ".toolcrib/config.yml",
        project / ".git/config",
        project / ".git/hooks",
        project / ".env",
    ]
    before = arena.snapshot(*watched)
    found = write_all(
        arena, before, watched, ".toolcrib/config.yml", ".toolcrib/tools/other/tool.yml",
        ".toolcrib/tools/new/tool.yml",
        "home/tools/other/tool.yml", ".git/config", ".git/hooks/pre-commit", ".git/hooks/new", "g/config",
        "g/hooks/new",
        "hook", ".env", "./.env", ".toolcrib/scratch/../config.yml",
        ".toolcrib/scratch/../tools/other/tool.yml",
        ".toolcrib/audit/tools.log", ".toolcrib/state.db", ".toolcrib/tools/writer/tool.yml",
        ".glee/tools/x/tool.yml",
    )  # fmt: skip
    made = [path for path in (".toolcrib/tools/new", ".glee/tools") if (project / path).exists()]
    return Found(Outcome.ESCAPED, " ".join(made), {}) if made else found


@probe("file tools", "write through a hard link to a file outside", ours_only=True)
def write_hard_link(arena: Arena) -> Found:
    os.link(arena.canary, arena.project / "hard")
    before = arena.canary.read_bytes()
    writer(arena)
    result = arena.call("writer", {"path": "hard"})
    said = result.error.code if result.error else "written"
    with Roots(Root(str(arena.project))) as roots:
        try:
            (arena.project / "hard").unlink()
            os.link(arena.canary, arena.project / "hard")
            roots.write("hard", b"evil", append=True)
        except ToolcribError as error:
            said += f", {error.code}"
    changed = arena.canary.read_bytes() != before
    return Found(Outcome.ESCAPED if changed else Outcome.BLOCKED, said, {})


@probe("file tools", "leave a set-user-id file by the mode of a new file", ours_only=True)
def write_setuid(arena: Arena) -> Found:
    writer(arena, "4755")
    said = words(arena.call("writer", {"path": "src/suid"}))
    writer(arena, "0755")
    said += words(arena.call("writer", {"path": "src/plain"}))
    if not (arena.project / "src/plain").exists():
        return Found(Outcome.NOT_RUN, said[-300:], {})
    left = [
        path.name for path in arena.project.rglob("*") if path.lstat().st_mode & (stat.S_ISUID | stat.S_ISGID)
    ]
    return Found(Outcome.ESCAPED if left else Outcome.BLOCKED, " ".join(left) or said[-200:], {})


@probe(
    "file tools",
    "confuse by names: NUL, half of a pair, far too long, empty, only dots and slashes",
    ours_only=True,
)
def odd_names(arena: Arena) -> Found:
    reader(arena)
    writer(arena)
    before = arena.snapshot()
    odd = [
        "src/file\0x", "\0", "\ud800", "src/\udcff", "a/" * 5000, "x" * 5000, "", ".", "..", "/", "//",
        "...", "....//canary",
        "src/file/", "src/file/.", "src/file/x", "\n", "\r\n/../outside/canary", "%2e%2e/outside/canary",
        "..%00/outside",
        "\u2025/outside/canary", "C:\\x", "con", "-", "--help", "|id", "a" * 255, "\u202e", "src\\..\\x",
    ]  # fmt: skip
    wrong = []
    for path in odd:
        for name in ("reader", "writer"):
            result = arena.call(name, {"path": path})
            if result.error is not None and result.error.code in ("internal", "usage"):
                wrong.append(f"{name} {path[:20]!r}: {result.error.code}")
            if arena.token in words(result):
                wrong.append(f"{name} {path[:20]!r} read the canary")
    changed = arena.changes(before)
    said = "; ".join(wrong) or changed or f"{len(odd)} names"
    return Found(Outcome.ESCAPED if wrong or changed else Outcome.BLOCKED, said[:300], {})


@probe("file tools", "read a file that grows without end", ours_only=True)
def growing_file(arena: Arena) -> Found:
    reader(arena)
    stop = threading.Event()
    path = arena.project / "growing"
    path.write_bytes(b"x" * 200_000)

    def grow() -> None:
        with path.open("ab") as file:
            while not stop.is_set() and file.tell() < 200_000_000:
                file.write(b"x" * 100_000)

    thread = threading.Thread(target=grow)
    thread.start()
    result = arena.call("reader", {"path": "growing"})
    stop.set()
    thread.join()
    size = len(str(result.value))
    return Found(Outcome.ESCAPED if size > 1_100_000 else Outcome.BLOCKED, f"{size} characters", {})


def race(arena: Arena, one: Path, other: Path, attempt: str) -> Found:
    """A confined tool swaps two names for half a second while a file tool goes through one of them."""
    seen, tried, before = "", 0, arena.snapshot()
    with (
        arena.meanwhile(lambda: arena.attack("swap", one, other, 600, write=[arena.project])) as attacker,
        Roots(Root(str(arena.project), hidden=(".env",))) as roots,
    ):
        end = time.monotonic() + 0.5
        while time.monotonic() < end and not seen:
            for path in (f"{one.name}/canary", one.name):
                tried += 1
                try:
                    if attempt == "read":
                        data = roots.read(path).data
                        seen = path if arena.token.encode() in data else seen
                    else:
                        roots.write(path, b"evil", mkdir=True)
                except ToolcribError:
                    continue
    seen = seen or arena.changes(before)
    said = f"{tried} attempts, {attacker[0].text.strip()[-30:]}"
    if "swapped" not in said:
        return Found(Outcome.NOT_RUN, said, {})
    return Found(Outcome.ESCAPED if seen else Outcome.BLOCKED, seen or said, {})


def swapped(arena: Arena) -> tuple[Path, Path]:
    """A folder inside and a link out, to be exchanged."""
    inner, link = arena.project / "swapped", arena.project / "link"
    inner.mkdir()
    (inner / "canary").write_text("harmless\n")
    link.symlink_to("../outside")
    return inner, link


@probe("file tools", "read outside by a folder that a tool swaps with a link", compiled=True, ours_only=True)
def read_race(arena: Arena) -> Found:
    return race(arena, *swapped(arena), "read")


@probe("file tools", "write outside by a folder that a tool swaps with a link", compiled=True, ours_only=True)
def write_race(arena: Arena) -> Found:
    return race(arena, *swapped(arena), "write")


@probe("file tools", "read .env by a link that a tool swaps with a plain file", compiled=True, ours_only=True)
def hidden_race(arena: Arena) -> Found:
    plain, link = arena.project / "plain", arena.project / "link"
    plain.write_text("harmless\n")
    link.symlink_to(".env")
    return race(arena, plain, link, "read")
