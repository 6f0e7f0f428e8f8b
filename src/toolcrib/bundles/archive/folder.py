"""A bundle as a folder of native manifests, and a folder of tools as a bundle. Losses are reported."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from toolcrib.bundles.archive.contents import ArchivedBundle, ArchivedTool, Contents
from toolcrib.bundles.forms import entry_of, own_record, read_manifest, record_text
from toolcrib.bundles.records import ToolRecord
from toolcrib.bundles.store import Store
from toolcrib.errors import ConflictError, NotFoundError
from toolcrib.manifest import DIALECTS, FILE_NAME, failure, load_tools
from toolcrib.manifest.convert import Loss, convert
from toolcrib.spec import ABSENT, Tool


class ToolLoss(NamedTuple):
    """A part of a tool that the other form does not keep."""

    tool: str
    loss: Loss

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {"tool": self.tool, **self.loss.as_dict()}


def to_native(store: Store, bundle_id: str) -> tuple[dict[str, bytes], list[ToolLoss]]:
    """Return the tools of a bundle as native manifests, `<name>/tool.yml` to its text, and the losses.

    Of several versions of a tool one is taken, by the rule of bare names. Raises as `Store.snapshot`,
    ManifestError if a tool cannot be a manifest, ConflictError if two have the same name.
    """
    bundle, tools = store.snapshot(bundle_id)
    files: dict[str, bytes] = {}
    losses: list[ToolLoss] = []
    slugs: dict[str, list[ToolRecord]] = {}
    for tool in sorted(tools, key=lambda tool: (tool.created_at, tool.id), reverse=True):
        slugs.setdefault(tool.slug, []).append(tool)
    if not bundle.is_enabled:
        losses.append(ToolLoss(bundle.slug, _lost("isEnabled", False, "every manifest is enabled")))
    for slug, versions in sorted(slugs.items()):
        enabled = [one for one in versions if one.is_enabled]
        chosen = enabled[0] if len(enabled) == 1 else versions[0]
        for other in versions:
            if other is not chosen:
                loss = _lost("version", other.version, "a folder has one version of a name")
                losses.append(ToolLoss(slug, loss))
        name, text = _manifest(chosen, losses)
        if name in files:
            raise ConflictError(f"two tools have the name {name!r} in their manifests")
        files[name] = text
    return files, losses


def _manifest(tool: ToolRecord, losses: list[ToolLoss]) -> tuple[str, bytes]:
    """Return the path of a tool's manifest and its text."""
    entry = entry_of(tool)
    if entry.tool is None:
        raise failure(entry.found)
    if not tool.is_enabled:
        losses.append(ToolLoss(tool.slug, _lost("isEnabled", False, "every manifest is enabled")))
    path = f"{entry.tool.name}/{FILE_NAME}"
    if tool.type == "native":
        return path, record_text(tool)
    written = convert(entry.tool, "native")
    losses += [ToolLoss(tool.slug, loss) for loss in written.losses]
    return path, written.text


def _lost(path: str, was: Any, means: str) -> Loss:
    return Loss(f"$.{path}", was, ABSENT, means)


def read_folder(folder: Path, bundle: ArchivedBundle, now: str) -> tuple[Contents, list[ToolLoss]]:
    """Return the tools of a folder, in any format that a project's folder of tools takes, and the losses.

    `now` is the time of the tools. Raises ManifestError with every error, NotFoundError if there are no
    tools, ConflictError if two have one slug and version.
    """
    loaded = load_tools(folder)
    if any(finding.is_error for finding in loaded.diagnostics):
        raise failure(loaded.diagnostics)
    if not loaded.tools:
        raise NotFoundError(
            f"there are no tools in {folder}", hint=f"A folder of tools has files NAME/{FILE_NAME}."
        )
    losses: list[ToolLoss] = []
    tools: dict[str, ArchivedTool] = {}
    for tool in loaded.tools:
        made = _archived(tool, now, losses)
        if made.file in tools:
            raise ConflictError(
                f"two tools would have the slug {made.slug!r} and the version {made.version!r}",
                hint="Give one of them another name or version.",
            )
        tools[made.file] = made
    return Contents(bundle, tuple(tools[name] for name in sorted(tools))), losses


def _archived(tool: Tool, now: str, losses: list[ToolLoss]) -> ArchivedTool:
    source = tool.source
    assert source is not None
    path = Path(source.path)
    # A bundle's own format: converted, it would lose what only that has.
    if source.dialect == "flexigpt":
        writer = DIALECTS["flexigpt"].write
        assert writer is not None
        made = own_record(writer(tool))
    else:
        written = convert(tool, "native")
        losses += [ToolLoss(tool.name, loss) for loss in written.losses]
        made = read_manifest(written.text, f"{path.parent}/{tool.name}.yml")
    losses += [ToolLoss(tool.name, loss) for loss in _beside(path)]
    values = {name: getattr(made.body, name) for name in made.body.__struct_fields__}
    return ArchivedTool(slug=made.slug, version=made.version, created_at=now, modified_at=now, **values)


def _beside(path: Path) -> Iterator[Loss]:
    """Yield a loss for each other file of a tool's own folder: a record holds the manifest only."""
    for file in sorted(path.parent.rglob("*")):
        name = str(file.relative_to(path.parent))
        if file != path and not file.is_dir() and not any(part[0] == "." for part in Path(name).parts):
            yield Loss("$.files", name, ABSENT, "a bundle keeps no files beside a manifest")
