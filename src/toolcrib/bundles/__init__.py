"""Bundles of tools kept as JSON files: the store that REST, the command line and Python share."""

from toolcrib.bundles.records import BundleBody, BundleRecord, ToolBody, ToolRecord
from toolcrib.bundles.store import BuiltIn, Store

__all__ = ["BuiltIn", "BundleBody", "BundleRecord", "Store", "ToolBody", "ToolRecord"]
