"""Five walks through the package: how many calls, functions, files and moves between files each one takes.

    python -m benchmarks.walks            # a table
    python -m benchmarks.walks NAME       # one walk, and its files in the order in which they are entered

Only what runs in the process of the walk is seen, not the confined programs that it starts. Of a server it is
one warm call; of `run app.py` the whole process from its start.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Awaitable, Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import toolcrib

PACKAGE = f"{Path(toolcrib.__file__).parent}/"
WARM = 3
APP = '''
from toolcrib import Toolset

tools = Toolset()

@tools.tool
def add(a: int, b: int) -> int:
    """Add two whole numbers."""
    return a + b
'''
RECORD = {
    "displayName": "Hello",
    "description": "Say hello.",
    "type": "http",
    "argSchema": {"type": "object", "properties": {"name": {"type": "string"}}},
    "impl": {"urlTemplate": "https://api.example.com/hello?name=${name}", "method": "GET"},
}


class Walk:
    """Collects what the package runs, in all threads that start after this."""

    def __init__(self) -> None:
        self.steps: list[tuple[str, str]] = []
        self._ended = False
        threading.setprofile(self.note)
        sys.setprofile(self.note)

    def note(self, frame: Any, event: str, _arg: object) -> None:
        """Keep the file and the name of a function of the package that is entered."""
        name = frame.f_code.co_filename
        if event == "call" and name.startswith(PACKAGE) and not self._ended:
            self.steps.append((name.removeprefix(PACKAGE), frame.f_code.co_name))

    async def of(self, once: Callable[[], Awaitable[object]]) -> None:
        """Walk once, after the calls that warm it up."""
        for _ in range(WARM):
            await once()
        self.steps.clear()
        await once()
        self.stop()

    def stop(self) -> None:
        """Keep the steps so far; what follows, also in other threads, does not count."""
        self._ended = True
        sys.setprofile(None)


async def in_process(walk: Walk, _folder: Path) -> None:
    """A function of a toolset."""
    from toolcrib import Toolset

    tools = Toolset()
    tools.register(_add)
    await walk.of(lambda: tools.call("_add", {"a": 1, "b": 2}))


async def durable(walk: Walk, folder: Path) -> None:
    """Submit a call of a function, and wait until this process has run it."""
    from toolcrib import Project

    async with Project.open(folder) as project:
        project.toolset.register("add", _add)
        project.calls.serve()

        async def once() -> None:
            call = await project.calls.wait(project.calls.submit("add", {"a": 1, "b": 2}), 30)
            assert call.outcome().unwrap() == 3

        await walk.of(once)


async def rest_put(walk: Walk, folder: Path) -> None:
    """Create a version of a tool over REST."""
    import httpx

    from toolcrib import Project
    from toolcrib.guard import Tokens
    from toolcrib.serve.rest import rest_app

    async with Project.open(folder) as project:
        token = Tokens(project.vault).create("walk", ["admin"], owner="walk")
        async with rest_app(project) as (app, _):
            headers = {"authorization": f"Bearer {token}"}
            transport = httpx.ASGITransport(app)
            async with httpx.AsyncClient(
                transport=transport, base_url="http://localhost:1", headers=headers
            ) as client:
                bundle = "/tools/bundles/01980000-0000-7000-8000-000000000001"
                made = await client.put(bundle, json={"slug": "walk", "displayName": "Walk"})
                assert made.is_success, made.text
                versions = iter(range(1, 100))

                async def once() -> None:
                    path = f"{bundle}/tools/hello/version/{next(versions)}"
                    answer = await client.put(path, json=RECORD)
                    assert answer.is_success, answer.text

                await walk.of(once)


async def mcp_command(walk: Walk, folder: Path) -> None:
    """A confined command, called over MCP on standard input and output."""
    from tests.crib import accept

    tool = folder / ".toolcrib/tools/hello"
    tool.mkdir(parents=True)
    manifest = {
        "name": "hello",
        "version": 1,
        "kind": "command",
        "description": "Say hello.",
        "outputs": {"format": "text"},
        "exec": {"command": {"entrypoint": "echo", "args": ["hello"]}},
    }
    (tool / "tool.yml").write_text(json.dumps(manifest))
    accept(folder, Path(os.environ["TOOLCRIB_DATA"]))
    words = [sys.executable, __file__, "--follow", "serve", "--stdio"]
    with subprocess.Popen(words, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:  # noqa: ASYNC220
        assert process.stdin is not None
        assert process.stdout is not None

        async def ask(method: str, params: dict[str, Any], id: int | None = 1) -> dict[str, Any]:  # noqa: A002
            message: dict[str, Any] = {"jsonrpc": "2.0", "method": method, "params": params}
            message |= {} if id is None else {"id": id}
            process.stdin.write(json.dumps(message).encode() + b"\n")  # type: ignore[union-attr]
            process.stdin.flush()  # type: ignore[union-attr]
            while id is not None:
                found: dict[str, Any] = json.loads(process.stdout.readline())  # type: ignore[union-attr]
                if found.get("id") == id:
                    return found
            return {}

        client = {"name": "walk", "version": "1"}
        await ask("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client})
        await ask("notifications/initialized", {}, None)
        for number in range(WARM + 1):
            process.send_signal(signal.SIGUSR1)
            answer = await ask("tools/call", {"name": "hello", "arguments": {}}, number + 2)
            assert answer["result"]["content"][0]["text"].strip() == "hello", answer
        process.send_signal(signal.SIGUSR2)  # How the server ends is no part of the call.
        process.stdin.close()
    walk.steps = _followed(folder)


async def run_file(walk: Walk, folder: Path) -> None:
    """`toolcrib run app.py add`, from the start of the process."""
    (folder / "app.py").write_text(APP)
    words = [sys.executable, __file__, "--follow", "run", "app.py", "add", "a=1", "b=2"]
    for _ in range(2):
        done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=True)  # noqa: ASYNC221
        assert done.stdout.strip() == "3", done
    walk.steps = _followed(folder)


WALKS = {
    "in-process": in_process,
    "MCP command by stdio": mcp_command,
    "REST PUT": rest_put,
    "durable": durable,
    "run app.py": run_file,
}


def _add(a: int, b: int) -> int:
    """Add two whole numbers."""
    return a + b


def _followed(folder: Path) -> list[tuple[str, str]]:
    return [(file, name) for file, name in json.loads((folder / "walk.json").read_text())]


def follow(words: list[str]) -> None:
    """Run the command line with these words; write what it entered to walk.json when it ends.

    SIGUSR1 forgets what was entered before, SIGUSR2 what is entered from now on.
    """
    import atexit

    file = Path("walk.json").absolute()
    walk = Walk()
    atexit.register(lambda: file.write_text(json.dumps(walk.steps)))
    signal.signal(signal.SIGUSR1, lambda *_: walk.steps.clear())
    signal.signal(signal.SIGUSR2, lambda *_: walk.stop())
    from toolcrib.cli import main

    sys.argv = ["toolcrib", *words]
    main()


def measure(name: str) -> list[tuple[str, str]]:
    """Return the steps of a walk, each its file and function."""
    walk = Walk()
    with tempfile.TemporaryDirectory(prefix="walk-") as text:
        folder = Path(text)
        os.environ["TOOLCRIB_DATA"] = str(folder / "data")
        os.environ.pop("DATABASE_URL", None)
        (folder / "project/.toolcrib").mkdir(parents=True)
        asyncio.run(WALKS[name](walk, folder / "project"))
    return walk.steps


def main() -> None:
    """Print the table, or one walk."""
    chosen = sys.argv[1:] or [*WALKS]
    print("| walk | calls | functions | files | moves between files |\n|---|---|---|---|---|")
    for name in chosen:
        steps = measure(name)
        moves = sum(one[0] != two[0] for one, two in pairwise(steps))
        files = dict.fromkeys(file for file, _ in steps)
        print(f"| {name} | {len(steps)} | {len(set(steps))} | {len(files)} | {moves} |")
        if sys.argv[1:]:
            print("\n".join(files))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--follow"]:
        follow(sys.argv[2:])
    else:
        main()
