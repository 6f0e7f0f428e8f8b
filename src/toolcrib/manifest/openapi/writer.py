"""Write imported tools as native manifests; each is read back and checked before any is put in place."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from toolcrib.errors import ConflictError, ManifestError
from toolcrib.manifest.lint import checks
from toolcrib.manifest.native.reader import FILE_NAME, parse_tool
from toolcrib.manifest.native.writer import manifest_of
from toolcrib.manifest.openapi.document import clean
from toolcrib.manifest.openapi.importer import Imported
from toolcrib.manifest.openapi.slim import Slimmer
from toolcrib.manifest.yaml.source import Document, dumped
from toolcrib.spec import Tool
from toolcrib.spec.record import record

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


@record
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
        try:
            document = _document(tool, origin)
            made = parse_tool(document, tool.name)
        except ManifestError as error:
            fault = error
            continue
        wrong = next((one for check in _CHECKS for one in check(made, document) if one.is_error), None)
        if wrong is None:
            return NewManifest(tool.name, document.raw, tuple(lost))
        fault = ManifestError(wrong.message)
    raise fault or ManifestError("the manifest cannot be written")


def new_manifests(
    found: Imported, source: str, progress: Callable[[int], None] = lambda _: None
) -> list[NewManifest]:
    """Return the manifests of an import. A tool whose manifest would be wrong is skipped, with the reason.

    `progress` gets the number of manifests so far.
    """
    operations = {one.tool: one for one in found.operations if one.tool}
    drafts: list[NewManifest] = []
    for tool in list(found.tools):
        one = operations[tool.name]
        try:
            ready = new_manifest(tool, f"{source}: {one.method} {one.path}")
        except ManifestError as error:
            one.tool, one.reason = None, error.message
            found.tools.remove(tool)
            continue
        one.notes += ready.notes
        drafts.append(ready)
        progress(len(drafts))
    return drafts


def write_manifests(
    drafts: Sequence[NewManifest],
    tools: Path,
    progress: Callable[[int], None] = lambda _: None,
    *,
    replace: bool = False,
) -> list[Path]:
    """Write manifests into a folder of tools, each atomically, after all were written to a temporary folder.

    Raises ConflictError, with nothing changed, if a name is taken and `replace` is false. With `replace` only
    the manifest is replaced; other files of the tool stay. `progress` gets the number of files so far.
    """
    taken = [one.name for one in drafts if os.path.lexists(tools / one.name)]
    if taken and not replace:
        shown = ", ".join(taken[:5]) + (f" and {len(taken) - 5} more" if len(taken) > 5 else "")
        raise ConflictError(
            f"tools with these names exist already: {shown}",
            hint="Use --replace to replace their manifests, or --prefix TEXT for other names.",
            details={"names": taken},
        )
    # Beside the tools, so that each is moved within one file system: at once, or not at all.
    tools.mkdir(parents=True, exist_ok=True)
    stage = Path(tempfile.mkdtemp(prefix=".import-", dir=tools))
    try:
        for number, one in enumerate(drafts, 1):
            folder = stage / one.name
            folder.mkdir(mode=0o755)
            _write(folder / FILE_NAME, one.text)
            progress(number)
        return [_move(stage / one.name, tools / one.name, replace=replace) for one in drafts]
    finally:
        shutil.rmtree(stage, ignore_errors=True)


def _move(made: Path, place: Path, *, replace: bool) -> Path:
    try:
        # A link could lead out of the folder of tools, so nothing is written through it.
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
        # Before the file is moved to its place: after a power failure it could otherwise be there, but empty.
        os.fsync(file.fileno())


def _document(tool: Tool, origin: str) -> Document:
    first = f"# Made by `toolcrib import openapi`{f' from {_line(origin)}' if origin else ''}.\n"
    return dumped(manifest_of(replace(tool, extensions={})), f"{tool.name}/{FILE_NAME}", first)


def _line(text: str) -> str:
    # A line break would end the comment, and the rest of a document's text would be read as YAML.
    return " ".join(clean(text).split())[:300]
