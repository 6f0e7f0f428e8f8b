"""What goes wrong in a project, at the Python door: a clear error, a mend, one line in the audit log."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.crib import SH, Crib, failed
from toolcrib import Project, ToolcribError

FINE: dict[str, Any] = {"action": "read", "path": "f"}


@pytest.fixture
def mixed(crib: Crib) -> Crib:
    """A project with one tool that works."""
    crib.write("f", "content")
    crib.tool("fine", "file", FINE, {"n": {"type": "integer"}}, permissions={"fs": {"read": ["f"]}})
    return crib


@contextmanager
def opened(crib: Crib) -> Iterator[Project]:
    """The project, closed at the end without a call."""
    project = crib.open()
    try:
        yield project
    finally:
        asyncio.run(project.aclose())


def refused(crib: Crib, tool: str, arguments: Any, code: str) -> str:
    """The message of a call that is refused: with a mend, an exit code, and exactly one audit line."""
    before = len(crib.audit())
    result = crib.call(tool, arguments)
    message = failed(result, code)
    error = result.error
    assert error is not None
    assert error.hint or error.violations
    assert error.exit_code > 1 or error.status == 503
    assert len(crib.audit()) == before + 1
    assert (crib.last().event, crib.last().fields["code"]) == ("TOOL_REFUSED", code)
    return message


def test_a_schema_that_is_none_spoils_its_own_tool_only(mixed: Crib) -> None:
    for number, wrong in enumerate(({"x": {"type": [{}]}}, [{"x": 1}], {"x": []})):
        config = {"entrypoint": "psql", "args": ["-c", "${x}"]}
        mixed.tool(f"bad{number}", "command", config, schema={"type": "object", "properties": wrong})
    with opened(mixed) as project:
        assert "fine" in project.toolset.names
    assert mixed.call("fine").ok
    assert not mixed.call("bad0", {"x": "select 1"}).ok


def test_an_unknown_tool(mixed: Crib) -> None:
    result = mixed.call("fime")
    assert "'fime'" in refused(mixed, "fime", {}, "tool_not_found")
    assert result.error is not None
    assert "fine" in (result.error.hint or "")
    for name in ("", "../fine", "fine/..", "a\0b", "x" * 100_000, "\ud800"):
        refused(mixed, name, {}, "tool_not_found")


def test_unknown_arguments_and_wrong_types_are_all_named(mixed: Crib) -> None:
    result = mixed.call("fine", {"n": "x", "m": 1})
    assert result.error is not None
    assert {violation.path for violation in result.error.violations} == {"$.n", "$.m"}
    assert mixed.call("fine", {"n": None}).value == "content"  # As models leave an argument out.
    for arguments in ({"n": "x"}, {"m": 1}, b"[1]", b"nonsense", '{"n": 1, "n": 2}'):
        refused(mixed, "fine", arguments, "invalid_input")


@pytest.mark.parametrize(
    "arguments",
    [{"n": 2**70}, {"n": {1, 2}}, {"n": object()}, {1: 2}, {"n": "\ud800"}, {"n": b"\xff"}, [1], 5],
)
def test_arguments_that_are_no_json_are_refused_and_recorded(mixed: Crib, arguments: Any) -> None:
    result = mixed.call("fine", arguments)
    assert result.error is not None
    assert result.error.code in ("invalid_input", "tool_failed")
    assert [entry.event for entry in mixed.audit()] == ["TOOL_REFUSED"]


def broken(text: str | bytes, rule: str, told: str = "") -> Any:
    return pytest.param(text, rule, told, id=rule)


@pytest.mark.parametrize(
    ("text", "rule", "told"),
    [
        broken("- a\n- b\n", "not-a-mapping", "a list"),
        broken("", "not-a-mapping", "empty"),
        broken("[" * 200_000, "yaml-depth"),
        broken("name: bad\ndescription: 'never clo", "yaml-syntax"),
        broken("name: bad\ndescription: D.\nkind: file\nversion: 1\n", "missing-key"),
        broken(b"name: \xff\n", "encoding"),
        broken("name: bad\nname: bad\n", "yaml-duplicate-key", "twice"),
        broken("name: x\ndescription: D.\nkind: file\nversion: 1\nexec: {file: {action: read, path: f}}\n",
               "name-folder"),
    ],
)  # fmt: skip
def test_a_bad_manifest_is_told_and_hides_no_other(
    mixed: Crib, text: str | bytes, rule: str, told: str
) -> None:
    mixed.write(".toolcrib/tools/bad/tool.yml", text)
    with opened(mixed) as project:
        assert [tool.name for tool in project.tools()] == ["fine"]
        (finding,) = [found for found in project.diagnostics if found.rule == rule]
        with pytest.raises(ToolcribError) as caught:
            project.get("bad")
    assert caught.value.exit_code == 4
    assert told in finding.message
    assert f"tools/bad/tool.yml:{finding.line}:{finding.column}: error[{rule}]" in refused(
        mixed, "bad", {}, "invalid_manifest"
    )
    assert mixed.call("fine").value == "content"


def test_a_manifest_that_is_no_file(mixed: Crib) -> None:
    (mixed.home / "tools/bad/tool.yml").mkdir(parents=True)
    refused(mixed, "bad", {}, "invalid_manifest")
    (mixed.home / "tools/gone").mkdir()
    (mixed.home / "tools/gone/tool.yml").symlink_to("nowhere")
    refused(mixed, "gone", {}, "invalid_manifest")
    assert mixed.call("fine").value == "content"


def test_a_tool_with_a_finding_that_only_the_full_check_makes(mixed: Crib) -> None:
    mixed.tool("late", "file", {"action": "read", "path": "${gone}"}, permissions={"fs": {"read": ["f"]}})
    assert "placeholder" in refused(mixed, "late", {}, "invalid_manifest")

    async def by_the_toolset() -> None:
        async with mixed.open() as project:
            failed(await project.toolset.call("late", {}), "invalid_manifest")

    asyncio.run(by_the_toolset())


def test_two_tools_of_one_name(mixed: Crib) -> None:
    (mixed.home / "tools/copy").mkdir()
    (mixed.home / "tools/copy/tool.yml").write_bytes((mixed.home / "tools/fine/tool.yml").read_bytes())
    assert "`fine`, but the folder is `copy`" in refused(mixed, "copy", {}, "invalid_manifest")
    assert mixed.call("fine").value == "content"
    with opened(mixed) as project, pytest.raises(ToolcribError) as caught:
        project.toolset.register("fine", lambda: 1)
    assert caught.value.code == "conflict"


def test_a_missing_secret_and_a_missing_grant(mixed: Crib) -> None:
    mixed.tool("secret", "file", FINE, permissions={"fs": {"read": ["f"]}, "secrets": {"TOKEN": {}}})
    assert "TOKEN" in refused(mixed, "secret", {}, "secret_missing")
    mixed.tool("grant", "file", FINE, permissions={"fs": {"read": ["gone"]}})
    assert "'gone'" in refused(mixed, "grant", {}, "tool_unavailable")


def test_an_approval_nobody_gave(mixed: Crib) -> None:
    asks = {"required": True, "reason": "it reads"}
    mixed.tool("asks", "file", FINE, approval=asks, permissions={"fs": {"read": ["f"]}})
    assert "it reads" in refused(mixed, "asks", {}, "approval_required")
    assert mixed.call("asks", approved_by="ann").value == "content"
    approved, executed = mixed.audit()[-2:]
    assert approved.event == "TOOL_APPROVED"
    assert approved.fields == {
        "name": "asks",
        "approver": "ann",
        "caller": "local",
        "channel": "program",
    }
    assert executed.event == "TOOL_EXECUTED"


def stuttering_server(answer: bytes) -> int:
    """A server that sends part of an answer to each request and then nothing; gives its port."""
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        held = []
        while True:
            connection, _ = listening.accept()
            connection.recv(65_536)
            connection.sendall(answer)
            held.append(connection)

    threading.Thread(target=serve, daemon=True).start()
    port: int = listening.getsockname()[1]
    return port


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_server_that_stops_in_the_middle(mixed: Crib) -> None:
    for number, answer in enumerate(
        (
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n[1,",
            b"HTTP/1.1 2",
            b"",
        )
    ):
        port = stuttering_server(answer)
        mixed.tool(
            f"http{number}",
            "http",
            {"url": f"http://127.0.0.1:{port}/", "timeout_ms": 400},
            permissions={"network": {"allow": [f"127.0.0.1:{port}"]}},
        )
        message = failed(mixed.call(f"http{number}"), "timed_out")
        assert "400 ms" in message
        assert mixed.last().event == "TOOL_EXECUTED"


def test_settings_that_are_wrong_keep_the_project_closed(mixed: Crib) -> None:
    mixed.write(".toolcrib/config.yml", "limits: {timeout: 5}\nretry: {max_attempts: 0}\n")
    with pytest.raises(ToolcribError) as caught:
        mixed.open()
    assert (caught.value.code, caught.value.exit_code) == ("invalid_config", 4)
    assert [violation.path for violation in caught.value.violations] == [
        "$.limits.timeout",
        "$.retry.max_attempts",
    ]


@pytest.mark.usefixtures("kernel")
def test_thirty_confined_calls_at_once(crib: Crib) -> None:
    crib.shell()

    async def together() -> list[Any]:
        async with crib.open() as project:
            return list(await asyncio.gather(*(project.call("sh", {"c": f"echo {n}"}) for n in range(30))))

    assert [result.value for result in asyncio.run(together())] == [f"{n}\n" for n in range(30)]
    assert sorted(entry.seq for entry in crib.audit_lines()) == list(range(1, 61))


@pytest.mark.usefixtures("kernel")
def test_a_cancelled_call_leaves_nothing_and_is_recorded(crib: Crib) -> None:
    crib.tool(
        "sh",
        "command",
        {"entrypoint": "sh", "args": ["-c", "${c}"], "allow_code": True},
        SH,
        outputs={"format": "text"},
    )

    async def cancelled() -> None:
        async with crib.open() as project:
            call = asyncio.ensure_future(project.call("sh", {"c": "sleep 6000"}, timeout_ms=6_000_000))
            await asyncio.sleep(0.3)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call

    asyncio.run(cancelled())
    assert (crib.last().event, crib.last().fields["code"]) == ("TOOL_EXECUTED", "cancelled")
