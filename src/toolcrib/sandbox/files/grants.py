"""The list of mounts that enforces the grants of a job: pure rules, no mounting.

Only mounts can take away below what was given (read-only inside writable). But a mount belongs to a folder,
and a writable parent folder could be renamed and made again without it. So every folder between a writable
grant and something protected below it is mounted on itself: the kernel then refuses to rename or remove it
(EBUSY). The same is done to every symbolic link on the way to something protected or hidden, or it could be
replaced.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import Literal, NamedTuple

from toolcrib.errors import PermissionDenied, UsageError
from toolcrib.sandbox.files.paths import Paths, within
from toolcrib.sandbox.job import Confinement, NetworkAccess
from toolcrib.spec.record import record

State = Literal["none", "ro", "rw"]
BASE = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
"""Programs and libraries; where one is a symbolic link (merged /usr), the link is shown."""
BASE_ETC = (
    "/etc/alternatives",
    "/etc/ca-certificates",
    "/etc/ca-certificates.conf",
    "/etc/crypto-policies",
    "/etc/group",
    "/etc/hosts",
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/etc/mime.types",
    "/etc/nsswitch.conf",
    "/etc/passwd",
    "/etc/pki/ca-trust",
    "/etc/pki/tls/cert.pem",
    "/etc/pki/tls/certs",
    "/etc/protocols",
    "/etc/resolv.conf",
    "/etc/services",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
)
"""Files that the C library and TLS read; never /etc/ssl, which has private keys. Some are synthetic."""
RESERVED = ("/proc", "/sys", "/dev")
PRIVATE = ("/tmp", "/dev/shm")  # noqa: S108 - names of what is private in the sandbox
NOBODY = 65_534
"""The user and group that own nothing, on every distribution."""
HOSTS = "127.0.0.1 localhost sandbox\n::1 localhost ip6-localhost ip6-loopback\n"
SERVICES = "passwd: files\ngroup: files\nhosts: files dns\n"


@cache
def synthetic_files(network: NetworkAccess) -> Mapping[str, str]:
    """Return the synthetic files of a tool with this network, each path with its text."""
    uid, gid = os.geteuid(), os.getegid()
    users, groups = {0: "root", NOBODY: "nobody"}, {0: "root", NOBODY: "nogroup"}
    users.setdefault(uid, "tool")
    groups.setdefault(gid, "tool")
    primary = {0: 0, NOBODY: NOBODY, uid: gid}
    passwd = (f"{name}:x:{number}:{primary[number]}::/tmp:/bin/sh\n" for number, name in users.items())
    group = (f"{name}:x:{number}:\n" for number, name in groups.items())
    found = {"/etc/passwd": "".join(passwd), "/etc/group": "".join(group)}
    if network != "host":
        found |= {"/etc/hosts": HOSTS, "/etc/nsswitch.conf": SERVICES, "/etc/resolv.conf": ""}
    return found


class Mount(NamedTuple):
    """One step for the launcher: `mode` is ro, rw, link, hide or empty, with `?` when it may be missing.

    `symlink` makes a link to the text `source`; `own` is a read-only folder of the sandbox's own memory.
    """

    source: str
    target: str
    mode: str
    make: bool
    """Its place must be made, because nothing mounted before contains it."""


@dataclass(slots=True)
class AccessRules:
    """The kinds of rule that name each path; the access to any path follows from those above it."""

    at: dict[str, set[str]] = field(default_factory=dict)

    def add(self, kind: str, paths: Iterable[str]) -> None:
        """Add a rule of this kind for each path."""
        for path in paths:
            self.at.setdefault(path, set()).add(kind)

    def state(self, path: str) -> State:
        """Return the access of the command to `path` itself, hiding aside."""
        state: State = "none"
        protected = False
        for place in (*ancestors(path), path):
            kinds = self.at.get(place, ())
            if "base" in kinds or "read" in kinds:
                state = "ro"
            if "write" in kinds:
                state = "rw"
            if "protect" in kinds:
                protected = True
            if "scratch" in kinds:
                state, protected = "rw", False
            if protected and state == "rw":
                state = "ro"
        return state

    def hidden_by(self, path: str) -> str | None:
        """Return the hidden path that is, or contains, `path`."""
        return next((p for p in (*ancestors(path), path) if "hide" in self.at.get(p, ())), None)


@lru_cache(maxsize=4_096)
def ancestors(path: str) -> tuple[str, ...]:
    """Return the folders above an absolute path, from `/` down."""
    parts = path.split("/")[1:]
    if path == "/":
        return ()
    return ("/", *("/" + "/".join(parts[:n]) for n in range(1, len(parts))))


def pin(path: str, rules: AccessRules, found: dict[str, Mount]) -> None:
    """Mount the writable folders above `path` on themselves, up to the grant they come from."""
    # From the nearest up, and only as far as the command could rename a folder.
    for folder in reversed(ancestors(path)):
        if rules.state(folder) != "rw":
            return
        found.setdefault(folder, Mount(folder, folder, "rw?", False))


@record
class MountPlan:
    """The mounts in order, the symbolic links of the base system, and what could not be protected."""

    mounts: tuple[Mount, ...]
    links: tuple[tuple[str, str], ...]
    files: tuple[tuple[str, str], ...]
    """Synthetic files: each path with its text."""
    own: tuple[str, ...]
    """The targets of mode `own`."""
    unprotected: tuple[str, ...]
    """Protected and hidden paths that do not exist inside something writable: the command can make them."""


def plan(job: Confinement, paths: Paths | None = None) -> MountPlan:
    """Work out the mounts of a job, from its rules and from what `paths` are.

    Raises:
        UsageError: a path is not absolute and normal.
        PermissionDenied: a grant names the root or a place of the kernel's, something hidden, or `cwd`
            lies outside of everything granted.
    """
    check_paths(job)
    paths = paths or Paths()
    files = synthetic_files(job.network)
    base, links = base_system(paths, files)
    rules = AccessRules()
    rules.add("base", (mount.target for mount in base))
    rules.add("read", job.read)
    rules.add("write", job.write)
    rules.add("scratch", job.scratch)
    rules.add("hide", (paths.real(path) for path in job.hide))
    rules.add("protect", (paths.real(path) for path in job.protect))
    rules.add("protect", (link for path in (*job.protect, *job.hide) for link in paths.links(path)))
    found, unprotected = overlay(rules, paths)
    own = put_in_place(job, found, rules, paths) if job.pinned or job.stays else []
    mounts = [found[path] for path in sorted(found, key=lambda path: path.split("/"))]
    empty = [Mount("", path, "empty", True) for path in job.empty if rules.state(path) == "none"]
    check_cwd(job, rules, [link for link, _ in links])
    taken = [mount.target for mount in (*base, *mounts, *empty)]
    links += [
        link
        for link in job.links
        if rules.state(link[0]) == "none" and not any(within(place, link[0]) for place in taken)
    ]
    needed = tuple((path, text) for path, text in files.items() if rules.state(path) == "none")
    every = (*base, *mounts, *empty)
    return MountPlan(every, tuple(dict.fromkeys(links)), needed, tuple(own), unprotected)


def nameable(path: str) -> bool:
    """Return True if the kernel accepts this path."""
    try:
        return b"\0" not in os.fsencode(path)
    except UnicodeEncodeError:
        return False


def check_paths(job: Confinement) -> None:
    """Refuse paths that are not absolute and normal, and places that cannot be granted."""
    grants = (*job.read, *job.write, *job.scratch)
    links = [place for place, _ in job.links]
    copies = [path for pair in job.pinned for path in pair]
    for path in (*grants, *copies, *job.protect, *job.hide, *job.empty, *links, job.cwd):
        # normpath leaves two leading slashes, which POSIX lets a system read in its own way.
        if not nameable(path) or path[:1] != "/" or path[:2] == "//" or os.path.normpath(path) != path:
            raise UsageError(
                f"not an absolute, normal path: {path!r}", hint="resolve it before it is granted"
            )
    for path in (*grants, *job.empty, *links):
        if path == "/" or within(path, *RESERVED):
            raise PermissionDenied(
                f"cannot be granted: {path} contains other programs' processes and devices"
                if path != "/"
                else "the root folder cannot be granted",
                hint="name the folders that are needed",
                details={"path": path},
            )


def check_cwd(job: Confinement, rules: AccessRules, links: list[str]) -> None:
    """Refuse a working folder that will not exist."""
    known = job.cwd in ("/", *PRIVATE) or within(job.cwd, *job.empty, *links)
    if known or rules.state(job.cwd) != "none":
        return
    raise PermissionDenied(
        f"the working folder is not granted: {job.cwd}",
        hint="grant it for reading, or choose a folder inside a grant",
        details={"path": job.cwd},
    )


def overlay(rules: AccessRules, paths: Paths) -> tuple[dict[str, Mount], tuple[str, ...]]:
    """Return the mounts over the base system by their target, and what cannot be protected."""
    found: dict[str, Mount] = {}
    unprotected = []
    for path, kinds in rules.at.items():
        if kinds == {"base"}:
            continue
        granted = not kinds.isdisjoint(("read", "write", "scratch"))
        hidden = rules.hidden_by(path)
        if hidden is not None and granted:
            raise PermissionDenied(
                f"{path} is granted, but {hidden} is never readable",
                hint="take it out of the permissions",
                details={"path": path},
            )
        outer = rules.state(os.path.dirname(path))
        if granted:
            state = rules.state(path)
            found[path] = Mount(path, path, state, outer == "none")
        elif hidden == path and outer != "none":
            found[path] = Mount("", path, "hide", False)
            if outer == "rw" and not paths.exists(path):
                unprotected.append(path)
        elif hidden is None and "protect" in kinds and outer == "rw":
            found[path] = Mount(path, path, "link" if paths.is_link(path) else "ro?", False)
            if not paths.exists(path):
                unprotected.append(path)
        else:
            continue
        if outer == "rw" and found[path].mode != "rw":
            pin(path, rules, found)
    return found, tuple(sorted(unprotected))


def base_system(paths: Paths, synthetic: Container[str]) -> tuple[list[Mount], list[tuple[str, str]]]:
    """Return the mounts and links that every command gets: programs, libraries and their few settings."""
    mounts: list[Mount] = []
    links: list[tuple[str, str]] = []
    for path in (*BASE, *BASE_ETC):
        if path in synthetic or not paths.exists(path):
            continue
        if not paths.is_link(path):
            mounts.append(Mount(path, path, "ro?", True))
            continue
        real = paths.real(path)
        if within(real, *BASE, *BASE_ETC):
            links.append((path, paths.look(path).text))
        elif paths.leads_to(real):
            mounts.append(Mount(real, path, "ro?", True))
    return mounts, links


_MOST = 600
"""Names beside the copies that are mounted one by one; with more, only the copies are mounted."""


def put_in_place(job: Confinement, found: dict[str, Mount], rules: AccessRules, paths: Paths) -> list[str]:
    """Change the mounts so that they show the pinned copies; return the folders that the sandbox makes.

    `found` is by target. A copy of what the tool does not see is left out.

    The kernel removes a mount when another file is renamed over its place from outside, and the tool would
    see that file. So the read-only folders on the way to a copy (`chain`) are made in the sandbox's own
    memory, where nobody renames anything; all other names in them are mounted from the real folder.
    """
    shown = {path: copy for path, copy in job.pinned if _is_shown(path, rules)}
    chain = {folder for path in shown for folder in _way_to(path, rules, job.stays)}
    if sum(len(paths.names(folder)) for folder in chain) > _MOST:
        chain = set()
    if job.stays:
        chain |= {folder for path in job.hide if _is_closed(folder := os.path.dirname(path), rules, paths)}
    own = []
    for folder in sorted(chain):
        found.pop(folder, None)
        above = os.path.dirname(folder)
        if above not in chain:
            own.append(folder)
            found[folder] = Mount("", folder, "own", rules.state(above) == "none")
            pin(folder, rules, found)
        for name in paths.names(folder):
            path = f"{folder}/{name}"
            if path in found:
                found[path] = found[path]._replace(make=True)
            elif path not in chain and path not in shown and (kind := paths.look(path).kind):
                link = kind == stat.S_IFLNK
                found[path] = (
                    Mount(paths.look(path).text, path, "symlink", True)
                    if link
                    else Mount(path, path, "ro?", True)
                )
    for path, copy in shown.items():
        for place in [one for one in found if one.startswith(f"{path}/") and found[one].mode != "hide"]:
            del found[place]  # A grant of a file in the folder would show the file as it is now.
        above = os.path.dirname(path)
        found[path] = Mount(copy, path, "ro", above in chain or rules.state(above) == "none")
        if rules.state(above) == "rw":
            pin(path, rules, found)
    return own


def _is_closed(folder: str, rules: AccessRules, paths: Paths) -> bool:
    """Return True for a protected folder that the tool sees: a copy of it shows nothing that comes later."""
    is_seen = rules.state(folder) == "ro" and paths.real(folder) == folder and paths.is_folder(folder)
    return is_seen and "protect" in rules.at.get(folder, ())


def _is_shown(path: str, rules: AccessRules) -> bool:
    return rules.state(path) != "none" and rules.hidden_by(path) is None


def _way_to(path: str, rules: AccessRules, stays: bool) -> list[str]:
    """Return the read-only folders above a path; none where the system's own folders are among them."""
    way = []
    while rules.state(path := os.path.dirname(path)) == "ro":
        way.append(path)
        if "base" in rules.at.get(path, ()):
            return []
    # A command that stays needs the present files of its grants, so only the folder of its script is made
    # anew, and not the outermost folder that it was granted.
    return way[:1] if stays and len(way) > 1 else [] if stays else way
