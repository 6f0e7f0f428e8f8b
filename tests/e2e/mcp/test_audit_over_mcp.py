"""The audit log under real MCP servers: on a full disk, and eight at once with some killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from mcp import StdioServerParameters
from mcp.client import Client

from tests.commands import Forked
from tests.conftest import need
from tests.crib import Crib, accept
from tests.integration.sandbox.ground import eventually
from toolcrib.guard import ANCHOR
from toolcrib.guard.audit.check import verify
from toolcrib.state import Vault

SERVER = ["-m", "toolcrib", "serve", "--stdio", "--root"]
ON_SMALL_DISK = """
mount -t tmpfs -o size=64k none "$1/.toolcrib/audit" || exit 9
(
    while ! test -e "$1/fill"; do sleep 0.02; done
    cat /dev/zero >"$1/.toolcrib/audit/ballast" 2>"$1/errors"; touch "$1/full"
    while ! test -e "$1/free"; do sleep 0.02; done
    rm "$1/.toolcrib/audit/ballast"; touch "$1/freed"
) </dev/null >/dev/null &
exec "$2" -m toolcrib serve --stdio --root "$1"
"""


@pytest.fixture
def writer(crib: Crib) -> Crib:
    """A tool that makes a file, without a sandbox of its own; the project is accepted."""
    (crib.root / "marks").mkdir()
    properties = {"text": {"type": "string"}}
    config = {"action": "write", "path": "marks/${text}", "content": "x"}
    crib.tool("mark", "file", config, properties, permissions={"fs": {"write": ["marks"]}})
    accept(crib.root)
    return crib


def marks(crib: Crib) -> set[str]:
    return {file.name for file in (crib.root / "marks").iterdir()}


def step(crib: Crib, asked: str, done: str) -> None:
    (crib.root / asked).touch()
    assert eventually((crib.root / done).exists)


UNSHARE = ["unshare", "--user", "--map-root-user", "--mount"]


@pytest.fixture(scope="module")
def mounts() -> None:
    need("mounts in a user namespace", subprocess.run([*UNSHARE, "true"], check=False).returncode == 0)


@pytest.mark.usefixtures("mounts")
async def test_on_a_full_disk_a_call_is_refused_before_it_runs(writer: Crib) -> None:
    (writer.home / "audit").mkdir(exist_ok=True)
    command = [*UNSHARE, "sh", "-c", ON_SMALL_DISK, "sh", str(writer.root), sys.executable]
    # In the namespace of an ordinary user the folder of the tests' own settings is nobody's.
    env = {**os.environ, "XDG_CONFIG_HOME": str(writer.root)}
    del env["TOOLCRIB_CONFIG"]
    server = StdioServerParameters(command=command[0], args=command[1:], env=env)
    async with Client(server) as client:
        assert not (await client.call_tool("mark", {"text": "before"})).is_error
        step(writer, "fill", "full")
        done = {"before"}
        for number in range(100):  # There may be room for a few lines in the last page of the log.
            answer = await client.call_tool("mark", {"text": f"call{number}"})
            if answer.is_error:
                error = (answer.structured_content or {})["error"]
                assert error["code"] == "audit_unavailable"
                # The room may have been enough for the line of its start and not for that of its end.
                if "mark ran" in error["message"]:
                    assert not error["retryable"]
                    done.add(f"call{number}")
                    refused = await client.call_tool("mark", {"text": "refused"})
                    assert "cannot be written" in (refused.structured_content or {})["error"]["message"]
                break
            done.add(f"call{number}")
        else:
            pytest.fail("the disk is full, and each of a hundred calls ran")
        assert marks(writer) == done
        step(writer, "free", "freed")
        assert not (await client.call_tool("mark", {"text": "after"})).is_error
    assert marks(writer) == {*done, "after"}


def call(number: int, text: str) -> bytes:
    params = {"name": "mark", "arguments": {"text": text}}
    return (
        json.dumps({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}).encode()
        + b"\n"
    )


def serve(crib: Crib, name: str, killed_after: int | None) -> list[str]:
    """Make 40 calls one after another in a server of their own; return the marks it acknowledged."""
    hello = {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": name, "version": "1"},
    }
    first = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello}
    command = [sys.executable, *SERVER, str(crib.root)]
    done: list[str] = []
    with Forked(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        ready = json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"}).encode() + b"\n"
        process.stdin.write(json.dumps(first).encode() + b"\n" + ready)
        process.stdin.flush()
        process.stdout.readline()
        for number in range(1, 41):
            process.stdin.write(call(number, f"{name}-{number}"))
            process.stdin.flush()
            if number == killed_after:
                process.kill()
                break
            answer: dict[str, Any] = {}
            while answer.get("id") != number:
                answer = json.loads(process.stdout.readline())
            assert not answer["result"].get("isError"), answer
            done.append(f"{name}-{number}")
        process.stdin.close()
    return done


def test_eight_servers_some_killed_leave_no_call_without_a_line(writer: Crib) -> None:
    killed = {f"w{n}": (17 + n if n >= 5 else None) for n in range(8)}
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda one: serve(writer, *one), killed.items()))
    writer.call("mark", {"text": "last"})
    lines = writer.audit_lines()
    starts = {line.seq: line.fields for line in lines if line.event == "TOOL_STARTED"}
    ends = Counter(line.fields["start"] for line in lines if "start" in line.fields)
    head: Path = Vault(writer.root).folder / ANCHOR
    verdict = verify(writer.home / "audit" / "tools.log", anchor=head)
    interrupted = [start.seq for start in verdict.interrupted]
    assert ends + Counter(interrupted) == Counter(starts.keys()), "each start has one end, or was interrupted"
    assert len(interrupted) <= 3
    acknowledged = {mark for done in found for mark in done}
    assert acknowledged <= marks(writer) <= {fields["params"]["text"] for fields in starts.values()}
    assert verdict.ok
