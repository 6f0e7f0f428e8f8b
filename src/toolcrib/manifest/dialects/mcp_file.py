"""JSON files that name MCP servers: the text with one more or fewer, and all else as it is."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from toolcrib.errors import NotFoundError, UsageError
from toolcrib.spec.naming import suggestion


def with_server(text: str, path: Path, keys: Sequence[str], name: str, server: dict[str, Any]) -> str:
    """Return a file's text with a server added below these keys, or changed if the name is there already.

    Raises UsageError for a file that cannot be changed so.
    """
    try:
        document, servers = _parsed(text, keys)
        servers[name] = server
    except (ValueError, AttributeError, TypeError):
        raise cannot_change(path, json.dumps({name: server}, indent=2), keys) from None
    return _as_json(document, text)


def without_server(text: str, path: Path, keys: Sequence[str], name: str) -> str:
    """Return a JSON file's text without a server. Raises UsageError as `with_server`, and NotFoundError."""
    try:
        document, servers = _parsed(text, keys)
        names = list(servers)
        servers.pop(name, None)
    except (ValueError, AttributeError, TypeError):
        raise UsageError(
            f"{path} cannot be changed without losing something in it: comments, or another form",
            hint=f"Remove {name} from it yourself.",
        ) from None
    if name not in names:
        raise NotFoundError(f"{path} has no server {name!r}", hint=suggestion(name, names, ""))
    return _as_json(document, text)


def _parsed(text: str, keys: Sequence[str]) -> tuple[Any, Any]:
    """Return a JSON document, and the servers in it, below these keys."""
    # Written anew, a file would lose comments and keys that are there twice: one with either is refused.
    document = servers = json.loads(text, object_pairs_hook=_without_duplicates) if text.strip() else {}
    for key in keys:
        servers = servers.setdefault(key, {})
    return document, servers


def _as_json(document: Any, like: str) -> str:
    indent = re.search(r"\n([ \t]+)\S", like)
    return json.dumps(document, indent=indent[1] if indent else 2, ensure_ascii=False) + "\n"


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key twice")
    return found


def cannot_change(path: Path, entry: str, keys: Sequence[str]) -> UsageError:
    return UsageError(
        f"{path} cannot be changed without losing something in it: comments, another form, or an entry"
        " of this name",
        hint=f"Add this to it yourself, under {' → '.join(keys)}:\n{entry}",
        details={"path": str(path), "entry": entry},
    )
