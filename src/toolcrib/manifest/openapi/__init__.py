"""OpenAPI documents, versions 2.0 and 3.x, to HTTP tools."""

from toolcrib.manifest.openapi.document import Document, read_document
from toolcrib.manifest.openapi.importing import import_document
from toolcrib.manifest.openapi.report import Imported, Made

__all__ = ["Document", "Imported", "Made", "import_document", "read_document"]
