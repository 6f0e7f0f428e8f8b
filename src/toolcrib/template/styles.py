"""Lists and objects outside JSON: the styles of OpenAPI 3.2 (4.12.6, after RFC 6570), by position.

| position | styles |
|---|---|
| path | `simple`, `label`, `matrix`, `json` |
| query, form | `form`, `spaceDelimited`, `pipeDelimited`, `tabDelimited`, `deepObject`, `json` |
| header | `simple`, `json` |
| cookie | `form`, `json`, `cookie` |

What would let a value become structure is refused: a key that is another entry's name, and a delimiter inside
an item where the position cannot encode it. OpenAPI leaves lists and objects inside items open; they are
written as JSON text, and with `deepObject` as further brackets.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator
from typing import Any
from urllib.parse import quote

from toolcrib.spec import ParameterStyle
from toolcrib.template.tree import Reference
from toolcrib.template.values import bad_value, scalar_text

STYLES: dict[str, tuple[str, ...]] = {
    "path": ("simple", "label", "matrix", "json"),
    "query": ("form", "spaceDelimited", "pipeDelimited", "tabDelimited", "deepObject", "json"),
    "header": ("simple", "json"),
    "cookie": ("form", "json", "cookie"),
}
"""The styles that each position knows; a form body knows those of a query."""

Pairs = list[tuple[str, str]]

_DELIMITERS = {"form": ",", "spaceDelimited": " ", "pipeDelimited": "|", "tabDelimited": "\t"}
# Without `+` too, which servers read as a blank in a query.
_RESERVED = ":/?@!$'()*[]"
_RESERVED_PATH = ":@!$'()*"
"""Without the signs that part entries, items, keys or parameters in any style."""
_MAX_DEPTH = 20

_Part = tuple[str | None, str]


def styled_path(style: ParameterStyle, reference: Reference, value: Any) -> str:
    """The encoded text of a value in a URL path; an empty list or object is invalid_input."""
    encode = _encoder(_RESERVED_PATH if style.allow_reserved else "")
    if style.style == "json":
        return encode(_json(reference, value))
    parts = _parts(reference, value)
    if not parts:
        raise bad_value(reference, "a path cannot contain an empty list or object")
    # Exploded, `label` parts its items by dots, which percent-encoding leaves as they are.
    if style.style == "label" and style.explode:
        _refuse_inside(reference, parts, ".")
    if style.style == "simple":
        return _joined(parts, encode, ",", explode=style.explode)
    if style.style == "label":
        return "." + _joined(parts, encode, "." if style.explode else ",", explode=style.explode)
    name = encode(style.name or reference.name)
    if not style.explode or not isinstance(value, dict | list):
        # An empty value is the name without `=` (RFC 6570, 3.2.7).
        text = _joined(parts, encode, ",", explode=False)
        return f";{name}={text}" if text else f";{name}"
    return "".join(f";{name if key is None else encode(key)}={encode(item)}" for key, item in parts)


def styled_pairs(
    style: ParameterStyle, name: str, reference: Reference, value: Any, others: Collection[str] = ()
) -> Pairs:
    """The encoded entries of a query or a form; `name` is encoded already, `others` are the names taken."""
    encode = _encoder(_RESERVED if style.allow_reserved else "")
    if style.style == "json":
        return [(name, encode(_json(reference, value)))]
    if style.style == "deepObject" and isinstance(value, dict | list):
        return [(name + path, encode(text)) for path, text in _deep(reference, value, "", 0)]
    parts = _parts(reference, value)
    if not parts:
        return []
    if not isinstance(value, dict | list):
        return [(name, encode(parts[0][1]))]
    if style.explode:
        if isinstance(value, dict):
            _refuse_names(reference, (_quoted(key) for key in value), others)
        return [(name if key is None else _quoted(key), encode(item)) for key, item in parts]
    delimiter = _DELIMITERS.get(style.style, ",")
    if delimiter != ",":
        _refuse_inside(reference, parts, delimiter)
        return [(name, _joined(parts, encode, _quoted(delimiter), explode=False))]
    return [(name, _joined(parts, encode, ",", explode=False))]


def styled_header(style: ParameterStyle, reference: Reference, value: Any) -> str | None:
    """The text of a value in a header; None drops it. Nothing is encoded there, so delimiters are refused."""
    if style.style == "json":
        # Beyond ASCII the encoding of a header is not defined (RFC 9110, 5.5).
        return _json(reference, value, ascii_only=True)
    parts = _parts(reference, value)
    if isinstance(value, dict | list):
        _refuse_inside(reference, parts, ",=" if isinstance(value, dict) and style.explode else ",")
    return _joined(parts, str, ",", explode=style.explode) if parts else None


def styled_cookies(
    style: ParameterStyle, name: str, reference: Reference, value: Any, others: Collection[str]
) -> Pairs:
    """The cookies of a value. With style `cookie` nothing is encoded, so what ends a cookie is refused."""
    plain = style.style == "cookie"
    encode: Callable[[str], str] = str if plain else _quoted
    if style.style == "json":
        return [(name, _quoted(_json(reference, value)))]
    parts = _parts(reference, value)
    if plain:
        # What no value of a cookie may hold (RFC 6265, 4.1.1), and `=`, which ends the name.
        _refuse_inside(reference, parts, '=;," \\\t\r\n')
    if not parts:
        return []
    if style.explode and isinstance(value, dict):
        _refuse_names(reference, (encode(key) for key in value), others)
        return [(encode(key or ""), encode(item)) for key, item in parts]
    if style.explode:
        return [(name, encode(item)) for _, item in parts]
    return [(name, _joined(parts, encode, ",", explode=False))]


def _parts(reference: Reference, value: Any) -> list[_Part]:
    """The items of a list, the keys and values of an object, or the one scalar; nulls are left out."""
    if isinstance(value, dict):
        keys = [(scalar_text(reference, key), item) for key, item in value.items()]
        return [(key, _text(reference, item)) for key, item in keys if item is not None]
    if isinstance(value, list):
        return [(None, _text(reference, item)) for item in value if item is not None]
    return [(None, scalar_text(reference, value))]


def _text(reference: Reference, value: Any) -> str:
    return _json(reference, value) if isinstance(value, dict | list) else scalar_text(reference, value)


def _json(reference: Reference, value: Any, *, ascii_only: bool = False) -> str:
    try:
        text = json.dumps(value, ensure_ascii=ascii_only, allow_nan=False, separators=(",", ":"))
        # `json.dumps` lets lone surrogates through; they have no UTF-8.
        text.encode()
    except (ValueError, RecursionError):
        raise bad_value(reference, "it cannot be written as JSON") from None
    return text


def _joined(parts: list[_Part], encode: Callable[[str], str], delimiter: str, *, explode: bool) -> str:
    """`a,b` or, for an object, `k,v` and exploded `k=v`."""
    between = "=" if explode else delimiter
    return delimiter.join(
        encode(item) if key is None else f"{encode(key)}{between}{encode(item)}" for key, item in parts
    )


def _deep(reference: Reference, value: Any, path: str, depth: int) -> Iterator[tuple[str, str]]:
    """`[a][b]` paths, already encoded, and their values."""
    if depth > _MAX_DEPTH:
        raise bad_value(reference, "it is nested too deeply")
    if isinstance(value, dict):
        for key, item in value.items():
            step = _quoted(f"[{scalar_text(reference, key)}]")
            yield from _deep(reference, item, path + step, depth + 1)
    elif isinstance(value, list):
        for at, item in enumerate(value):
            yield from _deep(reference, item, f"{path}%5B{at}%5D", depth + 1)
    elif value is not None:
        yield path, scalar_text(reference, value)


def _refuse_inside(reference: Reference, parts: list[_Part], signs: str) -> None:
    for key, item in parts:
        for sign in signs:
            if sign in item or sign in (key or ""):
                raise bad_value(reference, f"an item contains {sign!r}, which separates the items here")


def _refuse_names(reference: Reference, keys: Iterator[str], others: Collection[str]) -> None:
    for key in keys:
        if not key:
            raise bad_value(reference, "one of its keys is empty")
        if key in others:
            raise bad_value(reference, "one of its keys is the name of another entry")


def _quoted(text: str) -> str:
    return quote(text, safe="")


def _encoder(safe: str) -> Callable[[str], str]:
    return (lambda text: quote(text, safe=safe)) if safe else _quoted
