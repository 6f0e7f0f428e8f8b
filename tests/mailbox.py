"""A runner and an executor as Sympozium's guide describes them: they poll, and write files in place."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from typing import Any

from tests.patience import patient

_POLL_S = 0.15


def write_halves(path: Path, text: str, pause_s: float = 0.0) -> None:
    """Write a file in place and in two steps, without a rename."""
    with path.open("w") as file:
        file.write(text[: len(text) // 2])
        file.flush()
        time.sleep(pause_s)
        file.write(text[len(text) // 2 :])


class Runner:
    """Puts a request there, polls for its result, and removes both."""

    def __init__(self, ipc: Path, folder: str = "tools", prefix: str = "exec-") -> None:
        self.folder = ipc / folder
        self.folder.mkdir(parents=True, exist_ok=True)
        self._prefix = prefix

    def put(self, name: str, **request: Any) -> None:
        write_halves(self.folder / f"{self._prefix}request-{name}.json", json.dumps({"id": name, **request}))

    def answer(self, name: str, seconds: float = 15.0, *, poll_s: float = 0.01) -> dict[str, Any]:
        """Return the result; the request and it are removed."""
        request, result = (self.folder / f"{self._prefix}{one}-{name}.json" for one in ("request", "result"))
        until = time.monotonic() + patient(seconds)
        while time.monotonic() < until:
            try:
                found: dict[str, Any] = json.loads(result.read_text())
            except (FileNotFoundError, ValueError):
                time.sleep(poll_s)
                continue
            request.unlink(missing_ok=True)
            result.unlink()
            return found
        raise AssertionError(f"nobody answered {request.name}; there is {sorted(self.folder.iterdir())}")

    def ask(self, name: str, **request: Any) -> dict[str, Any]:
        self.put(name, **request)
        return self.answer(name, poll_s=_POLL_S)


def serve_once(ipc: Path, seconds: float = 15.0) -> dict[str, Any]:
    """Poll for one request, run its line or words, write the result in place, and return the request."""
    tools = ipc / "tools"
    until = time.monotonic() + patient(seconds)
    while time.monotonic() < until:
        for path in sorted(tools.glob("exec-request-*.json")):
            result = tools / path.name.replace("request", "result")
            try:
                request: dict[str, Any] = json.loads(path.read_text())
            except (FileNotFoundError, ValueError):
                continue
            if result.exists():
                continue
            done = subprocess.run(
                request.get("argv") or ["sh", "-c", request["command"]],
                input=request.get("stdin", ""),
                capture_output=True,
                text=True,
                check=False,
            )
            answer = {
                "id": request["id"],
                "exitCode": done.returncode,
                "stdout": done.stdout,
                "stderr": done.stderr,
            }
            result.touch()
            write_halves(result, json.dumps(answer), 0.05)
            return request
        time.sleep(_POLL_S)
    raise AssertionError("no request came")
