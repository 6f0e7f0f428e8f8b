"""`send_email`."""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Mapping
from email.headerregistry import Address
from email.message import EmailMessage
from email.utils import formatdate, make_msgid
from typing import TYPE_CHECKING

from toolcrib.builtin.definition import Builtin, boolean, missing_extra, string
from toolcrib.builtin.site import Site
from toolcrib.egress.policy import HostPolicy, HostRule
from toolcrib.egress.proxy.dialer import connect
from toolcrib.errors import InvalidInput, PermissionDenied, ToolFailed, ToolUnavailable, Violation
from toolcrib.spec import Annotations, CallContext, Example, Network, Permissions, SecretSpec

if TYPE_CHECKING:
    from aiosmtplib import SMTP

# Without commas, brackets, quotes and spaces: these could add recipients, or a header.
_ADDRESS = re.compile(r"[^\s@<>,;:\"()\[\]\\]+@[^\s@<>,;:\"()\[\]\\]+")
# The port of RFC 8314 on which TLS begins at once; on others STARTTLS asks for it.
_IMPLICIT_TLS = 465
_TIMEOUT_S = 20.0
"""Seconds for the connection, and for each answer of the server."""
_VARIABLES = ("SMTP_HOST", "SMTP_PORT", "SMTP_USER", "SMTP_FROM")


class _Server:
    """The server of one call, as the environment names it at that moment."""

    def __init__(self, env: Mapping[str, str], password: str | None) -> None:
        """Read the variables. Raises ToolUnavailable for a missing or wrong one."""
        found = {name: env.get(name, "").strip() for name in _VARIABLES}
        missing = [name for name in ("SMTP_HOST", "SMTP_USER") if not found[name]]
        missing += [] if password else ["SMTP_PASS"]
        if missing:
            raise ToolUnavailable(
                f"send_email needs the environment variables {', '.join(missing)}",
                hint="Set SMTP_HOST, SMTP_USER and SMTP_PASS; SMTP_PORT (587) and SMTP_FROM are optional.",
            )
        port = found["SMTP_PORT"] or "587"
        if not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
            raise ToolUnavailable(f"SMTP_PORT is {port!r}, which is not a port")
        self.host, self.port = found["SMTP_HOST"], int(port)
        self.user, self.password = found["SMTP_USER"], password or ""
        self.sender = found["SMTP_FROM"] or self.user


async def send_email(
    site: Site, ctx: CallContext, to: str, subject: str, body: str, is_html: bool = False
) -> str:
    """Hand one message to the configured server, over TLS."""
    server = _Server(os.environ, ctx.secrets.get("SMTP_PASS"))
    message = _message(server.sender, to, subject, body, is_html)
    await _deliver(site, server, message, to)
    return f"Email sent to {to} (Message-ID: {message['Message-ID']})"


def _message(sender: str, to: str, subject: str, body: str, is_html: bool) -> EmailMessage:
    """Return the message. Raises InvalidInput for an address or a subject that no header can contain."""
    wrong = []
    if not _ADDRESS.fullmatch(to):
        wrong.append(Violation("$.to", "must be one email address: name@example.com"))
    if any(ord(char) < 32 for char in subject) or len(subject.splitlines()) > 1:
        wrong.append(Violation("$.subject", "contains a line break or another control character"))
    if wrong:
        first = wrong[0]
        raise InvalidInput(f"{first.path} {first.message}", violations=tuple(wrong))
    name, at, address = sender.strip().rpartition("<")
    address = (address if at else sender).rstrip(">").strip()
    if not _ADDRESS.fullmatch(address) or any(ord(char) < 32 for char in name):
        raise ToolUnavailable(
            "neither SMTP_FROM nor SMTP_USER is an email address to send from",
            hint="Set SMTP_FROM to the address of the sender.",
        )
    message = EmailMessage()
    message["From"] = Address(name.strip(' "'), addr_spec=address)
    message["To"] = to
    message["Subject"] = subject
    message["Date"] = formatdate(usegmt=True)
    # By default its domain would be the name of this machine.
    message["Message-ID"] = make_msgid(domain=address.rpartition("@")[2])
    message.set_content(body, subtype="html" if is_html else "plain")
    return message


async def _deliver(site: Site, server: _Server, message: EmailMessage, to: str) -> None:
    try:
        import aiosmtplib
    except ImportError:
        raise missing_extra("send_email", "mail") from None
    network = Network("hosts", (f"{server.host}:{server.port}",))
    policy = HostPolicy.of(network, allowed_hosts=site.host.allowed_hosts)
    # Our own connection is to the address that was checked; the library would look the name up again.
    sock = await connect(server.host, server.port, policy, timeout_s=_TIMEOUT_S)
    implicit = server.port == _IMPLICIT_TLS
    context = ssl.create_default_context()
    client = aiosmtplib.SMTP(
        hostname=server.host,
        port=None,
        sock=sock,
        use_tls=implicit,
        start_tls=False,
        tls_context=context if implicit else None,
        timeout=_TIMEOUT_S,
    )
    try:
        await client.connect()
        if not implicit:
            await _encrypt(site, client, server, context)
        await client.login(server.user, server.password)
        await client.send_message(message, recipients=[to])
        await client.quit()
    except (aiosmtplib.SMTPException, OSError) as error:
        raise _failure(server, error) from None
    finally:
        # Its transport closes the socket, later: it would go on reading from the next one of that number.
        client.close()


async def _encrypt(site: Site, client: SMTP, server: _Server, context: ssl.SSLContext) -> None:
    """Begin TLS. A server without it is refused, so that neither password nor text is sent in the open."""
    await client.ehlo()
    if client.supports_extension("starttls"):
        await client.starttls(server_hostname=server.host, tls_context=context)
        return
    named = [HostRule.parse(one, server.port) for one in site.option("without_tls", ())]
    if not any(rule.host == server.host.lower() and server.port in rule.ports for rule in named):
        raise PermissionDenied(
            f"{server.host}:{server.port} offers no TLS, so the password and the message would be readable",
            hint="To allow it, name the server in the option `without_tls` of send_email.",
            details={"host": server.host, "port": server.port},
        )


def _failure(server: _Server, error: Exception) -> ToolFailed:
    """Return the error of the server, or of the connection to it."""
    code = getattr(error, "code", None)
    text = getattr(error, "message", None) or str(error) or type(error).__name__
    # One error for all recipients: the answer about the only one says more.
    refused = getattr(error, "recipients", None)
    if refused and isinstance(refused, list):
        code, text = refused[0].code, refused[0].message
    answer = f"{code} {text}" if isinstance(code, int) else text
    details = {"host": server.host, "port": server.port}
    if isinstance(code, int):
        details["smtpCode"] = code
    return ToolFailed(
        f"{server.host}:{server.port} did not accept the message: {answer}",
        details=details,
        # RFC 5321, 4.2.1: 4yz is for now, 5yz is final.
        retryable=isinstance(code, int) and 400 <= code < 500,
    )


BUILTIN = Builtin(
    name="send_email",
    description="Send an email via SMTP, as plain text or as HTML.",
    properties={
        "to": string("The email address of the recipient."),
        "subject": string("The subject, one line."),
        "body": string("The text of the message."),
        "is_html": boolean("true: the body is HTML (default false, plain text).", default=False),
    },
    run=send_email,
    permissions=lambda _: Permissions(
        Network("hosts", ("${SMTP_HOST}",)), secrets=(SecretSpec("SMTP_PASS"),), env=_VARIABLES
    ),
    options={
        "properties": {
            "without_tls": {
                "description": "A list of servers (`host` or `host:port`) that may be used without TLS.",
                "type": "array",
                "items": {"type": "string", "minLength": 1},
            }
        }
    },
    annotations=Annotations(read_only=False, destructive=False, idempotent=False, open_world=True),
    examples=[
        Example("Send a note", {"to": "a@example.com", "subject": "Report", "body": "The report is ready."})
    ],
)
