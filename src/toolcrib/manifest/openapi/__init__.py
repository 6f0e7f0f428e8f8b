"""Import OpenAPI documents, versions 2.0 and 3.x, as HTTP tools."""

from toolcrib.manifest.openapi.document import (
    fetch_document,
    is_url,
    open_document,
    read_document,
)
from toolcrib.manifest.openapi.importer import Imported, import_document
from toolcrib.manifest.openapi.writer import NewManifest, new_manifest, new_manifests, write_manifests

__all__ = [
    "Imported",
    "NewManifest",
    "fetch_document",
    "import_document",
    "is_url",
    "new_manifest",
    "new_manifests",
    "open_document",
    "read_document",
    "write_manifests",
]
