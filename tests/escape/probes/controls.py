"""What must keep working in a sandbox: a wall that lets nothing through is no use."""

from __future__ import annotations

import shutil
import subprocess

from tests.certificates import certificate_for
from tests.escape.arena import PYTHON, PYTHON_FILES, Arena
from tests.escape.contestants import Done
from tests.escape.probe import Found, Outcome, probe
from tests.escape.probes.hosts import Web

C_SOURCE = (
    "#include <stdio.h>\\n#include <math.h>\\n"
    'int main(int c,char**v){printf("%%.0f\\\\n",pow(c+1,5));return 0;}\\n'
)


def works(arena: Arena, done: Done, right: bool) -> Found:
    """Whether the thing worked, with what it said."""
    said = " ".join((done.refused or done.text).split())[-300:]
    return Found(Outcome.WORKED if right else Outcome.BLOCKED, said, arena.report)


def in_project(arena: Arena, script: str, expected: str, **fields: object) -> Found:
    """A script in a writable project whose last line of output is known."""
    done = arena.sh(f"set -e; {script}", cwd=str(arena.project), write=[arena.project], **fields)
    lines = done.stdout.decode(errors="replace").strip().splitlines()
    return works(arena, done, done.exit_code == 0 and bool(lines) and lines[-1].strip() == expected)


@probe("controls", "a shell with pipes, here-documents, traps, jobs and substitution")
def shell(arena: Arena) -> Found:
    return in_project(
        arena,
        "x=$(echo a b c | tr a-z A-Z); cat <<X | wc -l > n\none\ntwo\nX\ntrap 'echo bye > b' EXIT; "
        "(sleep 0.05; echo late > l) & wait; [ -s l ] && echo $x $(cat n)",
        "A B C 2",
    )


@probe("controls", "tar, find, sort, awk, sed, grep, xargs, cp, mv, ln, touch, chmod, df, date")
def coreutils(arena: Arena) -> Found:
    return in_project(
        arena,
        "mkdir -p w/d; for i in 3 1 2; do echo $i > w/d/$i; done; chmod 750 w/d; touch -d 2001-01-01 "
        "w/d/1; ln -s 1 w/d/l; "
        "ln w/d/1 w/d/h; tar czf w.tgz w; rm -rf w; tar xzf w.tgz; cp -a w v; mv v u; df /tmp >/dev/null; "
        "date >/dev/null; "
        "find u -type f -name '[0-9]' | sort | xargs cat | sort -n | awk '{s+=$1} END {print s}' | sed "
        "'s/^/sum /' | grep sum",
        "sum 6",
    )


@probe(
    "controls", "compile and run a C program, dynamic and static, and a Python extension of it", compiled=True
)
def compiler(arena: Arena) -> Found:
    if shutil.which("gcc") is None:
        return Found(Outcome.NOT_RUN, "no gcc", {})
    return in_project(
        arena,
        f"printf '{C_SOURCE}' > a.c; gcc -O1 -o dyn a.c -lm; gcc -static -o sta a.c -lm; ./dyn; ./sta 2; "
        "gcc -shared -fPIC -o a.so a.c -lm; gcc -pthread -g -c a.c && make -v >/dev/null 2>&1; ./sta",
        "32",
        timeout_ms=30_000,
    )


@probe("controls", "git init, add, commit, branch, log, gc in a writable grant")
def git(arena: Arena) -> Found:
    shutil.rmtree(arena.project / ".git")
    return in_project(
        arena,
        "export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b "
        "HOME=/tmp; "
        "git init -q repo 2>/dev/null; cd repo; echo x > f; git add f; git commit -qm one; git checkout "
        "-qb other; echo y >> f; "
        "git commit -qam two; git gc -q; git stash list; git log --oneline | wc -l",
        "2",
    )


@probe("controls", "git status and commit in a repository that was there, its hooks and config protected")
def git_protected(arena: Arena) -> Found:
    shutil.rmtree(arena.project / ".git")
    subprocess.run(["git", "init", "-q", str(arena.project)], check=True, capture_output=True)
    return in_project(
        arena,
        "export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b "
        "HOME=/tmp; "
        "git add src; git commit -qm one; git status --short >/dev/null; git log --oneline | wc -l",
        "1",
        protect=[arena.project / ".git/config", arena.project / ".git/hooks"],
    )


PYTHON_WORK = """
import asyncio, concurrent.futures, ctypes, hashlib, json, multiprocessing, os, sqlite3, ssl
import subprocess, sys, tempfile, threading
found = []
with concurrent.futures.ThreadPoolExecutor(4) as pool:
    found.append(sum(pool.map(lambda n: n * n, range(10))))
found.append(subprocess.run(["echo", "child"], capture_output=True, text=True).stdout.strip())
async def main():
    reader, writer = await asyncio.open_connection(sock=pair[0])
    writer.write(b"x"); await writer.drain(); writer.close()
    process = await asyncio.create_subprocess_exec("true")
    await asyncio.gather(asyncio.sleep(0.01), process.wait())
    return await asyncio.to_thread(lambda: "async")
import socket
pair = socket.socketpair()
found.append(asyncio.run(main()))
with tempfile.TemporaryDirectory() as folder:
    db = sqlite3.connect(folder + "/x.db")
    db.execute("pragma journal_mode=wal"); db.execute("create table t (a)")
    db.execute("insert into t values (7)"); db.commit()
    found.append(db.execute("select a from t").fetchone()[0])
def work(queue):
    queue.put("process")
context = multiprocessing.get_context("fork")
queue = context.SimpleQueue()
child = context.Process(target=work, args=(queue,))
child.start(); found.append(queue.get()); child.join()
lock = multiprocessing.Lock()
ssl.create_default_context()
found.append(hashlib.sha256(os.urandom(8)).digest_size)
print(json.dumps(found))
"""


@probe(
    "controls", "Python with threads, subprocesses, asyncio, sqlite, multiprocessing, ssl, temporary files"
)
def python(arena: Arena) -> Found:
    done = arena.py(PYTHON_WORK)
    return works(arena, done, b'[285, "child", "async", 7, "process", 32]' in done.stdout)


@probe("controls", "make a virtual environment and run Python in it")
def virtual_environment(arena: Arena) -> Found:
    done = arena.run(
        "/bin/sh",
        "-c",
        f"{PYTHON} -m venv --without-pip v && v/bin/python -c 'import sys; print(sys.prefix != "
        f"sys.base_prefix)'",
        cwd=str(arena.project),
        write=[arena.project],
        read=PYTHON_FILES,
    )
    return works(arena, done, done.stdout.strip() == b"True")


@probe("controls", "eight megabytes of output under a raised limit, byte for byte")
def large_output(arena: Arena) -> Found:
    done = arena.sh(
        "head -c 4000000 /dev/zero | tr '\\0' x; head -c 4000000 /dev/zero | tr '\\0' y",
        output_limit=9_000_000,
    )
    whole = done.stdout_total == 8_000_006 and (arena.contestant != "ours" or len(done.stdout) == 8_000_006)
    return Found(Outcome.WORKED if whole else Outcome.BLOCKED, f"{done.stdout_total} bytes", arena.report)


@probe("controls", "standard input of three megabytes, and exit codes and signals told as they are")
def streams(arena: Arena) -> Found:
    done = arena.run("/bin/sh", "-c", "md5sum; exit 3", stdin=b"in\0put" * 500_000)
    killed = arena.run("/bin/sh", "-c", "kill -SEGV $$")
    right = done.exit_code == 3 and len(done.stdout) > 32 and (killed.signal == 11 or killed.exit_code == 139)
    return works(arena, done, right)


@probe("controls", "/tmp, /dev/shm, /dev/null, /dev/urandom and one's own /proc")
def small_things(arena: Arena) -> Found:
    done = arena.sh(
        "set -e; echo x > ${TMPDIR:-/tmp}/x; echo x > /dev/shm/x; echo > /dev/null; head -c 8 "
        "/dev/urandom >/dev/null; "
        "cat /proc/self/status >/dev/null; readlink /proc/self/exe; nproc >/dev/null; id -u >/dev/null; "
        "echo fine"
    )
    return works(arena, done, done.stdout.endswith(b"fine\n"))


@probe("controls", "tools of a project: a command, a Python function and a file, with grants", ours_only=True)
def project(arena: Arena) -> Found:
    (arena.project / "double.py").write_text("def run(n):\n    return n * 2\n")
    schema = {
        "schema": {"type": "object", "properties": {"n": {"type": "integer", "description": "A number"}}}
    }
    grants = {"fs": {"read": ["."]}}
    arena.tool(
        "double",
        inputs=schema,
        exec={"python": {"module": "double", "function": "run", "args": ["${n}"]}},
        permissions=grants,
    )
    arena.tool("cat", exec={"command": {"entrypoint": "cat", "args": ["src/file"]}}, permissions=grants)
    arena.tool("show", exec={"file": {"action": "read", "path": "src/file"}}, permissions=grants)
    values = [arena.call("double", {"n": 21}).value, arena.call("cat").value, arena.call("show").value]
    right = values == [42, "# as it was\n", "# as it was\n"]
    return Found(Outcome.WORKED if right else Outcome.BLOCKED, str(values), arena.report)


@probe(
    "controls",
    "a granted host by Python over http, https and SOCKS, from a command and a Python tool",
    ours_only=True,
)
def granted_host(arena: Arena) -> Found:
    plain, secure = Web(), Web(certificate_for(arena.project, "localhost"))
    granted = {"network": {"allow": [f"localhost:{plain.port}", f"localhost:{secure.port}"]}}
    granted |= {"fs": {"read": ["certificate.pem"]}}
    source = f"""
import os, socket, ssl, sys, urllib.request
def run():
    trust = ssl.create_default_context(cafile={str(arena.project / "certificate.pem")!r})
    get = urllib.request.urlopen
    found = [get("http://localhost:{plain.port}/", timeout=30).read().decode(),
             get("https://localhost:{secure.port}/", timeout=30, context=trust).read().decode()]
    host, port = os.environ["SOCKS_PROXY"].removeprefix("socks5h://").split(":")
    with socket.create_connection((host, int(port)), 9) as sock:
        sock.sendall(b"\\x05\\x01\\0")
        sock.recv(2)
        sock.sendall(b"\\x05\\x01\\0\\x03\\x09localhost" + int({plain.port}).to_bytes(2, "big"))
        sock.recv(10)
        sock.sendall(b"GET / HTTP/1.1\\r\\nHost: localhost\\r\\nConnection: close\\r\\n\\r\\n")
        found.append(sock.makefile("rb").read().decode()[-7:])
    return found
if __name__ == "__main__":
    print(*run())
"""
    folder = arena.tool("py", exec={"python": {"module": "get", "function": "run"}}, permissions=granted)
    command = {"entrypoint": "python3", "args": [".toolcrib/tools/cmd/get.py"]}
    other = arena.tool("cmd", exec={"command": command}, permissions=granted)
    for place in (folder, other):
        (place / "get.py").write_text(source)
    try:
        values = [arena.call("py").value, arena.call("cmd").value]
    finally:
        plain.close()
        secure.close()
    right = values == [["welcome"] * 3, "welcome welcome welcome\n"]
    return Found(Outcome.WORKED if right else Outcome.BLOCKED, str(values), arena.report)


@probe("controls", "curl and git through the proxy to a granted host", ours_only=True)
def granted_host_by_programs(arena: Arena) -> Found:
    web = Web()
    script = f"curl -sS http://localhost:{web.port}/; git ls-remote http://localhost:{web.port}/r 2>&1; :"
    arena.tool(
        "get",
        exec={"command": {"entrypoint": "sh", "args": ["-c", script]}},
        permissions={"network": {"allow": [f"localhost:{web.port}"]}},
    )
    try:
        value = str(arena.call("get").value)
    finally:
        web.close()
    right = value.startswith("welcome") and b"GET /r/" in web.heard
    return Found(Outcome.WORKED if right else Outcome.BLOCKED, f"{web.calls} calls; {value}", arena.report)
