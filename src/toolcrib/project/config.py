"""The project's settings, `config.yml` in its home folder. Every key is known; what is unknown is refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import Any

from toolcrib.errors import ConfigError, ManifestError
from toolcrib.manifest import Diagnostic, Document, diagnostics_of, failure, load, read
from toolcrib.spec import LEVELS, Level, Network, Permissions, Retry, SecretSpec
from toolcrib.spec.naming import nearest

__all__ = ["KEYS", "Config", "load_config"]

DEFAULT_TIMEOUT_MS = 300_000
Path = tuple[str | int, ...]
"""Keys and positions from the top of the document down to a value."""


@dataclass(frozen=True, slots=True)
class Config:
    """What a project sets for all its tools."""

    timeout_ms: int = DEFAULT_TIMEOUT_MS
    """`limits.timeout_ms`: no attempt of any tool takes longer."""
    retry: Retry = field(default_factory=lambda: Retry(max_attempts=2))
    """`retry`: for registered Python tools and for HTTP reads; other tools make one attempt."""
    allowed_hosts: tuple[str, ...] | None = None
    """`security.allowed_hosts`: HTTP tools reach these at most; None leaves each tool its own host."""
    sandbox_minimum: Level = "full"
    """`sandbox.minimum`: the weakest level tools may be run at. Counts in a trusted project only."""
    max_permissions: Permissions | None = None
    """`security.max_permissions`: the ceiling for tools that agents create."""


class _Misfit(Exception):
    """A value that is not as it must be."""

    def __init__(self, finding: Diagnostic) -> None:
        super().__init__(finding.message)
        self.finding = finding


class _Reader:
    """Reads values out of the document; every complaint has its place."""

    def __init__(self, document: Document) -> None:
        self._document = document

    def misfit(self, path: Path, message: str, hint: str | None = None, rule: str = "wrong-value") -> _Misfit:
        name = f"`{'.'.join(map(str, path))}`" if path else "the file"
        return _Misfit(
            self._document.diagnostic(
                rule, f"{name} {message}", path, key=rule in ("unknown-key", "wrong-type"), hint=hint
            )
        )

    def mapping(self, value: Any, path: Path, known: tuple[str, ...]) -> dict[str, Any]:
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise self.misfit(path, "must be a mapping", f"known here: {', '.join(known)}", "wrong-type")
        for key in value:
            if key not in known:
                raise self.unknown((*path, key), known)
        return value

    def unknown(self, path: Path, known: tuple[str, ...]) -> _Misfit:
        close = nearest(str(path[-1]), known)
        hint = f"did you mean `{close}`?" if close else f"known here: {', '.join(known)}"
        return self.misfit(path, "is not a setting", hint, "unknown-key")

    def number(self, value: Any, path: Path, low: float, high: float, whole: bool = True) -> Any:
        right = isinstance(value, int) or (not whole and isinstance(value, float))
        if not right or isinstance(value, bool) or not low <= value <= high:
            what = "a whole number" if whole else "a number"
            raise self.misfit(path, f"must be {what} from {low:,g} to {high:,.0f}")
        return value

    def texts(self, value: Any, path: Path) -> tuple[str, ...]:
        if not isinstance(value, list) or not all(isinstance(item, str) and item for item in value):
            raise self.misfit(path, "must be a list of texts", "write it as a list: `[…]`")
        return tuple(value)


def _limits(reader: _Reader, value: Any) -> dict[str, Any]:
    block = reader.mapping(value, ("limits",), ("timeout_ms",))
    if "timeout_ms" not in block:
        return {}
    return {"timeout_ms": reader.number(block["timeout_ms"], ("limits", "timeout_ms"), 1, 86_400_000)}


def _retry(reader: _Reader, value: Any) -> dict[str, Any]:
    block = reader.mapping(value, ("retry",), ("max_attempts", "jitter"))
    return {
        "retry": Retry(
            reader.number(block.get("max_attempts", 2), ("retry", "max_attempts"), 1, 100),
            float(reader.number(block.get("jitter", 0.0), ("retry", "jitter"), 0, 1, whole=False)),
        )
    }


def _security(reader: _Reader, value: Any) -> dict[str, Any]:
    block = reader.mapping(value, ("security",), ("max_permissions", "allowed_hosts"))
    found: dict[str, Any] = {}
    if "allowed_hosts" in block:
        found["allowed_hosts"] = reader.texts(block["allowed_hosts"], ("security", "allowed_hosts"))
    if "max_permissions" in block:
        found["max_permissions"] = _ceiling(reader, block["max_permissions"])
    return found


def _ceiling(reader: _Reader, value: Any) -> Permissions:
    at = ("security", "max_permissions")
    block = reader.mapping(value, at, ("network", "fs", "secrets"))
    files = reader.mapping(block.get("fs"), (*at, "fs"), ("read", "write"))
    try:
        network = Network.parse(block.get("network", False))
    except ValueError as error:
        told = str(error).removeprefix("network ")
        raise reader.misfit((*at, "network"), told) from None
    return Permissions(
        network=network,
        read=reader.texts(files.get("read", []), (*at, "fs", "read")),
        write=reader.texts(files.get("write", []), (*at, "fs", "write")),
        secrets=tuple(SecretSpec(name) for name in reader.texts(block.get("secrets", []), (*at, "secrets"))),
    )


def _sandbox(reader: _Reader, value: Any) -> dict[str, Any]:
    block = reader.mapping(value, ("sandbox",), ("minimum",))
    minimum = block.get("minimum", "full")
    if minimum not in LEVELS:
        at = ("sandbox", "minimum")
        raise reader.misfit(at, f"must be one of {', '.join(LEVELS)}", "docs/sandbox.md says what each gives")
    return {"sandbox_minimum": minimum}


_BLOCKS: Mapping[str, Callable[[_Reader, Any], dict[str, Any]]] = {
    "limits": _limits,
    "retry": _retry,
    "sandbox": _sandbox,
    "security": _security,
}
KEYS = (
    "limits.timeout_ms",
    "retry.max_attempts",
    "retry.jitter",
    "sandbox.minimum",
    "security.allowed_hosts",
    "security.max_permissions",
)
"""Every setting there is."""


def load_config(path: FilePath) -> Config:
    """Read the settings; a missing or empty file leaves the defaults.

    Raises `ConfigError` with everything that is wrong, each with its place, as a manifest's findings are.
    """
    try:
        document = load(read(str(path)), str(path))
    except (FileNotFoundError, NotADirectoryError):
        return Config()
    except ManifestError as error:
        raise _failure(diagnostics_of(error)) from None
    reader = _Reader(document)
    found: list[Diagnostic] = []
    settings: dict[str, Any] = {}
    data = document.data
    try:
        blocks = reader.mapping(data, (), tuple(data) if isinstance(data, dict) else tuple(_BLOCKS))
    except _Misfit as misfit:
        raise _failure([misfit.finding]) from None
    for name, value in blocks.items():
        try:
            if name not in _BLOCKS:
                raise reader.unknown((name,), tuple(_BLOCKS))
            settings.update(_BLOCKS[name](reader, value))
        except _Misfit as misfit:
            found.append(misfit.finding)
    if found:
        raise _failure(found)
    return Config(**settings)


def _failure(found: Sequence[Diagnostic]) -> ConfigError:
    error = failure(found)
    return ConfigError(error.message, hint=error.hint, violations=error.violations, details=error.details)
