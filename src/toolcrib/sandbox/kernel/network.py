"""The network of a sandbox: none, a way out through a proxy of the server's, or the machine's own.

With `proxy` the sandbox has a network namespace of its own with nothing in it but loopback and one listening
socket, which is handed to the server: whoever connects to it from inside is served there. With `host` there
is no namespace, so nothing here holds the program to anything; a person agrees to that beforehand.

Imports nothing but what every launcher has loaded anyway. Numbers: linux/if.h, linux/sockios.h, see
netdevice(7).
"""

from __future__ import annotations

import _socket
import fcntl
import sys

from toolcrib.sandbox.kernel.calls import Failure, send

TYPE_CHECKING = False  # as `typing` has it, whose import takes as long as the interpreter's start
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    Ports = tuple[int, ...] | None

__all__ = ["filter_arguments", "namespace", "open_listener", "ports", "proxy_variables"]

NEWNET = 0x40000000
SIOCSIFFLAGS = 0x8914
IFF_UP = 1
BACKLOG = 128

BY_HTTP = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
"""All by HTTP: programs that know SOCKS take HTTP as well, and some fail at the name of a SOCKS proxy."""
BY_SOCKS = ("SOCKS_PROXY",)
EXCEPTIONS = ("NO_PROXY",)
ALSO = {"NODE_USE_ENV_PROXY": "1"}
"""Node reads the others only where this says so (from 22.21 and 24 on)."""


def namespace(network: str) -> int:
    """The clone flag of a network namespace; 0 for the machine's own network."""
    return 0 if network == "host" else NEWNET


def filter_arguments(network: str) -> dict[str, bool]:
    """What the system call filter is to allow (`seccomp.program`)."""
    return {"inet": network == "proxy", "host": network == "host"}


def ports(job: Mapping[str, Any]) -> tuple[Ports, Ports]:
    """The TCP ports that may be connected to, and those that may be listened on; None for any."""
    if job["network"] == "host":
        return None, None
    return (job["port"],) if job["network"] == "proxy" else (), ()


def open_listener(job: dict[str, Any], control: int) -> None:
    """In a fresh network namespace: bring loopback up, listen there, hand the socket to the server.

    Needs rights over the namespace. The job is told the port.
    """
    if job["network"] != "proxy":
        return
    sock = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM | _socket.SOCK_CLOEXEC)
    try:
        # struct ifreq: the name in 16 bytes, the flags in two, and room for what else may stand there.
        request = b"lo".ljust(16, b"\0") + IFF_UP.to_bytes(2, sys.byteorder) + bytes(22)
        fcntl.ioctl(sock.fileno(), SIOCSIFFLAGS, request)
        sock.bind(("127.0.0.1", 0))
        sock.listen(BACKLOG)
        job["port"] = sock.getsockname()[1]
    except OSError as error:
        raise Failure("loopback", error.errno or 0) from None
    else:
        send(control, b"listener", (sock.fileno(),))
    finally:
        sock.close()


def proxy_variables(env: Mapping[str, str], port: int) -> dict[str, str]:
    """The environment with every usual variable naming the proxy, and none making an exception from it."""
    host = f"127.0.0.1:{port}"
    named = dict.fromkeys(BY_HTTP, f"http://{host}") | dict.fromkeys(BY_SOCKS, f"socks5h://{host}")
    both = {spelt: url for name, url in named.items() for spelt in (name, name.lower())}
    dropped = {spelt for name in EXCEPTIONS for spelt in (name, name.lower())}
    return {name: value for name, value in env.items() if name not in dropped} | ALSO | both
