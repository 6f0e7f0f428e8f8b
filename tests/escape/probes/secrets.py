"""Secrets are known to the command that declares them and to nobody else."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

from tests.escape.arena import PATH, Arena, eventually
from tests.escape.contestants import end
from tests.escape.probe import Found, probe

ADD_KEY, KEYCTL = {"x86_64": (248, 250), "aarch64": (217, 219)}.get(os.uname().machine, (0, 0))
EVERYWHERE = (
    "env; cat /proc/*/environ /proc/*/cmdline /proc/self/task/*/environ /proc/$PPID/environ /proc/1/environ "
    "| tr '\\0' '\\n'; cat /proc/*/maps; ls -l /proc/*/fd"
)


def server_token() -> str:
    """What the process that runs the probes, standing for the server, has in its first environment."""
    return os.environ["ESCAPE_SERVER_SECRET"]


@probe("secrets", "find the server's environment in one's own or in any process")
def server_environment(arena: Arena) -> Found:
    done = arena.sh(EVERYWHERE)
    return arena.found(done, server_token() in done.text)


@probe("secrets", "read the environment and memory of a process of the machine by its number")
def other_environment(arena: Arena) -> Found:
    with arena.victim(TOKEN=arena.token) as victim:
        pids = f"{victim.pid} {os.getpid()} {os.getppid()}"
        done = arena.sh(
            f"for p in {pids}; do cat /proc/$p/environ /proc/$p/cmdline; head -c 1000000 /proc/$p/mem; "
            "cat /proc/$p/root/proc/self/environ; ls -l /proc/$p/fd; done; " + EVERYWHERE
        )
    return arena.found(done, arena.token in done.text or server_token() in done.text)


@probe("secrets", "find the secret of another call that runs at the same time")
def other_call(arena: Arena) -> Found:
    ready = arena.project / "src/ready"
    with arena.meanwhile(
        lambda: arena.sh(
            "touch ready; sleep 1.2; env",
            cwd=str(arena.project / "src"),
            env={"PATH": PATH, "KEY": arena.token},
            write=[arena.project / "src"],
        )
    ) as holder:
        eventually(ready.exists)
        done = arena.sh("ps -e; " + EVERYWHERE + "; cat /tmp/* /dev/shm/*")
    assert arena.token in holder[0].text, holder
    return arena.token_kept(done)


@probe("secrets", "show a secret to everybody on a command line")
def command_line(arena: Arena) -> Found:
    ready = arena.project / "src/ready"
    seen: list[str] = []

    def look() -> bool:
        for entry in Path("/proc").iterdir():
            try:
                line = (entry / "cmdline").read_bytes() if entry.name.isdigit() else b""
            except OSError:
                continue
            if arena.token.encode() in line:
                seen.append(line.replace(b"\0", b" ").decode(errors="replace")[:60])
        return bool(seen)

    with arena.meanwhile(
        lambda: arena.sh(
            "touch ready; sleep 0.5",
            cwd=str(arena.project / "src"),
            env={"PATH": PATH, "KEY": arena.token},
            write=[arena.project / "src"],
        )
    ) as found:
        while not ready.exists() and not look() and not found:
            pass
        look()
    return arena.found(found[0], seen, " ".join(seen))


@probe("secrets", "find a secret in the environment of what starts the command")
def launcher_environment(arena: Arena) -> Found:
    ready = arena.project / "src/ready"
    seen: set[str] = set()

    def look() -> None:
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == os.getpid():
                continue
            try:
                text = (entry / "environ").read_bytes()
                line = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if server_token().encode() in text or (
                arena.token.encode() in text and b"touch ready" not in line
            ):
                seen.add(line.replace(b"\0", b" ").decode(errors="replace")[:60])

    with arena.meanwhile(
        lambda: arena.sh(
            "touch ready; until [ -e go ]; do sleep 0.1; done",
            cwd=str(arena.project / "src"),
            env={"PATH": PATH, "KEY": arena.token},
            write=[arena.project / "src"],
        )
    ) as found:
        eventually(ready.exists)
        look()
        ready.with_name("go").touch()
    # The command's own children know it, as they should.
    strangers = [line for line in seen if not line.startswith(("sleep", "touch", "/bin/sh", "sh", "bwrap"))]
    return arena.found(found[0], strangers, " ".join(strangers))


@probe("secrets", "read the job or another's answer from descriptors of the processes above", compiled=True)
def watcher(arena: Arena) -> Found:
    done = arena.attack("init", env={"PATH": PATH, "KEY": arena.token})
    forged = done.exit_code != 7 or arena.token in done.text
    found = arena.nothing_gained(done)
    return arena.found(done, True, f"ended with {done.exit_code}: {found.evidence}") if forged else found


def key_of_the_server(arena: Arena) -> int:
    """A key in the server's session whose permissions let the same user read it."""
    call = ctypes.CDLL(None, use_errno=True).syscall
    text, session = arena.token.encode(), ctypes.c_long(-3)
    call(ctypes.c_long(KEYCTL), ctypes.c_long(1), ctypes.c_long(0))  # a session keyring of its own
    size = ctypes.c_long(len(text))
    serial = int(call(ctypes.c_long(ADD_KEY), b"user", text, text, size, session))
    if serial > 0:
        call(ctypes.c_long(KEYCTL), ctypes.c_long(5), ctypes.c_long(serial), ctypes.c_long(0x3F3F0000))
    return serial


@probe("secrets", "search the server's keyrings for a key by its name", compiled=True)
def keyring_search(arena: Arena) -> Found:
    key_of_the_server(arena)
    done = arena.attack("key", 1, arena.token)
    gained = [line for line in done.text.splitlines() if line.startswith("GAINED key")]
    return arena.found(done, gained, "; ".join(gained))


@probe("secrets", "read a key of the server by its number", needs="seccomp", compiled=True)
def key_by_number(arena: Arena) -> Found:
    done = arena.attack("key", key_of_the_server(arena), "no-such-name")
    return arena.token_kept(done)


@probe("secrets", "leave a picture of the memory behind by crashing", compiled=True)
def core_dump(arena: Arena) -> Found:
    done = arena.attack("crash", cwd=str(arena.project), write=[arena.project], env={"KEY": arena.token})
    left = [str(path) for path in arena.project.rglob("*core*")]
    return arena.found(done, left, " ".join(left) or f"tried; signal {done.signal}")


@probe("secrets", "bring code into the command by variables and by what stands in the home folder")
def code_by_variables(arena: Arena) -> Found:
    mark = f"marker-{arena.token}"
    os.environ.update(
        {"LD_PRELOAD_TEST": "1", "BASH_ENV": f"/{mark}", "PYTHONPATH": f"/{mark}", "GIT_DIR": f"/{mark}"}
    )
    try:
        done = arena.sh("env; cat /proc/self/environ")
    finally:
        for name in ("LD_PRELOAD_TEST", "BASH_ENV", "PYTHONPATH", "GIT_DIR"):
            os.environ.pop(name, None)
    end(mark)
    return arena.found(done, mark in done.text or "LD_PRELOAD" in done.text)


@probe("secrets", "read the logs, histories and keys that a home folder holds")
def home_folder(arena: Arena) -> Found:
    home = arena.outside / "home"
    for name in (".ssh/id_ed25519", ".aws/credentials", ".netrc", ".bash_history", ".config/gh/hosts.yml"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(arena.token)
    before = os.environ.get("HOME")
    os.environ["HOME"] = str(home)
    try:
        done = arena.sh(
            f"cat ~/.ssh/* ~/.netrc {home}/.netrc {home}/.aws/credentials; ls -a ~ {home}; cd; find . -type f"
        )
    finally:
        os.environ.pop("HOME") if before is None else os.environ.update(HOME=before)
    return arena.found(done, arena.token in done.text or "/.netrc\n" in done.text)
