"""A folder of files by which containers speak with each other, whoever writes them how.

Our own files appear whole, by rename(2). Names are looked up in the opened folder only and links are not
followed, so no name leads out of it. Changes come from inotify(7), and the folder is read again every second,
for half files, for what was left behind, and for what the kernel does not report, such as the changes of
another machine.

A claim on a request is a file that its server keeps locked. The kernel ends the lock with the process, so the
claim of a server that died is free at once, and another one takes the request over.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import stat
import time
from collections.abc import AsyncIterator, Callable, Container, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path
from typing import Any, NamedTuple

from toolcrib.errors import InvalidInput, StateUnavailable
from toolcrib.state.inotify import GONE, OVERFLOW, SELF, Inotify

_log = logging.getLogger("toolcrib.pods")

_TICK_S, _POLL_S = 1.0, 0.05
CLAIMS, PART = ".claims", ".part-"
_DONE = b"done"
_MODE = 0o770
"""Of folders that we make: the containers of a pod may have different users of one group."""


Changed = Callable[[str, bool], None]


class Stamp(NamedTuple):
    """The state of a file, to see if it has changed."""

    inode: int
    changed_ns: int
    size: int

    @property
    def age_s(self) -> float:
        """Seconds since it was written."""
        return time.time() - self.changed_ns / 1e9


class Refused(InvalidInput):
    """A file that is not read, or is no request and never becomes one."""


class Spool:
    """One folder of requests and results, opened once."""

    def __init__(self, ipc: str | os.PathLike[str], folder: str, owners: Iterable[int] = ()) -> None:
        """Open it, and make it if need be.

        Files count if they belong to this user, root, the owner of the folder, or one of `owners` (user ids).
        """
        self.path = Path(ipc, folder)
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with suppress(FileExistsError):
                os.mkdir(self.path, _MODE)
            self.fd = os.open(self.path, flags)
        except OSError as error:
            raise StateUnavailable(
                f"{self.path} cannot be used: {error.strerror}",
                hint="Give this user the right to write there; a link is not followed.",
                details={"path": str(self.path)},
            ) from None
        self._owners = {0, os.geteuid(), os.fstat(self.fd).st_uid, *owners}

    def close(self) -> None:
        """Close the folder."""
        os.close(self.fd)

    def write(self, name: str, data: bytes, *, first: bool = False) -> bool:
        """Put a whole file there; with `first` only if there is none, which returns False otherwise."""
        part = PART + secrets.token_hex(8)
        try:
            with os.fdopen(self.create(part), "wb") as file:
                file.write(data)
        except OSError:
            self.remove(part)
            raise
        if not first:
            os.rename(part, name, src_dir_fd=self.fd, dst_dir_fd=self.fd)
            return True
        try:
            os.link(part, name, src_dir_fd=self.fd, dst_dir_fd=self.fd)
        except FileExistsError:
            return False
        finally:
            self.remove(part)
        return True

    def create(self, name: str) -> int:
        """Return the descriptor of a new file, open for writing. Raises OSError if there is one."""
        return self._open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL)

    def read(self, name: str, limit: int) -> tuple[bytes, Stamp] | None:
        """Return a file and its state; None if there is none. Raises Refused for what is no such file."""
        try:
            descriptor = self._open(name, os.O_RDONLY | os.O_NONBLOCK)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise Refused(f"{name} is not read: {error.strerror}; links are not followed") from None
        try:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode):
                raise Refused(f"{name} is not a file")
            if found.st_uid not in self._owners:
                raise Refused(f"{name} belongs to user {found.st_uid}, who may not put it here")
            data = os.read(descriptor, limit + 1)
        finally:
            os.close(descriptor)
        if len(data) > limit:
            raise Refused(f"{name} is larger than {limit:,} bytes")
        return data, Stamp(found.st_ino, found.st_mtime_ns, found.st_size)

    def stamps(self) -> dict[str, Stamp]:
        """Return the names and states of all files there, the oldest first."""
        found: dict[str, Stamp] = {}
        with os.scandir(self.fd) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):
                    state = entry.stat(follow_symlinks=False)
                    found[entry.name] = Stamp(state.st_ino, state.st_mtime_ns, state.st_size)
        return dict(sorted(found.items(), key=lambda item: (item[1].changed_ns, item[0])))

    def has(self, name: str) -> bool:
        """Return True if there is anything of that name."""
        try:
            os.stat(name, dir_fd=self.fd, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return True

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""
        with suppress(FileNotFoundError, IsADirectoryError):
            os.unlink(name, dir_fd=self.fd)

    def move(self, name: str, folder: str) -> None:
        """Move a file into a folder in this one."""
        with suppress(FileNotFoundError), self._inner(folder) as inner:
            os.rename(name, name, src_dir_fd=self.fd, dst_dir_fd=inner)

    @contextmanager
    def claim(self, name: str) -> Iterator[Claim | None]:
        """Have the request in a file alone while the block runs; None if another has it."""
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        with self._inner(CLAIMS) as inner:
            descriptor = os.open(name, flags, 0o660, dir_fd=inner)
        try:
            try:
                flock(descriptor, LOCK_EX | LOCK_NB)
            except BlockingIOError:
                mine = None
            else:
                # Removed between both calls, it would lock nobody out.
                mine = Claim(descriptor) if os.fstat(descriptor).st_nlink else None
            yield mine
        finally:
            os.close(descriptor)

    def forget_claim(self, name: str) -> None:
        """Remove the claim of a request whose file was removed, unless it is being served."""
        with self.claim(name) as claim, self._inner(CLAIMS) as inner:
            if claim is not None:
                os.unlink(name, dir_fd=inner)

    def forget_claims(self, present: Container[str]) -> None:
        """Do so for all requests that are not among these."""
        with self._inner(CLAIMS) as inner:
            names = os.listdir(inner)
        for name in names:
            if name not in present and not self.has(name):
                self.forget_claim(name)

    @contextmanager
    def _inner(self, folder: str) -> Iterator[int]:
        flags = os.O_RDONLY | os.O_DIRECTORY
        try:
            descriptor = self._open(folder, flags)
        except FileNotFoundError:
            with suppress(FileExistsError):
                os.mkdir(folder, _MODE, dir_fd=self.fd)
            descriptor = self._open(folder, flags)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def _open(self, name: str, flags: int) -> int:
        return os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o660, dir_fd=self.fd)

    @asynccontextmanager
    async def watched(self, changed: Changed, look: Callable[[], None]) -> AsyncIterator[None]:
        """Call `changed` with each name that something happens to, and `look` now and again.

        It gets True if the name is gone, even if there is a new file of that name since.

        If the folder itself goes, or `look` fails, that is raised in the block.
        """
        watch = _Watch(self, changed, look)
        try:
            watch.start()
            yield
        except asyncio.CancelledError:
            if watch.failed is not None:
                watch.owner.uncancel()
                raise watch.failed from None
            raise
        finally:
            watch.close()


class _Watch:
    """Reports the changes in a spool on the event loop, and ends the task that watches if it cannot."""

    def __init__(self, spool: Spool, changed: Changed, look: Callable[[], None]) -> None:
        self._spool, self._changed, self._look = spool, changed, look
        self._loop = asyncio.get_running_loop()
        self.owner: asyncio.Task[Any] = asyncio.current_task()  # type: ignore[assignment]
        self._inotify: Inotify | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.failed: Exception | None = None

    def start(self) -> None:
        """Watch, then look for the first time: what comes in between is seen by one of both."""
        try:
            self._inotify = Inotify()
            self._inotify.add(f"/proc/self/fd/{self._spool.fd}")
            self._loop.add_reader(self._inotify.fileno(), self._receive)
        except OSError as error:  # Beyond the kernel's limits.
            why = f"{self._spool.path} cannot be watched ({error.strerror})"
            _log.warning("%s, so it is read every %d ms", why, _POLL_S * 1000)
            self.close()
        self._tick()

    def close(self) -> None:
        """End the watch."""
        if self._timer is not None:
            self._timer.cancel()
        if self._inotify is not None:
            self._loop.remove_reader(self._inotify.fileno())
            self._inotify.close()
            self._inotify = None

    def _receive(self) -> None:
        assert self._inotify is not None
        for news in self._inotify.read():
            if news.mask & OVERFLOW:
                self._try_look()
            elif news.mask & SELF:
                self._fail(StateUnavailable(f"{self._spool.path} was removed while it was in use"))
            elif news.name[:1] != ".":
                self._changed(news.name, bool(news.mask & GONE))

    def _tick(self) -> None:
        self._timer = self._loop.call_later(_POLL_S if self._inotify is None else _TICK_S, self._tick)
        self._try_look()

    def _try_look(self) -> None:
        try:
            self._look()
        except Exception as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        self.failed = error
        self.owner.cancel()


class Claim:
    """A request that this process has alone."""

    def __init__(self, descriptor: int) -> None:
        content = os.pread(descriptor, len(_DONE), 0)
        self._descriptor = descriptor
        self.is_done = content == _DONE
        """Its result was written."""
        self.attempt = 1 + (int(content) if content.strip().isdigit() else 0)
        """1 for the first process; each that died adds one."""

    def begin(self) -> None:
        """Note that this process serves it."""
        self._write(b"%d" % self.attempt)

    def give_back(self) -> None:
        """Note that this process did not die of it."""
        self._write(b"%d" % (self.attempt - 1))

    def done(self) -> None:
        """Note that its result is written: nobody serves it again."""
        self._write(_DONE)

    def _write(self, content: bytes) -> None:
        os.pwrite(self._descriptor, content.ljust(len(_DONE)), 0)
