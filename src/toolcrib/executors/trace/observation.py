"""The accesses of a watched run, sorted by what its permissions say about each."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from toolcrib.executors.trace.reach import Access, Reach, Verdict, nearest, parent
from toolcrib.executors.workspace.grants import FileGrants
from toolcrib.executors.workspace.workspace import Workspace
from toolcrib.manifest import kind_of
from toolcrib.sandbox import Confinement
from toolcrib.sandbox.files.grants import RESERVED
from toolcrib.sandbox.files.paths import within
from toolcrib.sandbox.tracing.watched_calls import ADDRESSED
from toolcrib.spec import Tool

if TYPE_CHECKING:
    from toolcrib.sandbox.tracing.watch import Seen

Uses = dict[str, dict[str, None]]
"""Path as a grant would name it, to what the tool did there, in order."""
_READS = {"read": "read", "list": "listed", "look": "looked for", "run": "run"}
_DISPENSABLE = frozenset({
    "/etc/gai.conf", "/etc/host.conf", "/etc/inputrc", "/etc/ld.so.preload", "/etc/locale.alias",
    "/etc/selinux/config",
})  # fmt: skip
"""Files that the C library reads if they exist."""
_MAX_REASONS, _MAX_HOSTS = 50, 1_000
"""Limits, because a hostile tool could fill the memory."""
_SURROGATE = re.compile("[\ud800-\udfff]")
"""A byte of a file name that is not UTF-8. A manifest cannot name it."""
_SYSTEM = ("/usr/", "/proc/", "/sys/", "/dev/")


class Observation:
    """The accesses of one tool in all attempts of one call.

    `used` was granted; `missing` exists and was not granted; `closed` cannot be granted. Each has one
    mapping for reading and one for writing.
    """

    def __init__(self) -> None:
        self.tool: Tool | None = None
        self.reach: Reach | None = None
        self.calls = 0
        """Watched system calls."""
        self.used: dict[Access, Uses] = {"read": {}, "write": {}}
        self.missing: dict[Access, Uses] = {"read": {}, "write": {}}
        self.closed: dict[Access, Uses] = {"read": {}, "write": {}}
        self.looked: dict[str, None] = {}
        """Granted folders that the tool looked for without listing them."""
        self.hosts: dict[tuple[str, int | None], bool] = {}
        """Host and port, and whether the tool was allowed to reach it."""
        self.sockets = False
        """True if an internet socket was refused."""
        self.addresses: dict[str, None] = {}
        """Internet addresses that the tool used."""
        self.variables: dict[str, None] | None = None
        """Names read through `os.environ`; None where this cannot be observed."""
        self.programs: dict[str, None] = {}
        """Programs that were started."""
        self._programs = 0
        self._import_listings: list[str] = []

    def as_dict(self) -> dict[str, list[str]]:
        """Return what was used or asked for, granted or not, as JSON."""
        written = str if self.reach is None else self.reach.written
        groups = (self.used, self.missing, self.closed)
        reads, writes = (
            sorted({written(path) for group in groups for path in group[access]})
            for access in ("read", "write")
        )
        hosts = sorted({*(named(*key) for key in self.hosts), *self.addresses})
        return {"reads": reads, "writes": writes, "hosts": hosts, "programs": sorted(self.programs)}

    def of_process(self, tool: Tool) -> bool:
        """Return True if what a tool does is done by a confined process, as that of an MCP server is."""
        return self.tool is not None or kind_of(tool).confined

    # -- reports of the sandbox, the proxy and the executors ------------------------------------

    def over(self, workspace: Workspace, tool: Tool, job: Confinement) -> Confinement:
        """Return the same job, watched."""
        self.tool, self.reach = tool, Reach.of(workspace, tool, job)
        self._programs = 0
        # The import system lists each folder of modules once, whatever the tool does: that of a script, too.
        words = [os.path.join(job.cwd, word) for word in job.argv]
        scripts = words[1:] if os.path.basename(words[0]).startswith("python") else ()
        self._import_listings = [self.reach.place(parent(one)) for one in scripts if os.path.isfile(one)]
        if module := kind_of(tool).starts(tool.config).module:
            own = workspace.files().folder(tool)
            starts = [job.cwd, workspace.home, *([own] if own is not None else [])]
            packages = module.split(".")[:-1]
            self._import_listings = [
                "/".join((start, *packages[:depth])) for start in starts for depth in range(len(packages) + 1)
            ]
        return replace(job, watch=self.see)

    def see(self, seen: Seen) -> None:
        """Record one access that the tool is about to make."""
        self.calls += 1
        if seen.access == "network":
            if not seen.path:
                self.sockets = True
            elif len(self.addresses) < _MAX_REASONS:
                self.addresses[seen.path] = None
        elif seen.call in ADDRESSED:
            # Unix sockets with a path need the machine's own network.
            if self.tool is not None and self.tool.permissions.network.mode == "host":
                self._write(seen.access, seen.path)
        elif seen.access in _READS:
            if seen.access == "run" and os.path.exists(seen.path):
                self._programs += 1
                if len(self.programs) < _MAX_REASONS:
                    self.programs[seen.path] = None
            self._read(seen.access, seen.path)
        else:
            self._write(seen.access, seen.path)

    def record_host(self, host: str, port: int | None, granted: bool) -> None:
        """Record a host that the tool asked for, and whether it was allowed."""
        name = host.lower().rstrip(".")
        known = port is None and any(other == name for other, _ in self.hosts)
        if len(self.hosts) < _MAX_HOSTS and not known:
            self.hosts[name, port] = self.hosts.get((name, port), False) or granted

    def touch(self, workspace: Workspace, tool: Tool, grants: FileGrants, access: Access, path: str) -> None:
        """Record a file that Toolcrib itself opens for a tool."""
        reach = self.reach = Reach.of(workspace, tool, grants)
        name = reach.name(path)
        if os.path.exists(name):
            self._note(access, name, "written" if access == "write" else "read")
        elif access == "write":
            self._note(access, nearest(name), f"made {name.rpartition('/')[2]!r}")

    def add_report(self, report: Any) -> None:
        """Record the report of a Python tool's interpreter, which the tool's own code may have changed."""
        if not isinstance(report, Mapping):
            return
        names, hosts = report.get("variables"), report.get("hosts")
        if isinstance(names, list) and self._programs < 2:
            self.variables = self.variables or {}
            self.variables |= {name: None for name in names[:1_000] if isinstance(name, str)}
        if self.tool is None or self.tool.permissions.network.mode != "none" or not isinstance(hosts, list):
            return
        for pair in hosts[:1_000]:
            if isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], str):
                self.record_host(pair[0], pair[1] if isinstance(pair[1], int) else None, False)

    # -- sorting --------------------------------------------------------------------------------

    def _read(self, access: str, path: str) -> None:
        assert self.reach is not None
        reach = self.reach
        if path.startswith(_SYSTEM) and "/../" not in path and not path.startswith(reach.root + "/"):
            return
        place = reach.place(path)
        if _cached(place) or place in _DISPENSABLE or not os.path.exists(place):
            return
        if not os.path.isdir(place):
            if not reach.of_system(path):
                self._note("read", reach.name(path), _READS[access])
        elif reach.above_system(place):
            return
        elif access in ("read", "list"):
            if place in self._import_listings:
                # Once: a second listing of the same folder is the tool's own.
                self._import_listings.remove(place)
            elif not reach.of_system(path):
                self._note("read", reach.name(path), "listed")
        elif reach.verdict(place, "read") == "granted":
            self.looked[reach.name(path)] = None
        elif not reach.shown(place):
            self._note("read", reach.name(path), "looked for")

    def _write(self, access: str, path: str) -> None:
        assert self.reach is not None
        place = self.reach.place(path)
        if _cached(place) or within(place, *RESERVED):
            return
        entry = self.reach.entry(path)
        present = os.path.lexists(entry)
        if access in ("write", "create") and os.path.exists(place):
            self._note("write", self.reach.name(path), "written")
        elif access == "make" and present:
            self._read("look", path)
        elif access in ("make", "create", "put"):
            self._change(entry, "made")
        elif access == "remove" and present:
            self._change(entry, "removed")

    def _change(self, entry: str, act: str) -> None:
        """Record a change of the entry's folder, or of the nearest one that exists."""
        assert self.reach is not None
        folder = nearest(entry)
        if folder != parent(entry) and self.reach.verdict(self.reach.place(folder), "write") == "granted":
            return  # The tool may create the missing folder, and has not yet.
        self._note("write", folder, f"{act} {entry.rpartition('/')[2]!r}")

    def _note(self, access: Access, name: str, why: str) -> None:
        assert self.reach is not None
        if access == "write":
            name = self.reach.to_name(self.reach.place(name)) or name
        # YAML cannot write such a name; the folder above it can be granted.
        while _SURROGATE.search(name):
            name = parent(name)
        groups: dict[Verdict, dict[Access, Uses]] = {
            "granted": self.used,
            "missing": self.missing,
            "closed": self.closed,
        }
        group = groups.get(self.reach.verdict(self.reach.place(name), access))
        if group is not None:
            reasons = group[access].setdefault(name, {})
            if len(reasons) < _MAX_REASONS:
                reasons[why] = None


def named(host: str, port: int | None) -> str:
    """Return a host with its port, as a manifest has it."""
    name = f"[{host}]" if ":" in host else host
    return name if port is None else f"{name}:{port}"


def _cached(path: str) -> bool:
    """Return True for Python's compiled modules, which it does not need."""
    return "/__pycache__" in path
