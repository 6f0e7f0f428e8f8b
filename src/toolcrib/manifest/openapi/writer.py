"""Write imported tools as native manifests; each is read back and checked before any is put in place."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from toolcrib.errors import ConflictError, ManifestError
from toolcrib.manifest.lint import checks
from toolcrib.manifest.native.reader import FILE_NAME, parse_tool
from toolcrib.manifest.openapi.document import clean
from toolcrib.manifest.openapi.slim import Slimmer
from toolcrib.manifest.yaml.source import MAX_BYTES, dump, load
from toolcrib.spec import Auth, HttpExec, Tool

__all__ = [
    "NewManifest",
    "manifest_of",
    "new_manifest",
    "write_manifests",
]

_SMALLER = (400_000, 150_000, 50_000, 15_000, 5_000)
"""Sizes of schemas in bytes that are tried if a manifest is too large."""
_CHECKS = (
    checks.input_schema,
    checks.output_schema,
    checks.placeholders,
    checks.fixed,
    checks.of_kind,
)
"""The checks that can fail for an imported tool; others only warn, or do not apply."""


@dataclass(frozen=True, slots=True)
class NewManifest:
    """One manifest, ready to be written."""

    name: str
    text: bytes
    notes: tuple[str, ...] = ()
    """The parts left out to make it small enough."""


def new_manifest(tool: Tool, origin: str = "") -> NewManifest:
    """Return the manifest of an HTTP tool; its first line names `origin`.

    The schemas of a manifest that is too large or too deep are made smaller. Raises ManifestError with the
    reason if it would still not be a usable tool.
    """
    lost: list[str] = []
    fault: ManifestError | None = None
    for limit in (None, *_SMALLER):
        if limit is not None:
            tool, losses = Slimmer(limit).slim(tool)
            lost += losses
        text = _text(tool, origin)
        try:
            if len(text) > MAX_BYTES:
                raise ManifestError("the manifest is larger than 1 MiB")
            document = load(text, f"{tool.name}/{FILE_NAME}")
            made = parse_tool(document, tool.name)
        except ManifestError as error:
            fault = error
            continue
        wrong = next((one for check in _CHECKS for one in check(made, document) if one.is_error), None)
        if wrong is None:
            return NewManifest(tool.name, text, tuple(lost))
        fault = ManifestError(wrong.message)
    raise fault or ManifestError("the manifest cannot be written")


def manifest_of(tool: Tool) -> dict[str, Any]:
    """Return the native manifest of an HTTP tool as data, keys in the order of the documentation."""
    config = tool.config
    if not isinstance(config, HttpExec):
        raise ManifestError(f"{tool.name} is not an HTTP tool")
    hints = {key: value for key, value in asdict(tool.annotations).items() if value is not None}
    manifest: dict[str, Any] = {
        "name": tool.name,
        "description": tool.description,
        "kind": "http",
        "version": tool.version,
        "tags": list(tool.tags),
        "annotations": hints,
        "inputs": {"schema": tool.input_schema},
        "outputs": _filled({"format": tool.output.format, "schema": tool.output.schema}),
        "exec": {"http": _http(config)},
        "auth": _auth(tool.auth),
        "permissions": _filled(
            {
                "network": tool.permissions.network.as_json(),
                "secrets": {
                    secret.name: {"type": secret.type, "required": secret.required}
                    for secret in tool.permissions.secrets
                },
            }
        ),
    }
    return _filled(manifest)


def write_manifests(drafts: Sequence[NewManifest], tools: Path, *, replace: bool = False) -> list[Path]:
    """Write manifests into a folder of tools, each atomically, after all were written to a temporary folder.

    Raises ConflictError, with nothing changed, if a name is taken and `replace` is false. With `replace` only
    the manifest is replaced; other files of the tool stay.
    """
    taken = [one.name for one in drafts if os.path.lexists(tools / one.name)]
    if taken and not replace:
        shown = ", ".join(taken[:5]) + (f" and {len(taken) - 5} more" if len(taken) > 5 else "")
        raise ConflictError(
            f"tools with these names exist already: {shown}",
            hint="Use --replace to replace their manifests, or --prefix TEXT for other names.",
            details={"names": taken},
        )
    tools.mkdir(parents=True, exist_ok=True)
    stage = Path(tempfile.mkdtemp(prefix=".import-", dir=tools))
    try:
        for one in drafts:
            folder = stage / one.name
            folder.mkdir(mode=0o755)
            _write(folder / FILE_NAME, one.text)
        return [_move(stage / one.name, tools / one.name, replace=replace) for one in drafts]
    finally:
        shutil.rmtree(stage, ignore_errors=True)


def _move(made: Path, place: Path, *, replace: bool) -> Path:
    try:
        if replace and place.is_dir() and not place.is_symlink():
            (made / FILE_NAME).replace(place / FILE_NAME)
        else:
            made.rename(place)
    except OSError as error:
        raise ConflictError(f"{place} cannot be written: {error.strerror}") from None
    return place / FILE_NAME


def _write(path: Path, text: bytes) -> None:
    with path.open("xb") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def _text(tool: Tool, origin: str) -> bytes:
    first = f"# Made by `toolcrib import openapi`{f' from {_line(origin)}' if origin else ''}.\n"
    return (first + dump(manifest_of(tool))).encode()


def _line(text: str) -> str:
    return " ".join(clean(text).split())[:300]


def _http(config: HttpExec) -> dict[str, Any]:
    return _filled(
        {
            "method": config.method,
            "url": config.url,
            "headers": config.headers,
            "query": config.query,
            "cookies": config.cookies,
            "styles": {name: _without_defaults(asdict(style)) for name, style in config.styles.items()},
            "body_format": config.body_format,
            "body": config.body,
            "parts": {name: _without_defaults(asdict(part)) for name, part in config.parts.items()},
        },
        keep=("body",),
    )


def _auth(entries: Iterable[Auth]) -> Any:
    blocks = [
        _without_defaults(
            {
                "type": auth.type,
                "secret": auth.secret,
                "username_secret": auth.username_secret,
                "in": auth.location,
                "name": auth.name,
            }
        )
        for auth in entries
    ]
    return blocks[0] if len(blocks) == 1 else blocks


def _filled(block: dict[str, Any], keep: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return a block without empty values; those of `keep` are only left out if they are None."""
    return {
        key: value
        for key, value in block.items()
        if value is not None and (key in keep or value not in ({}, [], ""))
    }


def _without_defaults(block: dict[str, Any]) -> dict[str, Any]:
    """Return a block without values that are the default."""
    return {key: value for key, value in block.items() if value is not None and value is not False}
