"""Files that commands read, compare and write."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from toolcrib.errors import ConflictError, NotFoundError, UsageError
from toolcrib.state.private import put_file, unwritable


def read_input(source: str, most: int = -1) -> bytes:
    """Return the bytes of a file, or of standard input for `-`; at most `most` of them."""
    try:
        if source == "-":
            return sys.stdin.buffer.read(most)
        with Path(source).open("rb") as file:
            return file.read(most)
    except (FileNotFoundError, NotADirectoryError):
        raise NotFoundError(f"there is no file {source}") from None
    except OSError as error:
        raise UsageError(f"{source} cannot be read: {error.strerror}") from None


def read_inside(path: Path, root: Path) -> str | None:
    """Return the text of a file that is to be changed, None without one.

    Raises UsageError if it cannot be read as text, and for a link out of the project: a clone could let a
    command change any file of its user.
    """
    if path.is_relative_to(root) and not path.resolve().is_relative_to(root.resolve()):
        raise UsageError(f"{path} leads out of the project by a symbolic link", hint="Remove the link.")
    try:
        return path.read_text(encoding="utf-8") if path.exists() else None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}", hint="Repair it, or move it away.") from None


def diff_of(path: Path, before: str | None, after: str) -> str:
    """Return the change of a file as a unified diff; nothing if no line changes."""
    old, new = (before or "").splitlines(), after.splitlines()
    lines = difflib.unified_diff(old, new, str(path), str(path), n=2, lineterm="")
    return "".join(f"{line}\n" for line in lines)


def write_new(files: Mapping[Path, bytes]) -> list[str]:
    """Write new files, and return their paths. Raises ConflictError if one exists."""
    taken = [str(path) for path in files if path.exists() or path.is_symlink()]
    if taken:
        raise ConflictError(f"these files exist already: {', '.join(taken)}", hint="Give another name.")
    for path, data in files.items():
        with _written(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            # `x`: a file, or a link, that has appeared since the check above is not written through.
            with path.open("xb") as file:
                file.write(data)
    return [str(path) for path in files]


@contextmanager
def _written(path: Path) -> Iterator[None]:
    """Raise StateUnavailable if a file cannot be written in the block."""
    try:
        yield
    except OSError as error:
        raise unwritable(path, error) from None


def replace_file(path: Path, before: str | None, text: str) -> str:
    """Replace a file as a whole, or make it (None before). Return the text with the file's own line ends.

    Raises ConflictError if it is not what it was.
    """
    now = None
    with _written(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            with path.open(encoding="utf-8") as file:
                now = file.read()
            if file.newlines == "\r\n":
                text = text.replace("\n", "\r\n")
        # A person may have looked at the change for minutes, and an editor may have saved meanwhile.
        if now != before:
            raise ConflictError(f"{path} has just changed", hint="Run the command again.")
        put_file(path, text.encode(), mode=0o600 if before is None else path.stat().st_mode & 0o777)
    return text


def write_with_backup(path: Path, before: str | None, text: str) -> Path | None:
    """Replace a file as `replace_file` does. Return where the old content is kept; None if there was none."""
    path = path.resolve()  # A link to the file stays a link.
    backup = None
    if before is not None:
        names = (path.with_name(f"{path.name}.backup{number}") for number in count(1))
        backup = next(name for name in names if not name.exists())
        with _written(backup):
            put_file(backup, path.read_bytes(), mode=path.stat().st_mode & 0o777)
    replace_file(path, before, text)
    return backup
