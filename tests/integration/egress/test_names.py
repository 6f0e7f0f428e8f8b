"""Names whose servers do not answer: the machine's own resolver, in a network of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.conftest import need

SILENT = """
import asyncio, fcntl, socket
from toolcrib.egress import Egress, EgressRequest, HostPolicy
from toolcrib.spec import Network

lo = b"lo".ljust(16, b"\\0") + b"\\1" + bytes(23)
fcntl.ioctl(socket.socket(), 0x8914, lo)  # SIOCSIFFLAGS: up
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(("127.0.0.1", 53))

async def main():
    policy = HostPolicy.of(Network("hosts", ("*.example.com",)))
    async with Egress() as egress:
        for number in range(50):
            request = EgressRequest("GET", f"https://a{number}.example.com/")
            asyncio.ensure_future(egress.request(request, policy))
        # As many are asked for as there are threads; the loop's own would be fewer than 40.
        for _ in range(40):
            await asyncio.get_running_loop().sock_recv(server, 512)
        await asyncio.to_thread(print, "went on", flush=True)

server.setblocking(False)
asyncio.run(main())
"""


def test_names_that_nobody_answers_hold_up_nothing_else(tmp_path: Path) -> None:
    settings = tmp_path / "resolv.conf"
    settings.write_text("nameserver 127.0.0.1\noptions timeout:30 attempts:1\n")
    mount = 'mount --bind "$0" /etc/resolv.conf && exec "$@"'
    unshare = ["unshare", "--user", "--map-root-user", "--mount", "--net", "sh", "-c", mount, str(settings)]
    able = subprocess.run([*unshare, "true"], capture_output=True, check=False)
    need(f"mounts and networks of its own ({able.stderr.decode().strip()})", able.returncode == 0)
    done = subprocess.run(
        [*unshare, sys.executable, "-c", SILENT], capture_output=True, text=True, check=False, timeout=25
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "went on\n"
