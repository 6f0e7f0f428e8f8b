"""What other tools, git, Toolcrib itself and this machine rely on is no tool's to change."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest

from tests.crib import Crib, failed
from toolcrib.egress import address_kind
from toolcrib.egress.address import _is_own
from toolcrib.project.integrity import programs
from toolcrib.state import cache_home

pytestmark = pytest.mark.usefixtures("kernel")

SEES = {"fs": {"read": ["."]}}
WIDE = {"fs": {"write": ["."]}}


def test_a_module_beside_its_manifest_is_not_replaced_by_one_in_the_project(crib: Crib) -> None:
    crib.python(
        "import statistics, mod2\ndef run():\n    return [mod2.X, statistics.mean([1, 3])]", permissions=SEES
    )
    (crib.home / "tools/py/mod2.py").write_text("X = 1\n")
    crib.python("def run():\n    return 1", "dotted", config={"module": "tools.dotted.mod"}, permissions=SEES)
    crib.shell(permissions=WIDE)
    evil = "def run(): return 666\nX = 666\ndef mean(x): return 666"
    for name in ("mod.py", "mod2.py", "statistics.py", "tools/__init__.py", "tools/dotted/mod.py"):
        crib.sh(f"mkdir -p $(dirname {name}); echo '{evil}' > {name}")
        assert (crib.root / name).exists()

    assert crib.call("py").unwrap() == [1, 2]
    assert crib.call("dotted").unwrap() == 1


def test_modules_and_scripts_of_the_project_that_tools_run_are_not_writable(crib: Crib) -> None:
    crib.write("work/mod.py", "def run():\n    return 1")
    (crib.python("", permissions=SEES, config={"cwd": "work"}) / "mod.py").unlink()
    crib.write("scripts/count.sh", "echo 1")
    crib.write("scripts/data.txt", "1")
    crib.tool(
        "count", "command", {"entrypoint": "sh", "args": ["-e", "scripts/count.sh"]},
        permissions=SEES, outputs={"format": "text"},
    )  # fmt: skip
    crib.shell(permissions=WIDE)

    expected = crib.sh(
        "echo 2 > scripts/count.sh; echo 2 > work/mod.py; echo 2 > scripts/data.txt; mv scripts s"
    )

    assert expected.count("Read-only file system") == 2
    assert (crib.root / "scripts/data.txt").read_text() == "2\n"
    assert (crib.call("count").value, crib.call("py").value) == ("1\n", 1)


def test_a_link_on_the_way_to_what_another_tool_runs_is_not_replaced(crib: Crib) -> None:
    crib.write("impl/t.sh", "#!/bin/sh\necho honest\n", 0o755)
    crib.write("impl/mod.py", "def run():\n    return 'honest'")
    shown: dict[str, Any] = {"permissions": SEES, "outputs": {"format": "text"}}
    for name, target in (("bin", "impl"), ("direct", "impl/t.sh"), ("free", "impl"), ("work", "impl")):
        (crib.root / name).symlink_to(target)
    (crib.python("", permissions=SEES, config={"cwd": "work"}) / "mod.py").unlink()
    own = crib.python("", "own", permissions=SEES)
    (own / "mod.py").unlink()
    (own / "mod.py").symlink_to("../../../impl/mod.py")
    crib.tool("a", "command", {"entrypoint": "./direct"}, **shown)
    crib.tool("b", "command", {"entrypoint": "bin/t.sh"}, **shown)
    crib.tool("c", "command", {"entrypoint": "sh", "args": ["bin/t.sh"]}, **shown)
    crib.tool("d", "command", {"entrypoint": "bin/t.sh"}, **shown)
    (crib.home / "tools/d").rename(crib.root / "elsewhere")
    (crib.home / "tools/d").symlink_to(crib.root / "elsewhere")
    crib.shell(permissions=WIDE)
    write = {"action": "write", "path": "${p}", "content": "evil", "mkdir": True}
    crib.tool("file", "file", write, {"p": {"type": "string"}}, permissions=WIDE)

    for link in ("bin", "direct", "work"):
        assert "busy" in crib.sh(f"rm {link}; mv {link} x; mkdir y; mv -T y {link}; ln -sfn y {link}")
    for name in ("direct", "bin/t.sh", "bin/mod.py", "elsewhere/tool.yml", "impl/t.sh"):
        assert failed(crib.call("file", {"p": name}), "permission_denied")
    expected = crib.sh("echo evil > impl/t.sh; echo evil > impl/mod.py; echo evil > elsewhere/tool.yml")

    assert expected.count("Read-only file system") == 3
    assert [crib.call(name).value for name in ("a", "b", "c", "d", "py", "own")] == [
        *["honest\n"] * 4,
        "honest",
        "honest",
    ]
    assert crib.sh("rm free; touch impl/new") == ""
    assert not (crib.root / "free").is_symlink()


def test_a_link_on_the_way_to_a_secret_or_a_decision_is_not_replaced(
    crib: Crib, monkeypatch: pytest.MonkeyPatch
) -> None:
    crib.write("conf/real", "TOKEN=honest")
    for name, target in ((".env", "conf/real"), ("local", "elsewhere"), ("keys", "conf")):
        (crib.root / name).symlink_to(target)
    (crib.root / "elsewhere").mkdir()
    monkeypatch.setenv("TOOLCRIB_DATA", str(crib.root / "local/data"))
    crib.write(".toolcrib/config.yml", "secrets: {sources: [{env_file: {path: keys/real}}]}")
    crib.shell(permissions=WIDE)

    expected = crib.sh(
        "cat .env keys/real; for n in .env local keys; do rm $n; ln -sfn x $n; done; touch local/data/x"
    )

    assert "honest" not in expected
    assert expected.count("busy") == 6
    assert not (crib.root / "elsewhere/data/x").exists()
    assert (crib.root / ".env").read_text() == "TOKEN=honest"


def test_what_a_helper_loads_and_what_sources_read_is_not_put_there_by_a_tool(crib: Crib) -> None:
    crib.write("scripts/helper.py", "#!/bin/sh\necho honest-value\n", 0o755)
    crib.write("scripts/out/x", "")
    crib.write(
        "defs/hello.yaml", "name: hello\ndescription: d\nimplementation: {type: exec, command: echo honest}"
    )
    crib.write("one/tools.yaml", "tools: {}")
    (crib.root / "way").symlink_to("defs")
    settings = {
        "secrets": {"sources": [{"command": {"argv": ["scripts/helper.py"]}}]},
        "sources": [{"dir": "way"}, {"file": "one/tools.yaml"}],
    }
    crib.write(".toolcrib/config.yml", json.dumps(settings))
    crib.trust()
    crib.shell(permissions=WIDE)

    expected = crib.sh(
        "touch scripts/json.py defs/added.yaml scripts/__pycache__; echo > defs/hello.yaml;"
        " echo > one/tools.yaml; rm way; touch one/free"
    )

    assert (expected.count("Read-only file system"), expected.count("busy")) == (5, 1)
    assert crib.call("hello").unwrap() == "honest\n"
    for n, grant in enumerate(("scripts", "scripts/out", "defs")):
        crib.shell(f"in{n}", permissions={"fs": {"write": [grant]}})
        assert (
            "loads code" in failed(crib.call(f"in{n}", {"c": "true"}), "permission_denied") or grant == "defs"
        )


@pytest.mark.parametrize(
    "settings",
    [{"secrets": {"sources": [{"command": {"argv": ["./helper"]}}]}}, {"sources": [{"dir": "."}]}],
    ids=["helper", "source"],
)
def test_a_grant_of_the_root_is_refused_where_whatever_lies_there_is_run(
    crib: Crib, settings: dict[str, object]
) -> None:
    crib.write("helper", "#!/bin/sh\n", 0o755)
    crib.write("out/x", "")
    crib.write(".toolcrib/config.yml", json.dumps(settings))
    crib.trust()
    crib.shell(permissions=WIDE)
    crib.shell("out", permissions={"fs": {"write": ["out"]}})
    crib.tool("file", "file", {"action": "write", "path": "f", "content": ""}, permissions=WIDE)

    for name, arguments in (("sh", {"c": "true"}), ("file", {})):
        assert "may write" in failed(crib.call(name, arguments), "permission_denied")
    assert crib.sh("touch out/y", "out") == ""


def test_what_this_process_runs_from_is_not_writable(crib: Crib, monkeypatch: pytest.MonkeyPatch) -> None:
    site = "env/lib/python3.11/site-packages"
    crib.write(f"{site}/a.py", "x = 1\n")
    crib.write("env/pyvenv.cfg", "home = /usr/bin\n")
    monkeypatch.setattr("sys.prefix", str(crib.root / "env"))
    programs.running_from.cache_clear()
    try:
        crib.shell(permissions=WIDE)
        expected = crib.sh(f"echo 1 > {site}/sitecustomize.py; echo 1 > {site}/a.py; mv env e; touch free")
        crib.shell("inner", permissions={"fs": {"write": [site]}})
        inner = crib.sh(f"echo 1 > {site}/a.py", "inner")
        write = {"action": "write", "path": f"{site}/a.py", "content": "evil"}
        crib.tool("file", "file", write, permissions={"fs": {"write": [site]}})
        assert failed(crib.call("file"), "permission_denied")
    finally:
        programs.running_from.cache_clear()

    assert (expected.count("Read-only file system"), inner.count("Read-only file system")) == (2, 1)
    assert not (crib.root / site / "sitecustomize.py").exists()
    assert (crib.root / site / "a.py").read_text() == "x = 1\n"
    assert (crib.root / "free").exists()


def test_whatever_this_process_imports_from_is_not_writable(
    crib: Crib, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The interpreter's own library, a folder of PYTHONPATH, and a link on the way to one."""
    for path in (
        "python/bin/python3",
        "python/lib/os.py",
        "vendor/a.py",
        "real/b.py",
        "src/toolcrib-like.py",
    ):
        crib.write(path, "")
    (crib.root / "way").symlink_to("real")
    monkeypatch.setattr("sys._base_executable", str(crib.root / "python/bin/python3"))
    monkeypatch.setattr(
        "sys.path", [*sys.path, "", str(crib.root), *(f"{crib.root}/{n}" for n in ("vendor", "way"))]
    )
    programs.running_from.cache_clear()
    try:
        crib.shell(permissions=WIDE)
        expected = crib.sh(
            "for f in python/bin/python3 python/lib/new vendor/json.py real/b.py; do echo 1 > $f; done"
        )
        held = crib.sh("rm way; mv vendor v; mv python p; touch free")
    finally:
        programs.running_from.cache_clear()

    assert expected.count("Read-only file system") == 4
    assert held.count("busy") == 3
    assert (crib.root / "free").exists()


def test_what_variables_name_as_code_is_not_writable(crib: Crib, monkeypatch: pytest.MonkeyPatch) -> None:
    for place in ("libs/libx.so", "packages/a.py", "pre/one.so", "pre/two.so", "cache/a.pyc"):
        crib.write(place, "")
    monkeypatch.chdir(crib.root)
    monkeypatch.setenv("LD_LIBRARY_PATH", f"{crib.root}/libs")
    monkeypatch.setenv("PYTHONPATH", f":packages:{crib.root}")
    monkeypatch.setenv("LD_PRELOAD", f"{crib.root}/pre/one.so {crib.root}/pre/two.so")
    monkeypatch.setenv("PYTHONPYCACHEPREFIX", f"{crib.root}/cache")
    programs.running_from.cache_clear()
    try:
        crib.shell(permissions=WIDE)
        expected = crib.sh(
            "for f in libs/libc.so.6 packages/json.py pre/one.so pre/two.so cache/b.pyc; do echo 1 > $f; done"
        )
        held = crib.sh("mv libs l; mv packages p; rm pre/one.so; touch free")
    finally:
        programs.running_from.cache_clear()

    assert expected.count("Read-only file system") == 5, expected
    assert held.count("busy") == 3, held
    assert (crib.root / "free").exists()


def test_a_project_inside_of_an_environment_can_be_written(
    crib: Crib, monkeypatch: pytest.MonkeyPatch
) -> None:
    crib.write("lib/a.py", "")
    monkeypatch.setattr("sys.prefix", str(crib.root))
    programs.running_from.cache_clear()
    try:
        crib.shell(permissions=WIDE)
        expected = crib.sh("echo 1 > lib/a.py; touch free; mkdir bin")
    finally:
        programs.running_from.cache_clear()

    assert expected.count("Read-only file system") == 1
    assert (crib.root / "free").exists()


def test_the_user_s_cache_is_not_seen_where_it_lies_in_a_grant(
    crib: Crib, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TOOLCRIB_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(crib.root / "cache"))
    home = cache_home()
    assert home is not None
    kept = crib.write("cache/toolcrib/kept", "believed")
    crib.shell(permissions=WIDE)

    expected = crib.sh("cat cache/toolcrib/kept; echo evil > cache/toolcrib/kept; rm -rf cache")

    assert "believed" not in expected
    assert kept.read_text() == "believed"
    crib.shell("other", permissions={"fs": {"read": ["cache/toolcrib"]}})
    refused = crib.call("other", {"c": "true"}).error
    assert refused is not None
    assert (refused.code, "TOOL" in (refused.hint or "")) == ("permission_denied", False)
    assert str(home) in (refused.hint or "")


def test_git_of_another_folder_that_is_granted_runs_nothing_of_a_tool_s(crib: Crib, tmp_path: Path) -> None:
    other = tmp_path / "other"
    subprocess.run(["git", "init", "-q", str(other)], check=True)
    (other / ".toolcrib/tools").mkdir(parents=True)
    before = (other / ".git/config").read_text()
    crib.shell(permissions={"fs": {"write": [str(other)]}})
    crib.shell("git", permissions={"fs": {"write": [str(other / ".git")]}})
    attack = (
        "cd {}; echo evil >> .git/config; echo evil > .git/hooks/pre-commit; mv .git/hooks .git/h; "
        "mv .git g; mkdir .toolcrib/tools/new; touch free .git/index.lock"
    )

    crib.sh(attack.format(other))
    crib.sh(attack.format(other), "git")

    assert (other / ".git/config").read_text() == before
    assert not (other / ".git/hooks/pre-commit").exists()
    assert not (other / ".toolcrib/tools/new").exists()
    assert (other / "free").exists()
    assert (other / ".git/index.lock").exists()
    (other / ".git").rename(tmp_path / "git")
    (other / ".git").symlink_to(tmp_path / "git")
    refused = crib.call("sh", {"c": "true"}).error
    assert refused is not None
    assert "a symbolic link that it could replace" in refused.message


@pytest.mark.parametrize("kind", ["SOCK_DGRAM", "SOCK_RAW", "2", "3 | 0o2000000"])
def test_no_kind_of_pair_can_send_to_a_path(crib: Crib, kind: str) -> None:
    crib.write("d/x", "")
    path = crib.root / "d/s"
    crib.python(
        "import socket\nfrom socket import SOCK_DGRAM, SOCK_RAW\n"
        f"def run():\n    a, b = socket.socketpair(1, {kind})\n    a.sendto(b'out', 'd/s')",
        permissions={"fs": {"write": ["d"]}},
    )
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as server:
        server.bind(str(path))
        server.setblocking(False)
        error = crib.call("py").error
        assert error is not None
        assert "PermissionError" in error.message
        with pytest.raises(BlockingIOError):
            server.recv(10)


def test_no_file_is_leased(crib: Crib) -> None:
    crib.python(
        "import fcntl, os\ndef run():\n    fd = os.open(__file__, os.O_RDONLY)\n"
        "    fcntl.lockf(fd, fcntl.LOCK_SH)\n    fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)"
    )
    error = crib.call("py").error
    assert error is not None
    assert "PermissionError" in error.message


def test_an_address_of_this_machine_is_not_public() -> None:
    assert _is_own(ip_address("127.0.0.1"))
    assert not _is_own(ip_address("8.8.8.8"))
    assert address_kind("8.8.8.8") == "public"
    # In a process of its own: every thread of a process has its limit.
    unable = """
import resource
from toolcrib.egress import address_kind
resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))
print(address_kind("8.8.8.8"))
"""
    assert subprocess.check_output([sys.executable, "-c", unable], text=True) == "loopback\n"


def test_a_place_that_was_made_and_could_not_be_protected_is_reported(crib: Crib) -> None:
    subprocess.run(["git", "init", "-q", str(crib.root)], check=True)
    crib.shell(permissions={"fs": {"write": [".git"]}})
    assert crib.call("sh", {"c": "true"}).warnings == ()

    (warning,) = crib.call("sh", {"c": "echo evil > .git/commondir"}).warnings

    assert warning.startswith(f"{crib.root}/.git/commondir was created")
