"""OpenAPI documents, versions 2.0 and 3.x, to HTTP tools."""

from toolcrib.manifest.openapi.document import Document, fetch_document, is_url, open_document, read_document
from toolcrib.manifest.openapi.fields import FIELDS
from toolcrib.manifest.openapi.importer import Imported, Made, import_document
from toolcrib.manifest.openapi.writer import Draft, draft, manifest_of, put

__all__ = [
    "FIELDS",
    "Document",
    "Draft",
    "Imported",
    "Made",
    "draft",
    "fetch_document",
    "import_document",
    "is_url",
    "manifest_of",
    "open_document",
    "put",
    "read_document",
]
