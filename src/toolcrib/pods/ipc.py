"""Requests served, each once, and results waited for, through files in a folder that containers share.

An empty or half file is no request yet; after `GRACE_S` seconds without a change it is answered as a bad one.
A request whose server died is served again by the next: its command may run twice then, but never after its
result is written.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Generic, TypeVar

import msgspec
from msgspec import Struct

from toolcrib.errors import TimedOut, ToolcribError
from toolcrib.pods.protocol import Protocol
from toolcrib.pods.spool import PART, Claim, Refused, Spool, Stamp

_log = logging.getLogger("toolcrib.pods")

Q = TypeVar("Q", bound=Struct)
R = TypeVar("R", bound=Struct)

GRACE_S = 2.0
_KEPT_S = 600.0
"""Seconds after which a request or result that nobody came for is removed."""
_AGAIN_S = 1.0
_ATTEMPTS = 3
"""Servers that may die of one request."""
REJECTED = ".rejected"
"""The folder for requests that cannot be served, of protocols without results."""
MAX_RESULT = 32 << 20
"""Bytes of a result. One of our sidecar has two streams of 1 MiB, whose bytes take up to six each in JSON."""


class Server(Generic[Q, R]):
    """Serves the requests of one protocol that lie in a folder, and those that come.

    `handle` gets id and request and returns the result. An error becomes a refusal. Of a protocol without
    results the file is moved to `.rejected`; after a retryable error it is tried again until it is
    served. A request that is removed is cancelled. `accepts` leaves a request to other servers. With a
    `concurrency` of 1 requests are served in the order of their files.
    """

    def __init__(
        self,
        spool: Spool,
        protocol: Protocol[Q, R],
        handle: Callable[[str, Q], Awaitable[R | None]],
        *,
        accepts: Callable[[Q], bool] = lambda _: True,
        concurrency: int = 8,
    ) -> None:
        self._spool, self._protocol, self._handle, self._accepts = spool, protocol, handle, accepts
        self._slots = asyncio.Semaphore(concurrency)
        self._stopping = False
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._settled: dict[str, Stamp] = {}
        """Requests that were done or are for others, as they were."""

    async def run(self, stop: asyncio.Event | None = None, grace_s: float = 10.0) -> None:
        """Serve until `stop`; requests that run then may take so long to end.

        Those that do not, and all if this is cancelled, stay for the next server.
        """
        try:
            async with self._spool.watched(self._changed, self._look):
                await (stop or asyncio.Event()).wait()
            self._stopping = True
            if self._tasks:
                await asyncio.wait(self._tasks.values(), timeout=grace_s)
        finally:
            for task in (tasks := list(self._tasks.values())):
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _changed(self, name: str, gone: bool) -> None:
        id = self._protocol.id_of(name)
        if id is None:
            return
        if not gone:
            if id not in self._tasks:
                self._begin(id)
        elif self._protocol.result is not None and id in self._tasks:
            self._tasks[id].cancel()
        else:
            self._spool.forget_claim(name)

    def _begin(self, id: str) -> None:
        task = self._tasks[id] = asyncio.create_task(self._serve(id))
        task.add_done_callback(partial(self._ended, id))

    def _ended(self, id: str, task: asyncio.Task[None]) -> None:
        if self._tasks.get(id) is task:
            del self._tasks[id]
        if not task.cancelled() and (error := task.exception()) is not None:
            info = None if isinstance(error, OSError) else error
            _log.warning("request %s is tried again: %s", shown(id), error, exc_info=info)

    def _look(self) -> None:
        self._sweep(stamps := self._spool.stamps())
        present = {id: stamp for name, stamp in stamps.items() if (id := self._protocol.id_of(name))}
        self._settled = {id: stamp for id, stamp in self._settled.items() if id in present}
        for id, stamp in present.items():
            if id not in self._tasks and self._settled.get(id) != stamp:
                self._begin(id)
        self._spool.forget_claims(stamps)

    def _sweep(self, stamps: dict[str, Stamp]) -> None:
        """Remove what nobody comes for any more: old requests, old results, and parts of files."""
        protocol = self._protocol
        result = protocol.result_name.partition("{}")[0]
        for name in [name for name, stamp in stamps.items() if stamp.age_s > _KEPT_S]:
            id = protocol.id_of(name)
            late = protocol.result is not None and (
                name.startswith(result) if id is None else id not in self._tasks
            )
            if late or name.startswith(PART):
                _log.warning("%s is removed: nobody came for it in %d s", name, _KEPT_S)
                self._spool.remove(name)
                del stamps[name]

    async def _serve(self, id: str) -> None:
        """Serve one request, if it is whole, for us and free."""
        async with self._slots:
            if self._stopping:
                return
            name = self._protocol.request_name.format(id)
            if (found := self._read(id, name)) is None:
                # At once, for the event about the rest of the file may come before this task has ended.
                del self._tasks[id]
                return
            request, stamp = found
            settled = not isinstance(request, Refused) and not self._accepts(request)
            if not settled:
                with self._spool.claim(name) as claim:
                    if settled := claim is not None:
                        await self._answer(id, name, request, claim)
            if settled:
                self._settled[id] = stamp

    def _read(self, id: str, name: str) -> tuple[Q | Refused, Stamp] | None:
        """Return the request in a file, or why there is none; None if there may be one later."""
        try:
            read = self._spool.read(name, self._protocol.max_bytes)
        except Refused as refused:
            return refused, Stamp(0, 0, 0)
        if read is None:
            return None
        data, stamp = read
        try:
            return self._protocol.read(id, data), stamp
        except msgspec.DecodeError as error:
            if stamp.age_s < GRACE_S and not _is_json(data):
                return None
            return Refused(f"{name} is not a request: {error}" if data else f"{name} is empty"), stamp

    async def _answer(self, id: str, name: str, request: Q | Refused, claim: Claim) -> None:
        """Serve a claimed request, unless that was done between the look at its file and the claim."""
        protocol, spool = self._protocol, self._spool
        result_name = None if protocol.result is None else protocol.result_name.format(id)
        if claim.is_done or not spool.has(name) or (result_name is not None and spool.has(result_name)):
            return
        claim.begin()
        try:
            if claim.attempt > _ATTEMPTS:
                raise Refused(f"{name} is given up: {_ATTEMPTS} processes that served it have died")
            if isinstance(request, Refused):
                raise request
            result = await self._result(id, name, request)
        except asyncio.CancelledError:
            claim.give_back()
            raise
        except ToolcribError as error:
            _log.warning("%s failed: %s", name, error.message)
            if protocol.refuse is None:
                spool.move(name, REJECTED)
                return
            said = f"{error.message}. {error.hint}" if error.hint else error.message
            result = protocol.refuse(shown(id), said)
        if result_name is not None:
            await self._write(result_name, msgspec.json.encode(result))
        claim.done()
        if result_name is None:
            spool.remove(name)

    async def _write(self, name: str, data: bytes) -> None:
        """Write a result. While the disk is full it waits: the command must not run again for that."""
        while True:
            try:
                self._spool.write(name, data)
                return
            except OSError as error:
                _log.warning("%s cannot be written, and is tried again: %s", name, error.strerror)
                await asyncio.sleep(_AGAIN_S)

    async def _result(self, id: str, name: str, request: Q) -> R | None:
        """Return what the handler returns. Where no result can report an error, wait until it is over."""
        while True:
            try:
                return await self._handle(id, request)
            except Exception as error:
                if not isinstance(error, ToolcribError):
                    _log.error("%s failed", name, exc_info=error)
                    error = ToolcribError(f"internal error: {type(error).__name__}", retryable=True)
                if self._protocol.refuse is not None or not error.retryable:
                    raise error from None
                _log.warning("%s is tried again: %s", name, error.message)
                await asyncio.sleep(_AGAIN_S)


class Client(Generic[Q, R]):
    """Puts requests of one protocol into a folder and waits for their results. Open while it is a context."""

    def __init__(self, spool: Spool, protocol: Protocol[Q, R]) -> None:
        assert protocol.result is not None
        self._spool, self._protocol, self._result = spool, protocol, protocol.result
        self._waiting: dict[str, asyncio.Future[R]] = {}
        """Name of the result's file to what waits for it."""

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Client[Q, R]]:
        """Watch the folder for results."""
        async with self._spool.watched(self._changed, self._look):
            yield self

    async def ask(self, id: str, request: Q, timeout_s: float) -> R:
        """Return the result of a request. Raises TimedOut if there is none in time.

        A request that is there already, of a process that died, is not written again; its result counts.
        Who stops waiting removes the request, which ends its command.
        """
        request_name, name = self._protocol.request_name.format(id), self._protocol.result_name.format(id)
        waiting = self._waiting[name] = asyncio.get_running_loop().create_future()
        try:
            self._spool.write(request_name, msgspec.json.encode(request), first=True)
            self._changed(name, False)
            async with asyncio.timeout(timeout_s):
                result: R = await waiting
                return result
        except TimeoutError:
            raise TimedOut(
                f"nobody answered {request_name} within {timeout_s:g} s",
                hint="Check that a sidecar runs that shares the folder, and serves this `target`.",
            ) from None
        finally:
            del self._waiting[name]
            self._spool.remove(request_name)
            self._spool.remove(name)

    def _changed(self, name: str, _gone: bool) -> None:
        waiting = self._waiting.get(name)
        if waiting is None or waiting.done():
            return
        try:
            if (read := self._spool.read(name, MAX_RESULT)) is not None:
                waiting.set_result(msgspec.json.decode(read[0], type=self._result))
        except msgspec.DecodeError:
            pass  # Half a file: the other half makes another event.
        except Refused as refused:
            _log.warning("%s", refused.message)

    def _look(self) -> None:
        for name in self._waiting:
            self._changed(name, False)


def shown(id: str) -> str:
    """Return an id as JSON and a log can hold it: a file's name may be any bytes."""
    return id.encode("ascii", "backslashreplace").decode()


def _is_json(data: bytes) -> bool:
    try:
        msgspec.json.decode(data)
    except msgspec.DecodeError:
        return False
    return True
