"""The list of mounts that enforces the grants of a job: pure rules, no mounting.

Only mounts can take away below what was given (read-only inside writable). But a mount belongs to a folder,
and a writable parent folder could be renamed and made again without it. So every folder between a writable
grant and something protected below it is mounted on itself: the kernel then refuses to rename or remove it
(EBUSY). The same is done to every symbolic link on the way to something protected or hidden, or it could be
replaced.
"""

from __future__ import annotations

import os
from collections.abc import Container, Iterable
from dataclasses import dataclass

from toolcrib.errors import PermissionDenied, UsageError
from toolcrib.sandbox.files.paths import Paths
from toolcrib.sandbox.files.pinned import put_in_place
from toolcrib.sandbox.files.rules import AccessRules, Mount, pin
from toolcrib.sandbox.files.synthetic import synthetic_files
from toolcrib.sandbox.job import Confinement

__all__ = ["BASE", "BASE_ETC", "PRIVATE", "RESERVED", "Mount", "MountPlan", "nameable", "plan"]

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


@dataclass(frozen=True, slots=True)
class MountPlan:
    """The mounts in order, the symbolic links of the base system, and what could not be protected."""

    mounts: tuple[Mount, ...]
    links: tuple[tuple[str, str], ...]
    files: tuple[tuple[str, str], ...]
    """Synthetic files: each path with its text."""
    own: tuple[str, ...]
    """The targets of mode `own`."""
    unprotected: tuple[str, ...]
    """Protected paths that do not exist inside something writable: the command can make them."""


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
    own = put_in_place(job, found, rules, paths) if job.pinned else []
    mounts = [found[path] for path in sorted(found, key=lambda path: path.split("/"))]
    empty = [Mount("", path, "empty", True) for path in job.empty if rules.state(path) == "none"]
    check_cwd(job, rules, [link for link, _ in links])
    taken = [mount.target for mount in (*base, *mounts, *empty)]
    links += [link for link in job.links if rules.state(link[0]) == "none" and not holds(link[0], taken)]
    needed = tuple((path, text) for path, text in files.items() if rules.state(path) == "none")
    every = (*base, *mounts, *empty)
    return MountPlan(every, tuple(dict.fromkeys(links)), needed, tuple(own), unprotected)


def inside(path: str, folders: Iterable[str]) -> bool:
    """Return True if a path is one of the folders or below one."""
    return any(path == folder or path.startswith(folder + "/") for folder in folders)


def holds(path: str, places: Iterable[str]) -> bool:
    """Return True if one of the places is the path or below it."""
    return any(place == path or place.startswith(path + "/") for place in places)


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
        if path == "/" or inside(path, RESERVED):
            raise PermissionDenied(
                f"cannot be granted: {path} holds other programs' processes and devices"
                if path != "/"
                else "the root folder cannot be granted",
                hint="name the folders that are needed",
                details={"path": path},
            )


def check_cwd(job: Confinement, rules: AccessRules, links: list[str]) -> None:
    """Refuse a working folder that will not exist."""
    known = job.cwd in ("/", *PRIVATE) or inside(job.cwd, (*job.empty, *links))
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
        if inside(real, (*BASE, *BASE_ETC)):
            links.append((path, paths.look(path).text))
        elif paths.leads_to(real):
            mounts.append(Mount(real, path, "ro?", True))
    return mounts, links
