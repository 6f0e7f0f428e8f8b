"""MCP servers of this machine: confined, listed, called, followed, and started again."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

import toolcrib
from tests.crib import Crib, failed
from tests.mcp_servers import GOOD, RAW, mount, trust
from tests.patience import GROWING_MS, patient
from toolcrib.errors import ConfigError, NotTrusted
from toolcrib.project import Project
from toolcrib.project.tools.mounted import Mounted
from toolcrib.spec import CallEvent

pytestmark = pytest.mark.timeout(120)


@asynccontextmanager
async def opened(crib: Crib, wait_s: float = 60) -> AsyncIterator[Project]:
    async with crib.open() as project:
        assert project.servers is not None
        await project.servers.ready(wait_s)
        yield project


def server(project: Project, name: str) -> Mounted:
    assert project.servers is not None
    return project.servers.get(name)


def begun(code: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)


async def until(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + patient(40)
    while not condition():
        assert time.monotonic() < deadline, "it did not come"
        await asyncio.sleep(0.02)


async def test_its_tools_are_the_projects_and_confined(crib: Crib) -> None:
    crib.secrets = {"KEY": "s3cr3t-value", "OTHER": "not-for-it"}
    crib.write("seen.txt", "in the project")
    crib.write(".env", "PASSWORD=x")
    outside = crib.root.parent / "outside.txt"
    outside.write_text("outside")
    mount(crib, "good", GOOD, env={"API_KEY": "${KEY}", "MODE": "${MODE:-quiet}"})
    async with opened(crib) as project:
        assert [tool.name for tool in project.tools()][:2] == ["good__add", "good__look"]
        tool = project.get("good__add")
        assert (tool.kind, tool.bundle, tool.annotations.read_only) == ("mcp", "good", True)
        assert (await project.call("good__add", {"a": 1, "b": 2})).unwrap() == {"result": 3}
        assert "integer" in failed(await project.call("good__add", {"a": 1, "b": "x"}), "invalid_input")
        assert (await project.call("good__look", {"path": "seen.txt"})).unwrap() == {
            "result": "in the project"
        }
        crib.write(".toolcrib/state.db", "x")  # As Toolcrib does at first need; the log is new too.
        closed = [".toolcrib/state.db", ".toolcrib/audit/tools.log"]
        for path in (str(outside), ".env", *closed, "/etc/shadow"):
            value = (await project.call("good__look", {"path": path})).unwrap()
            assert value["result"].startswith("cannot") or value["result"] == "", path
        told = json.dumps((await project.call("good__variables")).unwrap())
        assert "***KEY***" in told
        assert "quiet" in told
        assert "s3cr3t-value" not in told
        assert "not-for-it" not in told
        assert "XDG_DATA_HOME" not in told
        message = failed(await project.call("good__fail"), "tool_failed")
        assert "Error executing tool fail" in message
        assert server(project, "good").as_dict()["protocol"] == "2026-07-28"
    lines = crib.audit()
    assert lines[0].event == "MCP_SERVER_STARTED"
    assert {line.event for line in lines} == {"MCP_SERVER_STARTED", "TOOL_EXECUTED", "TOOL_REFUSED"}


async def test_a_server_learns_who_its_client_is_and_in_which_version(crib: Crib) -> None:
    asked = RAW + textwrap.dedent("""
        client = {}
        begun = answer

        def answer(message):
            if message.get("method") == "initialize":
                client.update(message["params"]["clientInfo"])
            return begun(message)

        def called(message):
            return {"content": [{"type": "text", "text": json.dumps(client)}]}

        main()
    """)
    mount(crib, "raw", asked)
    async with opened(crib) as project:
        client = json.loads((await project.call("raw__hello")).unwrap())
    assert (client["name"], client["version"]) == ("toolcrib", toolcrib.__version__)


async def test_progress_is_passed_on_and_so_is_cancellation(crib: Crib) -> None:
    mount(crib, "good", GOOD, out="out")
    async with opened(crib) as project:
        heard: list[CallEvent] = []
        result = await project.call("good__slow", {"seconds": 0.05}, on_event=heard.append)
        assert result.unwrap() == {"result": "done"}
        assert [(event.kind, event.done, event.total, event.message) for event in heard[1:-1]] == [
            ("progress", 1.0, 2.0, "half")
        ]
        for limit_ms in GROWING_MS:
            heard.clear()
            late = await project.call(
                "good__slow", {"seconds": 600}, timeout_ms=limit_ms, on_event=heard.append
            )
            if any(event.kind == "progress" for event in heard):
                break
        else:
            raise AssertionError("no limit is long enough")
        assert f"{limit_ms} ms" in failed(late, "timed_out")
        await until((crib.root / "out" / "cancelled").exists)
        assert (await project.call("good__add", {"a": 1, "b": 1})).unwrap() == {"result": 2}
        assert server(project, "good").server.starts == 1


async def test_one_that_dies_in_a_call_fails_that_call_and_comes_back(crib: Crib) -> None:
    mount(crib, "good", GOOD)
    async with opened(crib) as project:
        error = (await project.call("good__die")).error
        assert error is not None
        assert "ended before it answered" in error.message
        assert (await project.call("good__add", {"a": 2, "b": 2})).unwrap() == {"result": 4}
        mounted = server(project, "good")
        assert mounted.server.starts == 2
        assert "dying now" in mounted.server.stderr
        assert [tool for tool in mounted.tools.values() if tool not in project.toolset.names] == []


async def test_one_that_crashes_at_start_is_shown_with_its_stderr_and_delays_nobody(crib: Crib) -> None:
    crib.shell("sh")
    mount(crib, "bad", "import sys; sys.exit('no licence found')")
    mount(crib, "hang", "import time; time.sleep(600)", start_timeout_s=600)
    mount(crib, "slow", "import time; time.sleep(600)", start_timeout_s=1)
    mount(crib, "noise", "print('Welcome!'); import sys; sys.exit(0)")
    mount(crib, "none", "", command="no-such-program")
    mount(crib, "raw", RAW + "\nmain()")
    async with crib.open() as project:
        assert project.servers is not None
        project.servers.start()
        assert [tool.name for tool in project.tools()] == ["sh"]  # nobody waits for the one that hangs
        assert (await project.call("sh", {"c": "echo hi"})).unwrap() == "hi\n"
        assert (await project.call("raw__hello")).unwrap() == "hello"
        await until(lambda: all(server(project, n).server.error for n in ("bad", "noise", "none", "slow")))
        bad = server(project, "bad").as_dict()
        assert bad["state"] in ("waiting", "starting")
        assert "no licence found" in bad["stderr"]
        assert "no licence found" in bad["error"]["message"]
        assert "exit code 1" in bad["error"]["message"]
        assert "Welcome!" in server(project, "noise").as_dict()["error"]["message"]
        assert "no-such-program: not found" in server(project, "none").as_dict()["error"]["message"]
        assert "within 1 s" in server(project, "slow").as_dict()["error"]["message"]
        assert "no licence found" in failed(await project.call("bad__x"), "tool_unavailable")
        assert server(project, "raw").as_dict()["protocol"] == "2025-11-25"


@pytest.mark.parametrize("end", ["\\n", ""])
async def test_what_a_server_wrote_is_masked_before_it_is_cut(crib: Crib, end: str) -> None:
    crib.secrets = {"KEY": "sk-live-4711-abcdefghijklmnopqrstuvwxyz"}
    code = f"""
        import os, sys, time
        key = os.environ["KEY"]
        print("w" * 190 + key, flush=True)
        # Of 64 KiB what is kept begins within the first; within the second the last 2,000 characters do.
        sys.stderr.write(key + "{end}" + "x" * (65_500 - 1_998) + key + "y" * 1_980)
    """
    mount(crib, "leaky", textwrap.dedent(code), env={"KEY": "${KEY}"})
    async with crib.open() as project:
        assert project.servers is not None
        await project.servers.ready(100)
        await until(lambda: server(project, "leaky").server.error)
        shown = json.dumps(server(project, "leaky").as_dict())
        shown += json.dumps((await project.call("leaky__x")).as_dict())
    assert "y" * 1_980 in shown
    assert "w" * 190 in shown
    assert not [n for n in range(34) if crib.secrets["KEY"][n : n + 6] in shown]


async def test_a_flood_on_stderr_and_rubbish_on_stdout_do_no_harm(crib: Crib) -> None:
    flood = RAW + textwrap.dedent("""
        import threading
        def flood():
            for _ in range(2000):
                sys.stderr.write("x" * 10_000 + "\\n")
        def called(message):
            flood()
            print("not a message")
            print('{"jsonrpc": "2.0", "id": 999999, "result": {}}')
            return {"content": [{"type": "text", "text": "still here"}]}
        main()
    """)
    mount(crib, "flood", flood)
    async with opened(crib) as project:
        for _ in range(3):
            assert (await project.call("flood__hello")).unwrap() == "still here"
        assert len(server(project, "flood").server.stderr) <= 65_536


@pytest.mark.parametrize(
    ("written", "reason"),
    [
        ('"x" * 1_000_000', "16 MiB"),
        (
            'json.dumps({"jsonrpc": "2.0", "id": "x" * 500_000, "method": "ping"}) + "\\n"',
            "does not take the answers",
        ),
    ],
)
async def test_endless_output_ends_the_server_not_us(crib: Crib, written: str, reason: str) -> None:
    endless = RAW + textwrap.dedent(f"""
        def called(message):
            while True:
                sys.stdout.write({written})
        main()
    """)
    mount(crib, "endless", endless)
    async with opened(crib) as project:
        assert "ended before it answered" in failed(await project.call("endless__hello"), "tool_failed")
        await until(lambda: server(project, "endless").server.error)
        assert reason in str(server(project, "endless").server.error)


async def test_a_changed_list_is_followed_where_changes_are_asked_for(crib: Crib) -> None:
    mount(crib, "good", GOOD)
    async with opened(crib) as project:
        assert server(project, "good").as_dict()["protocol"] == "2026-07-28"
        assert (await project.call("good__grow")).unwrap() == {"result": "grown"}
        await until(lambda: "good__more" in project.toolset.names)


async def test_an_error_instead_of_a_changed_list_leaves_the_last_one(crib: Crib) -> None:
    failing = RAW + textwrap.dedent("""
        lists = 0
        def definitions():
            global lists
            lists += 1
            # The second list is no list, an error of the client; the third has another tool.
            return "none" if lists == 2 else [dict(DEFINITIONS[0], name=f"hello{lists}")]
        def called(message):
            send({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
            return {"content": [{"type": "text", "text": "hello"}]}
        main()
    """)
    mount(crib, "failing", failing)
    async with opened(crib) as project:
        assert (await project.call("failing__hello1")).unwrap() == "hello"
        await until(lambda: server(project, "failing").server.error)
        shown = server(project, "failing").as_dict()
        assert "did not list its changed tools" in shown["error"]["message"]
        assert (shown["state"], shown["tools"], shown["starts"]) == ("ready", ["failing__hello1"], 1)
        await until(lambda: "failing__hello3" in project.toolset.names)
        assert server(project, "failing").server.error is None


async def test_a_changed_list_is_followed_in_a_session(crib: Crib) -> None:
    changing = RAW + textwrap.dedent("""
        count = 1
        def definitions():
            return [dict(DEFINITIONS[0], name=f"hello{n}") for n in range(count)]
        def called(message):
            global count
            count += 1
            send({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
            return {"content": [{"type": "text", "text": "changed"}]}
        main()
    """)
    mount(crib, "raw", changing)
    crib.accept = "trusted"
    async with opened(crib) as project:
        project.trust.accept("ann", more=[server(project, "raw").row()])
        before = project.revision
        assert (await project.call("raw__hello0")).unwrap() == "changed"
        await until(lambda: "raw__hello1" in project.toolset.names)
        assert project.revision > before
        # Nobody has trusted the new one: it waits, though what came first did not.
        assert "nobody has trusted it" in failed(await project.call("raw__hello1"), "approval_required")


async def test_a_server_that_announces_changes_without_end_is_listed_a_part_of_the_time(crib: Crib) -> None:
    restless = RAW + textwrap.dedent("""
        def definitions():
            open("lists.txt", "a").write(f"{time.monotonic()}\\n")
            send({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
            time.sleep(0.02)
            return DEFINITIONS
        main()
    """)
    mount(crib, "raw", restless, out="out")
    lists = crib.root / "out" / "lists.txt"
    async with opened(crib):
        await until(lambda: len(lists.read_text().splitlines()) > 6)
    times = [float(line) for line in lists.read_text().splitlines()]
    # Five lists have four pauses between them; load only makes them longer.
    assert times[6] - times[1] > 4 * 9 * 0.02


async def test_what_is_no_text_and_no_structure_comes_as_json(crib: Crib) -> None:
    picture = RAW + textwrap.dedent("""
        def called(message):
            return {"content": [{"type": "text", "text": "see"},
                                {"type": "image", "data": "AAAA", "mimeType": "image/png"}]}
        main()
    """)
    mount(crib, "raw", picture)
    async with opened(crib) as project:
        result = await project.call("raw__hello")
        assert result.unwrap()["content"][1] == {"type": "image", "data": "AAAA", "mimeType": "image/png"}
        assert [block["type"] for block in result.blocks] == ["text", "image"]


async def test_a_result_that_takes_for_ever_to_check_is_not_checked_to_its_end(crib: Crib) -> None:
    hostile = RAW + textwrap.dedent("""
        def definitions():
            link = {"properties": {"a": {"$ref": "#/$defs/n"}}}
            many = {"$ref": "#/$defs/n", "$defs": {"n": {"allOf": [link, link], "type": "object"}}}
            slow = {"properties": {"a": {"type": "string", "pattern": "^(a+)+$"}}}
            return [dict(DEFINITIONS[0], name=name, outputSchema={"type": "object", **schema})
                    for name, schema in (("many", many), ("slow", slow))]

        def called(message):
            value = {"a": "a" * 60 + "b"}
            for _ in range(60 if message["params"]["name"] == "many" else 0):
                value = {"a": value}
            return {"content": [], "structuredContent": value}

        main()
    """)
    mount(crib, "raw", hostile)
    async with opened(crib) as project:
        for name, why in (("many", "references multiply"), ("slow", "does not match")):
            assert why in (await project.call(f"raw__{name}")).warnings[0]


async def test_what_a_server_asks_of_its_client_is_refused(crib: Crib) -> None:
    asking = RAW + textwrap.dedent("""
        def called(message):
            told = []
            for method in ("sampling/createMessage", "elicitation/create", "roots/list"):
                send({"jsonrpc": "2.0", "id": method, "method": method, "params": {
                    "messages": [], "maxTokens": 1, "message": "?", "requestedSchema": {
                        "type": "object", "properties": {}}}})
                told.append("error" in json.loads(sys.stdin.readline()))
            return {"content": [{"type": "text", "text": str(told)}]}
        main()
    """)
    mount(crib, "raw", asking)
    async with opened(crib) as project:
        assert (await project.call("raw__hello")).unwrap() == "[True, True, True]"


async def test_the_end_of_the_project_ends_the_process(crib: Crib) -> None:
    stubborn = RAW + textwrap.dedent("""
        import signal, subprocess
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        open("beat.txt", "w").close()
        subprocess.Popen([sys.executable, "-c",
            "import time\\nwhile True: open('beat.txt', 'a').write('x'); time.sleep(0.02)"])
        try:
            main()
        finally:
            time.sleep(600)
    """)
    mount(crib, "raw", stubborn, out="out")
    beat = crib.root / "out" / "beat.txt"
    async with opened(crib) as project:
        assert (await project.call("raw__hello")).unwrap() == "hello"
        await until(lambda: beat.stat().st_size > 2)
    size = beat.stat().st_size
    await asyncio.sleep(0.3)
    assert beat.stat().st_size == size


async def test_kill_9_of_ours_leaves_no_server(crib: Crib) -> None:
    beating = RAW + textwrap.dedent("""
        import threading
        def beat():
            while True:
                open("beat.txt", "a").write("x")
                time.sleep(0.02)
        threading.Thread(target=beat, daemon=True).start()
        main()
    """)
    mount(crib, "raw", beating, out="out")
    code = f"""
        import asyncio
        from toolcrib.project import Project
        async def main():
            async with Project.open({str(crib.root)!r}, accept="all") as project:
                await project.servers.ready(60)
                print((await project.call("raw__hello")).unwrap(), flush=True)
                await asyncio.sleep(600)
        asyncio.run(main())
    """
    ours = await asyncio.to_thread(begun, textwrap.dedent(code))
    try:
        assert ours.stdout is not None
        assert await asyncio.to_thread(ours.stdout.readline) == b"hello\n"
        beat = crib.root / "out" / "beat.txt"
        await until(lambda: beat.exists() and beat.stat().st_size > 2)
        os.kill(ours.pid, signal.SIGKILL)
        await asyncio.to_thread(ours.wait)

        def stopped() -> bool:
            size = beat.stat().st_size
            time.sleep(0.2)
            return beat.stat().st_size == size

        await until(stopped)
    finally:
        ours.kill()
        ours.wait()
        assert ours.stdout is not None
        ours.stdout.close()


async def test_nothing_is_started_without_trust(crib: Crib) -> None:
    mount(crib, "raw", "open('started', 'w')")
    crib.write(".toolcrib/config.yml", crib.home.joinpath("config.yml").read_bytes() + b" ")
    async with crib.open() as project:
        assert project.servers is not None
        project.servers.start()
        await project.servers.ready(patient(5))
        assert server(project, "raw").as_dict()["state"] == "not trusted"
        error = (await project.call("raw__hello")).error
        assert error is not None
        assert error.code == "not_trusted"
        assert "toolcrib trust" in (error.hint or "")
        assert [weak.name for weak in project.waiting] == ["mcp_servers"]
        with pytest.raises(NotTrusted):
            await project.servers.login("raw", print)
    assert not (crib.root / "started").exists()


async def test_a_server_with_a_secret_on_its_command_line_is_not_started(crib: Crib) -> None:
    from toolcrib.project import find, load_config
    from toolcrib.project.authoring.lint import lint_sources

    crib.secrets = {"KEY": "s3cr3t-value"}
    raw = {"command": sys.executable, "args": ["raw.py", "--token=${KEY}"]}
    crib.write(".mcp.json", json.dumps({"mcpServers": {"raw": raw}}))
    trust(crib.root)
    async with opened(crib) as project:
        assert project.servers is not None
        assert project.servers.mounted == {}
        assert "secret KEY cannot be used in `args`" in project.servers.wrong[".mcp.json raw"]
        told = failed(await project.call("raw__hello"), "tool_unavailable")
        assert "set it in `env`" in told
    place = find(crib.root)
    (found,) = lint_sources(load_config(place.config, place.root), place)
    assert found.is_error
    assert found.render().startswith(f"{crib.root}/.mcp.json:1:17: error[wrong-value]: raw: the secret KEY")
    crib.write(".toolcrib/config.yml", json.dumps({"mcp_servers": {"raw": raw}}))
    with pytest.raises(ConfigError, match="the secret KEY cannot be used in `args`"):
        crib.open()


async def test_an_mcp_json_counts_once_trusted_and_its_change_voids_that(crib: Crib) -> None:
    crib.write("raw.py", RAW + "\nmain()")
    entry = {"type": "stdio", "command": sys.executable, "args": ["${HERE:-raw.py}"], "alwaysAllow": []}
    text = json.dumps({"mcpServers": {"raw": entry, "no name": entry}})
    crib.write(".mcp.json", text)
    permissions = {"fs": {"read": [".", sys.prefix, sys.base_prefix]}, "env": ["HERE"]}
    crib.write(
        ".toolcrib/config.yml",
        json.dumps({"mcp_servers": {"raw": {"permissions": permissions}}}),
    )
    async with crib.open() as project:
        assert {weak.name for weak in project.waiting} == {".mcp.json", "mcp_servers"}
    trust(crib.root)
    async with opened(crib) as project:
        assert project.servers is not None
        assert (await project.call("raw__hello")).unwrap() == "hello"
        assert list(project.servers.wrong) == [".mcp.json no name"]
    crib.write(".mcp.json", text + "\n")
    async with crib.open() as project:
        assert project.waiting != []
        assert "raw__hello" not in project.toolset.names
