"""Levels below `full`, on a machine that denies what a container denies: what holds, is refused, ends.

The server of each test is a process of its own with a filter on it (`tests.escape.denied`), so nothing is
pretended: the kernel really gives no namespaces there.
"""

from __future__ import annotations

import json
import os
import pwd
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.commands import Forked, complete
from tests.integration.sandbox.ground import eventually, processes_with
from toolcrib.sandbox import Confinement
from toolcrib.sandbox.host.runner import execute
from toolcrib.sandbox.levels import probe_cache

ROOT = Path(__file__).parents[3]
BEGIN = """
import asyncio, json, os, sys
from pathlib import Path
from toolcrib.errors import ToolcribError
from toolcrib.sandbox import Confinement, in_force, level, run
given = json.loads(sys.argv[1])
def sh(script, **more):
    fields = {"cwd": "/tmp", "env": {"PATH": "/usr/bin:/bin", "TMPDIR": "/tmp"}, "timeout_ms": 99_000, **more}
    return asyncio.run(run(Confinement(argv=("/bin/sh", "-c", script), **fields)))
def refusal(script, **more):
    try:
        done = sh(script, **more)
    except ToolcribError as error:
        return {"code": error.code, "message": error.message, "hint": error.hint, **error.details}
    return {"ran": done.stdout.decode()}
def answer(**found):
    print(json.dumps(found, default=str))
"""


@pytest.fixture
def room(tmp_path: Path) -> Path:
    """A folder with a cache of its own."""
    (tmp_path / "cache").mkdir(mode=0o700)
    return Path(os.path.realpath(tmp_path))


def argv(denied: str, script: str, given: object) -> list[str]:
    before = f"from tests.escape.denied import deny; deny({denied == 'everything'})" if denied else ""
    return [sys.executable, "-c", before + BEGIN + script, json.dumps(given, default=str)]


def environment(room: Path) -> dict[str, str]:
    return {
        **os.environ,
        "TOOLCRIB_CACHE": "",
        "XDG_CACHE_HOME": str(room / "cache"),
        "PYTHONPATH": str(ROOT),
    }


def server(denied: str, room: Path, body: str, **given: object) -> Any:
    """What a server answers to whom this is denied."""
    done = complete(
        argv(denied, body, given),
        env=environment(room),
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


async def test_a_setuid_program_gives_no_rights_at_level_none() -> None:
    # Tried where nothing denies the other levels: what denies them forbids it too.
    job = Confinement(argv=("/bin/grep", "NoNewPrivs", "/proc/self/status"), cwd="/tmp")
    assert (await execute(job, "none")).stdout == b"NoNewPrivs:\t1\n"


def left_behind(marker: str) -> bool:
    return bool(processes_with(marker))


def test_without_leave_nothing_is_run_below_full(room: Path) -> None:
    found = server("namespaces", room, "answer(**refusal('echo ran'))")
    assert found["code"] == "sandbox_unavailable"
    assert found["mechanism"].endswith("namespace")


def test_level_landlock_holds_and_says_what_it_does_not(room: Path) -> None:
    outside = room / "outside"
    outside.write_text("canary")
    script = """
done = sh(f"cat {given['outside']}; echo > {given['outside']}; kill -0 {os.getppid()}; cat /proc/self/status;"
          "echo own > $TMPDIR/f && cat $TMPDIR/f; cat own; stat -c %a $TMPDIR; pwd", minimum="landlock")
watched = refusal("true", minimum="landlock", watch=print)
answer(level=in_force(), out=done.stdout.decode(), report=done.enforcement, watched=watched)
"""
    found = server("namespaces", room, script, outside=outside)
    assert "at level full only" in found["watched"]["message"]
    assert found["level"] == found["report"]["level"] == "landlock"
    assert "canary" not in found["out"]
    assert "Name:" not in found["out"]
    own, mode, home = found["out"].splitlines()
    assert (own, mode) == ("own", "700")
    assert home.startswith("/tmp/toolcrib-")
    assert not Path(home).exists()
    assert outside.read_text() == "canary"
    assert "mount namespace" in found["report"]["missing"]
    assert found["report"]["notEnforced"]
    assert found["report"]["limits"]["tmp"] == "not enforced"


@pytest.mark.parametrize(
    ("rules", "path"),
    [
        ({"read": ["."], "hide": [".env"]}, ".env"),
        ({"write": ["."], "protect": [".toolcrib"]}, ".toolcrib"),
        ({"write": ["."], "read": ["src"]}, "src"),
    ],
)
def test_what_it_cannot_take_away_is_refused_by_name(room: Path, rules: dict[str, Any], path: str) -> None:
    for folder in (".toolcrib", "src"):
        (room / folder).mkdir()
    (room / ".env").write_text("secret")
    places = {name: [str(room / place) for place in paths] for name, paths in rules.items()}
    script = """
rules = {name: tuple(map(os.path.normpath, paths)) for name, paths in given["places"].items()}
found = {level: refusal("echo ran", minimum=level, **rules) for level in ("landlock", "none")}
answer(**found)
"""
    found = server("namespaces", room, script, places=places)
    refused = found["landlock"]
    assert (refused["code"], refused["mechanism"]) == ("sandbox_unavailable", "mount namespace")
    assert refused["path"] == str(room / path)
    assert str(room / path) in refused["message"]
    assert found["none"] == {"ran": "ran\n"}  # whoever allows `none` has agreed to that as well


def test_a_grant_that_became_a_link_is_refused(room: Path) -> None:
    (room / "link").symlink_to("/etc")
    found = server(
        "namespaces",
        room,
        "answer(**refusal('ls', read=(given['link'],), minimum='landlock'))",
        link=room / "link",
    )
    assert found["code"] == "permission_denied"
    assert "symbolic link" in found["message"]


def test_level_none_runs_where_nothing_confines_and_says_so(room: Path) -> None:
    script = """
if os.geteuid() == 0:
    os.setgroups([7])
os.umask(0)
weak = refusal("echo ran", minimum="landlock")
done = sh("umask; cd /proc/self; cat oom_score_adj; grep Groups status; env", minimum="none")
answer(level=in_force(), weak=weak, out=done.stdout.decode(), report=done.enforcement)
"""
    found = server("everything", room, script)
    assert found["level"] == "none"
    assert found["weak"]["code"] == "sandbox_unavailable"
    assert "landlock" in found["weak"]["message"]
    # Such a process of an ordinary user may not change its own place among those that memory is taken from.
    assert found["out"].startswith("0022\n1000\n" if os.geteuid() == 0 else "0022\n")
    assert "Groups:\t7" not in found["out"]
    assert "PYTHONPATH" not in found["out"]
    report = found["report"]
    assert report["level"] == "none"
    assert {report[name] for name in ("fs", "net", "proc", "ipc")} == {"not enforced"}
    assert {"landlock", "seccomp"} <= set(report["missing"])


@pytest.mark.parametrize("minimum", ["full", "landlock", "none"])
def test_a_command_that_may_hold_few_files_is_run(room: Path, minimum: str) -> None:
    denied = {"full": "", "landlock": "namespaces", "none": "everything"}[minimum]
    script = """
found = [refusal("ulimit -n", open_files=count, minimum=given["minimum"]) for count in (8, 12, 24)]
answer(level=in_force(), found=found)
"""
    found = server(denied, room, script, minimum=minimum)
    assert found == {"level": minimum, "found": [{"ran": f"{count}\n"} for count in (8, 12, 24)]}


DAEMONS = "(setsid sleep {m} &) ; (setsid setsid sh -c 'trap \"\" TERM; sleep {m}; sleep {m}' &); sleep 0.2;"


@pytest.mark.parametrize("denied", ["namespaces", "everything"])
@pytest.mark.parametrize("end", ["exit", "timeout", "cancel"])
def test_the_whole_tree_ends_with_the_call(room: Path, denied: str, end: str) -> None:
    marker = f"{31_000_000 + os.getpid()}"
    script = """
async def main():
    job = Confinement(argv=("/bin/sh", "-c", given["script"]), cwd="/tmp", env={"PATH": "/usr/bin:/bin"},
                      timeout_ms=1_000 if given["end"] == "timeout" else 120_000, minimum="none")
    call = asyncio.create_task(run(job))
    if given["end"] == "cancel":
        await asyncio.sleep(1)
        call.cancel()
    await asyncio.wait([call])
    return None if call.cancelled() else call.result()
done = asyncio.run(main())
left = [p for p in os.listdir("/proc") if p.isdigit() and given["marker"] in text(p)]
answer(left=left, timed_out=done and done.timed_out)
"""
    text = """
def text(pid):
    try:
        line = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\\0")
    except OSError:
        return []
    return line if line[0] != sys.executable else []
"""
    body = DAEMONS.format(m=marker) + ("" if end == "exit" else f" sleep {marker}")
    found = server(denied, room, text + script, script=body, end=end, marker=marker)
    assert found["left"] == []
    assert found["timed_out"] is (None if end == "cancel" else end == "timeout")


@pytest.mark.parametrize("victim", ["server", "keeper"])
def test_what_is_killed_leaves_nothing(room: Path, victim: str) -> None:
    marker = f"{32_000_000 + os.getpid()}"
    body = DAEMONS.format(m=marker) + f" echo up; sleep {marker}"
    script = "print(sh(given['script'], minimum='landlock').signal, flush=True)\nsys.stdin.read()"
    with Forked(
        argv("namespaces", script, {"script": body}),
        env=environment(room),
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        try:
            assert eventually(lambda: len(processes_with(f"sleep\0{marker}")) >= 3, 20)
            running = processes_with(marker).items()
            main = next(pid for pid, line in running if line.startswith("/bin/sh") and "echo up" in line)
            home = Path(f"/proc/{main}/cwd").readlink()
            assert home.name.startswith("toolcrib-")
            if victim == "server":
                process.kill()
            else:
                keeper = int(Path(f"/proc/{main}/stat").read_text().rpartition(")")[2].split()[1])
                os.kill(keeper, signal.SIGKILL)
                assert process.stdout is not None
                assert process.stdout.readline().strip() == b"9"
            assert eventually(lambda: not left_behind(f"sleep\0{marker}"))
            assert eventually(lambda: not home.exists())
        finally:
            process.kill()


def test_spares_work_at_this_level(room: Path) -> None:
    script = """
from toolcrib.sandbox.host.pool import shared
async def main():
    job = Confinement(argv=("/bin/sh", "-c", "echo $TMPDIR; echo x > $TMPDIR/x; ls $TMPDIR"), cwd="/tmp",
                      env={"PATH": "/usr/bin:/bin"}, minimum="landlock")
    seen = []
    for _ in range(6):
        seen.append((await run(job)).stdout.decode().split())
        await asyncio.sleep(0.05)
    for _ in range(200):  # The next one is made beside the calls.
        if shared().waiting():
            break
        await asyncio.sleep(0.05)
    return seen, shared().waiting()
seen, waiting = asyncio.run(main())
answer(homes=[words[0] for words in seen], lists=[words[1:] for words in seen], waiting=waiting)
"""
    found = server("namespaces", room, script)
    assert len(set(found["homes"])) == 6
    assert all(names == ["x"] for names in found["lists"])
    assert found["waiting"] >= 1
    assert not any(Path(home).exists() for home in found["homes"])


def test_what_was_found_is_remembered_and_never_weakens(room: Path) -> None:
    once = "answer(level=in_force(), **refusal('echo ran', minimum='landlock'))"
    place = "from toolcrib.sandbox.levels import probe_cache\nanswer(path=probe_cache.place())"
    assert server("", room, once) == {"level": "full", "ran": "ran\n"}
    (file,) = (room / "cache/toolcrib").iterdir()
    assert (file.stat().st_mode & 0o777, file.read_text()) == (0o600, "full")
    # What another process of this user found is not believed where that one stood otherwise.
    assert server("namespaces", room, once) == {"level": "landlock", "ran": "ran\n"}
    # Even where it is believed, a machine that is weaker than remembered refuses, and is tried anew.
    file = Path(server("namespaces", room, place)["path"])
    assert file.read_text() == "landlock"
    file.write_text("full")
    lying = server("namespaces", room, once)
    assert (lying["level"], lying["code"]) == ("full", "sandbox_unavailable")
    assert not file.exists()
    assert server("namespaces", room, once) == {"level": "landlock", "ran": "ran\n"}
    # A memory that is too low is refused once, without calling what works missing.
    file.write_text("none")
    assert "works" not in server("namespaces", room, once)["message"]
    assert not file.exists()


@pytest.mark.parametrize(
    ("environment", "folder"),
    [
        ({"TOOLCRIB_CACHE": "/a/own", "XDG_CACHE_HOME": "/b"}, "/a/own"),
        ({"XDG_CACHE_HOME": "/b", "HOME": "/c"}, "/b/toolcrib"),
        ({"HOME": "/c"}, "/c/.cache/toolcrib"),
        ({}, f"{pwd.getpwuid(os.getuid()).pw_dir}/.cache/toolcrib"),
        ({"TOOLCRIB_CACHE": "relative", "HOME": "/c"}, None),
    ],
)
def test_where_it_is_remembered(
    environment: dict[str, str], folder: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("TOOLCRIB_CACHE", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    place = probe_cache.place()
    assert (None if place is None else str(place.parent)) == folder


def test_only_what_this_user_alone_may_have_written_is_read(
    room: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOOLCRIB_CACHE", str(room / "own"))
    file = probe_cache.place()
    assert file is not None
    probe_cache.keep("landlock")
    assert probe_cache.known() == "landlock"
    file.chmod(0o620)
    assert probe_cache.known() is None
    file.chmod(0o600)
    file.parent.chmod(0o777)
    assert probe_cache.known() is None
    file.parent.chmod(0o700)
    file.rename(room / "elsewhere")
    file.symlink_to(room / "elsewhere")
    assert probe_cache.known() is None
    file.unlink()
    file.write_text("{")
    assert probe_cache.known() is None
    monkeypatch.setenv("TOOLCRIB_CACHE", str(room / "elsewhere"))
    probe_cache.keep("full")
    assert probe_cache.known() is None


def test_a_place_that_others_prepared_is_replaced(room: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLCRIB_CACHE", str(room / "own"))
    file = probe_cache.place()
    assert file is not None
    file.parent.mkdir(mode=0o700)
    other = room / "other"
    other.write_text("precious")
    for prepare in (file.symlink_to, file.hardlink_to):
        prepare(other)
        probe_cache.keep("landlock")
        assert probe_cache.known() == "landlock"
        assert other.read_text() == "precious"
        file.unlink()
    os.mkfifo(file)
    probe_cache.keep("landlock")
    assert probe_cache.known() == "landlock"


def test_containers_that_are_gone_leave_a_bounded_number_of_files(
    room: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOOLCRIB_CACHE", str(room / "own"))
    (room / "own").mkdir(mode=0o700)
    for number in range(200):
        file = room / f"own/level-{number}"
        file.write_text("full")
        os.utime(file, (number, number))
    probe_cache.keep("landlock")
    left = {file.name for file in (room / "own").iterdir()}
    assert len(left) == 64
    assert "level-199" in left
    assert probe_cache.known() == "landlock"


PROJECT = """
from toolcrib.cli.output import print_warnings
from toolcrib.project import Project, find, load_config
async def main():
    place = find(given["root"])
    async with Project(place, load_config(place.config), trusted=given["trusted"], accept="all") as project:
        print_warnings(project)
        results = [await project.call("hello") for _ in range(2)]
        return [result.as_dict() for result in results], place.audit.read_text().splitlines()
results, lines = asyncio.run(main())
answer(result=results[0], lines=lines)
"""


def project(room: Path, minimum: str) -> Path:
    tool = room / "p/.toolcrib/tools/hello"
    tool.mkdir(parents=True)
    (room / "p/.toolcrib/config.yml").write_text(f"sandbox: {{minimum: {minimum}}}\n")
    (tool / "tool.yml").write_text(
        "name: hello\ndescription: Says hello.\nkind: command\nversion: 1\noutputs: {format: text}\n"
        "exec: {command: {entrypoint: echo, args: [hello]}}\n"
    )
    return room / "p"


def test_a_trusted_project_may_lower_the_bar_and_everybody_is_told(room: Path) -> None:
    root = project(room, "landlock")
    done = complete(
        argv("namespaces", PROJECT, {"root": root, "trusted": True}),
        env=environment(room), capture_output=True, text=True, check=True, cwd=ROOT,
    )  # fmt: skip
    found = json.loads(done.stdout)
    assert found["result"]["value"] == "hello\n"
    assert found["result"]["meta"]["details"]["enforcement"]["level"] == "landlock"
    events = [line.split()[1] for line in found["lines"]]
    assert events == ["SANDBOX_LOWERED", *("TOOL_STARTED", "TOOL_EXECUTED") * 2]
    assert "minimum=landlock level=landlock" in found["lines"][0]
    assert "sandbox=landlock" in found["lines"][2]
    assert "mount namespace" in found["lines"][2]
    assert done.stderr.count("sandbox.minimum is landlock") == 1


def test_python_tools_run_at_this_level_too(room: Path) -> None:
    root = project(room, "landlock")
    tool = root / ".toolcrib/tools/hello"
    (tool / "tool.yml").write_text(
        "name: hello\ndescription: Looks.\nkind: python\nversion: 1\noutputs: {format: json}\n"
        "exec: {python: {module: look, function: look}}\n"
    )
    (tool / "look.py").write_text(
        "import os, tempfile\ndef look():\n    try:\n        os.listdir('.toolcrib')\n"
        "    except PermissionError:\n        return tempfile.mkdtemp()\n"
    )
    found = server("namespaces", room, PROJECT, root=root, trusted=True)
    assert found["result"]["value"].startswith("/tmp/toolcrib-")
    assert not Path(found["result"]["value"]).parent.exists()


def test_in_an_untrusted_project_the_setting_does_not_count(room: Path) -> None:
    found = server("namespaces", room, PROJECT, root=project(room, "none"), trusted=False)
    error = found["result"]["error"]
    assert error["code"] == "sandbox_unavailable"
    assert "run `toolcrib trust`" in error["hint"]
    assert [line.split()[1] for line in found["lines"]] == ["TOOL_STARTED", "TOOL_REFUSED"] * 2


def test_a_machine_that_holds_everything_is_not_lowered_by_the_setting(room: Path) -> None:
    found = server("", room, PROJECT, root=project(room, "none"), trusted=True)
    assert found["result"]["meta"]["details"]["enforcement"]["level"].startswith("full")
    assert "SANDBOX_LOWERED" not in "".join(found["lines"])
