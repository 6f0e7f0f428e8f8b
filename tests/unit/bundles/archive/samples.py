"""Bundles and archives for these tests."""

from __future__ import annotations

import hashlib
import io
import json
import stat
import zipfile
from typing import Any

from toolcrib.bundles import BundleBody, Store, ToolBody
from toolcrib.spec.identifier import new_id

HTTP: dict[str, Any] = {"urlTemplate": "https://example.com/${city}?key=${WEATHER_KEY}"}
MANIFEST = """# kept as it is
name: read_notes
description: Read the notes
kind: file
version: 3
exec:
  file: {action: read, path: notes.txt}
permissions:
  fs: {read: [notes.txt], write: []}
"""


def tool(**fields: Any) -> ToolBody:
    values: dict[str, Any] = {"display_name": "Weather", "type": "http", "impl": HTTP, **fields}
    return ToolBody(**values)


def native(text: str = MANIFEST) -> ToolBody:
    return ToolBody(type="native", impl={"manifest": text}, description="Read the notes")


def filled(store: Store) -> str:
    """A bundle with three tools."""
    bundle = new_id()
    store.put_bundle(bundle, BundleBody(slug="weather", display_name="Wetter ☂", description="Two\nlines"))
    store.put_tool(
        bundle, "forecast", "v1", tool(tags=("sky",), arg_schema={"type": "object", "b": 1, "a": 1.5})
    )
    store.put_tool(bundle, "forecast", "v2", tool(is_enabled=False))
    store.put_tool(bundle, "read-notes", "3", native())
    return bundle


def files_in(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {entry.filename: archive.read(entry) for entry in archive.infolist()}


def listed(files: dict[str, bytes], **head: Any) -> bytes:
    """The manifest of these files."""
    entries = {
        name: {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)} for name, data in files.items()
    }
    return json.dumps({"format": "toolcrib-bundle", "formatVersion": 1, "files": entries, **head}).encode()


def zipped(
    files: dict[str, bytes], *, compress: int = zipfile.ZIP_STORED, mode: int = stat.S_IFREG | 0o600
) -> bytes:
    """A ZIP file with these files as they are."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compress) as archive:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name)
            entry.compress_type = compress
            entry.external_attr = mode << 16
            archive.writestr(entry, data)
    return buffer.getvalue()


def with_manifest(files: dict[str, bytes], **head: Any) -> dict[str, bytes]:
    """The files with a manifest that names them as they are now."""
    rest = {name: data for name, data in files.items() if name != "manifest.json"}
    return {"manifest.json": listed(rest, **head), **rest}
