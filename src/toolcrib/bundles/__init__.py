"""Bundles of tools kept as JSON files: the store that REST, the command line and Python share."""

from toolcrib.bundles.forms import (
    entry_of,
    keep_translations,
    label_of,
    read_manifest,
    read_record,
    record_text,
    require_one_name,
    slug_of,
)
from toolcrib.bundles.history import RecordedChange, Revision, log_of
from toolcrib.bundles.records import BundleBody, BundleRecord, ToolBody, ToolRecord
from toolcrib.bundles.sources import ListedTool, SourceBundle
from toolcrib.bundles.store import Store
