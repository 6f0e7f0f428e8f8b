"""Format `greetings`: a YAML file whose mapping `greetings` holds the text of one tool under each name."""

from __future__ import annotations

import re
from typing import Any

from toolcrib.manifest import Dialect, Document, Draft, Entry, finish


def _detect(data: Any) -> bool:
    return isinstance(data, dict) and isinstance(data.get("greetings"), dict)


def _entries(document: Document) -> list[Entry]:
    return [_entry(document, name, text) for name, text in document.data["greetings"].items()]


def _entry(document: Document, name: str, text: Any) -> Entry:
    """Write one greeting as a native manifest; the draft remembers where each value is in the file."""
    draft = Draft(document, "greetings", ("greetings", name))
    arguments = {
        argument: {"type": "string", "description": f"The {argument} to greet."}
        for argument in re.findall(r"\$\{(\w+)\}", str(text))
    }
    draft.put(("name",), name, ())
    draft.put(("description",), "Greets somebody.")
    draft.put(("kind",), "greeting")
    draft.put(("version",), 1)
    draft.put(("inputs", "schema"), {"type": "object", "properties": arguments, "required": [*arguments]})
    draft.put(("exec", "greeting", "text"), text, ())
    return finish(draft, shared=True)


DIALECT = Dialect(
    name="greetings",
    meaning="greetings, many in a file",
    entries=_entries,
    detect=_detect,
    endings=(".yaml", ".yml"),
    several=True,
)
