"""Bundles and their tools as JSON files, shared by any number of processes.

    <data>/bundles/<bundle id>/bundle.json
    <data>/bundles/<bundle id>/tools/<UUID of slug and version>.json
    <data>/bundles/<bundle id>/revisions/…    records as they were before their changes
    <data>/audit/store.log                    one line for each change

The files are the truth. Nothing here is cached, so every process sees the writes of the others at once.
Beside these bundles there are those of sources, which keep nothing here.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from copy import copy
from pathlib import Path

import msgspec

from toolcrib.bundles.files import (
    StoreLock,
    create_file,
    make_folder,
    put_in_place,
    remove_file,
    remove_left,
    replace_file,
    staged,
)
from toolcrib.bundles.history import REVISIONS, History, RecordedChange, Revision, ToolChange
from toolcrib.bundles.journal import Journal, Position
from toolcrib.bundles.records import (
    MOST_TOOLS,
    BundleBody,
    BundleRecord,
    DamagedTool,
    NotARecord,
    ToolBody,
    ToolRecord,
    check_bundle_body,
    check_id,
    check_room,
    check_slug,
    check_tool_body,
    check_version,
    damaged_bundle,
    damaged_tool,
    fault_of,
    file_of,
    mark_of,
    read_file,
    require_whole,
    visible,
    with_text,
)
from toolcrib.bundles.sources import ListedTool, SourceBundle, read_only
from toolcrib.errors import (
    BundleDeleting,
    BundleDisabled,
    BundleNotEmpty,
    ConflictError,
    NotFoundError,
    ToolNotFound,
)
from toolcrib.spec.identifier import new_id
from toolcrib.spec.moment import written

REAP_AFTER_S = 48 * 3600
"""Seconds from the deletion of a bundle to its removal, if it is still empty."""
_ON_THE_WAY = 100
"""Files that others may be about to create, with their lines in the journal already."""
Check = Callable[[BundleRecord | ToolRecord | None], None]
"""Gets a record, None for a new one, before a change and while nobody else can change it; may raise."""


def _no_check(_: object) -> None:
    """Allow every change."""


class Store:
    """The bundles below one folder. `clock` returns seconds since the epoch."""

    def __init__(
        self,
        data: Path,
        *,
        sources: Sequence[SourceBundle] = (),
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.data = data
        self._folder = data / "bundles"
        self._lock = StoreLock(data)
        self.journal = Journal(data, self._lock)
        self.sources = {one.id: one for one in sources}
        self._clock = clock
        self._history = History(data)
        self._by = "local"
        self._counted: dict[str, tuple[Position, int]] = {}
        """Bundle to the number of its tools, and the place in the journal up to which they were counted."""

    @property
    def exists(self) -> bool:
        """True if anything was ever put here."""
        return self._folder.is_dir()

    def acting(self, by: str) -> Store:
        """Return this store for changes by another caller: `cli`, `page`, `token:NAME`."""
        store = copy(self)
        store._by = by  # noqa: SLF001 - the same class
        return store

    def now(self) -> tuple[float, str]:
        """Return the time in seconds since the epoch, and as records have it."""
        seconds = self._clock()
        return seconds, written(seconds)

    # -- bundles -----------------------------------------------------------------------------------

    def bundles(self) -> list[BundleRecord]:
        """Return every bundle, deleted ones too, the newest first; the id breaks ties."""
        stored = (self._stored_bundle(folder.name) for folder in visible(self._folder))
        found = [bundle for bundle in stored if bundle is not None]
        found += [one.bundle() for one in self.sources.values()]
        return sorted(found, key=lambda bundle: (bundle.created_at, bundle.id), reverse=True)

    def bundle(self, id: str) -> BundleRecord:  # noqa: A002 - the field's name
        """Return one bundle. NotFoundError; BundleDeleting after its deletion."""
        bundle = self._any_bundle(id)
        if bundle.soft_deleted_at is not None:
            raise BundleDeleting(
                f"the bundle {id} is deleted",
                hint="PUT it again within 48 hours to restore it, or create it with --id and --replace.",
            )
        return bundle

    def put_bundle(
        self,
        id: str,  # noqa: A002
        body: BundleBody,
        check: Check = _no_check,
    ) -> tuple[BundleRecord, bool]:
        """Create or replace a bundle, and restore a deleted one; return it and True if it is new.

        Raises what `check` raises, InvalidId, InvalidSlug, MissingField, BundleReadOnly.
        """
        check_id(id)
        check_bundle_body(body)
        self.require_own(id)
        now = self._now()
        with self._lock.alone():
            before = self._stored_bundle(id)
            check(before)
            bundle = BundleRecord(
                id=id,
                **msgspec.structs.asdict(body),
                created_at=now if before is None else before.created_at,
                modified_at=now,
            )
            # Before anything is changed, here and below: a change that cannot be recorded does not happen.
            self._history.ensure()
            make_folder(self._folder / id / "tools")
            self._replace_bundle(bundle)
            self._history.bundle("BUNDLE_CREATED" if before is None else "BUNDLE_REPLACED", bundle, self._by)
        return bundle, before is None

    def switch_bundle(self, id: str, *, enabled: bool, check: Check = _no_check) -> BundleRecord:  # noqa: A002
        """Turn a bundle on or off. Raises NotFoundError, BundleDeleting, and as `check`."""
        if (source := self.sources.get(id)) is not None:
            check(source.bundle())
            source.switch(None, enabled=enabled, by=self._by)
            return source.bundle()
        with self._lock.alone():
            bundle = self.bundle(id)
            check(bundle)
            require_whole(bundle)
            self._history.ensure()
            bundle = msgspec.structs.replace(bundle, is_enabled=enabled)
            self._replace_bundle(bundle)
            self._history.bundle("BUNDLE_ENABLED" if enabled else "BUNDLE_DISABLED", bundle, self._by)
        return bundle

    def delete_bundle(self, id: str, check: Check = _no_check) -> BundleRecord:  # noqa: A002
        """Mark an empty bundle as deleted, and return it.

        Raises BundleReadOnly, NotFoundError, BundleDeleting, BundleNotEmpty, and as `check`.
        """
        self.require_own(id)
        with self._lock.alone():
            bundle = self.bundle(id)
            check(bundle)
            if self.files(id):
                raise BundleNotEmpty(f"the bundle {id} still has tools", hint="Delete its tools first.")
            self._history.ensure()
            own = {name: getattr(bundle, name) for name in BundleRecord.__struct_fields__}
            bundle = BundleRecord(**{**own, "soft_deleted_at": self._now()})
            self._replace_bundle(bundle)
            self._history.bundle("BUNDLE_DELETED", bundle, self._by)
        self._remove_due()
        return bundle

    def snapshot(self, id: str) -> tuple[BundleRecord, list[ToolRecord]]:  # noqa: A002
        """Return a bundle and its tools as they are at one moment.

        Raises as `bundle`, BundleReadOnly for a source, and StateUnavailable if a record is damaged.
        """
        self.require_own(id)
        with self._lock.alone():
            bundle, tools = self.bundle(id), self.tools(id)
            require_whole(bundle)
            for tool in tools:
                require_whole(tool)
            return bundle, tools

    def put_together(
        self, bundle: BundleRecord, tools: Iterable[ToolRecord], unchanged: Callable[[], bool]
    ) -> bool:
        """Put a bundle and several of its tools in one step, in place of those that it has of the same pairs.

        `unchanged` is asked while nobody else can write: if it returns False, nothing is put, and this
        returns False. Raises StateUnavailable. A crash leaves all of it or nothing.
        """
        files = {f"tools/{file_of(tool.slug, tool.version)}": tool for tool in tools}
        # The files are written before the lock is taken, so that others do not wait for the disk.
        with staged(self._folder, self._lock, {"bundle.json": bundle, **files}) as new, self._lock.alone():
            if not unchanged():
                return False
            self._history.ensure()
            names = [name.removeprefix("tools/") for name in files]
            for file in names:
                if (before := self._record(bundle.id, file)) is not None:
                    self._keep(before, "replaced")
            self.journal.add(bundle.id, "-", *names)
            put_in_place(new, self._folder / bundle.id)
            named = [f"{tool.slug}@{tool.version}" for tool in files.values()]
            self._history.bundle("BUNDLE_IMPORTED", bundle, self._by, enabled=bundle.is_enabled, tools=named)
        return True

    def reap(self) -> list[str]:
        """Remove bundles that were deleted 48 hours ago and are still empty; return their ids.

        Temporary files of killed processes go too, and empty folders that have no record.
        """
        left = list(self._folder.glob("**/.*"))
        if left or any(map(self._is_remnant, visible(self._folder))):
            with self._lock.alone():  # A living process has finished with its file by now.
                remove_left(self._folder)
                for path in left:
                    if not path.is_dir():
                        path.unlink(missing_ok=True)
                for folder in filter(self._is_remnant, visible(self._folder)):
                    shutil.rmtree(folder, ignore_errors=True)
        return self._remove_due()

    def _is_remnant(self, folder: Path) -> bool:
        """Return True for the folder of a bundle whose creation or removal was killed halfway."""
        return folder.is_dir() and not (folder / "bundle.json").exists() and not self.files(folder.name)

    def _remove_due(self) -> list[str]:
        if not any(self._is_due(bundle) for bundle in self.bundles()):
            return []  # The usual case keeps no writer waiting.
        with self._lock.alone():
            # Looked at again: a PUT may have restored one since.
            due = [bundle for bundle in self.bundles() if self._is_due(bundle)]
            for bundle in due:
                self._history.ensure()
                folder = self._folder / bundle.id
                self.journal.add(bundle.id, "-")
                # Without its record the rest is nothing; so a crash in between leaves no half bundle.
                remove_file(folder / "bundle.json")
                shutil.rmtree(folder / REVISIONS, ignore_errors=True)
                with suppress(OSError):
                    (folder / "tools").rmdir()
                    folder.rmdir()
                self._history.bundle("BUNDLE_REMOVED", bundle, self._by)
        return [bundle.id for bundle in due]

    def _is_due(self, bundle: BundleRecord) -> bool:
        deleted = bundle.soft_deleted_at
        oldest = written(self._clock() - REAP_AFTER_S)
        return deleted is not None and deleted <= oldest and not self.files(bundle.id)

    # -- tools -------------------------------------------------------------------------------------

    def tools(self, bundle_id: str) -> list[ToolRecord]:
        """Return every tool of a bundle, the newest first; the id breaks ties. Raises as `bundle`."""
        self.bundle(bundle_id)
        if (source := self.sources.get(bundle_id)) is not None:
            found = [source.record(tool) for tool in source.listed() if not tool.fault]
        else:
            stored = (self._record(bundle_id, file) for file in self.files(bundle_id))
            found = [tool for tool in stored if tool is not None]
        return sorted(found, key=lambda tool: (tool.created_at, tool.id), reverse=True)

    def tool(self, bundle_id: str, slug: str, version: str) -> ToolRecord:
        """Return one tool. Raises as `bundle`, and ToolNotFound."""
        self.bundle(bundle_id)
        if bundle_id in self.sources:
            return self.sources[bundle_id].record(self._listed(bundle_id, slug, version))
        found = self._record(bundle_id, file_of(slug, version)) or self._unnamed(bundle_id, slug, version)
        if found is None:
            raise _no_tool(bundle_id, slug, version)
        return found

    def _listed(self, bundle_id: str, slug: str, version: str) -> ListedTool:
        if (tool := self.sources[bundle_id].find(slug, version)) is None:
            raise _no_tool(bundle_id, slug, version)
        return tool

    def put_tool(self, bundle_id: str, slug: str, version: str, body: ToolBody) -> ToolRecord:
        """Create a version of a tool. Of many processes that put the same pair, exactly one succeeds.

        Raises InvalidSlug, MissingField, BundleReadOnly, NotFoundError, BundleDeleting, BundleDisabled,
        BundleFull, and ConflictError if the pair is there already; then the stored one stays as it is.
        """
        check_slug(slug)
        check_version(version)
        check_tool_body(body)
        self.require_own(bundle_id)
        with self._lock.shared():
            self._require_enabled(bundle_id)
            self._require_room(bundle_id)
            seconds = self._clock()
            now = written(seconds)
            tool = ToolRecord(
                id=new_id(seconds),
                bundle_id=bundle_id,
                slug=slug,
                version=version,
                created_at=now,
                modified_at=now,
                **msgspec.structs.asdict(body),
            )
            made = self._create(tool, "TOOL_PUT")
        if not made:
            self._replace_damaged(tool)
        return tool

    def restore_tool(self, bundle_id: str, slug: str, version: str) -> ToolRecord:
        """Put a deleted version of a tool back as it was.

        Raises as `put_tool`, and ToolNotFound if its record is not kept.
        """
        self.require_own(bundle_id)
        with self._lock.shared():
            self._require_enabled(bundle_id)
            self._require_room(bundle_id)
            deleted = self._history.deleted(bundle_id, slug, version)
            if deleted is None:
                raise _no_tool(bundle_id, slug, version)
            if not self._create(deleted.tool, "TOOL_RESTORED"):
                raise _taken(deleted.tool)
        return deleted.tool

    def _create(self, tool: ToolRecord, event: str) -> bool:
        """Write a new record; False if there is one already."""
        self._history.ensure()
        self.journal.add(tool.bundle_id, file_of(tool.slug, tool.version))
        # The file decides who was first: writers of new tools share the lock.
        made = create_file(self._file(tool), tool)
        if made:
            self._history.tool(event, tool, self._by)
        return made

    def trash(self) -> tuple[list[BundleRecord], list[Revision]]:
        """Return the bundles and the tools that were deleted and can be restored, the latest first."""
        bundles = [one for one in self.bundles() if one.soft_deleted_at is not None]
        tools = [
            one
            for folder in visible(self._folder)
            for one in self._history.all_deleted(folder.name)
            if file_of(one.tool.slug, one.tool.version) not in self.files(folder.name)
        ]
        bundles.sort(key=lambda bundle: bundle.soft_deleted_at or "", reverse=True)
        return bundles, sorted(tools, key=lambda one: one.id, reverse=True)

    def _replace_damaged(self, tool: ToolRecord) -> None:
        """Put a tool in place of a damaged record. Raises ConflictError if a record is there."""
        with self._lock.alone():
            self._require_enabled(tool.bundle_id)
            before = self.tool(tool.bundle_id, tool.slug, tool.version)
            if not isinstance(before, DamagedTool):
                raise _taken(tool)
            self._keep(before, "replaced")
            file = self._file(before)
            self.journal.add(tool.bundle_id, file.name)
            replace_file(file, tool)
            self._history.tool("TOOL_PUT", tool, self._by)

    def revisions(self, bundle_id: str, slug: str, version: str) -> list[Revision]:
        """Return one version of a tool as it was before each change, the latest change first.

        Of a deleted tool too. At most 50 are kept. Raises as `bundle`, and ToolNotFound if there are none and
        there is no such tool.
        """
        self.bundle(bundle_id)
        found = self._history.revisions(bundle_id, slug, version)
        if not found:
            self.tool(bundle_id, slug, version)
        return found

    def history(self, bundle_id: str, slug: str) -> list[RecordedChange]:
        """Return who changed a tool in any of its versions, and when; the latest 256 changes, newest first.

        Raises as `bundle`, and OSError if the log cannot be read.
        """
        self.bundle(bundle_id)
        return self._history.of_tool(bundle_id, slug)

    def _keep(self, tool: ToolRecord, change: ToolChange) -> None:
        self._history.keep(with_text(tool), change, self._by, *self.now())

    def tool_in(self, bundle_id: str, file: str) -> ToolRecord | None:
        """Return the tool in a file, as `files` and the journal name it; None if it is gone."""
        return self._record(bundle_id, file)

    def mark(self, bundle_id: str, file: str) -> int:
        """Return a number that changes with the file of a tool; 0 if there is none."""
        return mark_of(f"{self._folder}/{bundle_id}/tools/{file}")

    def note_changes(self, files: Iterable[tuple[str, str]]) -> None:
        """Add lines to the journal for files that somebody else changed, so that every process reads them."""
        with self._lock.alone():
            for bundle_id, file in files:
                self.journal.add(bundle_id, file)

    def folders(self) -> dict[str, int]:
        """Return, by bundle, a number that changes with the names in its folder and in that of its tools."""
        return {one.name: mark_of(f"{one}") + mark_of(f"{one}/tools") for one in visible(self._folder)}

    def files(self, bundle_id: str) -> list[str]:
        """Return the names of the files of a bundle's tools."""
        with suppress(FileNotFoundError):
            names = os.listdir(self._folder / bundle_id / "tools")
            # A name that begins with a dot is a file that is being written.
            return [name for name in names if not name.startswith(".")]
        return []

    def switch_tool(
        self, bundle_id: str, slug: str, version: str, *, enabled: bool, check: Check = _no_check
    ) -> ToolRecord:
        """Turn a tool on or off. Raises as `tool` and `check`, and BundleDisabled."""
        if (source := self.sources.get(bundle_id)) is not None:
            self._require_enabled(bundle_id)
            listed = self._listed(bundle_id, slug, version)
            check(source.record(listed))
            source.switch(listed, enabled=enabled, by=self._by)
            return self.tool(bundle_id, slug, version)
        with self._lock.alone():
            self._require_enabled(bundle_id)
            tool = self.tool(bundle_id, slug, version)
            check(tool)
            require_whole(tool)
            self._history.ensure()
            if tool.is_enabled != enabled:
                self._keep(tool, "enabled" if enabled else "disabled")
            tool = msgspec.structs.replace(tool, is_enabled=enabled)
            self.journal.add(bundle_id, file_of(slug, version))
            replace_file(self._file(tool), tool)
            self._history.tool("TOOL_ENABLED" if enabled else "TOOL_DISABLED", tool, self._by)
        return tool

    def delete_tool(self, bundle_id: str, slug: str, version: str, check: Check = _no_check) -> None:
        """Remove a tool for good. Raises BundleReadOnly, and as `tool` and `check`."""
        self.require_own(bundle_id)
        with self._lock.alone():
            tool = self.tool(bundle_id, slug, version)
            check(tool)
            self._history.ensure()
            # First: a crash now leaves a revision without a change, never a change without its revision.
            self._keep(tool, "deleted")
            file = self._file(tool)
            self.journal.add(bundle_id, file.name)
            remove_file(file)
            self._history.tool("TOOL_DELETED", tool, self._by)

    # -- within ------------------------------------------------------------------------------------

    def _now(self) -> str:
        return self.now()[1]

    def _stored_bundle(self, id: str) -> BundleRecord | None:  # noqa: A002
        path = self._folder / id / "bundle.json"
        try:
            found = read_file(path, BundleRecord)
            if found is not None and found.id != id:
                raise NotARecord(path, f"its id is {found.id}, not the name of its folder")
        except NotARecord as error:
            return damaged_bundle(error, id, self._history.slug_of(id))
        return found

    def _record(self, bundle_id: str, file: str) -> ToolRecord | None:
        # A `Path` would take as long as reading the file.
        path = f"{self._folder}/{bundle_id}/tools/{file}"
        try:
            found = read_file(path, ToolRecord)
            if found is not None and (wrong := fault_of(found, bundle_id, file)):
                raise NotARecord(path, wrong)
        except NotARecord as error:
            return damaged_tool(error, bundle_id, file, self._history.label_of(bundle_id, file))
        return found

    def _unnamed(self, bundle_id: str, slug: str, version: str) -> ToolRecord | None:
        """Return the tool of a damaged record that is named by its file, as nobody knows its own name."""
        for file in (f"{slug}.json", slug) if os.path.basename(slug) == slug else ():
            found = self._record(bundle_id, file)
            if isinstance(found, DamagedTool) and (found.slug, found.version) == (slug, version):
                return found
        return None

    def _any_bundle(self, id: str) -> BundleRecord:  # noqa: A002
        check_id(id)
        if (source := self.sources.get(id)) is not None:
            return source.bundle()
        bundle = self._stored_bundle(id)
        if bundle is None:
            raise NotFoundError(f"there is no bundle {id}", hint="`toolcrib bundle list` shows all of them.")
        return bundle

    def _replace_bundle(self, bundle: BundleRecord) -> None:
        self.journal.add(bundle.id, "-")
        replace_file(self._folder / bundle.id / "bundle.json", bundle)

    def _require_enabled(self, id: str) -> None:  # noqa: A002
        if not self.bundle(id).is_enabled:
            raise BundleDisabled(f"the bundle {id} is disabled", hint="Enable the bundle first.")

    def _require_room(self, id: str) -> None:  # noqa: A002
        """Raise BundleFull without room for one more tool.

        Listing thousands of files takes longer than the put. While there would be room even if every line
        of the journal since they were counted had added one, they are not counted again.
        """
        now = self.journal.end
        at, tools = self._counted.get(id, (None, 0))
        if at is None or at.journal != now.journal or tools + at.most_changes(now) > MOST_TOOLS - _ON_THE_WAY:
            tools = len(self.files(id))
            self._counted[id] = now, tools
            check_room(id, tools + 1)

    def require_own(self, id: str) -> None:  # noqa: A002
        """Raise BundleReadOnly for a source, BuiltInReadOnly for the one of the built-in tools."""
        if id in self.sources:
            raise read_only(self.sources[id].bundle())

    def _file(self, tool: ToolRecord) -> Path:
        if isinstance(tool, DamagedTool):
            return Path(tool.path)
        return self._folder / tool.bundle_id / "tools" / file_of(tool.slug, tool.version)


def _no_tool(bundle_id: str, slug: str, version: str) -> ToolNotFound:
    return ToolNotFound(f"the bundle {bundle_id} has no version {version!r} of a tool {slug!r}")


def _taken(tool: ToolRecord) -> ConflictError:
    return ConflictError(
        f"the bundle {tool.bundle_id} already has version {tool.version!r} of {tool.slug!r}",
        hint="Put it with another version, or delete this one first.",
    )
