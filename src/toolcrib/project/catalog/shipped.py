"""The bundle `builtin`: the built-in tools as records of the store, each with a switch of its own."""

from __future__ import annotations

import hashlib

from toolcrib.builtin.definition import BUILTIN_BUNDLE
from toolcrib.builtin.names import NAMES, READER
from toolcrib.builtin.table import builtin
from toolcrib.bundles import BuiltIn, BundleRecord, ToolRecord

BUNDLE_ID = "019b7a00-0000-7000-8000-000000000000"
FUNCTIONS = {f"toolcrib.{name}": name for name in NAMES if name != READER}
"""The function in a record to the name of the built-in tool. The reader needs no switch."""
_MADE = "2026-01-01T00:00:00.000Z"


def builtin_bundle() -> BuiltIn:
    """Return the bundle. Its ids depend on names only, so switches outlast upgrades; all tools are off."""
    bundle = BundleRecord(
        id=BUNDLE_ID, slug=BUILTIN_BUNDLE, display_name="Built-in tools", created_at=_MADE, modified_at=_MADE
    )
    return BuiltIn(bundle, [_record(function, name) for function, name in FUNCTIONS.items()])


def _record(function: str, name: str) -> ToolRecord:
    tool = builtin(name)
    return ToolRecord(
        id=f"{BUNDLE_ID[:24]}{hashlib.sha256(name.encode()).hexdigest()[:12]}",
        bundle_id=BUNDLE_ID,
        slug=name.replace("_", "-"),
        version="v1",
        display_name=name,
        description=tool.description,
        tags=(BUILTIN_BUNDLE,),
        # The word of the record format for a function of the program (`goFunc`).
        type="go",
        impl={"goFunc": function},
        arg_schema=tool.input_schema,
        is_enabled=False,
        created_at=_MADE,
        modified_at=_MADE,
    )
