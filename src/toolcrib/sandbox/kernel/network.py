"""The network of a sandbox: none, a way out through the server's proxy, or the machine's own.

With `proxy` the sandbox has its own network namespace that has only loopback and one listening socket. The
socket is sent to the server, which serves the connections from inside. With `host` there is no namespace and
the network is not confined; a person approves that beforehand.

Our own, because the usual helpers (slirp4netns, pasta) are programs that would have to be installed, and
because the proxy must know which call a connection belongs to. Numbers: linux/if.h, linux/sockios.h, see
netdevice(7).
"""

from __future__ import annotations

import _socket
import fcntl
import sys

from toolcrib.sandbox.kernel.libc import SetupFailure
from toolcrib.sandbox.kernel.messages import send

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    Ports = tuple[int, ...] | None

SIOCSIFFLAGS = 0x8914
IFF_UP = 1
BACKLOG = 128

# ALL_PROXY names HTTP: programs that know SOCKS know HTTP as well, and some fail at the name of a SOCKS
# proxy.
PROXY_VARIABLES = {"HTTP_PROXY": "http", "HTTPS_PROXY": "http", "ALL_PROXY": "http", "SOCKS_PROXY": "socks5h"}
NODE = {"NODE_USE_ENV_PROXY": "1"}
"""Node.js reads the other variables only with this one (from 22.21 and 24 on)."""


def ports(job: Mapping[str, Any]) -> tuple[Ports, Ports]:
    """Return the TCP ports that may be connected to, and those that may be listened on; None for any."""
    if job["network"] == "host":
        return None, None
    return (job["port"],) if job["network"] == "proxy" else (), ()


def open_listener(job: dict[str, Any], control: int) -> None:
    """Bring up loopback in a fresh network namespace, listen there, and send the socket to the server.

    Needs rights over the namespace. Sets `port` in the job.
    """
    if job["network"] != "proxy":
        return
    sock = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM | _socket.SOCK_CLOEXEC)
    try:
        # struct ifreq: the name in 16 bytes, the flags in two, and the rest of the union.
        request = b"lo".ljust(16, b"\0") + IFF_UP.to_bytes(2, sys.byteorder) + bytes(22)
        fcntl.ioctl(sock.fileno(), SIOCSIFFLAGS, request)
        sock.bind(("127.0.0.1", 0))
        sock.listen(BACKLOG)
        job["port"] = sock.getsockname()[1]
    except OSError as error:
        raise SetupFailure("loopback", error.errno or 0) from None
    else:
        send(control, b"listener", (sock.fileno(),))
    finally:
        sock.close()


def proxy_variables(env: Mapping[str, str], port: int) -> dict[str, str]:
    """Return the environment with every usual variable naming the proxy, and without exceptions from it."""
    found = {name: value for name, value in env.items() if name not in ("NO_PROXY", "no_proxy")} | NODE
    for name, scheme in PROXY_VARIABLES.items():
        found[name] = found[name.lower()] = f"{scheme}://127.0.0.1:{port}"
    return found
