"""`send_email` against a real SMTP server, and the outbox of `send_channel_message`."""

from __future__ import annotations

import asyncio
import email
import email.policy
import socket
import ssl
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, suppress
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import pytest
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session

from tests.certificates import certificate_for
from tests.conftest import need
from toolcrib import Result, Toolset

PASSWORD = "app-password-0815"


class Inbox:
    """Takes mail of one user, and remembers how it came."""

    def __init__(self) -> None:
        self.mail: list[EmailMessage] = []
        self.recipients: list[list[str]] = []
        self.encrypted: list[bool] = []
        self.stays = False
        """True to leave it to the client to close the connection."""

    async def handle_QUIT(self, server: SMTP, _session: Session, _envelope: Envelope) -> str:  # noqa: N802
        if self.stays:
            await server.push("221 Bye")
            await asyncio.Event().wait()
        return "221 Bye"

    async def handle_DATA(self, _server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802
        assert isinstance(envelope.content, bytes)
        if b"refuse" in envelope.content:
            return "554 no"
        message = email.message_from_bytes(envelope.content, policy=email.policy.default)
        assert isinstance(message, EmailMessage)
        self.mail.append(message)
        self.recipients.append(list(envelope.rcpt_tos))
        self.encrypted.append(session.ssl is not None)
        return "250 ok"


def login(_server: SMTP, _session: Session, _envelope: Envelope, _mechanism: str, data: Any) -> AuthResult:
    assert isinstance(data, LoginPassword)
    return AuthResult(
        success=(data.login, data.password) == (b"me@sender.example", PASSWORD.encode()), handled=False
    )


Serve = Callable[..., Awaitable[Inbox]]


@pytest.fixture
async def serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Serve]:
    running: list[asyncio.Server] = []
    sessions: list[SMTP] = []
    certificate = certificate_for(tmp_path, "localhost")
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)

    async def start(*, starttls: bool = True, implicit: bool = False, port: int = 0) -> Inbox:
        inbox = Inbox()

        def session() -> SMTP:
            with warnings.catch_warnings():  # It warns of a login without TLS, which is tested here.
                warnings.simplefilter("ignore")
                return opened()

        def opened() -> SMTP:
            sessions.append(
                made := SMTP(
                    inbox,
                    hostname="localhost",
                    authenticator=login,
                    auth_required=True,
                    auth_require_tls=starttls and not implicit,
                    tls_context=context if starttls and not implicit else None,
                    require_starttls=starttls and not implicit,
                )
            )
            return made

        loop = asyncio.get_running_loop()
        tls = context if implicit else None
        running.append(await loop.create_server(session, "localhost", port, ssl=tls))
        port = running[-1].sockets[0].getsockname()[1]
        values = {"HOST": "localhost", "PORT": str(port), "USER": "me@sender.example", "PASS": PASSWORD}
        for name, value in values.items():
            monkeypatch.setenv(f"SMTP_{name}", value)
        monkeypatch.delenv("SMTP_FROM", raising=False)
        return inbox

    yield start
    for server in running:
        server.close()
    for one in sessions:
        if one.transport is not None:
            one.transport.close()
    await asyncio.sleep(0)


async def send(folder: Path, options: dict[str, Any] | None = None, **more: Any) -> Result:
    tools = Toolset()
    tools.register_builtins("send_email", roots=folder, options={"send_email": options or {}})
    return await tools.call("send_email", {"to": "you@to.example", "subject": "Hi", "body": "Text", **more})


async def test_a_message_goes_out_over_starttls_with_login(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inbox = await serve()
    result = await send(tmp_path, subject="Grüße", body="Line 1\nZeile zwei: ä")
    message = inbox.mail[0]
    assert result.unwrap() == f"Email sent to you@to.example (Message-ID: {message['Message-ID']})"
    assert inbox.encrypted == [True]
    assert inbox.recipients == [["you@to.example"]]
    assert (message["From"], message["To"], message["Subject"]) == (
        "me@sender.example",
        "you@to.example",
        "Grüße",
    )
    assert message["Date"] is not None
    assert message["Message-ID"].endswith("@sender.example>")
    assert message.get_content_type() == "text/plain"
    assert message.get_content().splitlines() == ["Line 1", "Zeile zwei: ä"]
    monkeypatch.setenv("SMTP_FROM", "Reporter <bot@sender.example>")
    (await send(tmp_path, body="<b>x</b>", is_html=True)).unwrap()
    assert inbox.mail[1]["From"] == "Reporter <bot@sender.example>"
    assert inbox.mail[1].get_content_type() == "text/html"


async def test_the_loop_reads_nothing_of_a_socket_that_is_closed(serve: Serve, tmp_path: Path) -> None:
    (await serve()).stays = True
    loop = asyncio.get_running_loop()
    with ExitStack() as later:
        (await send(tmp_path)).unwrap()
        for _ in range(20):  # One of them has the number of the connection, if that is free.
            for one in map(later.enter_context, socket.socketpair()):
                loop.add_reader(one, str)
                loop.remove_reader(one)


async def test_port_465_is_encrypted_from_the_start(serve: Serve, tmp_path: Path) -> None:
    inbox = None
    with suppress(PermissionError):
        inbox = await serve(implicit=True, port=465)
    need("the right to listen on port 465", inbox is not None, of_root=True)
    assert inbox is not None
    (await send(tmp_path)).unwrap()
    assert [message["Subject"] for message in inbox.mail] == ["Hi"]


@pytest.mark.parametrize(
    "arguments",
    [
        {"subject": "Hi\r\nBcc: other@to.example"},
        {"subject": "Hi\nX: y"},
        {"subject": "Hi\u2028X: y"},
        {"to": "you@to.example\r\nBcc: other@to.example"},
        {"to": "you@to.example, other@to.example"},
        {"to": "nobody"},
    ],
)
async def test_no_argument_adds_a_header_or_a_recipient(
    serve: Serve, tmp_path: Path, arguments: dict[str, Any]
) -> None:
    inbox = await serve()
    result = await send(tmp_path, **arguments)
    assert result.error is not None
    assert result.error.code == "invalid_input"
    assert not inbox.mail


async def test_a_server_without_tls_is_refused_unless_it_is_named(serve: Serve, tmp_path: Path) -> None:
    inbox = await serve(starttls=False)
    result = await send(tmp_path)
    assert result.error is not None
    assert result.error.code == "permission_denied", result.error
    assert "offers no TLS" in result.error.message
    assert not inbox.mail
    (await send(tmp_path, {"without_tls": ["localhost"]})).unwrap()
    assert inbox.encrypted == [False]


async def test_a_wrong_password_a_refusal_and_a_wrong_certificate_are_told_apart(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inbox = await serve()
    refused = await send(tmp_path, body="please refuse")
    assert refused.error is not None
    assert refused.error.details["smtpCode"] == 554
    monkeypatch.setenv("SMTP_PASS", "wrong-password-1")
    wrong = await send(tmp_path)
    assert wrong.error is not None
    assert wrong.error.details["smtpCode"] == 535
    assert "wrong-password-1" not in str(wrong.as_dict())
    monkeypatch.delenv("SSL_CERT_FILE")
    untrusted = await send(tmp_path)
    assert untrusted.error is not None
    assert "certificate" in untrusted.error.message.lower()
    assert not inbox.mail


async def test_missing_variables_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOST", "PORT", "USER", "FROM"):
        monkeypatch.delenv(f"SMTP_{name}", raising=False)
    monkeypatch.setenv("SMTP_PASS", PASSWORD)
    result = await send(tmp_path)
    assert result.error is not None
    assert result.error.message == "send_email needs the environment variables SMTP_HOST, SMTP_USER"
