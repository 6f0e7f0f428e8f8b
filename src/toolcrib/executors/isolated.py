"""A registered function in a process of its own (`isolation: process`): it may crash or hang there.

The child comes from Python's fork server, never from a fork of this (threaded) process. It is killed, with
all of its process group, when it has answered, when its time is up, when the call is cancelled, and when this
process dies. Only JSON comes back from it: nothing is unpickled here.
"""

from __future__ import annotations

import asyncio
import ctypes
import multiprocessing
import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import orjson

from toolcrib.errors import DefinitionError, ToolFailed
from toolcrib.executors.answers import SIGNALS, raise_told
from toolcrib.executors.threads import run_in_thread
from toolcrib.schema import to_json_text

__all__ = ["run_in_process"]

_PR_SET_PDEATHSIG = 1


async def run_in_process(function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    """Call `function(**arguments)` in a new process and wait for its answer."""
    child = _Child(function, arguments)
    try:
        await run_in_thread(child.start)
        await child.stirs()
        answer = await run_in_thread(child.receive)
    finally:
        child.kill()
    if answer is None:
        raise ToolFailed(_death(child.exit_code), details={"exit_code": child.exit_code})
    return _open(answer)


class _Child:
    """One process, and the pipe that its answer comes through."""

    def __init__(self, function: Callable[..., Any], arguments: dict[str, Any]) -> None:
        context = multiprocessing.get_context("forkserver")
        self._answers, self._theirs = context.Pipe(duplex=False)
        self._process = context.Process(target=_child, args=(function, arguments, self._theirs), daemon=True)
        self._unwanted = False
        self._killed = False

    def start(self) -> None:
        """Start it. Blocks for as long as the fork server takes; for a thread."""
        try:
            self._process.start()
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise DefinitionError(
                f"the call cannot be sent to a process of its own: {error}",
                hint="Define the function, and the types of its arguments, at the top level of a module.",
            ) from None
        finally:
            self._theirs.close()
        if self._unwanted:  # the call ended while the process was being started
            self.kill()

    async def stirs(self) -> None:
        """Wait until the child answers or ends."""
        loop = asyncio.get_running_loop()
        stirred: asyncio.Future[None] = loop.create_future()
        watched = (self._answers.fileno(), self._process.sentinel)
        for descriptor in watched:
            loop.add_reader(descriptor, _settle, stirred)
        try:
            await stirred
        finally:
            for descriptor in watched:
                loop.remove_reader(descriptor)

    def receive(self) -> dict[str, Any] | None:
        """Its answer; None when it ended without one. Blocks; for a thread."""
        if not self._answers.poll():  # it has ended, but what it started may hold the pipe open
            self.kill()
        try:
            answer: dict[str, Any] = orjson.loads(self._answers.recv_bytes())
        except (EOFError, OSError, ValueError):
            self.kill()
            self._process.join()
            return None
        return answer

    @property
    def exit_code(self) -> int | None:
        """How it ended; negative for a signal."""
        return self._process.exitcode

    def kill(self) -> None:
        """Kill it and its process group, now or as soon as it is started."""
        self._unwanted = True
        pid = self._process.pid
        if pid is None or self._killed:
            return
        self._killed = True
        for kill in (os.killpg, os.kill):  # the second where it has no group of its own yet
            try:
                kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass


def _settle(stirred: asyncio.Future[None]) -> None:
    if not stirred.done():
        stirred.set_result(None)


def _death(exit_code: int | None) -> str:
    if exit_code is None or exit_code >= 0:
        return f"the tool's process ended with exit code {exit_code} before it answered"
    name = signal.strsignal(-exit_code) or "unknown"
    return f"the tool's process was ended by signal {-exit_code} ({name})"


def _open(answer: dict[str, Any]) -> Any:
    return answer["value"] if "value" in answer else raise_told(**answer)


def _child(function: Callable[..., Any], arguments: dict[str, Any], answers: Connection) -> None:
    """What runs in the child."""
    os.setpgid(0, 0)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)  # if `_follow` gets no time
    threading.Thread(target=_follow, daemon=True).start()
    try:
        value = function(**arguments)
        if asyncio.iscoroutine(value):
            value = asyncio.run(value)
        answer = _answer(value)
    except BaseException as error:
        answer = _failure(error)
    sys.stdout.flush()
    answers.send_bytes(answer)
    answers.close()


def _answer(value: Any) -> bytes:
    try:
        return b'{"value":' + to_json_text(value) + b"}"
    except TypeError as error:
        raise ToolFailed(f"the tool returned a {type(value).__name__} that is not JSON: {error}") from None


def _failure(error: BaseException) -> bytes:
    name = type(error).__name__
    try:
        message = str(error).encode(errors="replace").decode()
    except Exception:
        message = ""
    signals = [kind.__name__ for kind in type(error).__mro__ if kind.__name__ in SIGNALS]
    if isinstance(error, SystemExit):
        message = f"the tool called sys.exit({error.code!r})"
    told = {
        "name": "RuntimeError" if isinstance(error, (SystemExit, ToolFailed)) else name,
        "message": message,
        "signal": signals[0] if signals else None,
        "delay": getattr(error, "delay", 0.0),
    }
    return orjson.dumps(told, default=str)


def _follow() -> None:
    """Go when the process that asked for this one goes."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.killpg(0, signal.SIGKILL)
