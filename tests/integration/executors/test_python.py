"""Python tools from manifests, in a confined interpreter."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import need
from tests.crib import Crib, failed
from toolcrib.executors.python.interpreter import is_known
from toolcrib.sandbox.files.paths import Paths
from toolcrib.sandbox.host.enforcement import groups

INTERPRETERS = {sys.executable: list(sys.version_info[:2])} | {
    str(path): [3, int(path.name.partition(".")[2])]
    for path in Path.home().glob(".pyenv/versions/3.*/bin/python3.*[0-9]")
    if int(path.name.partition(".")[2]) >= 8
}

pytestmark = pytest.mark.usefixtures("kernel")


def test_arguments_keep_their_json_types(crib: Crib) -> None:
    config = {"args": ["${a}", "text ${n}", {"k": ["${n}"]}], "kwargs": {"more": "${a}", "gone": "${absent}"}}
    crib.python(
        "def run(*args, **kwargs):\n    return [list(args), kwargs]",
        properties={"a": {}, "n": {"type": "number"}, "absent": {}},
        config=config,
    )
    for value in (1, 2.5, True, None, "x", [1, {"b": None}], {"a": "${n}"}, 2**60):
        assert crib.call("py", {"a": value, "n": 7}).value == [
            [value, "text 7", {"k": [7]}],
            {"more": value},
        ]


def test_with_neither_args_nor_kwargs_all_arguments_are_passed_by_name(crib: Crib) -> None:
    properties = {"n": {"type": "integer"}, "who": {"type": "string"}}
    crib.python("def run(who='x', n=1):\n    return [who] * n", properties=properties)
    assert crib.call("py", {"n": 2, "who": "a"}).value == ["a", "a"]
    assert crib.call("py", {"n": 2}).value == ["x", "x"]
    crib.python("def run(who='x', n=1):\n    return [who] * n", properties=properties, config={"args": []})
    assert crib.call("py", {"n": 2, "who": "a"}).value == ["x"]


def test_absent_arguments_are_left_out_at_the_end_and_null_before(crib: Crib) -> None:
    crib.python(
        "def run(*args):\n    return args",
        properties={name: {} for name in "abc"},
        config={"args": ["${a}", "${b}", "${c}"]},
    )
    assert crib.call("py", {"a": 1}).value == [1]
    assert crib.call("py", {"b": 2}).value == [None, 2]
    assert crib.call("py", {}).value == []


def test_the_module_is_looked_for_where_no_tool_may_write_and_then_in_cwd(crib: Crib) -> None:
    def where() -> Any:
        return crib.call("py").unwrap()

    crib.python("def run():\n    return 'tool'", permissions={"fs": {"read": ["."]}}, config={"cwd": "work"})
    (crib.root / "work").mkdir()
    crib.write(".toolcrib/mod.py", "def run():\n    return 'home'")
    crib.write("work/mod.py", "def run():\n    return 'cwd'")
    assert where() == "tool"
    (crib.home / "tools/py/mod.py").unlink()
    assert where() == "home"
    (crib.home / "mod.py").unlink()
    assert where() == "cwd"
    crib.python("def run():\n    return 'dotted'", "dot", config={"module": "tools.dot.mod"})
    assert crib.call("dot").value == "dotted"


def test_coroutines_and_text(crib: Crib) -> None:
    source = """
import asyncio
async def run():
    await asyncio.sleep(0)
    return {"async": True}
def five():
    return 5
"""
    crib.python(source)
    assert crib.call("py").value == {"async": True}
    crib.python(source, "text", config={"function": "five", "return": "text"}, outputs={"format": "text"})
    assert crib.call("text").value == "5"


def test_a_generator_returns_all_that_it_yields(crib: Crib) -> None:
    source = """
def run():
    yield 1
    yield {"n": 2}
def words():
    yield "a"
    yield "b"
async def slow():
    yield "a"
    yield "b"
"""
    crib.python(source)
    assert crib.call("py").value == [1, {"n": 2}]
    for name in ("words", "slow"):
        crib.python(source, name, config={"function": name})
        assert crib.call(name).value == "ab"


@pytest.mark.parametrize(
    ("body", "code", "expected"),
    [
        ("raise ValueError('not so')", "tool_failed", "ValueError: not so"),
        ("raise KeyError", "tool_failed", "KeyError"),
        ("import sys; sys.exit(3)", "tool_failed", "SystemExit: 3"),
        ("raise KeyboardInterrupt", "tool_failed", "KeyboardInterrupt"),
        ("return run()", "tool_failed", "RecursionError"),
        ("import gone", "tool_failed", "ModuleNotFoundError: No module named 'gone'"),
        (
            "import os; os._exit(0)",
            "command_failed",
            "did not return: its interpreter ended with exit code 0",
        ),
        ("import os; os._exit(7)", "command_failed", "exit code 7"),
        ("import ctypes; ctypes.string_at(0)", "command_failed", "SIGSEGV"),
        ("import os; os.abort()", "command_failed", "SIGABRT"),
        ("import os; os.write(3, b'junk')", "command_failed", "did not return"),
        *(
            (f"import os; os.write(3, b'{written}'); os._exit(0)", "command_failed", "did not return")
            for written in (
                "7",
                "null",
                '["value"]',
                '"value"',
                '{"error": 1}',
                '{"error": "E", "message": "m", "signal": "E", "delay": 0}',
                '{"error": "E", "message": "m", "signal": [], "delay": 0}',
                '{"error": "E", "message": "m", "signal": null, "delay": 0, "cause": "c"}',
            )
        ),
        ("import os; os.close(3)", "command_failed", "did not return"),
        ("return {1, 2}", "tool_failed", "run returned a value of type set that is not JSON"),
        ("return float('nan')", "tool_failed", "run returned a value of type float that is not JSON"),
        ("return '\\ud800'", "tool_failed", "run returned a value of type str that is not JSON"),
        (
            "x = []\n    x.append(x)\n    return x",
            "tool_failed",
            "run returned a value of type list that is not JSON",
        ),
        ("return 2**70", "tool_failed", "64-bit"),
        ("raise ValueError('\\ud800')", "tool_failed", "ValueError: ?"),
        (
            "return 'x' * 2_000_000",
            "tool_failed",
            "returned 2,000,013 bytes, more than its limit of 1,048,576",
        ),
    ],
)
def test_whatever_a_tool_does_is_a_clear_error(crib: Crib, body: str, code: str, expected: str) -> None:
    crib.python(f"def run():\n    {body}\n")
    result = crib.call("py")
    message = failed(result, code)
    assert expected in message
    assert "Traceback" not in message
    assert "mod.py" not in str(result.as_dict())
    assert [entry.event for entry in crib.audit()] == ["TOOL_EXECUTED"]
    assert crib.last().fields["status"] == "error"


def test_an_infinite_loop_ends_at_the_limit(crib: Crib) -> None:
    crib.python("def run():\n    while True: pass", config={"timeout_ms": 500})
    assert "500 ms (the tool's limit)" in failed(crib.call("py"), "timed_out")


def test_a_limit_that_a_failed_tool_met_is_reported(crib: Crib) -> None:
    need(f"control groups ({groups()[1]})", groups()[0] is not None, of_root=True)
    source = "import subprocess\ndef run():\n    [subprocess.Popen(['sleep', '9']) for _ in range(9)]\n"
    crib.python(source, limits={"processes": 5})
    result = crib.call("py")
    assert "BlockingIOError" in failed(result, "tool_failed")
    assert result.error is not None
    assert result.error.details["enforcement"]["exceeded"] == ["processes"]


def test_what_a_tool_prints_is_not_its_result(crib: Crib, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "toolcrib.tools")
    crib.secrets = {"TOKEN": "s3cr3t-value"}
    crib.python(
        "import os, sys\ndef run():\n    print('x' * 5_000_000)\n"
        "    print(os.environ['TOKEN'], file=sys.stderr)\n    print('{\"value\": 1}')\n"
        "    return os.environ['TOKEN']",
        permissions={"secrets": {"TOKEN": {}}},
    )
    assert crib.call("py").value == "***TOKEN***"
    assert "***TOKEN***" in caplog.text
    assert "s3cr3t-value" not in caplog.text
    assert len(caplog.text) < 200_000


def test_a_traceback_goes_to_the_log(crib: Crib, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "toolcrib.tools")
    crib.python("def run():\n    raise ValueError('deep')")
    crib.call("py")
    assert "Traceback" in caplog.text
    assert 'mod.py", line 2, in run' in caplog.text
    assert "child.py" not in caplog.text


def test_a_forked_child_does_not_answer(crib: Crib) -> None:
    crib.python(
        "import os, sys\ndef run():\n    if os.fork() == 0:\n        sys.exit(1)\n"
        "    os.wait()\n    return 'ours'"
    )
    assert crib.call("py").value == "ours"


SIGNALS = """
class ToolCancel(Exception): pass
class ToolDiscard(Exception): pass
class RetryableError(Exception): pass
class ToolSnooze(Exception):
    def __init__(self, delay): self.delay = delay
"""


def test_signals_are_known_by_name(crib: Crib) -> None:
    crib.python(f"{SIGNALS}\ndef run():\n    raise ToolCancel('no use')")
    assert failed(crib.call("py"), "tool_cancelled") == "no use"
    crib.python(f"{SIGNALS}\ndef run():\n    raise ToolDiscard('what is this')")
    assert failed(crib.call("py"), "invalid_input") == "what is this"
    # The tool ran and said so itself: that is no refusal of ours.
    assert crib.last().event == "TOOL_EXECUTED"
    assert crib.last().fields["code"] == "invalid_input"


COUNTED = """
    with open(".toolcrib/scratch/n", "a+") as f:
        n = f.tell()
        f.write("x")
"""


def test_retries_and_snoozes(crib: Crib) -> None:
    allowed: Any = {"permissions": {"fs": {"write": [".toolcrib/scratch"]}}}
    wait = "__import__('datetime').timedelta(seconds=0.01)"
    snooze = f"    if n < 2: raise ToolSnooze([0.01, {wait}][n])\n    return n"
    crib.python(f"{SIGNALS}\ndef run():{COUNTED}{snooze}", **allowed)
    result = crib.call("py")
    assert (result.value, result.snoozes, result.attempts) == (2, 2, 1)
    (crib.home / "scratch/n").unlink()
    retry = "    if n < 1: raise RetryableError('again')\n    return n"
    crib.python(f"{SIGNALS}\ndef run():{COUNTED}{retry}", **allowed)
    result = crib.call("py")
    assert (result.value, result.attempts) == (1, 2)


def test_confined_code_cannot_keep_a_call_beyond_its_limit(crib: Crib) -> None:
    for delay in ("3600", "0.3"):
        crib.python(f"{SIGNALS}\ndef run():\n    raise ToolSnooze({delay})")
        assert failed(crib.call("py", timeout_ms=2_000), "timed_out")


def test_an_exception_named_like_a_snooze_is_one_only_with_a_delay_in_seconds(crib: Crib) -> None:
    for delay in ("None", "True", "'1'", "float('nan')", "float('inf')"):
        crib.python(f"{SIGNALS}\ndef run():\n    raise ToolSnooze({delay})")
        result = crib.call("py")
        assert failed(result, "tool_failed").startswith("ToolSnooze")
        assert (result.attempts, result.snoozes) == (1, 0)
    crib.python("class ToolSnooze(Exception): pass\ndef run():\n    raise ToolSnooze('other')")
    assert failed(crib.call("py"), "tool_failed") == "ToolSnooze: other"


def test_confinement(crib: Crib, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CANARY_VARIABLE", "canary")
    crib.write("file", "content")
    source = """
import os, socket
def run(what):
    if what == "read": return open("file").read()
    if what == "shadow": return open("/etc/shadow").read()
    if what == "write": return open("new", "w").write("x")
    if what == "env": return dict(os.environ)
    if what == "socket": return socket.create_connection(("1.1.1.1", 80), 2)
    if what == "local": return socket.create_connection(("127.0.0.1", 22), 2)
"""
    config = {"args": ["${what}"]}
    crib.python(source, properties={"what": {"type": "string"}}, config=config)
    for what, expected, code in (
        ("read", "FileNotFoundError", "permission_denied"),
        ("shadow", "FileNotFoundError", "permission_denied"),
        ("write", "OSError", "permission_denied"),
        ("socket", "PermissionError", "permission_denied"),
        ("local", "PermissionError", "permission_denied"),
    ):
        assert expected in failed(crib.call("py", {"what": what}), code)
        assert crib.last().event == "TOOL_EXECUTED"
    assert set(crib.call("py", {"what": "env"}).unwrap()) <= {"PATH", "HOME", "LANG", "TMPDIR", "LC_CTYPE"}
    reading: Any = {"permissions": {"fs": {"read": ["."]}}}
    crib.python(source, properties={"what": {"type": "string"}}, config=config, **reading)
    assert crib.call("py", {"what": "read"}).value == "content"
    failed(crib.call("py", {"what": "write"}), "permission_denied")
    assert not (crib.root / "new").exists()


def test_a_virtual_environment_and_its_packages(crib: Crib) -> None:
    crib.python(
        "import sys, there\ndef run():\n    return [there.NAME, sys.prefix]", config={"venv": ".venv"}
    )
    result = crib.call("py")
    assert "virtual environment '.venv'" in failed(result, "tool_unavailable")
    assert result.error is not None
    assert "python3 -m venv" in (result.error.hint or "")
    venv.create(crib.root / ".venv", with_pip=False, symlinks=True)
    (packages,) = (crib.root / ".venv/lib").glob("python*/site-packages")
    (packages / "there.py").write_text("NAME = 'there'")
    assert crib.call("py").value == ["there", str(crib.root / ".venv")]


def test_virtual_environments_of_the_interpreters_that_are_installed_here(crib: Crib) -> None:
    crib.python(
        "import asyncio, sys\n"
        "async def run(wrong):\n"
        "    await asyncio.sleep(0)\n"
        "    if wrong:\n"
        "        raise ValueError('wrong ✗')\n"
        "    return list(sys.version_info[:2])",
        properties={"wrong": {"type": "boolean"}},
        config={"venv": ".venv", "args": ["${wrong}"]},
    )
    for python, version in INTERPRETERS.items():
        shutil.rmtree(crib.root / ".venv", ignore_errors=True)
        subprocess.run([python, "-m", "venv", "--without-pip", crib.root / ".venv"], check=True)
        assert crib.call("py", {"wrong": False}).value == version
        assert failed(crib.call("py", {"wrong": True}), "tool_failed") == "ValueError: wrong ✗", version


def test_a_virtual_environment_of_an_interpreter_behind_a_link(crib: Crib) -> None:
    """As uv makes them: `home` in pyvenv.cfg leads through a link such as cpython-3.11."""
    base = Path(sys.base_prefix).resolve()
    link = crib.root.parent / "cpython"
    link.symlink_to(base)
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    bin_ = crib.root / ".venv/bin"
    bin_.mkdir(parents=True)
    (bin_ / "python").symlink_to(link / "bin" / name)
    crib.write(".venv/pyvenv.cfg", f"home = {link}/bin\ninclude-system-site-packages = false\n")
    crib.python("import sys\ndef run():\n    return sys.prefix", config={"venv": ".venv"})
    assert crib.call("py").value == str(crib.root / ".venv")


def test_an_interpreter_that_came_with_the_project_is_not_started_outside_of_the_sandbox(
    crib: Crib, tmp_path: Path
) -> None:
    proof, evil = tmp_path / "outside", tmp_path / "evil/bin/python3"
    evil.parent.mkdir(parents=True)
    evil.write_text(f'#!/bin/sh\ntouch {proof}\nexec /usr/bin/python3 "$@"\n')
    evil.chmod(0o755)
    crib.write(".venv/pyvenv.cfg", "home = /usr/bin\n")
    (crib.root / ".venv/bin").mkdir()
    (crib.root / ".venv/bin/python").symlink_to(evil)
    crib.python("def run(): return 1", config={"venv": ".venv"})
    project = crib.open()
    assert project.trust.reasons(project.toolset.get("py")) == ("run .venv/bin/python",)

    crib.call("py")

    assert not proof.exists()


@pytest.mark.parametrize(
    ("place", "write", "ahead"),
    [(".", None, False), ("..", ".", False), ("..", "lib/more", False), ("..", None, True)],
)
def test_an_interpreter_that_a_tool_can_change_is_not_started_outside_of_the_sandbox(
    crib: Crib, monkeypatch: pytest.MonkeyPatch, place: str, write: str | None, ahead: bool
) -> None:
    prefix, proof = (crib.root / place / "own").resolve(), crib.root.parent / "outside"
    (prefix / "lib/more").mkdir(parents=True)
    (prefix / "bin").mkdir()
    python = prefix / "bin/python3"
    python.write_text(f'#!/bin/sh\ntouch {proof}\nexec /usr/bin/python3 "$@"\n')
    python.chmod(0o755)
    monkeypatch.setattr(sys, "_base_executable", str(python))
    crib.python("def run(): return 1", permissions={"fs": {"write": [str(prefix / write)] if write else []}})
    crib.call("py")
    assert proof.exists() is ahead


def test_only_interpreters_that_no_project_brings_are_started_ahead(crib: Crib) -> None:
    paths = Paths()
    base = os.path.realpath(getattr(sys, "_base_executable", sys.executable))
    assert is_known(base, paths)
    assert is_known("/usr/bin/python3.12", paths)
    for other in ("/usr/src/app/bin/python3", "/srv/ann/python3", f"{crib.root}/bin/python3"):
        assert not is_known(other, paths)


def test_a_folder_with_an_interpreter_is_no_virtual_environment(crib: Crib) -> None:
    (crib.root / "fake/bin").mkdir(parents=True)
    (crib.root / "fake/bin/python").symlink_to(sys.executable)
    crib.python("def run(): pass", config={"venv": "fake"})
    failed(crib.call("py"), "tool_unavailable")
