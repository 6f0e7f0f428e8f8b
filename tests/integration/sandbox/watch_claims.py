"""What is promised of watched commands; `claims` has them tried with the others, by root and by nobody."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import Callable
from typing import Any

from tests.integration.sandbox.ground import CANARY, Ground, python, said, shell
from toolcrib.errors import SandboxUnavailable
from toolcrib.sandbox import Confinement, run

STATIC = """
#include <fcntl.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
static void *work(void *folder) {
    openat((int)(long)folder, "by-thread", O_WRONLY | O_CREAT, 0644);
    return 0;
}
int main(void) {
    pthread_t thread;
    int folder = open("src", O_RDONLY | O_DIRECTORY);
    pthread_create(&thread, 0, work, (void *)(long)folder);
    pthread_join(thread, 0);
    if (fork() == 0) { chdir("src"); open("deep/../file", O_RDONLY); _exit(0); }
    wait(0);
    open((char *)1, O_RDONLY);
    unlinkat(folder, "by-thread", 0);
    mkdir("src/made", 0755);
    access(".env", R_OK);
    return socket(AF_INET, SOCK_STREAM, 0) == -1 ? 7 : 0;
}
"""


def what_a_watched_static_program_uses_is_seen(ground: Ground) -> None:
    compiler = shutil.which("gcc")
    if compiler is None:
        return  # `test_watch` says that it is missing.
    program = ground.project / "static"
    command = [compiler, "-static", "-pthread", "-x", "c", "-", "-o", str(program)]
    subprocess.run(command, input=STATIC.encode(), check=True, capture_output=True)
    seen: list[tuple[str, str]] = []
    job = Confinement(
        argv=(str(program),),
        cwd=str(ground.project),
        read=(str(ground.project),),
        write=(str(ground.project / "src"),),
        watch=lambda one: seen.append((one.access, one.path)),
    )
    done = asyncio.run(run(job))
    assert done.exit_code == 7, (done, seen)  # the socket was refused
    project = str(ground.project)
    for expected in (
        ("run", str(program)),
        ("list", f"{project}/src"),
        ("create", f"{project}/src/by-thread"),
        ("look", f"{project}/src"),
        ("read", f"{project}/src/deep/../file"),
        ("remove", f"{project}/src/by-thread"),
        ("make", f"{project}/src/made"),
        ("look", f"{project}/.env"),
        ("network", ""),
    ):
        assert expected in seen, (expected, seen)
    assert (ground.project / "src/made").is_dir()


def a_watched_command_is_held_like_any_other(ground: Ground) -> None:
    seen: list[str] = []
    script = f"cat {ground.outside}/canary .env; echo x > src/file; cat src/file"
    rules: dict[str, Any] = {"read": (str(ground.project),), "hide": (str(ground.project / ".env"),)}
    done = shell(ground, script, watch=lambda one: seen.append(one.path), **rules)
    assert CANARY not in said(done).replace(f"{CANARY} file", ""), said(done)
    assert done.stdout == f"{CANARY} file\n".encode()
    assert f"{ground.outside}/canary" in seen
    code = "import socket\nfor family in (1, 2, 10, 16, 17):\n try: socket.socket(family)\n"
    code += " except OSError as error: print(error.errno)\n else: print('made', family)"
    held = python(code)
    watched = python(code, watch=lambda _: None)
    assert watched.stdout == held.stdout, (said(watched), said(held))
    assert b"made" not in watched.stdout


def a_watched_interpreter_its_threads_and_children_are_seen(ground: Ground) -> None:
    seen: list[str] = []
    code = (
        "import os, subprocess, threading\n"
        f"os.chdir({str(ground.project)!r})\n"
        "threads = [threading.Thread(target=os.stat, args=(f'src/t{n}',)) for n in range(20)]\n"
        "threading.excepthook = lambda _: None\n"
        "[thread.start() for thread in threads]; [thread.join() for thread in threads]\n"
        "subprocess.run(['cat', 'src/deep/er/file'])\n"
    )
    done = python(code, read=(str(ground.project),), watch=lambda one: seen.append(one.path))
    assert done.exit_code == 0, said(done)
    for name in (*(f"t{n}" for n in range(20)), "deep/er/file"):
        assert f"{ground.project}/src/{name}" in seen, name


def what_cannot_be_watched_is_not_run_on(ground: Ground) -> None:
    def fail(_: object) -> None:
        raise ValueError("no more")

    job = Confinement(
        argv=("/bin/sh", "-c", "echo x > made"),
        cwd=str(ground.project),
        write=(str(ground.project),),
        watch=fail,
    )
    told = ""
    try:
        asyncio.run(run(job))
    except SandboxUnavailable as error:
        told = error.message
    assert "no more" in told
    assert not (ground.project / "made").exists()


WATCHING: list[Callable[[Ground], None]] = [
    what_a_watched_static_program_uses_is_seen,
    a_watched_command_is_held_like_any_other,
    a_watched_interpreter_its_threads_and_children_are_seen,
    what_cannot_be_watched_is_not_run_on,
]
