"""What a watched run was seen to use, sorted by what its grants say of it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from toolcrib.executors.trace.reach import Access, Reach, Verdict, in_any, is_folder, nearest, parent, there
from toolcrib.executors.workspace.workspace import Workspace, within
from toolcrib.sandbox import Confinement
from toolcrib.sandbox.files.grants import RESERVED
from toolcrib.sandbox.tracing.watched import ADDRESSED
from toolcrib.spec import PythonExec, Tool

if TYPE_CHECKING:
    from toolcrib.sandbox.tracing.watch import Seen

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
_HALF = re.compile("[\ud800-\udfff]")
"""A byte of a name that is no text: a manifest cannot hold it, so its folder is named."""
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
        self.aliases: dict[str, dict[str, None]] = {}
        """Real path to the symbolic links by which it was asked for."""
        self.replaced: dict[str, None] = {}
        """Entries that were put or removed."""
        self._listed_by_imports: list[str] = []
        self._source: Seen | None = None
        """What is about to be renamed or linked: the next thing seen is where to."""
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
        source, self._source = self._source, None
        if seen.access in ("remove", "look") and seen.call.startswith(("rename", "link")):
            self._source = seen
        elif source is not None and source.call == seen.call:
            self._across(source.path, seen.path)
        if seen.access == "network":
            self._network(seen)
        elif seen.call in ADDRESSED:
            # Unix sockets that have a path are for the machine's own network only.
            if self.tool is not None and self.tool.permissions.network.mode == "host":
                self._write(seen.access, seen.path)
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
        self._note_links(path, place)
        if access == "write" and not there(place):
            self._note(access, nearest(place), f"made {place.rpartition('/')[2]!r}")
        elif there(place):
            self._note(access, place, "written" if access == "write" else "read")

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
        self._pass(path)
        self._note_links(path, place)
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
        self._pass(path)
        entry = self.reach.entry(path)
        self._note_links(*((path, place) if there(place) else (parent(path), parent(entry))))
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

    def _pass(self, path: str) -> None:
        """A folder that is left again by `..` must be seen all the same."""
        assert self.reach is not None
        parts = path.split("/")
        for index, part in enumerate(parts):
            folder = "/".join(parts[:index])
            if part == ".." and is_folder(folder) and not in_any(folder, RESERVED):
                place = self.reach.place(folder)
                self._note_links(folder, place)
                self._read_folder("look", place, folder)

    def _note_links(self, path: str, place: str) -> None:
        """Remember the last link on the way to a place: a grant that is written by it shows it too."""
        assert self.reach is not None
        link = "/" + "/".join(part for part in path.split("/") if part not in ("", "."))
        while link != "/" and not os.path.islink(link):  # noqa: PTH114 - a path may be any text
            link = parent(link)
        real = self.reach.place(link)
        if link == "/" or "/../" in path or not within(place, real) or self.reach.of_system(path):
            return
        if self.reach.in_project(real) or not self.reach.in_project(link):
            self.aliases.setdefault(real, {})[link] = None

    def _across(self, source: str, target: str) -> None:
        """An entry that is renamed or linked into another folder: only one grant over both lets that be."""
        assert self.reach is not None
        entry = self.reach.entry(source)
        here, there_ = parent(entry), parent(self.reach.entry(target))
        grants = [grant for grant in self.reach.write if within(here, grant) and within(there_, grant)]
        if here != there_ and grants:
            both = os.path.commonpath((here, there_))
            self._note("write", both, f"moved {source.rpartition('/')[2]!r} between folders")
        elif here == there_:
            self.replaced[entry] = None
        else:
            away = repr(self.reach.written(here))
            self._note("write", there_, f"moved here from {away}, for which one grant must cover both")

    def _enter(self, entry: str, why: str) -> None:
        """A change in the folder of an entry; where that is missing, in the nearest there is."""
        assert self.reach is not None
        self.replaced[entry] = None
        folder = nearest(entry)
        if folder != parent(entry) and self.reach.verdict(folder, "write") == "granted":
            return  # The tool may make what is missing there; it has not yet.
        self._note("write", folder, why)

    def _note(self, access: Access, place: str, why: str) -> None:
        assert self.reach is not None
        if access == "write":
            place = self.reach.repository(place) or place
        while _HALF.search(place):
            place = parent(place)
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
