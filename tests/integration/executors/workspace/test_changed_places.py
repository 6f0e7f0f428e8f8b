"""Calls of one open project while the places that its tools were granted change: nothing old is kept."""

from __future__ import annotations

import asyncio
import venv
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.crib import Crib

pytestmark = pytest.mark.usefixtures("kernel")

Call = Callable[..., Awaitable[Any]]
SOURCE = """
import sys

def run(paths):
    reported = [sys.prefix]
    for path in paths:
        try:
            reported.append(open(path).read())
        except OSError as error:
            reported.append(type(error).__name__)
    return reported
"""


def in_one_project(crib: Crib, body: Callable[[Call], Awaitable[None]]) -> None:
    """Run `body` with what calls a tool, often enough before each change that a spare waits."""

    async def all_of_it() -> None:
        async with crib.open() as project:

            async def call(tool: str, **arguments: Any) -> Any:
                result = None
                for _ in range(3):
                    result = await project.call(tool, arguments)
                    await asyncio.sleep(0)
                assert result is not None
                value = result.value if result.error is None else result.error.code
                return value.strip() if isinstance(value, str) else value

            await body(call)

    asyncio.run(all_of_it())


@pytest.fixture
def reader(crib: Crib) -> Crib:
    """Two tools that read the project's files."""
    grant: dict[str, Any] = {"permissions": {"fs": {"read": ["."]}}}
    crib.python(SOURCE, properties={"paths": {}}, config={"args": ["${paths}"]}, **grant)
    crib.shell(**grant)
    crib.write("plain", "plain")
    return crib


def test_a_secret_behind_a_new_link_is_hidden_from_the_next_call(reader: Crib) -> None:
    secret, plain = str(reader.write("notes", "TOKEN=1")), f"{reader.root}/plain"

    async def body(call: Call) -> None:
        assert (await call("py", paths=[secret, plain]))[1:] == ["TOKEN=1", "plain"]
        assert await call("sh", c="cat notes") == "TOKEN=1"
        (reader.root / ".env").symlink_to("notes")
        assert (await call("py", paths=[secret, plain]))[1:] == ["PermissionError", "plain"]
        assert await call("sh", c="cat notes; cat plain") == "plain"
        (reader.root / ".env").unlink()
        assert (await call("py", paths=[secret, plain]))[1:] == ["TOKEN=1", "plain"]

    in_one_project(reader, body)


def test_a_grant_that_becomes_a_link_out_is_refused(crib: Crib, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("not yours")
    (crib.root / "data").mkdir()
    (crib.root / "data" / "file").write_text("yours")
    crib.shell(permissions={"fs": {"read": ["data"]}})

    async def body(call: Call) -> None:
        assert await call("sh", c="cat data/file") == "yours"
        (crib.root / "data").rename(crib.root / "before")
        (crib.root / "data").symlink_to(outside)
        assert await call("sh", c="cat data/file") == "permission_denied"
        (crib.root / "data").unlink()
        assert await call("sh", c="cat data/file") == "tool_unavailable"
        (crib.root / "before").rename(crib.root / "data")
        assert await call("sh", c="cat data/file") == "yours"

    in_one_project(crib, body)


def test_a_new_file_in_the_place_of_a_granted_one_is_read(crib: Crib) -> None:
    one = crib.write("one", "old")
    crib.shell(permissions={"fs": {"read": ["one"]}})

    async def body(call: Call) -> None:
        assert await call("sh", c="cat one") == "old"
        crib.write("two", "new").replace(one)
        assert await call("sh", c="cat one") == "new"

    in_one_project(crib, body)


def test_a_virtual_environment_that_goes_and_comes_back(reader: Crib) -> None:
    reader.python(SOURCE, "inside", properties={"paths": {}}, config={"venv": "env", "args": ["${paths}"]})
    env = reader.root / "env"

    async def body(call: Call) -> None:
        assert await call("inside", paths=[]) == "tool_unavailable"
        venv.create(env, with_pip=False, symlinks=True)
        assert await call("inside", paths=[]) == [str(env)]
        env.rename(reader.root / "away")
        assert await call("inside", paths=[]) == "tool_unavailable"
        (reader.root / "away").rename(env)
        assert await call("inside", paths=[]) == [str(env)]

    in_one_project(reader, body)


def test_a_command_that_goes_and_comes_back(crib: Crib) -> None:
    script = crib.write("run.sh", "#!/bin/sh\necho one\n", mode=0o755)
    crib.tool("own", "command", {"entrypoint": "./run.sh"}, outputs={"format": "text"})

    async def body(call: Call) -> None:
        assert await call("own") == "one"
        script.rename(crib.root / "away")
        assert await call("own") == "tool_unavailable"
        script.mkdir()
        assert await call("own") == "tool_unavailable"
        script.rmdir()
        (crib.root / "away").rename(script)
        assert await call("own") == "one"

    in_one_project(crib, body)


def test_what_must_stay_read_only_is_found_when_it_comes(crib: Crib) -> None:
    crib.shell(permissions={"fs": {"write": ["."]}})

    async def body(call: Call) -> None:
        assert await call("sh", c="echo x > fresh; cat fresh") == "x"
        (crib.root / ".git").mkdir()
        assert await call("sh", c="touch .git/config 2>&1 | grep -c 'Read-only'") == "1"

    in_one_project(crib, body)


@pytest.mark.parametrize("tool", ["sh", "py"])
def test_a_protected_file_that_is_replaced_while_a_tool_runs_is_reported(crib: Crib, tool: str) -> None:
    script = crib.write("scripts/t.sh", "echo honest", 0o755)
    crib.tool("other", "command", {"entrypoint": "scripts/t.sh"})
    line = (
        "touch {0}; until test -e {0}.go; do sleep 0.01; done; "
        "(echo evil >> scripts/t.sh) && echo wrote || true"
    )
    wide: dict[str, Any] = {"permissions": {"fs": {"write": ["."]}}}
    crib.shell(**wide)
    source = "import subprocess\ndef run(c):\n    return subprocess.getoutput(c)"
    crib.python(source, "py", {"c": {}}, config={"kwargs": {"c": "${c}"}}, **wide)

    async def all_of_it() -> None:
        async with crib.open() as project:

            async def call(name: str) -> Any:
                running = asyncio.create_task(project.call(tool, {"c": line.format(name)}))
                while not (crib.root / name).exists():  # noqa: ASYNC110 - another process makes it
                    await asyncio.sleep(0.01)
                if name == "replaced":
                    crib.write("scripts/new", "echo better", 0o755).rename(script)
                (crib.root / f"{name}.go").touch()
                return await running

            quiet, expected = await call("quiet"), await call("replaced")
            assert (quiet.ok, quiet.warnings) == (True, ())
            assert expected.unwrap().strip() == "wrote"
            (warning,) = expected.warnings
            assert warning.startswith(f"{script} was replaced from outside while the tool ran")
            assert expected.details["enforcement"]["replaced"] == [str(script)]
            assert "replaced" not in quiet.details["enforcement"]

    asyncio.run(all_of_it())
    assert crib.last().fields["sandbox_replaced"] == [str(script)]


@pytest.mark.parametrize("name", ["toolcrib.lock", ".env"])
def test_what_decides_and_a_tool_makes_is_reported(crib: Crib, name: str) -> None:
    crib.shell(permissions={"fs": {"write": ["."]}})
    made = f"{crib.root}/{name} was created while the tool ran: check it before you use it"
    assert crib.call("sh", {"c": f"echo x > {name}"}).warnings == (made,)
    (crib.root / name).unlink()
    # A call that fails has no warnings.
    failed = crib.call("sh", {"c": f"echo x > {name}; exit 3"}).error
    assert failed is not None
    assert (failed.hint or "").startswith(made)
