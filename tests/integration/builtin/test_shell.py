"""`exec` and `execute_command`, confined by the real kernel."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from toolcrib import Toolset

pytestmark = pytest.mark.usefixtures("kernel")


@pytest.fixture
def tools(tmp_path: Path) -> Toolset:
    (tmp_path / "work" / "sub").mkdir(parents=True)
    (tmp_path / "outside.txt").write_text("outside")
    made = Toolset()
    made.register_builtins("exec", "execute_command", roots=tmp_path / "work")
    return made


async def run(tools: Toolset, command: str, name: str = "exec", **more: Any) -> str:
    return str((await tools.call(name, {"command": command, **more})).unwrap())


@pytest.mark.parametrize("name", ["exec", "execute_command"])
async def test_output_errors_and_exit_code_are_one_text(tools: Toolset, name: str) -> None:
    assert await run(tools, "echo out; echo bad >&2; exit 3", name) == "out\n\nSTDERR: bad\n\n(exit code: 3)"
    assert await run(tools, "true", name) == "(no output)"
    assert await run(tools, "echo only", name) == "only\n"
    killed = await tools.call(name, {"command": "echo begun; kill -9 $$"})
    assert (killed.value, killed.warnings) == (
        "begun\n\n(exit code: 137)",
        ("the command was ended by SIGKILL",),
    )


async def test_the_command_is_confined_to_the_workspace(tools: Toolset, tmp_path: Path) -> None:
    assert await run(tools, "echo x > made.txt && cat made.txt") == "x\n"
    assert "exit code" in await run(tools, f"cat {tmp_path}/outside.txt")
    await run(tools, f"echo x > {tmp_path}/outside.txt")
    assert (tmp_path / "outside.txt").read_text() == "outside"
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        script = f"import socket; socket.create_connection(('127.0.0.1', {port}), 2)"
        assert "exit code" in await run(tools, f'python3 -c "{script}"')


async def test_the_working_folder_must_lie_in_the_workspace(tools: Toolset, tmp_path: Path) -> None:
    assert await run(tools, "pwd", workdir="sub") == f"{tmp_path}/work/sub\n"
    for folder in ("/etc", "..", "link"):
        (tmp_path / "work" / "link").unlink(missing_ok=True)
        (tmp_path / "work" / "link").symlink_to(tmp_path)
        result = await tools.call("exec", {"command": "pwd", "workdir": folder})
        assert result.error is not None
        assert result.error.message == f"path escapes sandbox: {folder}"


async def test_a_command_that_takes_too_long_is_ended_with_what_it_wrote(tools: Toolset) -> None:
    for seconds in (1, 8, 60):
        result = await tools.call("execute_command", {"command": "echo begun; sleep 600", "timeout": seconds})
        assert result.error is not None
        if "begun" in result.error.message:
            break
    else:
        raise AssertionError("no limit is long enough")
    assert (result.error.code, result.error.message) == (
        "timed_out",
        f"the command took longer than {seconds} s. Until then it wrote:\nbegun\n\n(exit code: 143)",
    )
    assert result.error.details["output"].startswith("begun\n")
    quiet = await tools.call("execute_command", {"command": "sleep 60", "timeout": 1})
    assert quiet.error is not None
    assert quiet.error.message == "the command took longer than 1 s"
    refused = await tools.call("execute_command", {"command": "true", "timeout": 121})
    assert refused.error is not None
    assert refused.error.code == "invalid_input"


@pytest.mark.parametrize("name", ["exec", "execute_command"])
async def test_a_working_folder_that_is_none_is_a_wrong_argument(
    tools: Toolset, tmp_path: Path, name: str
) -> None:
    (tmp_path / "work" / "file").write_text("")
    for folder, why in (("gone", "does not exist"), ("file", "is not a folder")):
        result = await tools.call(name, {"command": "pwd", "workdir": folder})
        assert result.error is not None
        assert (result.error.code, result.error.message) == ("invalid_input", f"workdir {folder} {why}")
        assert [one.path for one in result.error.violations] == ["$.workdir"]
