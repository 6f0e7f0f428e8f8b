"""The web page where it is not built, and what it reads of answers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from toolcrib.serve.rest.routes import openapi
from toolcrib.serve.rest.ui.page import page_or_nothing


def test_without_a_built_page_the_server_says_how_to_get_it(tmp_path: Path) -> None:
    reply = page_or_nothing(tmp_path)
    assert (reply.status_code, b"make setup" in bytes(reply.body)) == (503, True)
    (tmp_path / "index.html").write_text("built")
    assert page_or_nothing(tmp_path).status_code == 200


def takes_any_json(schema: dict[str, Any]) -> bool:
    if "anyOf" in schema:
        return any(map(takes_any_json, schema["anyOf"]))
    if "type" not in schema:
        return not schema.keys() & {"$ref", "enum", "const"}
    more = schema.get("additionalProperties", True)
    is_map = "object" in schema["type"] and "properties" not in schema
    return is_map and (more if isinstance(more, bool) else takes_any_json(more))


def test_the_page_reads_numbers_of_tools_exactly_wherever_the_api_has_them() -> None:
    schemas = openapi()["components"]["schemas"].values()
    named = [one for schema in schemas for one in schema.get("properties", {}).items()]
    written = re.search(r"EXACT = new Set\(\s*`([^`]*)`", Path("frontend/src/parts/exact.ts").read_text())
    assert written is not None
    assert set(written[1].split()) == {name for name, schema in named if takes_any_json(schema)}
