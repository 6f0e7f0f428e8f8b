"""The built-in tools of a project: off until its settings list them, then under all of its rules."""

from __future__ import annotations

import asyncio
import sys
from threading import Barrier
from typing import Any

import orjson
import pytest

from tests.crib import Crib, accept
from tests.patience import patient
from toolcrib import Agent, Project
from toolcrib.builtin.names import NAMES
from toolcrib.errors import ConfigError, NotTrusted, ToolcribError
from toolcrib.guard import Ledger
from toolcrib.project.worker.supervisor import serve_worker
from toolcrib.spec import Call
from toolcrib.state import Message, Outbox, Vault

SETTINGS = """
builtins: [read_file, list_files, write_file, send_channel_message]
roots:
  workspace: {path: ., write: true}
"""


async def refused(project: Project, name: str, **arguments: Any) -> ToolcribError:
    result = await project.call(name, arguments)
    assert result.error is not None, result.value
    return result.error


async def test_they_are_off_until_they_are_listed(crib: Crib) -> None:
    async with Project.open(crib.root, accept="all") as project:
        assert not set(NAMES) & {tool.name for tool in project.tools()}
        error = await refused(project, "read_file", path="x")
        assert (error.code, error.hint) == (
            "tool_disabled",
            "To switch it on, write `builtins: [read_file]` in config.yml.",
        )
        assert project.catalog.builtins.definition("read_file").permissions.read == (".",)
        project.catalog.builtins.switch_on(["read_file", "no_such_tool"])
        assert {tool.name for tool in project.tools()} == {"read_file"}


async def test_two_threads_switch_tools_on(crib: Crib) -> None:
    """A worker does so in a thread, while calls end in its event loop."""
    both, interval = Barrier(2, timeout=patient(10)), sys.getswitchinterval()

    def switch_on() -> None:
        for name in NAMES:
            both.wait()
            project.catalog.builtins.switch_on([name])

    async with crib.open() as project:
        sys.setswitchinterval(1e-6)
        try:
            await asyncio.gather(*(asyncio.to_thread(switch_on) for _ in range(2)))
        finally:
            sys.setswitchinterval(interval)
        assert {tool.name for tool in project.tools()} >= set(NAMES)


AGENT = """\
name: reader
model: scripted
tools: [read_file]
script:
  - calls: [{tool: read_file, arguments: {path: note.txt}}]
  - text: '{{result}}'
"""


async def test_those_of_an_agent_are_on_for_this_agent_only(crib: Crib) -> None:
    crib.write("note.txt", "hello")
    crib.write(".toolcrib/agents/reader.yml", AGENT)
    async with Project.open(crib.root, accept="all") as project:
        assert project.agents.findings(list, project.calls.known.some) == []
        run = await project.runs.run(None, "reader", "go")
        assert run.answer == "hello"
        for caller in ("local", "agent:other", "mcp:x"):
            assert "read_file" not in {tool.name for tool in project.tools(caller)}
            assert project.search("read_file", caller=caller)["total"] == 0
            for dry in (False, True):
                result = await project.invoke(Call("read_file", {"path": "note.txt"}, caller, dry_run=dry))
                assert result.error is not None
                assert result.error.code == "tool_disabled"
        assert [tool.name for tool in project.tools("agent:reader")] == ["read_file"]
        project.catalog.builtins.switch_on(["read_file"])
        assert (await project.call("read_file", {"path": "note.txt"})).unwrap() == "hello"


async def test_a_worker_has_those_that_the_agents_list(crib: Crib) -> None:
    crib.write("note.txt", "hello")
    crib.write(".toolcrib/agents/reader.yml", AGENT)
    async with Project.open(crib.root, accept="all") as first:
        run = first.runs.start(None, "reader", "go")
    async with Project.open(crib.root, accept="all") as second:
        assert (await second.runs.wait(run)).answer == "hello"


async def test_a_server_has_those_of_agents_that_come_later(crib: Crib) -> None:
    crib.write("note.txt", "hello")
    async with Project.open(crib.root, accept="all") as server:
        server.calls.serve()
        crib.write(".toolcrib/agents/reader.yml", AGENT)
        async with Project.open(crib.root, accept="all") as client:
            call = client.runs.start(None, "reader", "go")
        async with asyncio.timeout(100):
            assert (await server.runs.wait(call)).answer == "hello"


async def test_workers_have_those_that_the_agents_list(crib: Crib) -> None:
    crib.write("note.txt", "hello")
    crib.write(".toolcrib/agents/reader.yml", AGENT)
    accept(crib.root)
    stop, serves = asyncio.Event(), asyncio.Event()
    async with Project.open(crib.root) as project, asyncio.timeout(100):
        work = asyncio.create_task(
            serve_worker(project, stop, concurrency=1, announce=lambda _: serves.set())
        )
        await serves.wait()
        later = AGENT.replace("reader", "lister").replace("read_file", "list_files").replace("note.txt", ".")
        crib.write(".toolcrib/agents/lister.yml", later)
        accept(crib.root)
        try:
            for agent, answer in (("reader", "hello"), ("lister", '[".toolcrib/","note.txt"]')):
                async with Project.open(crib.root) as client:
                    run = client.runs.start(None, agent, "go")
                while project.runs.find(run).answer is None:  # noqa: ASYNC110 - served elsewhere
                    await asyncio.sleep(0.05)
                assert project.runs.find(run).answer == answer
        finally:
            stop.set()
            await work


async def test_an_agent_reads_on_in_what_was_cut_for_it(crib: Crib) -> None:
    text = "".join(f"line {number}\n" for number in range(9_000))
    async with Project.open(crib.root, accept="all") as first:
        first.toolset.register("long", lambda: text, description="Return much.")
        details = (await first.invoke(Call("long", {}, "agent:a"))).details
        assert details is not None
    wanted = {"id": details["artifact"]["id"], "offset": 50_000}
    script = ({"calls": [{"tool": "artifact_read", "arguments": wanted}]}, {"text": "{{result}}"})
    async with Project.open(crib.root, accept="all") as second:
        second.toolset.register("long", lambda: text, description="Return much.")
        second.agents.add(Agent("a", "scripted", tools=("long",), script=script))
        assert (await second.runs.run(None, "a", "go")).answer == text[50_000:]


async def test_an_agent_of_a_project_that_nobody_accepted_switches_nothing_on(crib: Crib) -> None:
    Ledger(Vault(crib.root)).revoke()
    crib.write(".toolcrib/agents/reader.yml", AGENT)
    async with Project.open(crib.root) as project:
        with pytest.raises(NotTrusted):
            project.runs.start(None, "reader", "go")
        assert project.agents.listed() == {}
        assert (await refused(project, "read_file", path="x")).code == "tool_disabled"


async def test_listed_ones_work_inside_the_project_only(crib: Crib) -> None:
    crib.write(".toolcrib/config.yml", SETTINGS)
    async with Project.open(crib.root, accept="all") as project:
        (await project.call("write_file", {"path": "out/a.txt", "content": "x"})).unwrap()
        assert (await project.call("list_files", {"path": "out"})).unwrap() == ["a.txt"]
        assert "escapes sandbox" in (await refused(project, "read_file", path="/etc/passwd")).message
        for path in (".toolcrib/tools/x/tool.yml", ".toolcrib/config.yml", ".git/hooks/pre-commit"):
            crib.write(".git/hooks/there", "")
            error = await refused(project, "write_file", path=path, content="x")
            assert error.message == f"never writable by tools: {path}"
    assert [entry.fields["name"] for entry in crib.audit() if entry.event == "TOOL_EXECUTED"][:2] == [
        "write_file",
        "list_files",
    ]


async def test_a_file_beside_secrets_is_read_whole_in_parts_of_any_size(crib: Crib) -> None:
    crib.write(".toolcrib/config.yml", "builtins: [read_file, web_search]\n")
    crib.secrets["BRAVE_API_KEY"] = secret = "brave-key-12345"
    crib.write("a.txt", text := f"brave-key é {secret} b YnJhdmUt é brave-key-1234")
    async with crib.open() as project:
        for limit in (1, 7, 40):
            read, offset = "", 0
            while offset < len(text.encode()):
                part = await project.call("read_file", {"path": "a.txt", "offset": offset, "limit": limit})
                body, cut, note = part.unwrap().partition("\n[cut: bytes ")
                read += body
                offset = int(note.rpartition("=")[2].rstrip(".]")) if cut else len(text.encode())
            assert read == text.replace(secret, "***BRAVE_API_KEY***")


async def test_a_root_that_is_not_there_is_named_with_its_setting(crib: Crib) -> None:
    crib.write(".toolcrib/config.yml", "builtins: [read_file]\nroots: {workspace: ., skills: /no/skills}\n")
    async with Project.open(crib.root, accept="all") as project:
        error = await refused(project, "read_file", path="a")
        assert (
            error.message == "read_file is granted fs.read of '/no/skills', which does not exist (/no/skills)"
        )
        assert error.hint == "Create it, or remove it from `roots` in config.yml."


async def test_the_folder_to_search_begins_at_the_project_whatever_the_roots_are(crib: Crib) -> None:
    crib.write("docs/a.html", "<meta charset=iso-8859-1><title>Caf\xe9</title>".encode("latin-1"))
    search = "builtins: {web_search: {provider: index, folder: docs}}\n"
    crib.write(".toolcrib/config.yml", search + "roots: {workspace: {path: work, write: true}}\n")
    crib.write("work/docs/other.md", "# Caf\u00e9")
    async with Project.open(crib.root, accept="all") as project:
        found = (await project.call("web_search", {"query": "caf\u00e9"})).unwrap()
        assert [(one["title"], one["url"]) for one in found] == [("Caf\u00e9", "a.html")]


async def test_without_roots_the_project_is_only_read(crib: Crib) -> None:
    crib.write(".toolcrib/config.yml", "builtins: [write_file]\n")
    async with Project.open(crib.root, accept="all") as project:
        error = await refused(project, "write_file", path="a", content="x")
        assert error.code == "permission_denied"
        assert error.hint is not None
        assert "write: true" in error.hint


async def test_what_can_change_something_needs_trust_first(crib: Crib) -> None:
    crib.write(".toolcrib/config.yml", SETTINGS)
    crib.write("a.txt", "hello")
    async with Project.open(crib.root) as project:
        assert (await project.call("read_file", {"path": "a.txt"})).unwrap() == "hello"
        assert (await refused(project, "write_file", path="b", content="x")).code == "approval_required"
        project.trust.trust(project.get("write_file"), "ann")
        assert (await project.call("write_file", {"path": "b", "content": "x"})).ok
    crib.write(".toolcrib/config.yml", SETTINGS + "  more: {path: sub, write: true}\n")
    (crib.root / "sub").mkdir()
    async with Project.open(crib.root) as project:
        assert (await refused(project, "write_file", path="b", content="x")).code == "approval_required"


async def test_a_manifest_of_the_same_name_wins(crib: Crib) -> None:
    crib.tool("web_search", "command", {"entrypoint": "echo", "args": ["own"]}, outputs={"format": "text"})
    crib.write(".toolcrib/config.yml", "builtins: [web_search]\n")
    async with Project.open(crib.root, accept="all") as project:
        assert not project.get("web_search").is_builtin


async def test_a_channel_message_is_a_row_of_the_outbox(crib: Crib) -> None:
    crib.write(".toolcrib/config.yml", SETTINGS)
    async with Project.open(crib.root, accept="all") as project:
        arguments = {"channel": "slack", "text": "Done.", "chatId": "C1"}
        text = (await project.call("send_channel_message", arguments, run_id="run-1")).unwrap()
        assert text.startswith("Message queued for slack (target: C1), id ")
        sent: list[Message] = []

        async def send(message: Message) -> None:
            sent.append(message)

        assert await Outbox(project.calls.stored.database).deliver(send) == 1
        body = orjson.loads(sent[0].body)
        assert sent[0].topic == body["topic"] == "channel.message.send"
        assert body["data"] == {"channel": "slack", "text": "Done.", "chatId": "C1"}
        assert body["metadata"] == {"agentRunID": "run-1", "messageID": text.rpartition(" ")[2]}
        wrong = await refused(project, "send_channel_message", channel="fax", text="x")
        assert wrong.code == "invalid_input"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("builtins: [read_fil]", "did you mean `read_file`?"),
        ("builtins: {web_search: {provider: searxng}}", "url"),
        ("builtins: {read_file: {speed: 1}}", "speed"),
        ("roots: {a b: .}", "is not a name for a folder"),
        ("roots: {a: {path: ., writ: true}}", "did you mean `write`?"),
    ],
)
def test_wrong_settings_are_errors_with_a_place(crib: Crib, settings: str, message: str) -> None:
    crib.write(".toolcrib/config.yml", settings)
    with pytest.raises(ConfigError) as caught:
        Project.open(crib.root)
    assert message in f"{caught.value.message} {caught.value.hint} {caught.value.details}"
