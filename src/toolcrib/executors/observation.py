"""What a watched run was seen to use, sorted by what its grants say of it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from toolcrib.executors.reach import Access, Reach, Verdict, in_any, is_folder, parent, there
from toolcrib.executors.workspace import Workspace
from toolcrib.sandbox import Confinement
from toolcrib.sandbox.grants import RESERVED
from toolcrib.spec import PythonExec, Tool

if TYPE_CHECKING:
    from toolcrib.sandbox.watch import Seen

__all__ = ["Observation", "Uses"]

Uses = dict[str, dict[str, None]]
"""Real path to what was done there, in the order it was first seen."""
_READS = {"read": "read", "list": "listed", "look": "looked for", "run": "run"}
_DISPENSABLE = frozenset({
    "/etc/gai.conf", "/etc/host.conf", "/etc/inputrc", "/etc/ld.so.preload", "/etc/locale.alias",
    "/etc/selinux/config",
})  # fmt: skip
"""What the C library looks up and does well without."""
_MOST, _MOST_HOSTS = 50, 1_000
"""Reasons kept of one path, and hosts: a tool may have as many as it likes."""
_SYSTEM = ("/usr/", "/proc/", "/sys/", "/dev/")


class Observation:
    """What one tool used, over all attempts of one call.

    `used` was granted, `missing` was asked for and is there but not granted, `closed` was asked for and no
    grant opens it; each by what was wanted, `read` or `write`.
    """

    def __init__(self) -> None:
        self.tool: Tool | None = None
        self.reach: Reach | None = None
        self.calls = 0
        """System calls that were watched."""
        self.used: dict[Access, Uses] = {"read": {}, "write": {}}
        self.missing: dict[Access, Uses] = {"read": {}, "write": {}}
        self.closed: dict[Access, Uses] = {"read": {}, "write": {}}
        self.looked: dict[str, None] = {}
        """Granted folders that it asked for without listing them."""
        self.hosts: dict[tuple[str, int | None], bool] = {}
        """Host and port, and whether it was let there."""
        self.sockets = False
        """Whether an internet socket was refused, wherever it was to lead."""
        self.addresses: dict[str, None] = {}
        """Addresses that it was about to use."""
        self.variables: dict[str, None] | None = None
        """Names read through `os.environ`; None where that cannot be seen."""
        self.programs = 0
        self._listed_by_imports: list[str] = []
        self._reading = ("read", "list", "look", "run")

    # -- what is told ----------------------------------------------------------------------------

    def over(self, workspace: Workspace, tool: Tool, job: Confinement) -> Confinement:
        """The same job, watched."""
        from dataclasses import replace

        self.tool, self.reach = tool, Reach.of(workspace, tool, job)
        self.programs = 0
        own = workspace.folder(tool)
        if isinstance(tool.config, PythonExec):
            # What imports look through lists each of these once, whatever the tool does.
            starts = [job.cwd, workspace.home, *([own] if own is not None else [])]
            packages = tool.config.module.split(".")[:-1]
            self._listed_by_imports = [
                "/".join((start, *packages[:depth])) for start in starts for depth in range(len(packages) + 1)
            ]
        return replace(job, watch=self.see)

    def see(self, seen: Seen) -> None:
        """Take in one thing that the tool is about to do."""
        self.calls += 1
        if seen.access == "network":
            self._network(seen)
        elif seen.access in self._reading:
            if seen.access == "run" and there(seen.path):
                self.programs += 1
            self._read(seen.access, seen.path)
        else:
            self._write(seen.access, seen.path)

    def record_host(self, host: str, port: int | None, granted: bool) -> None:
        """Note a host that the tool asked for, and whether it was let there."""
        name = host.lower().rstrip(".")
        if len(self.hosts) >= _MOST_HOSTS:
            return
        if port is None and any(known == name for known, _ in self.hosts):
            return
        key = (name, port)
        self.hosts[key] = self.hosts.get(key, False) or granted

    def touch(self, workspace: Workspace, tool: Tool, access: Access, path: str) -> None:
        """Note a file that Toolcrib itself opens for a tool."""
        reach = self.reach = Reach.of_file(workspace, tool)
        place = reach.place(path)
        if access == "write" and not there(place):
            self._note(access, parent(place), f"made {place.rpartition('/')[2]!r}")
        elif there(place):
            self._note(access, place, "written" if access == "write" else "read")

    def denied(self, path: str, access: Access) -> None:
        """Note what the tool's own failure says that it was kept from."""
        uses = [found[access] for found in (self.used, self.missing, self.closed)]
        if not any(path in found for found in uses):
            self._note(access, path, "asked for: the tool failed without it")

    def tell(self, told: Any) -> None:
        """Take in what a Python tool's own interpreter noticed. It is the tool's word, and taken as such."""
        if not isinstance(told, Mapping):
            return
        names = told.get("variables")
        if isinstance(names, list) and self.programs < 2:
            known = {} if self.variables is None else self.variables
            self.variables = known | {name: None for name in names[:1_000] if isinstance(name, str)}
        hosts = told.get("hosts")
        if self.tool is None or self.tool.permissions.network.mode != "none" or not isinstance(hosts, list):
            return
        for pair in hosts[:1_000]:
            if isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], str):
                self.record_host(pair[0], pair[1] if isinstance(pair[1], int) else None, False)

    # -- how it is sorted ------------------------------------------------------------------------

    def _network(self, seen: Seen) -> None:
        if seen.path:
            if len(self.addresses) < _MOST:
                self.addresses[seen.path] = None
        else:
            self.sockets = True

    def _read(self, access: str, path: str) -> None:
        assert self.reach is not None
        if path.startswith(_SYSTEM) and "/../" not in path and not path.startswith(self.reach.root + "/"):
            return
        place = self.reach.place(path)
        if _cached(place) or place in _DISPENSABLE or not there(place):
            return
        if is_folder(place):
            self._read_folder(access, place, path)
        elif self.reach.of_system(path):
            return
        else:
            self._note("read", place, _READS[access])

    def _read_folder(self, access: str, place: str, path: str) -> None:
        assert self.reach is not None
        if self.reach.above_system(place):
            return
        if access in ("read", "list"):
            if place in self._listed_by_imports:
                self._listed_by_imports.remove(place)
            elif not self.reach.of_system(path):
                self._note("read", place, "listed")
        elif self.reach.verdict(place, "read") == "granted":
            self.looked[place] = None
        elif not self.reach.shown(place):
            self._note("read", place, "looked for")

    def _write(self, access: str, path: str) -> None:
        assert self.reach is not None
        place = self.reach.place(path)
        if _cached(place) or in_any(place, RESERVED):
            return
        entry = self.reach.entry(path)
        name = repr(entry.rpartition("/")[2])
        present = os.path.lexists(entry)
        if access == "write" or (access == "create" and there(place)):
            if there(place):
                self._note("write", place, "written")
        elif access == "make" and present:
            self._read("look", path)
        elif access in ("make", "create", "put"):
            self._enter(place if access == "create" else entry, f"made {name}")
        elif access == "remove" and present:
            self._enter(entry, f"removed {name}")

    def _enter(self, entry: str, why: str) -> None:
        """A change in the folder of an entry; where that is missing, in the nearest there is."""
        assert self.reach is not None
        folder = nearest = parent(entry)
        while not is_folder(nearest):
            nearest = parent(nearest)
        if nearest != folder and self.reach.verdict(nearest, "write") == "granted":
            return  # The tool may make what is missing there; it has not yet.
        self._note("write", nearest, why)

    def _note(self, access: Access, place: str, why: str) -> None:
        assert self.reach is not None
        kinds: dict[Verdict, dict[Access, Uses]] = {
            "granted": self.used,
            "missing": self.missing,
            "closed": self.closed,
        }
        found = kinds.get(self.reach.verdict(place, access))
        if found is not None:
            reasons = found[access].setdefault(place, {})
            if len(reasons) < _MOST:
                reasons[why] = None


def _cached(path: str) -> bool:
    """Whether it is Python's store of compiled modules, which it does well without."""
    return "/__pycache__" in path
