"""A Python file is a project: approvals, records, settings, MCP, REST, durable calls, agents, workflows."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx2
import mcp_types
import pytest
from mcp import StdioServerParameters
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client

from tests.commands import PROGRAM, Forked, decides, run, shared_server
from tests.conftest import need
from tests.crib import Crib, accept
from tests.e2e.cli.test_cli import ENVIRONMENT, Done
from tests.e2e.terminal import Terminal, terminal
from tests.http_server import http_server
from toolcrib.guard.audit.line import AuditEntry, parse
from toolcrib.state import Vault

SHOP = '''
import os
from pathlib import Path

from toolcrib import Toolset

tools = Toolset()
Path(os.environ["LEDGER"]).with_name("read").touch()


@tools.tool(approval="Sends money")
def pay(amount: int) -> str:
    """Pay an amount."""
    with open(os.environ["LEDGER"], "a") as ledger:
        ledger.write(f"{amount}\\n")
    return f"paid {amount}"


@tools.tool
def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    print("adding")
    return a + b


if __name__ == "__main__":
    tools.run()
'''


class Shop:
    """A folder with `app.py`, another folder, and a person with a data folder of their own."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "work"
        self.file, self.elsewhere, self.data = (
            self.root / "shop/app.py",
            folder / "elsewhere",
            folder / "data",
        )
        self.file.parent.mkdir(parents=True)
        self.elsewhere.mkdir()
        self.ledger = folder / "ledger"
        self.file.write_text(SHOP)
        self.env = ENVIRONMENT | {"LEDGER": str(self.ledger), "TOOLCRIB_DATA": str(self.data)}
        self.env |= {"TOOLCRIB_CONFIG": str(folder / "none"), "PYTHONDONTWRITEBYTECODE": "1"}
        (folder / "none").touch()
        self.deciding = self.decides(self.file)

    def decides(self, project: Path) -> dict[str, str]:
        """The environment of commands that may decide in a project without a terminal."""
        settings = self.data.with_name("own.yml")
        settings.write_text(decides(project))
        return {"TOOLCRIB_CONFIG": str(settings)}

    @property
    def paid(self) -> list[str]:
        return self.ledger.read_text().split() if self.ledger.exists() else []

    def __call__(self, *words: str, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> Done:
        return Done(run(words, cwd or self.file.parent, {**self.env, **(env or {})}, accepted=False))

    def terminal(self, *words: str, cwd: Path | None = None) -> Any:
        return terminal([PROGRAM, *words], cwd or self.file.parent, self.env, 200)

    def yes(self, *words: str, cwd: Path | None = None, question: str) -> Terminal:
        """A person at a terminal says yes to this question."""
        with self.terminal(*words, cwd=cwd) as screen:
            screen.read_until(question)
            screen.type("y\n")
            assert screen.end() == 0, screen.text
        found: Terminal = screen
        return found

    def audit(self) -> list[AuditEntry]:
        """The lines of its log, without those of calls that start."""
        log = Vault(self.file, self.data).path / "audit/tools.log"
        lines = log.read_bytes().splitlines() if log.exists() else []
        return [entry for entry in map(parse, lines) if entry.event != "TOOL_STARTED"]


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


# -- approval ------------------------------------------------------------------------------------------


def test_a_person_is_asked_and_a_script_is_told_the_command(shop: Shop) -> None:
    screen = shop.yes("run", "app.py", "pay", "amount=3", question="Run it once?")
    assert "Sends money" in screen.text
    assert "paid 3" in screen.text
    waits = shop("run", "app.py", "pay", "amount=4")
    assert (waits.code, waits.out) == (5, "")
    assert f"toolcrib approvals approve --last --root {shop.file}" in waits.err
    screen = shop.yes("approvals", "approve", "--last", cwd=shop.elsewhere, question="Approve it?")
    assert f"project:   {shop.file}" in screen.text
    done = shop("run", "app.py", "pay", "amount=4")
    assert (done.code, done.out) == (0, "paid 4\n")
    assert shop("run", "app.py", "pay", "amount=4").code == 5, "an approval is for one call"
    with shop.terminal("run", "app.py", "pay", "amount=5", "--approve") as screen:
        assert screen.end() == 0, screen.text
    assert shop.paid == ["3", "4", "5"]
    ran = [entry.fields["params"] for entry in shop.audit() if entry.event == "TOOL_EXECUTED"]
    assert ran == [{"amount": 3}, {"amount": 4}, {"amount": 5}]
    assert "TOOL_REFUSED" in {entry.event for entry in shop.audit()}
    assert set(os.listdir(shop.file.parent)) <= {"app.py", "__pycache__"}


def test_what_waits_anywhere_is_listed_with_its_project(shop: Shop, tmp_path: Path) -> None:
    assert shop("approvals", "list", cwd=shop.elsewhere).err == "Nothing waits for approval.\n"
    crib = Crib(tmp_path / "folder")
    asks = {"approval": {"required": True, "reason": "it is dear"}}
    crib.write("f", "content")
    crib.tool("dear", "file", {"action": "read", "path": "f"}, permissions={"fs": {"read": ["f"]}}, **asks)
    accept(crib.root, shop.data)
    assert shop("run", "dear", cwd=crib.root).code == 5
    assert shop("run", "app.py", "pay", "amount=4").code == 5
    broken = Vault(tmp_path / "broken", shop.data)
    (tmp_path / "broken/.toolcrib").mkdir(parents=True)
    (tmp_path / "broken/.toolcrib/config.yml").write_text("nosuch: 1\n")
    Vault(tmp_path / "gone", shop.data).origin()
    broken.origin()
    found = shop("approvals", "list", "--json", cwd=shop.elsewhere)
    listed = [(one["tool"], one["project"]) for one in found.document["approvals"]]
    assert listed == [("pay", str(shop.file)), ("dear", str(crib.root))]
    assert f"note: {tmp_path}/broken is left out: " in found.err
    assert "gone" not in found.err
    shown = shop("approvals", "list", cwd=shop.elsewhere).out
    assert "PROJECT" in shown.splitlines()[0]
    assert str(shop.file) in shown
    assert [
        one["tool"] for one in shop("approvals", "list", "--json", cwd=crib.root).document["approvals"]
    ] == ["dear"]
    first = shop("approvals", "list", "--limit", "1", "--json", cwd=shop.elsewhere).document["approvals"]
    more = ("approvals", "list", "--before", first[0]["id"], "--json")
    assert [one["tool"] for one in shop(*more, cwd=shop.elsewhere).document["approvals"]] == ["dear"]


def test_a_decision_runs_nothing_of_the_file(shop: Shop) -> None:
    shop("run", "app.py", "pay", "amount=4")
    waiting = shop("approvals", "list", "--root", str(shop.file), "--json").document["approvals"][0]["id"]
    mark = shop.ledger.with_name("read")
    mark.unlink()
    refused = shop("approvals", "approve", waiting[:-2], "--yes", cwd=shop.elsewhere)
    assert (refused.code, f'where: ["{shop.file}"]' in refused.err) == (5, True), refused.err
    assert "pay" in shop("approvals", "show", "--last", cwd=shop.elsewhere).out
    for words in (("audit", "verify"), ("token", "list"), ("calls", "list")):
        assert shop("--root", str(shop.file), *words).code == 0, words
    assert "calls under way: none" in shop("status", "app.py").out
    denied = shop(
        "approvals", "deny", waiting, "--reason", "no", "--yes", cwd=shop.elsewhere, env=shop.deciding
    )
    assert (denied.code, mark.exists()) == (0, False), denied.err
    assert shop("run", "app.py", "pay", "amount=4").code == 5

    shop("run", "app.py", "pay", "amount=6")
    last = ("approvals", "approve", "--last", "--yes")
    wrong = shop(*last, "--edit", "amount=x", cwd=shop.elsewhere, env=shop.deciding)
    assert (wrong.code, "$.amount" in wrong.err) == (4, True), wrong.err
    assert shop(*last, "--edit", "amount=7", cwd=shop.elsewhere, env=shop.deciding).code == 0
    assert shop("run", "app.py", "pay", "amount=6").out == "paid 7\n"


def test_in_memory_the_error_says_what_the_program_passes(shop: Shop) -> None:
    code = "import app; print(app.tools.call_sync('pay', {'amount': 1}).error.hint)"
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=shop.file.parent, env=shop.env, capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    assert 'approved_by="NAME"' in ran.stdout
    assert not shop.data.exists()


# -- settings ------------------------------------------------------------------------------------------

RULES = "policy: {rules: [{name: free, effect: deny, tools: [pay]}]}\nlimits: {timeout_ms: 1234}\n"


def test_the_settings_of_a_trusted_project_above_apply(shop: Shop) -> None:
    root = shop.root
    (root / ".toolcrib/tools/look").mkdir(parents=True)
    (root / ".toolcrib/config.yml").write_text(
        RULES + "builtins: [read_file]\nmcp_servers: {a: {command: x}}\n"
    )
    (root / ".toolcrib/tools/look/tool.yml").write_text("name: look\n")
    ignored = shop("run", "app.py", "add", "a=1")
    assert (ignored.code, ignored.out) == (0, "2\n")
    assert (
        f"{root} is not trusted, so its settings do not apply here: toolcrib trust --root {root}"
        in ignored.err
    )
    assert shop("run", "app.py", "pay", "amount=1").code == 5

    accept(root, shop.data)  # The project, but not the settings that weaken a guard.
    listed = shop("list", "app.py", "--json")
    assert [tool["name"] for tool in listed.document["tools"]] == ["add"], "a denied tool is not listed"
    assert f"policy, secrets and settings are those of the project {root}" in listed.err
    denied = shop("run", "app.py", "pay", "amount=1", "--json")
    assert denied.document["error"]["code"] == "policy_denied"
    with (root / ".toolcrib/config.yml").open("a") as config:
        config.write("retry: {max_attempts: 9}\n")
    waits = shop("run", "app.py", "add", "a=1")
    assert (
        f"no effect until you run `toolcrib trust --root {root}`: mcp_servers, retry.max_attempts"
        in waits.err
    )
    assert not (root / ".toolcrib/audit").exists()

    (shop.file.parent / "slow.py").write_text(
        "import asyncio\nfrom toolcrib import Toolset\ntools = Toolset()\n@tools.tool\n"
        "async def nap() -> None:\n    'Nap.'\n    await asyncio.sleep(60)\n"
    )
    slow = shop("run", "slow.py", "nap", "--json").document["error"]
    assert (slow["code"], slow["details"]["limitMs"]) == ("timed_out", 1234)


def test_the_project_of_another_user_above_is_ignored_and_named(shop: Shop) -> None:
    need("another user to give a folder to", os.geteuid() == 0, of_root=True)
    root = shop.root
    (root / ".toolcrib").mkdir()
    (root / ".toolcrib/config.yml").write_text(RULES)
    accept(root, shop.data)
    os.chown(root / ".toolcrib", 12_345, 12_345)
    done = shop("run", "app.py", "pay", "amount=1")
    assert (done.code, "policy_denied" in done.err) == (5, False)
    assert f"the project {root} belongs to another user (uid 12345), so it is ignored" in done.err


# -- MCP and REST --------------------------------------------------------------------------------------


def parameters(shop: Shop, *words: str) -> StdioServerParameters:
    if words[0].endswith(".py"):
        program, arguments = str(shared_server().program("python")), [str(shop.file)]
    else:
        program, arguments = str(shared_server().program()), [*words]
    return StdioServerParameters(command=program, args=arguments, cwd=shop.file.parent, env=shop.env)


class User:
    """The person behind a client."""

    async def __call__(self, context: Any, params: mcp_types.ElicitRequestParams) -> mcp_types.ElicitResult:
        assert "Sends money" in params.message
        return mcp_types.ElicitResult(action="accept", content={"approve": True})


@pytest.mark.parametrize("words", [("serve", "app.py"), ("app.py",)])
async def test_over_mcp_a_call_waits_and_every_call_is_recorded(shop: Shop, words: tuple[str, ...]) -> None:
    async with Client(parameters(shop, *words)) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == ["pay", "add"]
        assert "3" in str((await client.call_tool("add", {"a": 2})).content)
        waits = await client.call_tool("pay", {"amount": 8})
        assert (waits.is_error, (waits.structured_content or {})["status"]) == (True, "pending")
        wait: Any = {"toolcrib/wait": "block"}
        asking = asyncio.create_task(client.call_tool("pay", {"amount": 8}, meta=wait))
        approve = ("approvals", "approve", "--last", "--yes")
        assert (await asyncio.to_thread(shop, *approve, cwd=shop.elsewhere, env=shop.deciding)).code == 0
        assert "paid 8" in str((await asking).content)
    ran = [entry.fields["name"] for entry in shop.audit() if entry.event == "TOOL_EXECUTED"]
    assert (ran, shop.paid) == (["add", "pay"], ["8"])


async def test_over_mcp_the_clients_user_is_asked_where_the_settings_allow_it(shop: Shop) -> None:
    root = shop.root
    Crib(root).write(".toolcrib/config.yml", "approvals: {channels: [cli, elicitation]}\n")
    assert run(("trust", "--yes"), root, shop.env | shop.decides(root), accepted=False).returncode == 0
    async with Client(parameters(shop, "serve", "app.py"), elicitation_callback=User()) as client:
        assert "paid 8" in str((await client.call_tool("pay", {"amount": 8})).content)
    assert shop.paid == ["8"]


async def test_one_file_is_served_over_rest_and_mcp(shop: Shop) -> None:
    with http_server(shop.file, env={"LEDGER": str(shop.ledger)}) as server:
        assert server.send("GET", "/tools", token=None).status == 401
        called = server.send("POST", "/tools/invoke/add", {"args": {"a": 2, "b": 3}})
        assert (called.status, called.json) == (200, {"ok": True, "value": 5})
        assert server.send("POST", "/tools/invoke/add", {"args": {"a": "x"}}).code == "invalid_input"
        waits = server.send("POST", "/tools/invoke/pay", {"args": {"amount": 2}})
        assert (waits.status, waits.json["status"]) == (202, "awaiting_approval")
        headers = {"Authorization": f"Bearer {server.token}"}
        async with (
            httpx2.AsyncClient(headers=headers, timeout=30) as http,
            Client(streamable_http_client(f"{server.address}/mcp", http_client=http)) as client,
        ):
            assert [tool.name for tool in (await client.list_tools()).tools] == ["pay", "add"]
            assert "9" in str((await client.call_tool("add", {"a": 4, "b": 5})).content)
        shop.data = server.data
    ran = [entry.fields["name"] for entry in shop.audit() if entry.event == "TOOL_EXECUTED"]
    assert (ran, shop.paid) == (["add", "add"], [])


def test_both_addresses_are_printed(shop: Shop) -> None:
    with shop.terminal("serve", "app.py", "--http", "--port", "0") as screen:
        screen.read_until("/#code=")
        address = re.search(
            r"Serving MCP on (http://127.0.0.1:\d+)/mcp, REST on (http://127.0.0.1:\d+)", screen.text
        )
        assert address is not None, screen.text
        assert address[1] == address[2]
        screen.type("\x03")
        screen.end()


def test_a_token_of_the_file_limits_what_its_holder_calls(shop: Shop) -> None:
    made = shop(
        "token",
        "create",
        "adder",
        "--scope",
        "invoke",
        "--tool",
        "add",
        "--root",
        "app.py",
        env=shop.deciding,
    )
    token = {"TOOLCRIB_TOKEN": made.out.strip()}
    assert shop("run", "app.py", "add", "a=1", env=token).out == "2\n"
    refused = shop("run", "app.py", "pay", "amount=1", "--json", env=token)
    assert (refused.code, refused.document["error"]["code"]) == (5, "invalid_token")
    other = shop.file.with_name("other.py")
    other.write_text(SHOP)
    mark = shop.ledger.with_name("read")
    mark.unlink()
    assert shop("run", "other.py", "add", "a=1", env=token).code == 5
    assert not mark.exists(), "a token runs the code of no other file"


# -- durable -------------------------------------------------------------------------------------------

OFFICE = """
import os
from pathlib import Path

from toolcrib import Agent, Toolset, Workflow

tools = Toolset()
ledger = Path(os.environ["LEDGER"])


class Desk:
    name = "desk"
    description = "Say if the desk is open."
    input_schema = {"type": "object", "properties": {}}
    is_open = False

    async def open(self):
        self.is_open = True

    async def close(self):
        self.is_open = False

    def execute(self, arguments):
        return self.is_open


tools.register(Desk())


@tools.tool(idempotent=True)
def report(month: int) -> str:
    "Write a report."
    with ledger.open("a") as file:
        file.write(f"{os.getpid()}\\n")
    print("writing")
    while not ledger.with_name("done").exists():
        pass
    return f"report {month}"


clerk = Agent(
    "clerk", "scripted", description="Says how the desk is", tools=("desk",),
    script=({"calls": [{"tool": "desk"}]}, {"text": "open: {{result}}"}),
)  # fmt: skip
round = Workflow({
    "name": "round", "description": "Looks at the desk and asks the clerk",
    "steps": [{"id": "look", "tool": "desk"}, {"id": "ask", "agent": "clerk", "prompt": "How is it?"}],
    "output": {"look": "${steps.look.value}", "ask": "${steps.ask.value}"},
})  # fmt: skip
"""


@pytest.fixture
def office(shop: Shop) -> Shop:
    shop.file.write_text(OFFICE)
    return shop


def until(path: Path, lines: int = 1) -> list[str]:
    deadline = time.monotonic() + 100
    while not path.exists() or len(found := path.read_text().split()) < lines:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found


def worker(shop: Shop) -> Forked:
    words = [PROGRAM, "worker", "app.py", "--concurrency", "1"]
    return Forked(words, cwd=shop.file.parent, env=shop.env, stdin=subprocess.DEVNULL)


def test_a_durable_call_survives_its_worker(office: Shop) -> None:
    submitted = office("calls", "submit", "app.py", "report", "month=7")
    call = submitted.out.strip()
    assert "No process serves this project" in submitted.err
    assert f"`toolcrib calls wait {call} --root {office.file}`" in submitted.err
    with worker(office) as first:
        until(office.ledger)
        first.kill()
        first.wait()
    with worker(office) as second:
        until(office.ledger, 2)
        office.ledger.with_name("done").touch()
        assert office("calls", "wait", call, "--root", "app.py").out == "report 7\n"
        second.terminate()
        assert second.wait() == 0
    assert office("calls", "show", call, "--root", "app.py", "--json").document["state"] == "done"
    assert office("list", "--root", "app.py").code == 0
    assert set(os.listdir(office.file.parent)) <= {"app.py", "__pycache__"}


def test_who_waits_runs_the_call_and_prints_its_result_alone(office: Shop) -> None:
    office.ledger.with_name("done").touch()
    call = office("calls", "submit", "app.py", "report", "month=8").out.strip()
    waited = office("calls", "wait", call, "--root", "app.py")
    assert (waited.out, "writing" in waited.err) == ("report 8\n", True)


def test_agents_and_workflows_of_a_file_run(office: Shop) -> None:
    assert [
        one["name"] for one in office("--root", "app.py", "agents", "list", "--json").document["agents"]
    ] == ["clerk"]
    ran = office("--root", "app.py", "runs", "run", "clerk", "How is the desk?")
    assert (ran.code, ran.out) == (0, "open: true\n"), ran.err
    ran = office("--root", "app.py", "agents", "task", "How is the desk?")
    assert ran.out == "open: true\n", ran.err
    ran = office("--root", "app.py", "workflows", "run", "round", "--json")
    assert ran.document["value"] == {"look": True, "ask": "open: true"}, ran.err
    run_id = office("--root", "app.py", "workflows", "run", "round", "--detach").out.strip()
    with worker(office) as serving:
        ended = office("--root", "app.py", "runs", "watch", run_id)
        assert "done" in ended.out, ended.err
        serving.terminate()
        serving.wait()
    ran = office("--root", "app.py", "runs", "show", run_id, "--json")
    assert json.loads(ran.document["answer"]) == {"look": True, "ask": "open: true"}


def test_what_is_wrong_with_a_workflow_is_said_with_its_place(office: Shop) -> None:
    office.file.write_text(OFFICE.replace('"id": "look", "tool"', '"id": "look", "tol"'))
    wrong = office("--root", "app.py", "workflows", "list")
    assert (wrong.code, "app.py:" in wrong.err, "tol" in wrong.err) == (4, True, True), wrong.err
