"""Reading of bodies and queries: strict, and with every violation in the error."""

from __future__ import annotations

import re
import time
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any, get_args

import msgspec
from msgspec import Struct
from starlette.requests import ClientDisconnect
from starlette.types import Receive

from toolcrib.core.deadline import DeadlineExceeded, run_with_deadline
from toolcrib.errors import (
    InvalidInput,
    MissingField,
    SlowRequest,
    TooLarge,
    UnsupportedMediaType,
    Violation,
)
from toolcrib.schema import SchemaCheck, decode_value
from toolcrib.spec.naming import suggestion

JSON = "application/json"
# `int` also takes spaces, underscores and digits of other scripts. At most 19 digits fit in 64 bits.
_INTEGER = re.compile(r"-?(0|[1-9][0-9]{0,18})")
_SLOWEST = 16_384
"""Bytes of a body that give it another second."""
_LONGEST_S = 24 * 3600.0
_TRUTH = {"true": True, "false": False}


def media_type_of(content_type: str, allowed: Iterable[str]) -> str:
    """Return the media type of a Content-Type header. Raises UnsupportedMediaType unless it is allowed."""
    found = content_type.partition(";")[0].strip().lower()
    if found not in allowed:
        raise UnsupportedMediaType(
            f"the body is {found or 'without a type'}", hint=f"Send Content-Type: {' or '.join(allowed)}."
        )
    return found


def check_coding(coding: str) -> None:
    """Raise UnsupportedMediaType for a body that is compressed, by its Content-Encoding header."""
    if coding.strip().lower() not in ("", "identity"):
        raise UnsupportedMediaType("the body is compressed", hint="Send it without Content-Encoding.")


def check_length(length: int, limit: int) -> None:
    """Raise TooLarge for a body of more bytes than the limit."""
    if length > limit:
        raise TooLarge(f"the body has more than {limit} bytes", details={"limit": limit})


async def receive_body(
    receive: Receive, length: str, limit: int, seconds: float, count: Callable[[int], None] = lambda _: None
) -> bytes:
    """Receive the whole body of a request. Raises TooLarge as soon as it is known to be so, and SlowRequest.

    `length` is the header Content-Length. The body has `seconds` to arrive, and one more for each 16 KiB.
    `count` gets the bytes of each part that has to wait for the next one, and in the end all of them as a
    negative number.
    """
    # A body in chunks names no length, so the bytes that come are counted too.
    check_length(int(length) if length.isdecimal() else 0, limit)
    parts: list[bytes] = []
    size, held, begun = 0, 0, time.monotonic()

    async def read() -> None:
        nonlocal size, held
        more = True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            check_length(size, limit)
            more = message.get("more_body", False)
            if more:
                held = size
                count(len(parts[-1]))

    try:
        # A client that sends a byte now and then would occupy a connection for ever.
        await run_with_deadline(
            read(), lambda: _LONGEST_S, lambda: begun + seconds + size / _SLOWEST - time.monotonic()
        )
    except DeadlineExceeded:
        raise SlowRequest(f"{size} bytes of the body came in time", hint="Send it faster.") from None
    finally:
        count(-held)
    return b"".join(parts)


def read_json(data: bytes) -> Any:
    """Read a body as strict JSON. Raises InvalidInput."""
    try:
        return decode_value(data.removeprefix(BOM_UTF8))
    except InvalidInput as error:
        listed = "; ".join(f"{one.path} {one.message}" for one in error.violations)
        raise InvalidInput(f"the body cannot be used: {listed}", violations=error.violations) from None


def read_body(data: bytes, form: Any) -> Any:
    """Read a body as a value of this type. Raises InvalidInput, and MissingField for a missing one."""
    return _converted(read_json(data), form, "the body")


def read_query(items: Iterable[tuple[str, str]], form: Any) -> Any:
    """Read the parameters of a query as this struct. Raises InvalidInput for unknown or repeated ones too.

    A list is written with commas, or by giving its parameter again.
    """
    kinds = _kinds(form)
    values: dict[str, Any] = {}
    for name, text in items:
        if name not in kinds:
            known = suggestion(name, kinds, f"Known: {', '.join(kinds) or 'none'}.")
            raise InvalidInput(
                f"there is no query parameter {name!r}",
                hint=known,
                violations=[Violation(name, "is not known")],
            )
        if kinds[name] is tuple:
            values[name] = [*values.get(name, ()), *text.split(",")]
        elif name in values:
            raise InvalidInput(f"{name} is given twice", violations=[Violation(name, "is given twice")])
        elif kinds[name] is int and _INTEGER.fullmatch(text) and -(2**63) <= int(text) < 2**63:
            values[name] = int(text)
        else:
            # Another text stays a text, and is refused below with its place.
            values[name] = _TRUTH.get(text, text) if kinds[name] is bool else text
    return _converted(values, form, "the query")


@cache
def _kinds(form: Any) -> Mapping[str, type]:
    """Return the parameters of a query by name: `tuple`, `int`, `bool` or `str`."""
    if form is None:
        return {}
    info = msgspec.inspect.type_info(form)
    assert isinstance(info, msgspec.inspect.StructType)
    return {one.encode_name: _kind(one.type) for one in info.fields}


def _kind(info: Any) -> type:
    known: dict[type, type] = {
        msgspec.inspect.VarTupleType: tuple,
        msgspec.inspect.IntType: int,
        msgspec.inspect.BoolType: bool,
    }
    return known.get(type(info), str)


def _converted(value: Any, form: Any, what: str) -> Any:
    if form is None:
        return None
    try:
        return msgspec.convert(value, form)
    except msgspec.ValidationError:
        violations = _violations(value, form)
    if not violations:  # such as 5.0, which is an integer to JSON Schema
        try:
            return msgspec.convert(value, form, strict=False)
        except msgspec.ValidationError as error:
            violations = [Violation("$", str(error))]
    listed = "; ".join(f"{one.path} {one.message}" for one in violations[:10])
    missing = any(one.message == "is required" for one in violations)
    raise (MissingField if missing else InvalidInput)(
        f"{what} does not have the right form: {listed}", violations=violations
    )


def _violations(value: Any, form: Any) -> list[Violation]:
    """List every violation; msgspec stops at the first. Of a union, those of the member that a tag names."""
    configs = [
        one.__struct_config__ for one in get_args(form) if isinstance(one, type) and issubclass(one, Struct)
    ]
    if not configs or not isinstance(value, dict):
        return _check(form).violations(value)
    field = configs[0].tag_field
    at = f"$.{field}"
    if field not in value:
        return [Violation(at, "is required")]
    for member, config in zip(get_args(form), configs, strict=True):
        if config.tag == value[field]:
            return _check(member).violations(value)
    return [Violation(at, f"is not one of: {', '.join(str(config.tag) for config in configs)}")]


@cache
def _check(form: Any) -> SchemaCheck:
    return SchemaCheck(msgspec.json.schema(form))
