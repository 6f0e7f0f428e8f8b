"""FlexiGPT's `tool.json`: one record a file, `go` (a registered Python callable) or `http`."""

from __future__ import annotations

from toolcrib.manifest.dialects.base import finished
from toolcrib.manifest.dialects.dialect import Dialect
from toolcrib.manifest.plugins import on_call

_FOLDER = "toolcrib.manifest.dialects.flexigpt"
BASE_MS = 500

DIALECT = Dialect(
    name="flexigpt",
    meaning="FlexiGPT's tool.json",
    load=on_call("toolcrib.manifest.yaml.json_source:load_json"),
    entries=finished(on_call(f"{_FOLDER}.reader:drafts"), shared=False),
    detect=lambda data: isinstance(data, dict) and "impl" in data and ("argSchema" in data or "slug" in data),
    base_ms=BASE_MS,
    own_file="tool.json",
    endings=(".json", ".jsonc"),
    write=on_call(f"{_FOLDER}.writer:write_record"),
    file_name="{name}/tool.json",
    terms=on_call(f"{_FOLDER}.writer:in_terms"),
)
