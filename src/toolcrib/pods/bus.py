"""The bus between pods: NATS with JetStream, which keeps messages until they are handled.

A message has an id of its own, so publishing it again changes nothing for an hour. A durable consumer gets
one message, or one batch, after the other; what it has not acknowledged comes again.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import orjson
from msgspec import Struct

from toolcrib.errors import ConfigError, InvalidToken, ToolcribError, UnavailableError
from toolcrib.spec.moment import written
from toolcrib.state.installation import install_hint
from toolcrib.state.outgoing.outbox import TOPIC

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.aio.msg import Msg
    from nats.js import JetStreamContext

SEND = TOPIC
RECEIVED = "channel.message.received"
"""Below it one subject for each channel."""
STATE = "channel.message.state"
_STREAM = "CHANNELS"
_KEPT_S = 7 * 86_400
"""Seconds that the stream keeps a message."""
_SAME_S = 3_600
"""Seconds in which a second message with the same id is dropped."""
_ACK_S = 10.0
"""Seconds after which a message of a dead consumer goes to another one."""
_FETCH_S = 2.0
"""Seconds of one request for messages; those of before a restart of the server are lost."""
_PAUSE_S = 0.5
_REMEMBERED = 1_000
_log = logging.getLogger("toolcrib.pods")
T = TypeVar("T")


class Envelope(Struct):
    """A message on the bus."""

    topic: str
    timestamp: str
    metadata: dict[str, Any]
    data: msgspec.Raw


def envelope(topic: str, data: Any, metadata: Mapping[str, Any] | None = None) -> bytes:
    """Return the JSON of a message."""
    made = {"topic": topic, "timestamp": written(time.time()), "metadata": metadata or {}, "data": data}
    return orjson.dumps(made, default=msgspec.to_builtins)


class Bus:
    """A connection that is opened again whenever it breaks. Close it in the end."""

    def __init__(self, client: Client, stream: JetStreamContext) -> None:
        self._client, self._stream = client, stream
        self._is_ready = False

    @classmethod
    async def connect(cls, environment: Mapping[str, str]) -> Bus:
        """Connect to `NATS_URL`; without a server there it tries until it is cancelled. InvalidToken.

        `NATS_TOKEN`, or `NATS_USER` and `NATS_PASSWORD`, or `NATS_CREDS` (a file) log in. `NATS_CA` is the
        file with the authority of the server's certificate, `NATS_CERT` and `NATS_KEY` are the client's.
        """
        try:
            from nats.aio.client import Client
        except ImportError:
            raise UnavailableError("nats-py is not installed", hint=install_hint("pods")) from None

        def log(what: str) -> Callable[..., Awaitable[None]]:
            async def note(*error: object) -> None:
                if not client.is_closed:  # By us.
                    _log.warning("NATS: %s", " ".join([what, *map(str, error)]))

            return note

        options: dict[str, Any] = {
            "servers": environment.get("NATS_URL") or "nats://127.0.0.1:4222",
            "token": environment.get("NATS_TOKEN"),
            "user": environment.get("NATS_USER"),
            "password": environment.get("NATS_PASSWORD"),
            "user_credentials": environment.get("NATS_CREDS"),
            "tls": _tls(environment),
            "name": "toolcrib",
            "reconnect_time_wait": _PAUSE_S,
        }
        await _reached(options)
        client = Client()
        await client.connect(
            **options,
            max_reconnect_attempts=-1,
            error_cb=log("error:"),
            disconnected_cb=log("disconnected"),
            reconnected_cb=log("connected again"),
        )
        _end_if_cancelled()
        return cls(client, client.jetstream())

    async def aclose(self) -> None:
        """Close the connection."""
        await self._client.close()

    async def publish(self, subject: str, id: str, body: bytes) -> None:
        """Store a message; return once the server has it. UnavailableError if it does not answer."""
        from nats.errors import Error

        if not self._client.is_connected:  # Else the client would keep it, and time would go by.
            raise UnavailableError("NATS is not connected", retryable=True)
        try:
            await self._ready()
            await self._stream.publish(subject, body, headers={"Nats-Msg-Id": id})
        except (Error, TimeoutError) as error:
            raise UnavailableError(
                f"NATS does not answer: {str(error) or 'timeout'}", retryable=True
            ) from error

    async def insist(self, subject: str, id: str, body: bytes) -> None:
        """Publish a message, however long that takes."""
        while True:
            try:
                await self.publish(subject, id, body)
                return _end_if_cancelled()
            except UnavailableError:
                await asyncio.sleep(_PAUSE_S)

    async def last(self, subject: str, kind: type[T]) -> T | None:
        """Return the data of the last message of a subject, if there is one."""
        from nats.js.errors import NotFoundError

        await self._ready()
        with suppress(NotFoundError):
            name = await self._stream.find_stream_name_by_subject(subject)
            found = await self._stream.get_last_msg(name, subject)
            if found.data is not None:
                return _data(found.data, kind)
        return None

    async def consume(
        self,
        name: str,
        subject: str,
        kind: type[T],
        handle: Callable[[Sequence[tuple[str, T]]], Awaitable[None]],
        *,
        batch: int = 1,
        forgotten_after_s: float | None = None,
    ) -> None:
        """Handle the messages of a subject, ids and data, one batch after the other, until cancelled.

        `name` is that of the durable consumer: those of one name share the messages. After an error of
        `handle` that may pass, the batch comes again; any other ends this. Data that is not of this `kind` is
        logged and dropped.
        """
        from nats.errors import Error
        from nats.js.api import AckPolicy, ConsumerConfig
        from nats.js.errors import Error as StreamError

        config = ConsumerConfig(
            durable_name=name,
            ack_policy=AckPolicy.EXPLICIT,
            ack_wait=_ACK_S,
            # No message overtakes another, also not one that comes again.
            max_ack_pending=batch,
            inactive_threshold=forgotten_after_s,
        )
        done: dict[int, None] = {}
        while True:
            try:
                await self._ready()
                source = await self._stream.pull_subscribe(subject, durable=name, config=config)
                while True:
                    _end_if_cancelled()
                    with suppress(TimeoutError):
                        found = await source.fetch(batch, timeout=_FETCH_S)
                        await self._handle(found, kind, handle, done)
            except (Error, StreamError) as error:
                _log.warning("NATS: %s: %s", name, error)
                await asyncio.sleep(_PAUSE_S)
            except ToolcribError as error:  # As of a database that restarts: the batch comes again.
                if not error.retryable:
                    raise
                _log.warning("%s: %s", name, error)
                await asyncio.sleep(_PAUSE_S)

    async def _handle(
        self,
        found: Sequence[Msg],
        kind: type[T],
        handle: Callable[[Sequence[tuple[str, T]]], Awaitable[None]],
        done: dict[int, None],
    ) -> None:
        # Handled before, but the connection broke before the server knew.
        fresh = [one for one in found if one.metadata.sequence.stream not in done]
        read = [(message, _data(message.data, kind)) for message in fresh]
        work = asyncio.ensure_future(
            handle([(_id(message), one) for message, one in read if one is not None])
        )
        try:
            while not (await asyncio.wait([work], timeout=_ACK_S / 3))[0]:
                for one in found:
                    await one.in_progress()
            await work
        finally:
            work.cancel()
        done |= dict.fromkeys(one.metadata.sequence.stream for one in fresh)
        while len(done) > _REMEMBERED:
            del done[next(iter(done))]
        for one in found:
            await one.ack()
        await self._client.flush()

    async def _ready(self) -> None:
        """Make the stream, unless there is one for these subjects."""
        from nats.js.api import StorageType, StreamConfig
        from nats.js.errors import NotFoundError

        if self._is_ready:
            return
        try:
            await self._stream.find_stream_name_by_subject(SEND)
        except NotFoundError:
            await self._stream.add_stream(
                StreamConfig(
                    _STREAM,
                    subjects=["channel.>"],
                    storage=StorageType.FILE,
                    max_age=_KEPT_S,
                    duplicate_window=_SAME_S,
                )
            )
        self._is_ready = True


async def _reached(options: Mapping[str, Any]) -> None:
    """Wait until the server lets this program in. InvalidToken if it does not."""
    import nats
    from nats.errors import Error, NoServersError

    while True:
        _end_if_cancelled()
        last: list[Exception] = []

        async def note(error: Exception, last: list[Exception] = last) -> None:
            last.append(error)

        try:
            return await (await nats.connect(**options, allow_reconnect=False, error_cb=note)).close()
        except (OSError, Error, TimeoutError) as error:
            # With a certificate, or a login, that is wrong it would try for ever.
            reason = str(last[-1] if last and isinstance(error, NoServersError) else error)
            if "uthorization" in reason or isinstance(error, ssl.SSLError):
                raise InvalidToken(
                    f"NATS refuses the connection: {reason}", hint="Set NATS_TOKEN, NATS_CREDS or NATS_CA."
                ) from None
            _log.warning("NATS cannot be reached, so it is tried again: %s", reason or type(error).__name__)
        await asyncio.sleep(_PAUSE_S)


def _end_if_cancelled() -> None:
    """End a task that was cancelled: `asyncio.wait_for` of Python 3.11 can return instead."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


def _data(body: bytes, kind: type[T]) -> T | None:
    try:
        return msgspec.json.decode(msgspec.json.decode(body, type=Envelope).data, type=kind)
    except msgspec.DecodeError as error:
        _log.error("a message on the bus is dropped: %s: %s", error, body[:200])
        return None


def _id(message: Msg) -> str:
    return (message.headers or {}).get("Nats-Msg-Id") or f"stream-{message.metadata.sequence.stream}"


def _tls(environment: Mapping[str, str]) -> ssl.SSLContext | None:
    authority, certificate = environment.get("NATS_CA"), environment.get("NATS_CERT")
    if not (authority or certificate or environment.get("NATS_URL", "").startswith("tls://")):
        return None
    try:
        context = ssl.create_default_context(cafile=authority)
        if certificate:
            context.load_cert_chain(certificate, environment.get("NATS_KEY"))
    except OSError as error:
        raise ConfigError(f"the certificates for NATS cannot be read: {error}") from None
    return context
