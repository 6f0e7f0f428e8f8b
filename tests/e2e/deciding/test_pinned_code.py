"""A script that changes while its call waits for a person does not run, at any interface."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mcp_types
import pytest
from mcp import StdioServerParameters
from mcp.client import Client

from tests.commands import shared_server
from tests.crib import Crib
from tests.e2e.deciding.test_started import ann as ann_fixture
from tests.e2e.deciding.test_trust_tools import Person
from tests.e2e.deciding.test_trust_tools import origin as origin_fixture
from toolcrib import Project

pytestmark = pytest.mark.usefixtures("kernel")
ann, origin = ann_fixture, origin_fixture

SCRIPT = "#!/bin/sh\necho {said} >out/said; cat out/said\n"


def change(root: Path, said: str) -> None:
    script = root / ".toolcrib/tools/t/run.sh"
    new = script.with_name("new")
    new.write_text(SCRIPT.format(said=said))
    new.chmod(0o755)
    new.replace(script)


@pytest.fixture
def person(origin: Crib, ann: Callable[[], Person]) -> Person:
    """A person with a trusted tool whose every call needs approval."""
    origin.tool(
        "t",
        "command",
        {"entrypoint": ".toolcrib/tools/t/run.sh"},
        outputs={"format": "text"},
        permissions={"fs": {"write": ["out"]}},
        approval={"required": True, "reason": "It is dear."},
    )
    origin.write("out/kept", "")
    change(origin.root, "good")
    origin.write(".toolcrib/config.yml", json.dumps({"approvals": {"channels": ["cli", "elicitation"]}}))
    someone = ann()
    assert someone.run("trust", "--yes").returncode == 0
    return someone


def ran(person: Person) -> str:
    file = person.root / "out/said"
    return file.read_text().strip() if file.exists() else ""


@pytest.mark.parametrize("said", ["good", "evil"])
def test_at_the_terminal_that_asks(person: Person, said: str) -> None:
    with person.terminal("run", "t") as screen:
        screen.read_until("[y/N]")
        if said == "evil":
            change(person.root, said)
        screen.type("y\n")
        status = screen.end()
    assert (status, ran(person)) == ((0, "good") if said == "good" else (5, "")), screen.text
    if said == "evil":
        assert "has changed since it was checked" in screen.text


def test_in_python_between_the_approval_and_the_run(person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_DATA_HOME")
    monkeypatch.setenv("HOME", str(person.home))

    async def main() -> Any:
        async with Project.open(person.root) as project:
            call = asyncio.ensure_future(project.call("t", wait="block"))
            while not (waiting := project.approval_service.list("pending")):
                assert not call.done(), await call
                await asyncio.sleep(0.01)
            service, found = project.approval_service, waiting[0]
            service.approve(found.approval.id, "ann", seal=found.document["seal"])
            change(person.root, "evil")
            return (await call).error

    error = asyncio.run(main())
    assert error is not None
    assert error.code == "approval_required"
    assert ran(person) == ""


@pytest.mark.parametrize("said", ["good", "evil"])
async def test_over_mcp_while_the_clients_user_is_asked(person: Person, said: str) -> None:
    asked: list[str] = []

    async def answer(context: Any, params: mcp_types.ElicitRequestParams) -> mcp_types.ElicitResult:
        asked.append(params.message)
        if len(asked) > 1:  # About what it is now.
            return mcp_types.ElicitResult(action="decline")
        if said == "evil":
            change(person.root, said)
        return mcp_types.ElicitResult(action="accept", content={"approve": True})

    arguments = ["serve", "--stdio", "--root", str(person.root)]
    server = StdioServerParameters(command=str(shared_server().program()), args=arguments, env=person.env)
    async with Client(server, elicitation_callback=answer) as client:
        result = await client.call_tool("t", {})
    assert result.is_error == (said == "evil"), result
    assert ran(person) == ("good" if said == "good" else "")
    assert said == "good" or "this tool is not what" in asked[-1]
