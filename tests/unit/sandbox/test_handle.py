"""The messages of a sandbox, as its handle takes them in."""

from __future__ import annotations

import socket

from toolcrib.sandbox.child.command import report_ready
from toolcrib.sandbox.host.handle import LauncherHandle, SandboxHandle


def test_more_files_than_one_message_can_name_are_all_known() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setblocking(False)
    launcher = LauncherHandle("", lambda _: None)
    sandbox = SandboxHandle(launcher, ours, None, {"level": "landlock"})
    found = [None, *((2**64 - 1, 2**64 - number) for number in range(1, 4_000))]
    try:
        with theirs:
            report_ready(theirs.fileno(), found, ["user namespace"])
            sandbox.receive()
        assert (sandbox.unexpected, sandbox.missing) == ("", ("user namespace",))
        assert sandbox.bound == found
    finally:
        sandbox.close()
        launcher.close()
