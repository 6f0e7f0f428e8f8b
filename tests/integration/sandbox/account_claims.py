"""The claims about accounts and name lookups: what a tool sees of the machine's `/etc`. See `claims`."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from tests.integration.sandbox.ground import Ground, said, shell

LOOKUPS = ("/etc/hosts", "/etc/resolv.conf", "/etc/nsswitch.conf")


def accounts_are_the_tools_own_root_and_nobody(ground: Ground) -> None:
    for file in ("passwd", "group"):
        done = shell(ground, f"cut -d: -f3 /etc/{file}")
        own = os.geteuid() if file == "passwd" else os.getegid()
        assert {int(word) for word in done.stdout.split()} == {0, own, 65534}, said(done)
        machine = {line.partition(":")[0] for line in Path(f"/etc/{file}").read_text().splitlines()}
        done = shell(ground, f"cut -d: -f1 /etc/{file}", network="host")
        assert not {*done.stdout.decode().split()} & machine - {"root", "nobody", "nogroup"}, said(done)
    done = shell(ground, "id -un && id -gn && echo > /etc/passwd")
    assert len(done.stdout.split()) == 2, said(done)
    assert "Read-only" in said(done)


def lookups_are_the_machines_on_its_own_network_only(ground: Ground) -> None:
    for place in LOOKUPS:
        if not Path(place).exists():
            continue
        machine = Path(place).read_bytes()
        assert shell(ground, f"cat {place}", network="host").stdout == machine
        own = shell(ground, f"cat {place}")
        assert own.exit_code == 0, said(own)
        told = {*machine.splitlines()} & {*own.stdout.splitlines()} - {b""}
        assert not [line for line in told if b"localhost" not in line and b"files" not in line], told


def the_machines_accounts_can_be_granted(ground: Ground) -> None:
    done = shell(ground, "cat /etc/passwd", read=("/etc/passwd",))
    assert done.stdout == Path("/etc/passwd").read_bytes(), said(done)
    assert b":0:0:" in shell(ground, "cat /etc/passwd; cat /etc/shadow", read=("/etc/group",)).stdout


ACCOUNTS: tuple[Callable[[Ground], None], ...] = (
    accounts_are_the_tools_own_root_and_nobody,
    lookups_are_the_machines_on_its_own_network_only,
    the_machines_accounts_can_be_granted,
)
