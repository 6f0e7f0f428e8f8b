"""The text of an OpenAPI document, JSON or YAML, to JSON-shaped data.

Real documents are not always good YAML: status codes are numbers, keys stand twice, merge keys are used. What
has a plain meaning is read so; a document is only refused when there is nothing to read.
"""

from __future__ import annotations

import re
from typing import Any

from toolcrib.errors import ManifestError

__all__ = ["MAX_DOCUMENT_BYTES", "parse_document"]

MAX_DOCUMENT_BYTES = 128 * 1024 * 1024
_MAX_SLOW = 4 * 1024 * 1024
_MAX_DEPTH = 200
_MAX_VALUES = 5_000_000
_MERGE = "<<"


def parse_document(raw: bytes, where: str) -> dict[str, Any]:
    """The data of a document, an object. Raises ManifestError, `where` named, when there is none in it."""
    import orjson

    if len(raw) > MAX_DOCUMENT_BYTES:
        raise ManifestError(f"{where} is larger than {MAX_DOCUMENT_BYTES // 2**20} MiB")
    text = _decoded(raw, where)
    data: Any
    if text.lstrip()[:1] in ("{", "["):
        try:
            data = orjson.loads(text)
        except ValueError as error:
            data = _yaml(text, where, told=f"not JSON: {error}")
    else:
        data = _yaml(text, where)
    if not isinstance(data, dict):
        raise ManifestError(f"{where} holds no OpenAPI document: it is not an object")
    return data


def _decoded(raw: bytes, where: str) -> str:
    for mark, encoding in ((b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"), (b"", "utf-8-sig")):
        if raw.startswith(mark):
            try:
                return raw.decode(encoding)
            except UnicodeDecodeError as error:
                raise ManifestError(f"{where} is not {encoding.upper()} text: {error.reason}") from None
    raise AssertionError


def _yaml(text: str, where: str, told: str = "") -> Any:
    import orjson
    from ryaml._ryaml import loads

    try:
        data = loads(text)
    except ValueError as error:
        if "repetition limit" in str(error) or "recursion limit" in str(error):
            raise ManifestError(f"{where} cannot be read: {error}") from None
        data = _slow_yaml(text, where, told or f"not YAML: {error}")
    try:
        if _MERGE not in text:
            orjson.dumps(data)
            return data
    except TypeError:
        pass
    return _Plain(where).of(data)


def _slow_yaml(text: str, where: str, told: str) -> Any:
    """A second, slow and patient parser: keys that stand twice, numbers beyond 64 bits, tags."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    if len(text) > _MAX_SLOW:
        raise ManifestError(f"{where} cannot be read: {told[:300]}")
    parser = YAML(typ="safe", pure=True)
    parser.allow_duplicate_keys = True
    parser.version = "1.2"
    try:
        return parser.load(text)
    except (YAMLError, ValueError, TypeError, RecursionError) as error:
        first = re.sub(r"\s+", " ", str(error))[:300]
        raise ManifestError(f"{where} cannot be read: {told[:300] or first}") from None


class _Plain:
    """Values with keys as text, merge keys merged, and nothing that JSON does not have; within bounds."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._left = _MAX_VALUES

    def of(self, value: Any, depth: int = 0) -> Any:
        """The value made plain. Raises ManifestError when aliases make too much of it."""
        self._left -= 1
        if self._left < 0:
            raise ManifestError(f"{self._where} grows beyond {_MAX_VALUES:,} values by its aliases")
        if depth > _MAX_DEPTH:
            return None
        if isinstance(value, dict):
            return self._object(value, depth)
        if isinstance(value, list | tuple | set):
            return [self.of(item, depth + 1) for item in value]
        if isinstance(value, float):
            return value if value - value == 0 else None
        if value is None or isinstance(value, str | bool | int):
            return value
        return value.isoformat() if hasattr(value, "isoformat") else str(value)

    def _object(self, value: dict[Any, Any], depth: int) -> dict[str, Any]:
        out: dict[str, Any] = {}
        merged = value.get(_MERGE)
        for source in merged if isinstance(merged, list) else [merged]:
            if isinstance(source, dict):
                out.update(self.of(source, depth + 1))
        for key, item in value.items():
            if key != _MERGE:
                out[_key(key)] = self.of(item, depth + 1)
        return out


def _key(key: Any) -> str:
    if isinstance(key, bool):
        return "true" if key else "false"
    return "null" if key is None else str(key)
