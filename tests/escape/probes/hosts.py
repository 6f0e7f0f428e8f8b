"""A tool on the network reaches the hosts it was granted, through the product's own proxy, and nothing else.

The one host that is granted here is a port of this machine; another port is the canary. With `network: true`
both are canaries, since no private address is a public host.
"""

from __future__ import annotations

import socket
import ssl
from pathlib import Path
from typing import Any

from tests.escape.arena import Arena, Listener, eventually
from tests.escape.probe import Found, Outcome, probe
from tests.escape.probes.network import METADATA, calls_home, own_address, unix_canary
from toolcrib.egress import Proxy, program_policy
from toolcrib.spec import Network

ATTACK = f"""
import os, socket, ssl, struct, sys
allowed, canary, OWN, METADATA = int(sys.argv[1]), int(sys.argv[2]), {own_address()!r}, {METADATA!r}
host, port = os.environ["HTTP_PROXY"].removeprefix("http://").split(":")
def ask(*parts, limit=3):
    with socket.create_connection((host, int(port)), 60) as sock:
        sock.settimeout(limit)
        got = b""
        try:
            for part in parts:
                sock.sendall(part.encode() if isinstance(part, str) else part)
            while part := sock.recv(4096):
                got += part
        except OSError:
            pass
        return got
def get(target, name, more=""):
    return f"GET http://{{target}}/ HTTP/1.1\\r\\nHost: {{name}}\\r\\nConnection: close\\r\\n{{more}}\\r\\n"
def connect(target, name="x"):
    return f"CONNECT {{target}} HTTP/1.1\\r\\nHost: {{name}}\\r\\n\\r\\n"
def socks(kind, address, port):
    return b"\\x05\\x01\\x00", b"\\x05\\x01\\x00" + bytes([kind]) + address + struct.pack(">H", port)
def name(text):
    return bytes([len(text)]) + text.encode()
def gained(what, answer):
    if b" 200 " in answer[:40] or answer[:4] == b"\\x05\\x00\\x05\\x00":
        print("GAINED", what, answer[:80])
answer = ask(get(f"127.0.0.1:{{allowed}}", "x"), limit=60)
print("tried" if b"welcome" in answer or b" 403 " in answer else "proxy does not answer", flush=True)
NAMES = ("127.0.0.1", "localhost", "127.1", "0x7f000001", "2130706433", "017700000001", "[::1]", "0.0.0.0",
         "[::ffff:127.0.0.1]", "[::]", "[::127.0.0.1]", "[64:ff9b::7f00:1]", "127.0.0.1.", "LOCALHOST", OWN)
"""


class Web(Listener):
    """A server that says welcome, counts its calls and keeps what it was sent."""

    def __init__(self, certificate: Path | None = None) -> None:
        self.heard = b""
        self.tls: ssl.SSLContext | None = None
        if certificate is not None:
            self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self.tls.load_cert_chain(certificate)
        super().__init__(socket.create_server(("127.0.0.1", 0)))

    def _serve(self) -> None:
        while not self._stop.is_set():
            try:
                peer, _ = self.sock.accept()
                peer.settimeout(5)
                if self.tls is not None:
                    peer = self.tls.wrap_socket(peer, server_side=True)
                with peer:
                    self.calls += 1
                    self.heard += peer.recv(4096)
                    peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\nConnection: close\r\n\r\nwelcome")
            except OSError:
                continue

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self.sock.getsockname()[1])


def attacked(arena: Arena, attack: str, network: Any = None, forbidden: bytes = b"") -> Found:
    """Run an attack, by default with one port of this machine granted; `forbidden` must not arrive there."""
    (arena.project / "scripts/attack.py").write_text(ATTACK + attack)
    allowed, canary = Web(), Web()
    granted = {"allow": [f"127.0.0.1:{allowed.port}"]} if network is None else network
    ports = [str(allowed.port), str(canary.port)]
    arena.tool(
        "caller",
        exec={"command": {"entrypoint": "/usr/bin/python3", "args": ["scripts/attack.py", *ports]}},
        permissions={"network": granted, "fs": {"read": ["scripts"]}},
    )
    try:
        result = arena.call("caller")
    finally:
        allowed.close()
        canary.close()
    said = str(result.value or result.error)
    lines = [line for line in said.splitlines() if line.startswith("GAINED")]
    calls = canary.calls + (allowed.calls if network is not None else 0)
    arrived = forbidden and forbidden in allowed.heard
    escaped = calls or lines or arrived
    evidence = f"{calls} calls; {'; '.join(lines)} {arrived!r} {said}"
    return arena.answered(result, escaped, "tried" in said, evidence)


ROUND = """
for address in (("127.0.0.1", canary), ("127.0.0.1", allowed), ("0.0.0.0", canary), (OWN, canary),
                (METADATA, 80), ("1.1.1.1", 80), ("1.1.1.1", 53)):
    try:
        socket.create_connection(address, 1).close()
        print("GAINED", address)
    except OSError:
        pass
for address in (("127.0.0.1", canary), ("1.1.1.1", 53), ("8.8.8.8", 53), (METADATA, 53),
                ("255.255.255.255", 67)):
    try:
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        sock.settimeout(0.2)
        sock.sendto(b"\\0\\1\\1\\0\\0\\1\\0\\0\\0\\0\\0\\0\\7example\\3com\\0\\0\\1\\0\\1", address)
        sock.recv(9)
        print("GAINED", address)
    except OSError:
        pass
"""


@probe("network", "go round the proxy: by TCP, UDP and DNS, to this machine and beyond", ours_only=True)
def proxy_bypassed(arena: Arena) -> Found:
    return attacked(arena, ROUND)


@probe("network", "the same with any public host granted", ours_only=True)
def proxy_bypassed_from_any(arena: Arena) -> Found:
    return attacked(arena, ROUND, network=True)


TARGETS = """
for each in NAMES:
    gained(each, ask(get(f"{each}:{canary}", f"127.0.0.1:{allowed}")))
    gained(each, ask(connect(f"{each}:{canary}", f"127.0.0.1:{allowed}")))
for each in (f"127.0.0.1:{allowed}@127.0.0.1:{canary}", f"127.0.0.1:{canary}#127.0.0.1:{allowed}",
             f"127.0.0.1:{canary}?@127.0.0.1:{allowed}", f"127.0.0.1:{canary}\\\\@127.0.0.1:{allowed}"):
    gained(each, ask(get(each, "x")))
    gained(each, ask(connect(each)))
for each in (METADATA, f"[::ffff:{METADATA}]", "metadata.google.internal", "168.63.129.16", "100.100.100.200",
             "10.0.0.1", "192.168.0.1", "[fd00:ec2::254]", "[fe80::1]"):
    gained(each, ask(get(each, "x")))
    gained(each, ask(connect(f"{each}:80")))
"""


@probe(
    "network", "have the proxy fetch what was not listed: by target, by tunnel, by spelling", ours_only=True
)
def proxy_other_target(arena: Arena) -> Found:
    return attacked(arena, TARGETS)


@probe("network", "have the proxy fetch private addresses with any public host granted", ours_only=True)
def proxy_private_target(arena: Arena) -> Found:
    return attacked(arena, TARGETS, network=True)


SOCKS = """
for address in (bytes([127, 0, 0, 1]), bytes(4), socket.inet_aton(OWN)):
    gained(address, ask(*socks(1, address, canary)))
    gained(address, ask(*socks(4, bytes(10) + b"\\xff\\xff" + address, canary)))
gained("::1", ask(*socks(4, bytes(15) + b"\\1", canary)))
gained("metadata", ask(*socks(1, socket.inet_aton(METADATA), 80)))
for each in NAMES:
    gained(each, ask(*socks(3, name(each), canary)))
gained("bind", ask(b"\\x05\\x01\\x00", b"\\x05\\x02\\x00\\x01\\x7f\\0\\0\\1" + struct.pack(">H", allowed)))
gained("udp", ask(b"\\x05\\x01\\x00", b"\\x05\\x03\\x00\\x01\\x7f\\0\\0\\1" + struct.pack(">H", canary)))
gained("socks4", ask(b"\\x04\\x01" + struct.pack(">H", canary) + b"\\x7f\\0\\0\\1\\0"))
"""


@probe("network", "reach by SOCKS what was not listed, and bind or send datagrams by it", ours_only=True)
def proxy_socks(arena: Arena) -> Found:
    return attacked(arena, SOCKS)


@probe("network", "reach private addresses by SOCKS with any public host granted", ours_only=True)
def proxy_socks_from_any(arena: Arena) -> Found:
    return attacked(arena, SOCKS, network=True)


@probe("network", "hide a second request behind an allowed one", ours_only=True)
def proxy_second_request(arena: Arena) -> Found:
    return attacked(
        arena,
        """
good = get(f"127.0.0.1:{allowed}", "x").replace("close", "keep-alive")
bad = get(f"127.0.0.1:{canary}", "x")
ask(good + bad)
ask(good, bad)
ask(f"GET http://127.0.0.1:{allowed}/ HTTP/1.1\\r\\nHost: 127.0.0.1:{canary}\\r\\nContent-Length: 4\\r\\n"
    "Transfer-Encoding: chunked\\r\\n\\r\\n0\\r\\n\\r\\n" + bad)
ask(get(f"127.0.0.1:{allowed}", "x", "Content-Length: 0\\r\\nContent-Length: 9\\r\\n") + bad)
ask(connect(f"127.0.0.1:{allowed}") + bad)
ask(connect(f"127.0.0.1:{allowed}"), "GET / HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n" + bad)
""",
    )


@probe("network", "name another host to an allowed server: by Host, in a tunnel, by SOCKS", ours_only=True)
def proxy_host_header(arena: Arena) -> Found:
    return attacked(
        arena,
        """
secret = "other.test"
ask(get(f"127.0.0.1:{allowed}", secret))
ask(get(f"127.0.0.1:{allowed}", "x", f"Host: {secret}\\r\\n"))
ask(f"GET http://127.0.0.1:{allowed}/ HTTP/1.1\\r\\nHost: x\\r\\n Host: {secret}\\r\\n\\r\\n")
plain = f"GET / HTTP/1.1\\r\\nHost: {secret}\\r\\nConnection: close\\r\\n\\r\\n"
ask(connect(f"127.0.0.1:{allowed}"), plain)
ask(connect(f"127.0.0.1:{allowed}") + plain)
ask(*socks(1, bytes([127, 0, 0, 1]), allowed), plain)
whole = f"GET http://{secret}/ HTTP/1.1\\r\\nHost: {secret}\\r\\n\\r\\n"
ask(*socks(1, bytes([127, 0, 0, 1]), allowed), whole)
""",
        forbidden=b"other.test",
    )


@probe("network", "ask an allowed server for another host by TLS (SNI), whole or in pieces", ours_only=True)
def proxy_other_name(arena: Arena) -> Found:
    return attacked(
        arena,
        """
def hello(server):
    inward, outward = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.wrap_bio(inward, outward, server_hostname=server).do_handshake()
    except ssl.SSLWantReadError:
        pass
    return outward.read()
whole = hello("other.test")
pieces = [whole[at:at + 7] for at in range(0, len(whole), 7)]
records = b"".join(whole[:3] + struct.pack(">H", len(part)) + part
                   for part in (whole[5:][at:at + 40] for at in range(0, len(whole) - 5, 40)))
for way in ((connect(f"127.0.0.1:{allowed}"),), socks(1, bytes([127, 0, 0, 1]), allowed)):
    ask(*way, whole)
    ask(*way, *pieces)
    ask(*way, records)
    ask(*way, b"\\x16\\x03\\x01\\0\\0" + whole)
    ask(*way, b"\\x14\\x03\\x01\\0\\1\\1" + whole)
""",
        forbidden=b"other.test",
    )


@probe("network", "reach another call's proxy, and by it what that call was granted", ours_only=True)
def proxy_of_another_call(arena: Arena) -> Found:
    canary = Web()
    scratch = arena.project / "src"
    wait = "while [ ! -e src/done ]; do sleep 0.02; done"
    script = f"echo $HTTP_PROXY > src/told; touch src/there; {wait}; echo ended"
    arena.tool(
        "first",
        exec={"command": {"entrypoint": "sh", "args": ["-c", script]}},
        permissions={"network": {"allow": [f"127.0.0.1:{canary.port}"]}, "fs": {"write": ["src"]}},
    )
    attack = f"""
import os, socket
told = open("src/told").read().strip().removeprefix("http://").split(":")[1]
own = os.environ["HTTP_PROXY"].rpartition(":")[2]
print("tried", flush=True)
for host in ("127.0.0.1", "127.0.0.2", "0.0.0.0", "::1"):
    for port in {{int(told)}} - {{int(own)}}:
        try:
            sock = socket.create_connection((host, port), 1)
            print("GAINED a connection to", host, port)
            sock.sendall(b"GET http://127.0.0.1:{canary.port}/ HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n")
            print("GAINED", sock.recv(99))
        except OSError as error:
            print(error)
sock = socket.create_connection(("127.0.0.1", int(own)))
sock.sendall(b"GET http://127.0.0.1:{canary.port}/ HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n")
if b"welcome" in sock.recv(999):
    print("GAINED by the own one")
"""
    (arena.project / "scripts/attack.py").write_text(attack)
    arena.tool(
        "second",
        exec={"command": {"entrypoint": "/usr/bin/python3", "args": ["scripts/attack.py"]}},
        permissions={"network": {"allow": ["example.com"]}, "fs": {"read": ["scripts", "src"]}},
    )
    try:
        with arena.meanwhile(lambda: arena.call("first")) as first:
            eventually(lambda: (scratch / "there").exists() or first, 10)
            result = arena.call("second")
            (scratch / "done").touch()
    finally:
        canary.close()
    said = str(result.value or result.error)
    ran = "tried" in said and "ended" in str(first[0].value)
    return arena.answered(result, canary.calls or "GAINED" in said, ran, f"{canary.calls} calls; {said}")


@probe(
    "network", "find a descriptor of the server's, or its control channel, beside the proxy", ours_only=True
)
def proxy_descriptors(arena: Arena) -> Found:
    return attacked(
        arena,
        """
for number in os.listdir("/proc/self/fd"):
    try:
        link = os.readlink(f"/proc/self/fd/{number}")
    except OSError:
        continue
    if int(number) > 2 and "/proc/" not in link:
        print("GAINED", number, link)
""",
    )


# What the kernel holds beside the proxy: the sandbox by itself, its proxy letting any public host through.


def led_out() -> dict[str, Any]:
    """The fields of a job with `network: true`."""

    def outlet(listener: socket.socket) -> Proxy:
        return Proxy(listener, program_policy(Network("any")), on_refusal=lambda _: None)

    return {"network": "proxy", "outlet": outlet}


@probe("network", "call this machine by every protocol, with a proxy there", compiled=True, ours_only=True)
def this_machine_beside_the_proxy(arena: Arena) -> Found:
    return calls_home(arena, **led_out())


@probe("network", "send raw, ping and packet frames, with a proxy there", compiled=True, ours_only=True)
def raw_beside_the_proxy(arena: Arena) -> Found:
    return arena.nothing_gained(arena.attack("raw", **led_out()))


@probe("network", "change the network's interfaces, with a proxy there", compiled=True, ours_only=True)
def interfaces_beside_the_proxy(arena: Arena) -> Found:
    return arena.nothing_gained(arena.attack("ifup", **led_out()))


@probe("network", "speak vsock, netlink and forty others, with a proxy there", compiled=True, ours_only=True)
def families_beside_the_proxy(arena: Arena) -> Found:
    for attack in (("vsock", 1024), ("netlink",)):
        found = arena.nothing_gained(arena.attack(*attack, **led_out()))
        if found.outcome is not Outcome.BLOCKED:
            return found
    return arena.nothing_gained(arena.attack("families", **led_out()))


@probe("network", "call a unix socket inside a grant, with a proxy there", compiled=True, ours_only=True)
def granted_socket_beside_the_proxy(arena: Arena) -> Found:
    return unix_canary(arena, socket.SOCK_STREAM, str(arena.project / "src/s"), "path", **led_out())


@probe("network", "call an abstract unix socket, with a proxy there", compiled=True, ours_only=True)
def abstract_socket_beside_the_proxy(arena: Arena) -> Found:
    return unix_canary(arena, socket.SOCK_STREAM, arena.token, "abstract", **led_out())


# On the machine's own network, which a person agreed to.


@probe("network", "send raw and packet frames on the machine's network", ours_only=True)
def raw_on_the_host(arena: Arena) -> Found:
    code = """
import socket
for family, kind, protocol in ((2, 3, 1), (2, 3, 255), (10, 3, 58), (17, 3, 0x300), (17, 2, 0x300),
                               (16, 3, 12), (40, 1, 0), (38, 5, 0), (2, 1, 262)):
    try:
        socket.socket(family, kind, protocol)
        print("GAINED", family, kind, protocol)
    except OSError:
        pass
"""
    return arena.nothing_gained(arena.py(code, network="host"))


@probe(
    "network",
    "call an abstract unix socket on the machine's network",
    needs="landlock",
    compiled=True,
    ours_only=True,
)
def abstract_socket_on_the_host(arena: Arena) -> Found:
    return unix_canary(arena, socket.SOCK_STREAM, arena.token, "abstract", network="host")


@probe(
    "network",
    "call a unix socket outside of the grants on the machine's network",
    compiled=True,
    ours_only=True,
)
def outside_socket_on_the_host(arena: Arena) -> Found:
    return unix_canary(arena, socket.SOCK_STREAM, str(arena.outside / "s"), "outside", network="host")


@probe(
    "network", "change the machine's network: an address, a route, a setting of the kernel's", ours_only=True
)
def settings_of_the_host(arena: Arena) -> Found:
    setting = Path("/proc/sys/net/ipv4/ip_default_ttl")
    before = setting.read_text()
    code = """
import socket, struct, fcntl, os
sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for number, data in ((0x8916, struct.pack("16sH2s4s8s", b"lo:9", 2, b"", bytes([127, 9, 9, 9]), b"")),
                     (0x890B, bytes(120)), (0x8922, struct.pack("16si12x", b"lo", 1400))):
    try:
        fcntl.ioctl(sock, number, data)
        print("GAINED", hex(number))
    except OSError:
        pass
route = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
body = struct.pack("BBBBi4s", 2, 32, 0, 254, 1, b"") + struct.pack("HH4s", 8, 2, bytes([127, 9, 9, 8]))
route.send(struct.pack("IHHII", 16 + len(body), 20, 0x605, 1, 0) + body)
size, kind, _, _, _, error = struct.unpack("IHHIIi", route.recv(4096)[:20])
if kind != 2 or error == 0:
    print("GAINED an address", kind, error)
try:
    open("/proc/sys/net/ipv4/ip_default_ttl", "w").write("65")
    print("GAINED a setting")
except OSError:
    pass
"""
    done = arena.py(code, network="host")
    addresses = Path("/proc/net/fib_trie").read_text()
    changed = before != setting.read_text() or "127.9.9." in addresses or Path("/sys/class/net/lo:9").exists()
    gained = [line for line in done.text.splitlines() if line.startswith("GAINED")]
    return arena.found(done, gained or changed, "; ".join(gained) or done.text)
