"""A bundle as a ZIP file: the same bytes for the same bundle, and a strict reader.

    manifest.json              the format, and the size and SHA-256 of each other file
    bundle.json                the bundle
    tools/<UUID of slug and version>.json

Files are stored, not compressed, since compressed bytes depend on the version of zlib. The reader accepts
both. It never uses a name as a path: every file is checked in memory before anything is written.
"""

from __future__ import annotations

import hashlib
import io
import re
import stat
import zipfile
import zlib
from collections import Counter
from collections.abc import Mapping
from typing import NoReturn, TypeVar

import msgspec
from msgspec import Struct

from toolcrib.bundles.archive.contents import (
    ArchivedBundle,
    ArchivedTool,
    Contents,
    check_record,
    contents_of,
)
from toolcrib.bundles.archive.credentials import require_no_secrets
from toolcrib.bundles.files import encoded
from toolcrib.bundles.records import MOST_TOOLS, decode, decode_json
from toolcrib.bundles.store import Store
from toolcrib.errors import InvalidArchive, InvalidInput
from toolcrib.spec import SecretSource

FORMAT_VERSION = 1
_FORMAT = "toolcrib-bundle"
_MANIFEST, _BUNDLE = "manifest.json", "bundle.json"
MAX_ARCHIVE = 64 * 1024 * 1024
"""Bytes of a ZIP file."""
MAX_FILES = MOST_TOOLS + 2
MAX_FILE = 4 * 1024 * 1024
"""Bytes of one file in it."""
MAX_TOTAL = 128 * 1024 * 1024
"""Bytes of all files in it."""
MAX_RATIO = 200
"""Bytes of a file for one compressed byte."""
_SMALL = 64 * 1024
"""Up to here a ratio says nothing."""
_MAX_DIRECTORY = 4 * 1024 * 1024
_NAME = re.compile(r"(manifest|bundle)\.json|tools/[0-9a-f-]+\.json", re.ASCII)
_END = b"PK\x05\x06"
# Bytes of the end record and of a local header without names and comments (APPNOTE, 4.3.16 and 4.3.7).
_END_SIZE = 22
_LOCAL_SIZE = 30
# The first moment that a ZIP file can name, for the same bytes each time.
_EPOCH = (1980, 1, 1, 0, 0, 0)
# Flags of encryption, of strong encryption and of hidden headers (APPNOTE, 4.4.4).
_ENCRYPTED = 0x1 | 0x40 | 0x2000
_DOS_FOLDER = 0x10
_Form = TypeVar("_Form", ArchivedBundle, ArchivedTool)


class _File(Struct, frozen=True, forbid_unknown_fields=True):
    sha256: str
    size: int


class _Head(Struct, frozen=True, rename="camel"):
    format: str
    format_version: int


class _Manifest(_Head, frozen=True, rename="camel", forbid_unknown_fields=True):
    files: dict[str, _File]


def export_bundle(store: Store, bundle_id: str, secrets: SecretSource | None = None) -> bytes:
    """Return a bundle as a ZIP file.

    Raises as `contents_of`, and DeniedError if a record contains the value of a secret: one that a tool
    names, from `secrets` (default: the environment), or a literal credential.
    """
    contents = contents_of(store, bundle_id)
    require_no_secrets(contents, secrets)
    return write_zip(contents)


def write_zip(contents: Contents) -> bytes:
    """Return the ZIP file of a bundle. The same bundle always gives the same bytes."""
    files = {_BUNDLE: encoded(contents.bundle)}
    files |= {f"tools/{tool.file}": encoded(tool) for tool in contents.tools}
    listed = {
        name: _File(hashlib.sha256(data).hexdigest(), len(data)) for name, data in sorted(files.items())
    }
    manifest = encoded(_Manifest(format=_FORMAT, format_version=FORMAT_VERSION, files=listed))
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in ((_MANIFEST, manifest), *sorted(files.items())):
            entry = zipfile.ZipInfo(name, _EPOCH)
            # Unix, wherever it is written: so the mode counts.
            entry.create_system = 3
            entry.external_attr = (stat.S_IFREG | 0o600) << 16
            archive.writestr(entry, data)
    return buffer.getvalue()


def read_zip(data: bytes) -> Contents:
    """Return the bundle in a ZIP file. Raises InvalidArchive, with the file in it that is wrong."""
    _check_end(data)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            entries = archive.infolist()
            _check_entries(entries, archive.start_dir)
            files = {entry.filename: _content(archive, entry) for entry in entries}
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, NotImplementedError, OSError) as error:
        _refuse("damaged", f"the archive is damaged: {error}")
    _check_manifest(files)
    bundle = _record(files, _BUNDLE, ArchivedBundle)
    names = sorted(files.keys() - {_MANIFEST, _BUNDLE})
    tools = tuple(_record(files, name, ArchivedTool) for name in names)
    for name, tool in zip(names, tools, strict=True):
        if name != f"tools/{tool.file}":
            _refuse("wrong_name", f"{name} is not the name for {tool.slug} {tool.version}", name)
    return Contents(bundle, tools)


def _refuse(reason: str, message: str, name: str | None = None) -> NoReturn:
    details = {"reason": reason} | ({} if name is None else {"file": name})
    raise InvalidArchive(
        message, hint="Nothing was imported. Export the bundle again where it is from.", details=details
    )


def _check_end(data: bytes) -> None:
    """Check the end of the file, before the directory is read, so that there is one short way to read it."""
    if len(data) > MAX_ARCHIVE:
        _refuse("too_large", f"the archive has {len(data):,} bytes; at most {MAX_ARCHIVE:,} are read")
    # A comment after this record may hold a second one, and readers differ in which they take: none is
    # allowed.
    end = data[-_END_SIZE:]
    if len(end) < _END_SIZE or not end.startswith(_END) or end[20:22] != b"\0\0":
        _refuse("no_zip", "this is not a ZIP file, or something follows its end")
    count, size, start = (int.from_bytes(end[at : at + length], "little") for at, length in
                          ((10, 2), (12, 4), (16, 4)))  # fmt: skip
    if count > MAX_FILES or size > _MAX_DIRECTORY:
        _refuse("too_many", f"the archive has too many files; at most {MAX_FILES:,} are read")
    if start + size + _END_SIZE != len(data):
        _refuse("odd_layout", "the archive's parts do not follow each other")


def _check_entries(entries: list[zipfile.ZipInfo], end: int) -> None:
    if len(entries) > MAX_FILES:
        _refuse("too_many", f"the archive has {len(entries):,} files; at most {MAX_FILES:,} are read")
    names = Counter(entry.filename for entry in entries)
    for entry in entries:
        name = entry.filename
        # Readers differ in which of the two they take, so a check elsewhere may have seen the other one.
        if names[name] > 1:
            _refuse("duplicate", f"{name!r} is in the archive {names[name]} times", name)
        _check_name(entry)
        _check_kind(entry)
        if entry.file_size > MAX_FILE:
            _refuse(
                "too_large", f"{name!r} has {entry.file_size:,} bytes; at most {MAX_FILE:,} are read", name
            )
        if entry.file_size > max(_SMALL, MAX_RATIO * entry.compress_size):
            _refuse("bomb", f"{name!r} is compressed too much to be a record", name)
    if sum(entry.file_size for entry in entries) > MAX_TOTAL:
        _refuse("too_large", f"the files have more than {MAX_TOTAL:,} bytes together")
    # Files that share bytes have a modest ratio each. `zipfile` refuses them since Python 3.11.8 and 3.12.2.
    ordered = sorted(entries, key=lambda entry: entry.header_offset)
    ends = [*(entry.header_offset for entry in ordered[1:]), end]
    for entry, following in zip(ordered, ends, strict=False):
        taken = _LOCAL_SIZE + len(entry.filename.encode()) + entry.compress_size
        if entry.header_offset + taken > following:
            _refuse("overlap", f"{entry.filename!r} shares bytes with another part", entry.filename)


def _check_kind(entry: zipfile.ZipInfo) -> None:
    name, kind = entry.filename, stat.S_IFMT(entry.external_attr >> 16)
    if stat.S_ISLNK(kind):
        _refuse("link", f"{name!r} is a symbolic link", name)
    if kind not in (0, stat.S_IFREG) or entry.external_attr & _DOS_FOLDER:
        _refuse("no_file", f"{name!r} is not a regular file", name)
    if entry.flag_bits & _ENCRYPTED:
        _refuse("encrypted", f"{name!r} is encrypted", name)
    # `zipfile` sets no limit to what a piece of the other methods unpacks to.
    if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        _refuse("compression", f"{name!r} is compressed by the unknown method {entry.compress_type}", name)


def _check_name(entry: zipfile.ZipInfo) -> None:
    # As it is in the file: `filename` ends at a NUL byte and has other separators.
    name = entry.orig_filename
    if not _NAME.fullmatch(name) or name != entry.filename:
        _refuse("odd_name", f"{name!r} is not a file of an exported bundle", name)


def _content(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> bytes:
    with archive.open(entry) as file:
        # Not `read()`: that unpacks everything first, whatever size the directory says.
        data = file.read(entry.file_size)
    if len(data) != entry.file_size:
        _refuse("damaged", f"{entry.filename!r} has another size than the archive says", entry.filename)
    return data


def _check_manifest(files: Mapping[str, bytes]) -> None:
    if _MANIFEST not in files:
        _refuse("no_manifest", f"there is no {_MANIFEST}: this is not an exported bundle")
    try:
        # First the version: a later format may have other fields, and an unknown field says less.
        head = decode_json(files[_MANIFEST], _Head)
        if head.format == _FORMAT and head.format_version != FORMAT_VERSION:
            message = (
                f"the archive has the format version {head.format_version};"
                f" this version of Toolcrib reads {FORMAT_VERSION}"
            )
            _refuse("unknown_version", message, _MANIFEST)
        manifest = decode_json(files[_MANIFEST], _Manifest)
    except msgspec.DecodeError as error:
        _refuse("bad_manifest", f"{_MANIFEST}: {error}", _MANIFEST)
    if manifest.format != _FORMAT:
        _refuse("bad_manifest", f"{_MANIFEST}: the format is {manifest.format!r}, not {_FORMAT!r}", _MANIFEST)
    for name in sorted(manifest.files.keys() ^ (files.keys() - {_MANIFEST})):
        where = "not in the archive" if name in manifest.files else f"not in {_MANIFEST}"
        _refuse("unlisted", f"{name!r} is {where}", name)
    for name, listed in manifest.files.items():
        if len(files[name]) != listed.size or hashlib.sha256(files[name]).hexdigest() != listed.sha256:
            _refuse("checksum", f"{name!r} is not the file that {_MANIFEST} names", name)


def _record(files: Mapping[str, bytes], name: str, form: type[_Form]) -> _Form:
    try:
        record = decode(files[name], form)
        check_record(record)
    except KeyError:
        _refuse("no_bundle", f"there is no {name}")
    except (msgspec.DecodeError, InvalidInput) as error:
        _refuse("bad_record", f"{name}: {error}", name)
    return record
