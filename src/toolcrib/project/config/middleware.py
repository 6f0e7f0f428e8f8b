"""`middleware` in a project's settings: what wraps every call of its tools, the outermost first."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import field
from pathlib import PurePosixPath
from typing import Any, get_type_hints

from toolcrib import middleware as shipped
from toolcrib.errors import UnavailableError
from toolcrib.project.config.reader import KeyPath, Reader, texts
from toolcrib.project.config.started import CommandLine
from toolcrib.spec.record import record

_KEYS = ("use", "tools", "options")
_SHIPPED = ("cache", "logging", "rate_limit", "redaction", "retry", "timeout", "tracing")
_FILE = re.compile(r"(.+\.py):([A-Za-z_]\w*)")


@record
class MiddlewareSetting:
    """One entry: a middleware of Toolcrib by its name, or a function in a file of the project."""

    use: str
    tools: tuple[str, ...] = ()
    """Names and patterns of the tools whose calls it wraps; none: all."""
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def file(self) -> tuple[str, str] | None:
        """The file, from the project's root, and the function in it; None for one of Toolcrib."""
        match = _FILE.fullmatch(self.use)
        return None if match is None else (match[1], match[2])

    @property
    def factory(self) -> Callable[..., Any] | None:
        """The function of Toolcrib that makes it."""
        return getattr(shipped, f"{self.use}_middleware") if self.use in _SHIPPED else None


def read_middleware(reader: Reader, entry: Any, at: KeyPath) -> MiddlewareSetting:
    """Read one entry of `middleware`."""
    block = reader.mapping({"use": entry} if isinstance(entry, str) else entry, at, _KEYS)
    use = reader.line(block.get("use"), (*at, "use"), 4096)
    options = block.get("options") or {}
    if not isinstance(options, dict):
        raise reader.misfit((*at, "options"), "must be a mapping", rule="wrong-type")
    made = MiddlewareSetting(use, texts(reader, block.get("tools", []), (*at, "tools")), options)
    if made.file is not None:
        path = PurePosixPath(made.file[0])
        if path.is_absolute() or ".." in path.parts:
            raise reader.misfit((*at, "use"), "must be a file inside the project")
    elif made.factory is None:
        hint = f"{', '.join(_SHIPPED)}, or path/to/file.py:function"
        raise reader.misfit((*at, "use"), "is not a middleware", hint)
    else:
        try:
            _check_options(made.factory, options)
        except (TypeError, ValueError, re.error) as error:
            raise reader.misfit((*at, "options"), f"do not fit: {error}") from None
    return made


def _check_options(factory: Callable[..., Any], options: dict[str, Any]) -> None:
    """Raises TypeError, ValueError and `re.error` for options of which no middleware can be made."""
    import msgspec

    inspect.signature(factory).bind(**options)
    hints = get_type_hints(factory)
    for name, value in options.items():
        try:
            msgspec.convert(value, hints[name])
        except msgspec.ValidationError as error:
            raise ValueError(f"{name}: {error}") from None
    with suppress(UnavailableError):  # A package is missing, which opening the project reports.
        factory(**options)


def middleware_lines(settings: Iterable[MiddlewareSetting]) -> dict[str, CommandLine]:
    """Return the files of the project that are run as middleware, as command lines, by the setting's name."""
    # Written as if Python ran the file: so what it imports is found and pinned as for any script.
    files = ((number, one.file) for number, one in enumerate(settings))
    return {f"middleware[{n}]": CommandLine(("python3", file[0])) for n, file in files if file is not None}
