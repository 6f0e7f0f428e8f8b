"""A tool without network permission reaches nothing, and nothing reaches it."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager

from tests.escape.arena import Arena, Listener, eventually
from tests.escape.probe import Found, Outcome, probe

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
    with canaries() as (listeners, tcp, udp):
        done = arena.attack("inet", tcp, udp, "127.0.0.1", "127.0.0.2", "0.0.0.0", "::1", own_address())
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


def unix_canary(arena: Arena, kind: int, name: str, where: str) -> Found:
    """Listen on a unix socket, let the tool call it; the canary's descriptor is handed to who calls."""
    sock = socket.socket(socket.AF_UNIX, kind)
    sock.bind(f"\0{name}" if where == "abstract" else name)
    gift = os.open(arena.canary, os.O_RDONLY)
    listener = Listener(sock, gift)
    grant = [arena.project / "src"] if where == "path" else []
    try:
        done = arena.attack("unix", where, name, read=grant)
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


# With a list of hosts: through the product's own proxy, to what was listed and to nothing else.

PROXIED = """
import os, socket, sys
allowed, canary = int(sys.argv[1]), int(sys.argv[2])
proxy = (os.environ.get("HTTP_PROXY") or os.environ.get("http_proxy") or "").removeprefix("http://").strip("/")
host, _, port = proxy.rpartition(":")
def ask(text):
    with socket.create_connection((host, int(port)), 3) as sock:
        sock.settimeout(3)
        sock.sendall(text.encode())
        got = b""
        try:
            while part := sock.recv(4096):
                got += part
        except OSError:
            pass
        return got
def get(target, name):
    return f"GET http://{target}/ HTTP/1.1\\r\\nHost: {name}\\r\\nConnection: close\\r\\n\\r\\n"
print("tried" if b"welcome" in ask(get(f"127.0.0.1:{allowed}", "x")) else "proxy does not answer", flush=True)
"""


def proxied(arena: Arena, attack: str) -> Found:
    """Run an attack with one port of this machine allowed; another is the canary."""
    (arena.project / "scripts/attack.py").write_text(PROXIED + attack)
    allowed_sock, canary_sock = (socket.create_server(("127.0.0.1", 0)) for _ in range(2))
    ports = [sock.getsockname()[1] for sock in (allowed_sock, canary_sock)]
    canary = Listener(canary_sock)
    allowed = Greeter(allowed_sock)
    arena.tool(
        "caller",
        exec={"command": {"entrypoint": "/usr/bin/python3", "args": ["scripts/attack.py", *map(str, ports)]}},
        permissions={"network": {"allow": [f"127.0.0.1:{ports[0]}"]}, "fs": {"read": ["scripts"]}},
    )
    try:
        result = arena.call("caller")
    finally:
        allowed.close()
        canary.close()
    if result.error is not None and result.error.code == "sandbox_unavailable":
        return Found(Outcome.NOT_RUN, f"refused: {result.error.message}", arena.report)
    ran = "tried" in str(result.value)
    return arena.answered(result, canary.calls, ran, f"{canary.calls} calls; {result.value}")


class Greeter(Listener):
    """A server that says welcome."""

    def _serve(self) -> None:
        while not self._stop.is_set():
            try:
                peer, _ = self.sock.accept()
                with peer:
                    peer.recv(4096)
                    peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\nConnection: close\r\n\r\nwelcome")
            except OSError:
                continue


@probe("network", "go round the proxy to a port that was not listed", needs="proxy", ours_only=True)
def proxy_bypassed(arena: Arena) -> Found:
    return proxied(
        arena,
        """
for address in (("127.0.0.1", canary), ("127.0.0.1", allowed), ("0.0.0.0", canary)):
    try:
        socket.create_connection(address, 1).close()
    except OSError as error:
        print(error)
socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", canary))
""",
    )


@probe(
    "network",
    "have the proxy fetch what was not listed: by target, by tunnel, by name",
    needs="proxy",
    ours_only=True,
)
def proxy_other_target(arena: Arena) -> Found:
    return proxied(
        arena,
        """
for name in ("127.0.0.1", "localhost", "127.1", "0x7f000001", "2130706433", "[::ffff:127.0.0.1]", "0.0.0.0",
             f"127.0.0.1:{allowed}@127.0.0.1"):
    ask(get(f"{name}:{canary}", f"127.0.0.1:{allowed}"))
    ask(f"CONNECT {name}:{canary} HTTP/1.1\\r\\nHost: 127.0.0.1:{allowed}\\r\\n\\r\\n")
""",
    )


@probe("network", "hide a second request behind an allowed one", needs="proxy", ours_only=True)
def proxy_second_request(arena: Arena) -> Found:
    return proxied(
        arena,
        """
good, bad = get(f"127.0.0.1:{allowed}", "x").replace("close", "keep-alive"), get(f"127.0.0.1:{canary}", "x")
ask(good + bad)
ask(f"GET http://127.0.0.1:{allowed}/ HTTP/1.1\\r\\nHost: 127.0.0.1:{canary}\\r\\nContent-Length: 4\\r\\n"
    "Transfer-Encoding: chunked\\r\\n\\r\\n0\\r\\n\\r\\n" + bad)
ask(f"CONNECT 127.0.0.1:{allowed} HTTP/1.1\\r\\n\\r\\n" + bad)
""",
    )
