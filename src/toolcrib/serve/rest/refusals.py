"""The errors that routes about bundles and tools have in common."""

from __future__ import annotations

from toolcrib.errors import (
    BuiltInReadOnly,
    BundleDeleting,
    BundleReadOnly,
    InvalidId,
    InvalidSlug,
    MissingField,
    NotFoundError,
    PreconditionFailed,
    ToolNotFound,
)

NO_BUNDLE = (InvalidId, NotFoundError, BundleDeleting)
NO_TOOL = (*NO_BUNDLE, ToolNotFound)
READ_ONLY = (BuiltInReadOnly, BundleReadOnly)
CHANGE = (*READ_ONLY, PreconditionFailed)
PUT = (InvalidSlug, MissingField, *CHANGE)
