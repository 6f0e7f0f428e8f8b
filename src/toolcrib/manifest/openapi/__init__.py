"""Import OpenAPI documents, versions 2.0 and 3.x, as HTTP tools."""

from toolcrib.manifest.openapi.document import fetch_document, is_url, open_document
from toolcrib.manifest.openapi.document import read_document as read_document
from toolcrib.manifest.openapi.importer import Imported
from toolcrib.manifest.openapi.importer import import_document as import_document
from toolcrib.manifest.openapi.writer import NewManifest, new_manifest, new_manifests, write_manifests
