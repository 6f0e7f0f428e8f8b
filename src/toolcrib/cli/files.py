"""Files that commands read and write."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from itertools import count
from pathlib import Path

from toolcrib.errors import ConflictError, NotFoundError, UsageError
from toolcrib.state.private import put_file, replace_file, written


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


def write_new(files: Mapping[Path, bytes]) -> list[str]:
    """Write new files, and return their paths. Raises ConflictError if one exists."""
    taken = [str(path) for path in files if path.exists() or path.is_symlink()]
    if taken:
        raise ConflictError(f"these files exist already: {', '.join(taken)}", hint="Give another name.")
    for path, data in files.items():
        with written(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            # `x`: a file, or a link, that has appeared since the check above is not written through.
            with path.open("xb") as file:
                file.write(data)
    return [str(path) for path in files]


def write_with_backup(path: Path, before: str | None, text: str) -> Path | None:
    """Replace a file as `replace_file` does. Return where the old content is kept; None if there was none."""
    path = path.resolve()  # A link to the file stays a link.
    backup = None
    if before is not None:
        names = (path.with_name(f"{path.name}.backup{number}") for number in count(1))
        backup = next(name for name in names if not name.exists())
        with written(backup):
            put_file(backup, path.read_bytes(), mode=path.stat().st_mode & 0o777)
    replace_file(path, before, text)
    return backup
