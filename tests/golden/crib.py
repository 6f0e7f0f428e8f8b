"""A project folder of the golden tests, the commands run in it, and its MCP server."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.commands import PROGRAM, CommandServer, Forked, accept_before
from tests.golden.normal import Normal

ROOT = Path(__file__).parents[2]
LIMIT_S = 100
CHANGED = "notifications/tools/list_changed"
EPOCH = 1_700_000_000
KEPT = ("PATH", "HOME", "USER", "LOGNAME", "TOOLCRIB_CONFIG")
"""Variables of this machine that commands get."""


class GoldenCrib:
    """A project in a folder of its own, with a user's data and cache beside it."""

    def __init__(self, tmp_path: Path, server: CommandServer | None = None) -> None:
        # Its folder has a name that no text of the product holds.
        self.root = tmp_path.resolve() / "goldenproject"
        self.root.mkdir()
        self.server = server
        self.normal = Normal()
        for name in ("data", "cache"):
            self.normal.place(tmp_path.resolve() / name, f"<{name}>")
        self.normal.place(self.root, "<root>")
        self.normal.place(tmp_path.resolve(), "<tmp>")
        self.env = {name: os.environ[name] for name in KEPT if name in os.environ} | {
            "LANG": "C.UTF-8",
            "TERM": "xterm",
            "TOOLCRIB_DATA": str(tmp_path.resolve() / "data"),
            "TOOLCRIB_CACHE": str(tmp_path.resolve() / "cache"),
        }

    def write(self, files: Mapping[str, str]) -> None:
        """Write files of the project, with their folders."""
        for age, (name, text) in enumerate(files.items()):
            file = self.root / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(text.encode("utf-8", "surrogateescape"))
            file.chmod(0o755 if name.endswith(".sh") else 0o644)
            # What changed last is found first: the order is that of the files here, on any file system.
            os.utime(file, (EPOCH + age, EPOCH + age))

    def raw(self, *words: str, stdin: bytes = b"", **env: str) -> tuple[int, str, str]:
        """Run a command, and give its exit status, output and errors as they are."""
        assert self.server is not None
        done = self.server.run(words, self.root, self.env | env, stdin)
        return done.returncode, done.stdout.decode(), done.stderr.decode()

    def json(self, *words: str) -> Any:
        """Give the document of a command that is needed for the next ones."""
        code, out, err = self.raw(*words, "--json")
        assert out, (words, code, err)
        return json.loads(out)

    def case(self, *words: str, stdin: bytes = b"", keep: bool = False, **env: str) -> dict[str, Any]:
        """Run a command and give what is kept of it. Text for people is kept by its codes only.

        `keep`: the text is data, as the value of a tool is.
        """
        code, out, err = self.raw(*words, stdin=stdin, **env)
        found: dict[str, Any] = {"call": self.normal.scrub(" ".join(words)), "exit": code}
        try:
            found["out"] = self.normal(json.loads(out))
        except ValueError:
            found["text"] = self.normal.scrub(out) if keep else bool(out)
        found["told"] = Normal.codes(err)
        return found

    def each(self, lines: str, *more: str) -> list[dict[str, Any]]:
        """Give a case for each line of words."""
        return [self.case(*line.split(), *more) for line in lines.strip().splitlines()]

    def events(self) -> list[dict[str, Any]]:
        """Give every event of the audit file with its fields, read by the documented form of a line."""
        log = self.root / ".toolcrib" / "audit" / "tools.log"
        return [self._event(line) for line in log.read_text(encoding="utf-8").splitlines()]

    def _event(self, line: str) -> dict[str, Any]:
        time, event, rest = line.split(" ", 2)
        fields: dict[str, Any] = {}
        decoder = json.JSONDecoder()
        while rest:
            key, _, rest = rest.partition("=")
            try:
                fields[key], end = decoder.raw_decode(rest)
            except ValueError:
                end = 0
            if end == 0 or rest[end : end + 1] not in ("", " "):
                end = (rest + " ").index(" ")
                fields[key] = rest[:end]
            rest = rest[end + 1 :]
        return {"time": self.normal.scrub(time), "event": event, "fields": self.normal(fields)}


@contextmanager
def mcp(crib: GoldenCrib, command: list[str] | None = None, **env: str) -> Iterator[Session]:
    """Start an MCP server, the project's own or another, and end it by closing its input."""
    if command is None:
        accept_before(["serve"], crib.root, crib.env | env)
    process = Forked(
        command or [PROGRAM, "serve", "--stdio", "--root", str(crib.root)],
        cwd=ROOT,
        env=crib.env | env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        yield Session(process, crib.normal)
    finally:
        process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0


class Session:
    """Bare lines to a server and back."""

    def __init__(self, process: Forked, normal: Normal) -> None:
        self.process = process
        self.normal = normal
        self.number = 0
        self.changes = 0

    def send(self, message: Any) -> None:
        """Send a message, or bytes as they are."""
        assert self.process.stdin is not None
        self.process.stdin.write(message if isinstance(message, bytes) else json.dumps(message).encode())
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()

    def read(self) -> Any:
        """Read one message."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the server has gone"
        return json.loads(line)

    def ask(self, method: str, params: Any = None) -> Any:
        """Send a request and give its answer as it is, without what came before it."""
        return self._answer(method, params)[-1]

    def case(self, method: str, params: Any = None) -> dict[str, Any]:
        """Send a request and give what is kept of its answer, and of what came before it."""
        *before, answer = self._answer(method, params)
        called = f"{method} {json.dumps(params, sort_keys=True)}" if params is not None else method
        found = {"call": self.normal.scrub(called), "answer": self.normal(answer)}
        return found | ({"before": self.normal(before)} if before else {})

    def bad(self, line: bytes) -> dict[str, Any]:
        """Send a line that is no request and give what is kept of its answer."""
        self.send(line)
        return {"line": line.decode(errors="replace")[:100], "answer": self.normal(self.read())}

    def _answer(self, method: str, params: Any) -> list[Any]:
        self.number += 1
        request = {"jsonrpc": "2.0", "id": self.number, "method": method}
        self.send(request if params is None else request | {"params": params})
        came = [self.read()]
        while came[-1].get("id") != self.number:
            came.append(self.read())
        # The news of a changed list comes when it comes, before an answer or after it.
        self.changes += sum(1 for one in came if one.get("method") == CHANGED)
        return [one for one in came if one.get("method") != CHANGED]

    def await_change(self) -> int:
        """Wait until a change of the list was told, and give how many were."""
        while not self.changes:
            message = self.read()
            assert message.get("method") == CHANGED, message
            self.changes += 1
        return self.changes
