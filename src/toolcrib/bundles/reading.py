"""Read record files; one that cannot be read is shown as a damaged record, with the reason."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import msgspec

from toolcrib.bundles.records import BundleRecord, ToolRecord, decode, file_of
from toolcrib.errors import StateUnavailable
from toolcrib.spec.moment import written

# O_NONBLOCK: to open a FIFO that somebody has put there would wait for a writer.
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_WHY = "its record cannot be read: "
_Form = TypeVar("_Form")


class NotARecord(StateUnavailable):
    """A file in the place of a record is none of this store, or cannot be read at all."""

    def __init__(self, path: Path | str, reason: str) -> None:
        super().__init__(
            f"{path} is not a record of this store: {reason}",
            hint="Put the record again, delete it, or restore the file from a backup.",
            details={"path": str(path)},
        )
        self.path, self.reason = str(path), reason


class DamagedBundle(BundleRecord, frozen=True, kw_only=True):
    """The place of a bundle whose record cannot be read."""

    unavailable_because: str
    path: str
    """The path of its file."""


class DamagedTool(ToolRecord, frozen=True, kw_only=True):
    """The place of a tool whose record cannot be read."""

    unavailable_because: str
    path: str
    """The path of its file."""


def read_file(path: Path | str, form: type[_Form]) -> _Form | None:
    """Return the record in a file; None if there is no such file. Raises NotARecord."""
    try:
        return decode(_read(path), form)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise NotARecord(path, error.strerror or type(error).__name__) from None
    except msgspec.DecodeError as error:
        raise NotARecord(path, str(error)) from None


def _read(path: Path | str) -> bytes:
    descriptor = os.open(path, _READ)
    try:
        # A record is replaced and never written in place, so its size is that of the whole.
        return os.read(descriptor, os.fstat(descriptor).st_size)
    finally:
        os.close(descriptor)


def damaged_bundle(error: NotARecord, id: str, slug: str | None) -> DamagedBundle:  # noqa: A002
    """Return what is shown of a bundle in the place of its record. It counts as disabled."""
    changed = written(mark_of(error.path) / 1e9)
    return DamagedBundle(
        id=id,
        slug=slug or id,
        is_enabled=False,
        created_at=changed,
        modified_at=changed,
        unavailable_because=f"{_WHY}{error.reason}",
        path=error.path,
    )


def damaged_tool(error: NotARecord, bundle_id: str, file: str, label: tuple[str, str] | None) -> DamagedTool:
    """Return what is shown of a tool in the place of its record. It counts as disabled.

    `label` is its slug and version; without one it has the name of its file and version `1`.
    """
    slug, version = label or (file.removesuffix(".json"), "1")
    changed = written(mark_of(error.path) / 1e9)
    return DamagedTool(
        id=file_of(file, bundle_id).removesuffix(".json"),
        bundle_id=bundle_id,
        slug=slug,
        version=version,
        type="native",
        impl={},
        is_enabled=False,
        created_at=changed,
        modified_at=changed,
        unavailable_because=f"{_WHY}{error.reason}",
        path=error.path,
    )


def require_whole(record: BundleRecord | ToolRecord) -> None:
    """Raise NotARecord for the place of a damaged record."""
    if isinstance(record, DamagedBundle | DamagedTool):
        raise NotARecord(record.path, record.unavailable_because.removeprefix(_WHY))


def with_text(tool: ToolRecord) -> ToolRecord:
    """Return a record to be kept; of a damaged one with the text of its file. Raises StateUnavailable."""
    if not isinstance(tool, DamagedTool):
        return tool
    try:
        return msgspec.structs.replace(tool, impl={"text": _read(tool.path).decode(errors="replace")})
    except OSError as error:  # Then it may be whole.
        raise NotARecord(tool.path, error.strerror or type(error).__name__) from None


def mark_of(path: str) -> int:
    """Return the time of the last change of a file in nanoseconds since the epoch; 0 if there is none."""
    try:
        return os.stat(path, follow_symlinks=False).st_mtime_ns
    except OSError:
        return 0


def visible(folder: Path) -> Iterator[Path]:
    """Yield the entries of a folder, if it exists, without temporary files."""
    with suppress(FileNotFoundError):
        yield from (path for path in folder.iterdir() if not path.name.startswith("."))
