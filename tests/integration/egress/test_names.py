"""The machine's own resolver and addresses, in a network of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.conftest import need

SCRIPT = """
import asyncio, fcntl, resource, socket
from toolcrib.egress import Egress, EgressRequest, HostPolicy, address_kind
from toolcrib.spec import Network

lo = b"lo".ljust(16, b"\\0") + b"\\1" + bytes(23)
fcntl.ioctl(socket.socket(), 0x8914, lo)  # SIOCSIFFLAGS: up
alias = b"lo:1".ljust(16, b"\\0") + socket.AF_INET.to_bytes(2, "little") + bytes(2)
fcntl.ioctl(socket.socket(), 0x8916, alias + socket.inet_aton("8.8.8.8") + bytes(8))  # SIOCSIFADDR
print(address_kind("8.8.8.8"), address_kind("9.9.9.9"), flush=True)
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(("127.0.0.1", 53))

async def main():
    policy = HostPolicy.of(Network("hosts", ("*.example.com",)))
    async with Egress() as egress:
        requests = [EgressRequest("GET", f"https://a{number}.example.com/") for number in range(50)]
        tasks = [asyncio.ensure_future(egress.request(request, policy)) for request in requests]
        # As many are asked for as there are threads; the loop's own would be fewer than 40.
        for _ in range(40):
            await asyncio.get_running_loop().sock_recv(server, 512)
        assert not any(task.done() for task in tasks)
        await asyncio.to_thread(print, "went on", flush=True)

server.setblocking(False)
asyncio.run(main())
_, most = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (0, most))
print(address_kind("9.9.9.9"))
"""


def test_addresses_of_this_machine_and_names_that_nobody_answers(tmp_path: Path) -> None:
    settings = tmp_path / "resolv.conf"
    settings.write_text("nameserver 127.0.0.1\noptions timeout:30 attempts:1\n")
    mount = 'mount --bind "$0" /etc/resolv.conf && exec "$@"'
    unshare = ["unshare", "--user", "--map-root-user", "--mount", "--net", "sh", "-c", mount, str(settings)]
    able = subprocess.run([*unshare, "true"], capture_output=True, check=False)
    need(f"mounts and networks of its own ({able.stderr.decode().strip()})", able.returncode == 0)
    done = subprocess.run(
        [*unshare, sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    # A public address of this machine leads to its local services. One that cannot be checked may do so too.
    # Names that nobody answers hold up nothing else.
    assert done.stdout.splitlines() == ["loopback public", "went on", "loopback"]
