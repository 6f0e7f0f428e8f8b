"""`toolcrib.lock` as the exported form of trust: written from what is trusted, and accepted by its digest."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING

from toolcrib.errors import ManifestError, NotFoundError, NotTrusted
from toolcrib.guard import Trusted
from toolcrib.project.integrity.lock import Lock, parse_lock, read_lock, read_raw, write_lock
from toolcrib.project.project import Project

if TYPE_CHECKING:
    from toolcrib.project.tools.servers import Servers

_SHOWN = 5


def lock_of(project: Project) -> Lock:
    """Return the lock of everything as it is now. Raises ManifestError if a tool does not load."""
    now = _now(project)
    if errors := project.errors:
        raise ManifestError(
            f"nothing was locked: {len(errors)} errors in manifests", hint="Fix them: toolcrib lint"
        )
    return now


def drift(project: Project) -> list[str]:
    """Return what of the project differs from its lock, a line each; nothing if there is no lock."""
    lock = read_lock(project.pins.path)
    return [] if lock is None else _differences(lock, _now(project))


def _now(project: Project) -> Lock:
    tools = [*project.catalog.every(stored=False), *project.agents.as_tools(), *project.workflows.as_tools()]
    return project.pins.now(tools, project.config.digest)


def _differences(lock: Lock, now: Lock) -> list[str]:
    # Servers list their tools only once they run: their pins count then.
    found = [
        str(one) for one in Lock(lock.tools, started=lock.started).drift(Lock(now.tools, started=now.started))
    ]
    return found if lock.settings == now.settings else [*found, "settings: config.yml or .mcp.json"]


def write(project: Project, lock: Lock) -> tuple[Path, str, int]:
    """Write the lock; return its path, its SHA-256 in hex, and how many pins it has."""
    path = project.pins.path
    write_lock(path, lock)
    raw = read_raw(path)
    assert raw is not None
    return path, hashlib.sha256(raw).hexdigest(), len(lock.tools)


def accept_lock(project: Project, digest: str, by: str) -> int:
    """Trust everything that the lock pins, if it has this SHA-256 and the project is as it says.

    Return how many pins it has. Raises NotFoundError, NotTrusted; then nothing is trusted.
    """
    path = project.pins.path
    raw = read_raw(path)
    if raw is None:
        raise NotFoundError(f"there is no {path}", hint="Write it where the project is trusted: trust --lock")
    found = hashlib.sha256(raw).hexdigest()
    if found != digest:
        raise NotTrusted(
            f"{path} has the digest {found}, not {digest}, so nothing was trusted",
            hint="Somebody has changed it since. Look at the change, then use the new digest.",
        )
    lock = parse_lock(raw, path)
    if different := _differences(lock, lock_of(project)):
        shown = "; ".join(different[:_SHOWN]) + ("; …" if len(different) > _SHOWN else "")
        raise NotTrusted(
            f"the project is not what {path.name} pins, so nothing was trusted: {shown}",
            hint="Check out the commit that the lock was written for.",
        )
    sheets = project.trust.sheets()[0]
    servers = [] if project.servers is None else _server_rows(project.servers, lock)
    project.trust.accept(by, sheets, settings=True, channel="lock", more=servers)
    return len(lock.tools)


def _server_rows(servers: Servers, lock: Lock) -> list[Trusted]:
    """Return the rows that trust the servers of the settings with the definitions and hosts of the lock."""
    from toolcrib.spec import Network

    rows = []
    for name, mounted in servers.mounted.items():
        hosts = lock.hosts.get(name)
        network = None if hosts is None else Network.parse(json.loads(hosts))
        rows.append(mounted.trust.row({}, network, lock.bundles.get(name, {})))
    return rows
