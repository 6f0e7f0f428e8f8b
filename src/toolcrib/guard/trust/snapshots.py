"""Copies of the code that a digest covers: the hashed code runs, even if files on disk have changed since.

They are in the user's own folder, outside of every grant, by their content. The sandbox mounts them read-only
in place of the originals. A copy is hashed while it is made, and refused if it is not what the digest says.
What has not changed is never copied again. A virtual environment is not copied: it counts by its lock.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import stat
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from threading import Lock

from toolcrib.errors import ConflictError, StateUnavailable
from toolcrib.guard.trust.digest import ToolDigest
from toolcrib.state.private import open_plain

Pinned = tuple[tuple[str, str], ...]
"""Files and folders to mount: the path of each, as a real path, and of the copy that replaces it."""
_PARTS = ("script", "module", "beside", "listed")
_CHUNK = 1024 * 1024
_KEPT = 1_024
_KEPT_S = 30 * 86_400
"""Seconds after which a copy is removed, when another one is made."""


class Snapshots:
    """The copies of one project's code. `folder` returns the user's folder of the project, made if needed."""

    def __init__(self, folder: Callable[[], Path], root: Path) -> None:
        self._folder = folder
        self._root = f"{root}/"
        self._known: OrderedDict[tuple[str, str | None], Pinned] = OrderedDict()
        self._lock = Lock()
        self._swept = False

    def of(self, digest: ToolDigest, own: str | None = None) -> Pinned:
        """Return the copies of what a digest covers: the files in the project, and all of the folder `own`.

        Raises ConflictError if a file is not what the digest says any more, StateUnavailable if it cannot be
        copied.
        """
        key = digest.digest, own
        with self._lock:
            known = self._known.get(key)
        # Another process may have removed copies that are old.
        if known is not None and all(os.path.lexists(copy) for _, copy in known):
            return known
        try:
            made = tuple(self._make(digest, own))
        except OSError as error:
            raise StateUnavailable(
                f"the code cannot be copied to where it runs from: {error.strerror}",
                hint="Make room there, or set TOOLCRIB_DATA to another folder for the user's data.",
                details={"path": str(error.filename)},
            ) from None
        with self._lock:
            self._known[key] = made
            if len(self._known) > _KEPT:
                self._known.popitem(last=False)
        return made

    def _make(self, digest: ToolDigest, own: str | None) -> Iterator[tuple[str, str]]:
        store = self._folder() / "code"
        store.mkdir(mode=0o700, exist_ok=True)
        if own is not None:
            inside = ((path.removeprefix(f"{own}/"), path) for path in digest.files)
            files = {name: digest.files[path] for name, path in inside if name != path}
            if files:
                yield own, self._tree(store, own, files)
        for path, expected in self._code(digest):
            if own is None or not path.startswith(f"{own}/"):
                yield path, str(self._file(store, path, expected))

    def _code(self, digest: ToolDigest) -> Iterator[tuple[str, str]]:
        """Yield the files of the project that are code, with what the digest says of them."""
        parts = {part.partition("/")[2] for part in digest.parts if part.startswith(_PARTS)}
        for path, expected in digest.files.items():
            named = digest.names[path] in parts
            if named and path.startswith(self._root) and expected.startswith(("file ", "executable ")):
                yield path, expected

    def _tree(self, store: Path, folder: str, files: Mapping[str, str]) -> str:
        """Return a copy of a folder with these files and no others."""
        import shutil

        states = {name: os.lstat(f"{folder}/{name}") for name in files}
        whole = sorted((name, expected, _form(states[name])) for name, expected in files.items())
        tree = (
            store / f"tree-{hashlib.sha256(json.dumps(whole).encode(errors='surrogateescape')).hexdigest()}"
        )
        if tree.exists():
            return str(tree)
        new = store / f"new-{secrets.token_hex(8)}"
        try:
            for name, expected in files.items():
                place = new / name
                place.parent.mkdir(parents=True, exist_ok=True)
                path = f"{folder}/{name}"
                if expected.startswith("link "):
                    text = os.readlink(path)
                    _require_same(f"link {hashlib.sha256(os.fsencode(text)).hexdigest()}", expected, path)
                    place.symlink_to(text)
                elif not expected.startswith("special "):
                    os.link(self._file(store, path, expected), place)
            with suppress(FileExistsError):
                # In one step, so that a call never sees a folder that is only half there.
                new.rename(tree)
        except FileExistsError:
            pass
        except OSError:
            if not tree.exists():  # Another process may have made it meanwhile: the target is not empty.
                raise
        finally:
            shutil.rmtree(new, ignore_errors=True)
        return str(tree)

    def _file(self, store: Path, path: str, expected: str) -> Path:
        """Return a copy of a file, made if there is none with this content, mode and time."""
        self._sweep(store)
        with open_plain(path) as file:
            state = os.fstat(file.fileno())
            copy = store / f"{expected.partition(' ')[2]}-{_form(state)}"
            if copy.exists():
                return copy
            new = store / f"new-{secrets.token_hex(8)}"
            try:
                content = hashlib.sha256()
                with new.open("xb", buffering=0) as target:
                    while data := file.read(_CHUNK):
                        content.update(data)
                        target.write(data)
                    os.fsync(target.fileno())  # After a power cut nobody hashes it again.
                kind = "executable" if state.st_mode & 0o111 else "file"
                _require_same(f"{kind} {content.hexdigest()}", expected, path)
                # Nobody writes it any more, and this user can always read it.
                new.chmod(stat.S_IMODE(state.st_mode) & 0o555 | 0o400)
                os.utime(
                    new, ns=(state.st_atime_ns, state.st_mtime_ns)
                )  # Python compares it with `.pyc` files.
                new.rename(copy)
            finally:
                new.unlink(missing_ok=True)
        return copy

    def _sweep(self, store: Path) -> None:
        """Remove copies that were made long ago, once in this process."""
        import shutil

        if self._swept:
            return
        self._swept = True
        before = time.time() - _KEPT_S
        for entry in os.scandir(store):
            with suppress(OSError):
                # ctime is when the copy was made; its mtime is that of the original.
                if entry.stat(follow_symlinks=False).st_ctime >= before:
                    continue
                if entry.is_dir(follow_symlinks=False):
                    shutil.rmtree(entry)
                else:
                    Path(entry).unlink()


def _form(state: os.stat_result) -> str:
    return f"{stat.S_IMODE(state.st_mode):o}-{state.st_mtime_ns}"


def _require_same(found: str, expected: str, path: str) -> None:
    if found != expected:
        raise ConflictError(
            f"{path} has changed since it was checked, so nothing was run",
            hint="Make the call again: it then counts as it is.",
            details={"path": path},
        )
