"""Approvals over databases of their own, and questions, for tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.databases import LEASE_S, Address, open_database
from toolcrib.guard import Ask
from toolcrib.guard.approvals.approvals import Approvals
from toolcrib.state import PROJECT, VAULT_GRANTS, Database, SqliteDatabase

START = 1_800_000_000.0


class Wall:
    """A clock on the wall: it shows what it was set to."""

    def __init__(self, now: float = START) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def state(address: Address, origin: str | None = None, *, lease_s: float = LEASE_S) -> Database:
    if origin is not None:
        return SqliteDatabase(Path(address, "state.db"), PROJECT, origin=origin)
    return open_database(address, "state", PROJECT, lease_s=lease_s)


def vault(address: Address) -> Database:
    return open_database(address, "grants", VAULT_GRANTS)


def approvals(address: Address, **more: Any) -> Approvals:
    return Approvals(state(address), vault(address), **more)


def ask(number: int = 0, **more: Any) -> Ask:
    """A question of a caller; `number` is its argument."""
    fields: dict[str, Any] = {
        "tool": "pay",
        "bundle": "project",
        "tool_digest": "d" * 64,
        "arguments": b'{"n":%d}' % number,
        "caller": "mcp:agent",
        "owner": "ada",
        "session_id": "s1",
        "reason": "it is dear",
        "rule": "manifest",
        "touches": ("network: example.com",),
        "call_id": None,
    }
    return Ask(**{**fields, **more})
