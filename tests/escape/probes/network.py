"""A tool without network permission reaches nothing, and nothing reaches it."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.escape.arena import Arena, Listener, eventually
from tests.escape.probe import Found, probe

INTERNET = ("1.1.1.1", "8.8.8.8")
METADATA = "169.254.169.254"


def own_address() -> str:
    """An address of this machine that is not loopback's, if it has one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            sock.connect(("192.0.2.1", 9))  # sends nothing
        except OSError:
            return "127.0.0.2"
        return str(sock.getsockname()[0])


@contextmanager
def canaries() -> Iterator[tuple[list[Listener], int, int]]:
    """TCP and UDP listeners on every address of the machine, and their ports."""
    tcp = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    tcp.bind(("0.0.0.0", 0))
    port = tcp.getsockname()[1]
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    udp.bind(("0.0.0.0", 0))
    found = [Listener(tcp), Listener(udp)]
    if socket.has_ipv6:
        six = socket.socket(socket.AF_INET6, socket.SOCK_STREAM)
        try:
            six.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            six.bind(("::1", port))
            found.append(Listener(six))
        except OSError:
            six.close()
    try:
        yield found, port, udp.getsockname()[1]
    finally:
        for listener in found:
            listener.close()


@probe(
    "network",
    "call this machine by TCP, UDP, MPTCP, fast open, UDP-Lite and SCTP on every address",
    compiled=True,
)
def this_machine(arena: Arena) -> Found:
    return calls_home(arena)


def calls_home(arena: Arena, **fields: Any) -> Found:
    """Call every address of this machine by every protocol."""
    with canaries() as (listeners, tcp, udp):
        addresses = ("127.0.0.1", "127.0.0.2", "0.0.0.0", "::1", own_address())
        done = arena.attack("inet", tcp, udp, *addresses, **fields)
    calls = sum(listener.calls for listener in listeners)
    # A datagram may be sent into nowhere, so what counts for those is whether one came.
    gained = [
        line
        for line in done.text.splitlines()
        if line.startswith("GAINED") and "udp" not in line and "dns" not in line
    ]
    return arena.found(done, gained or calls, f"{calls} calls; " + "; ".join(gained))


@probe("network", "call the internet and a cloud's metadata service", compiled=True)
def internet(arena: Arena) -> Found:
    return arena.nothing_gained(arena.attack("inet", 80, 53, METADATA, *INTERNET, "2606:4700:4700::1111"))


@probe("network", "resolve a name, also through the resolver's sockets")
def names(arena: Arena) -> Found:
    code = """
import socket
for name in ("example.com", "localhost.localdomain.example", "metadata.google.internal"):
    try:
        print("GAINED", socket.getaddrinfo(name, 80))
    except OSError as error:
        print("refused", error)
"""
    return arena.nothing_gained(arena.py(code))


@probe("network", "send raw, ping and packet frames", compiled=True)
def raw_sockets(arena: Arena) -> Found:
    return arena.nothing_gained(arena.attack("raw"))


@probe("network", "see the machine's interfaces and addresses by netlink and /proc", compiled=True)
def interfaces(arena: Arena) -> Found:
    mine = {name for _, name in socket.if_nameindex()} - {
        "lo",
        "sit0",
        "tunl0",
        "ip6tnl0",
        "gre0",
        "gretap0",
        "erspan0",
    }
    done = arena.attack("interfaces")
    shown = arena.sh("cat /proc/net/dev /proc/net/arp /proc/net/tcp /proc/net/unix /proc/net/fib_trie")
    words = (done.text + shown.text).replace(":", " ").replace(".", " ").split()
    address = own_address()
    seen = [name for name in mine if name in words]
    return arena.found(done, seen or address in shown.text, " ".join(seen) or done.text)


@probe("network", "bring an interface up and give it an address", compiled=True)
def bring_up(arena: Arena) -> Found:
    return arena.nothing_gained(arena.attack("ifup"))


def unix_canary(arena: Arena, kind: int, name: str, where: str, **fields: Any) -> Found:
    """Listen on a unix socket, let the tool call it; the canary's descriptor is handed to who calls."""
    sock = socket.socket(socket.AF_UNIX, kind)
    sock.bind(f"\0{name}" if where == "abstract" else name)
    gift = os.open(arena.canary, os.O_RDONLY)
    listener = Listener(sock, gift)
    grant = [arena.project / "src"] if where == "path" else []
    try:
        done = arena.attack("unix", where, name, read=grant, **fields)
    finally:
        listener.close()
        os.close(gift)
    calls = f"{listener.calls} calls; " if listener.calls else ""
    return arena.found(done, calls or arena.token in done.text, calls + done.text)


@probe("network", "call an abstract unix socket of the machine", compiled=True)
def abstract_socket(arena: Arena) -> Found:
    return unix_canary(arena, socket.SOCK_STREAM, arena.token, "abstract")


@probe("network", "send to an abstract datagram socket of the machine", compiled=True)
def abstract_datagram(arena: Arena) -> Found:
    return unix_canary(arena, socket.SOCK_DGRAM, arena.token, "abstract")


@probe("network", "call a unix socket with a path name outside of the grants", compiled=True)
def outside_socket(arena: Arena) -> Found:
    return unix_canary(arena, socket.SOCK_STREAM, str(arena.outside / "s"), "outside")


@probe(
    "network",
    "call a unix socket inside a read grant and be handed a descriptor",
    needs="seccomp",
    compiled=True,
)
def granted_socket(arena: Arena) -> Found:
    return unix_canary(arena, socket.SOCK_STREAM, str(arena.project / "src/s"), "path")


@probe("network", "send to a datagram socket inside a read grant", needs="seccomp", compiled=True)
def granted_datagram(arena: Arena) -> Found:
    return unix_canary(arena, socket.SOCK_DGRAM, str(arena.project / "src/s"), "path")


@probe("network", "be reached from the machine: listen by TCP and on an abstract name", compiled=True)
def listening(arena: Arena) -> Found:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    reached: list[str] = []

    def called(family: socket.AddressFamily, address: tuple[str, int] | str) -> bool:
        with socket.socket(family) as sock:
            try:
                sock.connect(address)
            except OSError:
                return False
            reached.append(str(address))
            return True

    with arena.meanwhile(lambda: arena.attack("listen", port, arena.token)) as found:
        eventually(
            lambda: (
                bool(found)
                or called(socket.AF_INET, ("127.0.0.1", port))
                or called(socket.AF_UNIX, f"\0{arena.token}")
            ),
            3,
        )
    return arena.found(found[0], reached, " ".join(reached))


@probe("network", "talk past this machine to the one it runs on (AF_VSOCK)", needs="seccomp", compiled=True)
def vsock(arena: Arena) -> Found:
    return arena.nothing_gained(arena.attack("vsock", 1024))


@probe("network", "speak the kernel's own protocols (netlink)", needs="seccomp", compiled=True)
def netlink(arena: Arena) -> Found:
    return arena.nothing_gained(arena.attack("netlink"))


@probe("network", "open sockets of forty other families", needs="seccomp", compiled=True)
def families(arena: Arena) -> Found:
    return arena.nothing_gained(arena.attack("families"))
