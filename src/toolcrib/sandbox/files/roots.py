"""Files for tools that run inside this process: root folders that no path leads out of.

Every root is opened once, through no symbolic link, and every file beneath its descriptor (`beneath`). The
rules then apply to the place where the opened file really is, not to its spelling, so that a link inside a
root cannot bypass them. A hard link made before a root was opened is an ordinary file; only those to hidden
files are recognised.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from fcntl import LOCK_EX, LOCK_NB, flock
from typing import Literal, NamedTuple, Self

from toolcrib.errors import (
    InvalidInput,
    NotFoundError,
    PermissionDenied,
    ToolcribError,
    ToolFailed,
    UnavailableError,
    UsageError,
)
from toolcrib.sandbox.files.beneath import below, open_at_once, open_beneath, open_real, real_path_of
from toolcrib.sandbox.files.paths import is_within, within
from toolcrib.spec.record import record

LIMIT = 1_048_576
ESCAPES = "path escapes sandbox"
SMALL = 65_536
"""Bytes of a file that is small enough to be read on an event loop."""
FOLDER = os.O_PATH | os.O_DIRECTORY
READING = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY


class FilePart(NamedTuple):
    """A part of a file, and the size of the whole in bytes."""

    data: bytes
    total: int


class FolderEntry(NamedTuple):
    """One entry of a folder."""

    name: str
    kind: Literal["file", "dir", "link", "other"]
    size: int
    """The size in bytes; of a link, the length of its text."""
    modified: float
    """Seconds since the epoch."""


@record
class Root:
    """One folder that paths may lead into, or one single file."""

    path: str
    """Its real path: one with a symbolic link in it is refused."""
    read_only: bool = False
    hidden: tuple[str, ...] = ()
    """Files and folders that are neither read nor written nor listed: relative to `path`, or real paths."""
    protected: tuple[str, ...] = ()
    """Files and folders that are never written; likewise."""


@dataclass(slots=True)
class Opened:
    """A root and its descriptor; for a file, that of its folder, and `file` is its name there."""

    root: Root
    fd: int
    device: int
    file: str = ""

    def is_current(self) -> bool:
        """Return True if the path of the root still leads to what is open."""
        try:
            now = os.lstat(os.path.dirname(self.root.path) if self.file else self.root.path)
        except OSError:
            return False
        return os.path.samestat(now, os.fstat(self.fd))

    def places(self, names: tuple[str, ...]) -> list[str]:
        """Return these names as absolute paths."""
        return [os.path.normpath(os.path.join(self.root.path, name)) for name in names]


class Roots:
    """Read and write inside some folders: relative paths in the first, absolute ones in any.

    Where roots are inside each other, the innermost decides if a file may be written; `hidden` and
    `protected` apply from whichever root they were given.

    Raises:
        NotFoundError: a root cannot be opened.
        PermissionDenied: there is a symbolic link on the way to one.
    """

    def __init__(self, *roots: Root) -> None:
        self._opened: list[Opened] = []
        if not roots:
            raise UsageError("at least one root folder is needed")
        try:
            for root in roots:
                self._opened.append(open_root(root))
        except BaseException:
            self.close()
            raise
        self._hidden = {place for one in self._opened for place in one.places(one.root.hidden)}
        protected = {place for one in self._opened for place in one.places(one.root.protected)}
        self._is_hidden, self._is_closed = is_within(self._hidden), is_within(protected | self._hidden)

    def close(self) -> None:
        """Close the descriptors; the object cannot be used afterwards."""
        while self._opened:
            os.close(self._opened.pop().fd)

    def __del__(self) -> None:
        self.close()

    def are_current(self) -> bool:
        """Return True if the paths of the roots still lead to what is open."""
        return all(one.is_current() for one in self._opened)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def read(self, path: str, offset: int = 0, limit: int = LIMIT) -> FilePart:
        """Read up to `limit` bytes of a regular file from byte `offset` on.

        Raises:
            PermissionDenied: the path leads out of the roots, is hidden, or is not a regular file.
            NotFoundError: there is no such file.
            InvalidInput: the path is a folder or cannot be a path.
        """
        if offset < 0 or limit < 0:
            raise UsageError("offset and limit must not be negative")
        with self._open(path) as fd:
            # Asked of the open file: the path may lead to another one by now.
            info = regular(fd, path)
            self._check_read(fd, info, path)
            # Files of the kernel say that they are empty.
            end = offset + limit if info.st_size == 0 else min(offset + limit, info.st_size)
            chunks = []
            position = offset
            while position < end:
                chunk = os.pread(fd, min(end - position, LIMIT), position)
                if not chunk:
                    break
                chunks.append(chunk)
                position += len(chunk)
        return FilePart(b"".join(chunks), max(info.st_size, position if chunks else 0))

    def read_at_once(self, path: str, limit: int, device: int) -> FilePart | None:
        """Return the beginning of a small file that the kernel has in memory, on this device.

        For an event loop: None for a file for which it might have to wait, and where the operating system
        refuses it, as on tmpfs, which may have swapped the file out. Raises PermissionDenied as `read`.
        """
        root, relative = self._locate(path)
        if root.device != device:
            return None
        fd = -1
        try:
            fd = open_at_once(root.fd, relative, READING, links=not root.file)
            info = os.fstat(fd)
            if not stat.S_ISREG(info.st_mode) or info.st_size > SMALL:
                return None
            self._check_read(fd, info, path)
            data = bytearray(min(limit, info.st_size))
            whole = os.preadv(fd, [data], 0, os.RWF_NOWAIT) == len(data)
        except OSError:
            return None
        finally:
            if fd >= 0:
                os.close(fd)
        return FilePart(bytes(data), info.st_size) if whole else None

    def entries(self, path: str) -> list[FolderEntry]:
        """List a folder in the order of names, without what is hidden. Raises as `read`, and InvalidInput
        for a path that is not a folder."""
        with self._open(path) as fd:
            info = os.fstat(fd)
            real = self._check_read(fd, info, path) or real_path_of(fd)
            if not stat.S_ISDIR(info.st_mode):
                raise InvalidInput(f"is not a folder: {path}", details={"path": path})
            found = []
            for name in sorted(os.listdir(fd)):
                if self._is_hidden(os.path.join(real, name)):
                    continue
                with suppress(FileNotFoundError):
                    info = os.stat(name, dir_fd=fd, follow_symlinks=False)
                    found.append(FolderEntry(name, kind_of(info.st_mode), info.st_size, info.st_mtime))
            return found

    def write(
        self,
        path: str,
        data: bytes,
        mode: int = 0o644,
        *,
        mkdir: bool = False,
        append: bool = False,
    ) -> int:
        """Write a file whole, so that others see the old or the new content; return the number of bytes.

        `mode` is for a new file; an existing one keeps its own. `mkdir` makes missing folders, `append` adds
        to a file that must exist.

        Raises:
            PermissionDenied: as of `read`, or the place is read-only or protected.
            NotFoundError: a folder on the way, or the file to append to, does not exist.
            InvalidInput: the path is a folder or cannot be a path.
        """
        with self._target(path, mkdir) as (folder, name):
            if append:
                return add(folder, name, data, path)
            return replace(folder, name, data, mode & 0o777)

    @contextmanager
    def alone(self, path: str, wait_s: float = 10.0, *, mkdir: bool = False) -> Iterator[None]:
        """Lock the folder of a file that is going to be written, against others that lock it.

        The lock, flock(2), is for every thread and process, and ends with its holder. `mkdir` makes
        missing folders.

        Raises:
            UnavailableError: somebody else had it for `wait_s` seconds.
            ToolcribError: what `write` raises for the place.
        """
        with self._target(path, mkdir) as (folder, _):
            lock = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)
        try:
            take(lock, path, time.monotonic() + wait_s)
            yield
        finally:
            os.close(lock)

    @contextmanager
    def _open(self, path: str) -> Iterator[int]:
        """Open a path beneath its root to read it, and translate the errors of what is done with it."""
        root, relative = self._locate(path)
        with explained(path):
            fd = open_beneath(root.fd, relative, READING, links=not root.file)
            try:
                yield fd
            finally:
                os.close(fd)

    @contextmanager
    def _target(self, path: str, mkdir: bool) -> Iterator[tuple[int, str]]:
        """Open the folder that a file may be written in; yield it and the file's name there."""
        root, relative = self._locate(path)
        with explained(path):
            folder, name = self._place(root, relative, path, mkdir)
            try:
                self._check_write(os.path.join(real_path_of(folder), name), path)
                yield folder, name
            finally:
                os.close(folder)

    def _locate(self, path: str) -> tuple[Opened, str]:
        """Return the root that a path is meant in, and the path from there."""
        if not self._opened:
            raise UsageError("these roots are closed")
        check_path(path)
        if not path.startswith("/"):
            if self._opened[0].file:
                raise escapes(path)
            return self._opened[0], path
        found = [one for one in self._opened if within(path, one.root.path)]
        if not found:
            raise escapes(path)
        root = max(found, key=lambda one: len(one.root.path))
        inner = below(path, root.root.path) or ""
        if root.file and inner:
            raise escapes(path)
        return root, root.file or inner.lstrip("/") or "."

    def _place(self, root: Opened, relative: str, path: str, mkdir: bool) -> tuple[int, str]:
        """Return the folder that a file is written in, open, and its name there; a link is followed."""
        parent, name = os.path.split(relative)
        if name in ("", ".", ".."):
            raise InvalidInput(f"not a path of a file: {path}", details={"path": path})
        folder = self._folder(root, parent, path, mkdir)
        try:
            # The folder is open, so what is renamed on the way to it makes no difference any more.
            kind = stat.S_IFMT(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
        except FileNotFoundError:
            return folder, name
        if kind == stat.S_IFREG:
            return folder, name
        os.close(folder)
        try:
            fd = open_beneath(root.fd, relative, os.O_PATH, links=not root.file)
        except FileNotFoundError:
            message = f"a symbolic link that leads nowhere: {path}"
            raise PermissionDenied(message, details={"path": path}) from None
        try:
            regular(fd, path)
            inner = below(real_path_of(fd), real_path_of(root.fd))
        finally:
            os.close(fd)
        if inner is None:
            raise escapes(path)
        parent, name = os.path.split(inner)
        return open_beneath(root.fd, parent, FOLDER, links=False), name

    def _folder(self, root: Opened, parent: str, path: str, mkdir: bool) -> int:
        """Open a folder; with `mkdir` each missing one is made in a folder that is open beneath the root."""
        try:
            return open_beneath(root.fd, parent, FOLDER)
        except FileNotFoundError:
            if not mkdir:
                raise
        folder = open_beneath(root.fd, ".", FOLDER)
        done = ""
        try:
            for part in parent.split("/"):
                done = os.path.join(done, part)
                try:
                    inner = open_beneath(root.fd, done, FOLDER)
                except FileNotFoundError:
                    if part == "..":
                        raise
                    self._check_write(os.path.join(real_path_of(folder), part), path)
                    with suppress(FileExistsError):
                        os.mkdir(part, 0o755, dir_fd=folder)
                    # Not by its whole path again: somebody could have put a link in the place of the new
                    # folder.
                    inner = open_beneath(folder, part, FOLDER, links=False)
                os.close(folder)
                folder = inner
        except BaseException:
            os.close(folder)
            raise
        return folder

    def _check_read(self, fd: int, info: os.stat_result, path: str) -> str:
        """Refuse what is hidden; return the real path, empty where nothing is hidden."""
        if not self._hidden:
            return ""
        real = real_path_of(fd)
        # A file with one name, at the place that was asked for, is not there under another name.
        is_itself = info.st_nlink == 1 and stat.S_ISREG(info.st_mode) and real == path
        if self._is_hidden(real) or (not is_itself and self._same_as_hidden(info)):
            raise PermissionDenied(f"never readable by tools: {path}", details={"path": path})
        return real

    def _check_write(self, real: str, path: str) -> None:
        """Refuse a real path that is hidden, protected or in a read-only root."""
        holding = [one.root for one in self._opened if within(real, one.root.path)]
        if not holding:
            raise escapes(path)
        if max(holding, key=lambda root: len(root.path)).read_only:
            raise PermissionDenied(f"this folder is read-only: {path}", details={"path": path})
        if self._is_closed(real):
            raise PermissionDenied(f"never writable by tools: {path}", details={"path": path})

    def _same_as_hidden(self, info: os.stat_result) -> bool:
        """Return True for a hidden file under another name: a hard link, or renamed just now."""
        for place in self._hidden:
            try:
                other = os.stat(place)
            except OSError:
                continue
            if (other.st_dev, other.st_ino) == (info.st_dev, info.st_ino):
                return True
        return False


class OpenRoots:
    """The roots that were used last, kept open: to open them takes longer than to read a small file."""

    def __init__(self, most: int = 32) -> None:
        self._most = most
        self._known: OrderedDict[tuple[Root, ...], Roots] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, roots: tuple[Root, ...]) -> Roots:
        """Return these roots, open. Do not close them: they close when nobody uses them any more.

        Raises as `Roots`.
        """
        with self._lock:
            opened = self._known.get(roots)
        # A folder may have been removed and made again. Without the lock: one file system may not answer.
        if opened is None or not opened.are_current():
            opened = Roots(*roots)
        with self._lock:
            self._known[roots] = opened
            self._known.move_to_end(roots)
            if len(self._known) > self._most:
                self._known.popitem(last=False)
        return opened


def open_root(root: Root) -> Opened:
    """Open a root with O_PATH, through no symbolic link; if it is a file, open its folder."""
    try:
        fd = open_real(root.path, os.O_PATH)
        found = os.fstat(fd)
        kind, device = found.st_mode, found.st_dev
        if stat.S_ISDIR(kind):
            return Opened(root, fd, device)
        os.close(fd)
        if not stat.S_ISREG(kind):
            raise NotADirectoryError(errno.ENOTDIR, "neither a folder nor a file", root.path)
        folder, name = os.path.split(root.path)
        return Opened(root, open_real(folder, FOLDER), device, name)
    except OSError as error:
        details = {"path": root.path}
        if error.errno == errno.ELOOP:
            raise PermissionDenied(
                f"a granted path has become a symbolic link: {root.path}", details=details
            ) from None
        raise NotFoundError(
            f"a granted path cannot be opened: {root.path}: {error.strerror}", details=details
        ) from None


def check_path(path: str) -> None:
    """Refuse text that C would read as another path, or not at all."""
    if not path or "\0" in path:
        raise InvalidInput("a path is empty" if not path else "a path contains a NUL byte")
    try:
        os.fsencode(path)
    except UnicodeEncodeError:
        raise InvalidInput("a path contains a lone surrogate") from None


@contextmanager
def explained(path: str) -> Iterator[None]:
    """Translate errors of the operating system to those of this package."""
    try:
        yield
    except OSError as error:
        raise explain(error, path) from None


def regular(fd: int, path: str) -> os.stat_result:
    """Return the metadata of a regular file; refuse anything else."""
    info = os.fstat(fd)
    if stat.S_ISDIR(info.st_mode):
        raise InvalidInput(f"is a folder: {path}", details={"path": path})
    if not stat.S_ISREG(info.st_mode):
        raise not_regular(path)
    return info


def kind_of(mode: int) -> Literal["file", "dir", "link", "other"]:
    """Return the kind of a directory entry."""
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISDIR(mode):
        return "dir"
    return "link" if stat.S_ISLNK(mode) else "other"


def take(lock: int, path: str, until: float) -> None:
    """Lock an open folder. Tries again until that time, because a lock that waits could wait for ever."""
    while True:
        try:
            return flock(lock, LOCK_EX | LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until:
                raise UnavailableError(
                    f"another program has locked the folder of this file: {path}",
                    details={"path": path},
                    retryable=True,
                    hint="Try again when its change is done.",
                ) from None
            time.sleep(0.005)
        except OSError as error:
            raise explain(error, path) from None


def add(folder: int, name: str, data: bytes, path: str) -> int:
    """Append to an existing file in place; one with a second name is refused, because that may lie
    outside."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    fd = os.open(name, flags, dir_fd=folder)
    try:
        if regular(fd, path).st_nlink > 1:
            raise PermissionDenied(f"has a second name (hard link): {path}", details={"path": path})
        write_all(fd, data)
    finally:
        os.close(fd)
    return len(data)


def replace(folder: int, name: str, data: bytes, mode: int) -> int:
    """Write beside the file and rename over it, all relative to one open folder."""
    temporary = f".{os.urandom(8).hex()}.tmp"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(temporary, flags, mode, dir_fd=folder)
    try:
        try:
            keep_mode(fd, folder, name)
            write_all(fd, data)
            # Before the rename, or after a power cut the name could stand for an empty file.
            os.fsync(fd)
        finally:
            os.close(fd)
        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary, dir_fd=folder)
        raise
    return len(data)


def keep_mode(fd: int, folder: int, name: str) -> None:
    """Give a new file the mode of the one it replaces."""
    try:
        before = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return
    if stat.S_ISREG(before.st_mode):
        os.fchmod(fd, stat.S_IMODE(before.st_mode) & 0o777)


def write_all(fd: int, data: bytes) -> None:
    """Write all bytes."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def escapes(path: str) -> PermissionDenied:
    """Return the error of a path that leads out of the roots."""
    return PermissionDenied(
        f"{ESCAPES}: {path}", hint="give a path inside the allowed folders", details={"path": path}
    )


def not_regular(path: str) -> PermissionDenied:
    """Return the error of a device, pipe or socket."""
    return PermissionDenied(f"not a regular file: {path}", details={"path": path})


def explain(error: OSError, path: str) -> ToolcribError:
    """Return the error of this package for one of the operating system."""
    code = error.errno
    details = {"path": path, "errno": errno.errorcode.get(code or 0, str(code))}
    if code in (errno.EXDEV, errno.ELOOP):
        return escapes(path)
    if code in (errno.ENOENT, errno.ENOTDIR):
        return NotFoundError(f"no such file or folder: {path}", details=details)
    if code == errno.ENXIO:
        return not_regular(path)
    if code in (errno.EACCES, errno.EPERM, errno.EROFS):
        return PermissionDenied(
            f"the operating system denies it: {path}: {os.strerror(code)}", details=details
        )
    if code in (errno.EISDIR, errno.ENAMETOOLONG, errno.EINVAL):
        return InvalidInput(f"not a path of a file: {path}: {os.strerror(code)}", details=details)
    if code == errno.EAGAIN:
        return UnavailableError(
            f"folders on the way are being renamed: {path}", details=details, retryable=True
        )
    return ToolFailed(f"{path}: {error.strerror}", details=details)
