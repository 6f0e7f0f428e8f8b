"""The import of a bundle: what would change, and the change in one step."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, Literal, get_args

import msgspec
from msgspec import Struct

from toolcrib.bundles.archive.contents import TEXTS, ArchivedTool, Contents
from toolcrib.bundles.forms import require_one_name
from toolcrib.bundles.records import BundleRecord, ToolBody, ToolRecord, Uuid, check_room, require_whole
from toolcrib.bundles.store import Store
from toolcrib.errors import (
    BundleDisabled,
    ConflictError,
    NotFoundError,
    StateUnavailable,
    ToolcribError,
)
from toolcrib.spec.identifier import new_id

OnConflict = Literal["refuse", "skip", "replace", "new-id"]
ON_CONFLICT: tuple[OnConflict, ...] = get_args(OnConflict)
"""The treatment of a bundle or tool that is here and differs. `new-id`: import all as a new bundle."""
State = Literal["new", "same", "differs"]
Action = Literal["add", "keep", "replace", "conflict"]
_ACTIONS: dict[State, dict[OnConflict, Action]] = {
    "new": dict.fromkeys(ON_CONFLICT, "add"),
    "same": {"refuse": "keep", "skip": "keep", "replace": "keep", "new-id": "add"},
    "differs": {"refuse": "conflict", "skip": "keep", "replace": "replace", "new-id": "add"},
}
_TRIES = 10
_MOST_NAMED = 5


class PlannedTool(Struct, frozen=True, rename="camel"):
    """One version of a tool, and what an import does about it."""

    slug: str
    version: str
    state: State
    """Beside the tool of the same pair that is here."""
    action: Action
    actions: dict[OnConflict, Action]
    """The same for every choice."""


class ImportPlan(Struct, frozen=True, rename="camel"):
    """Everything that an import does, or would do."""

    source_id: Uuid = msgspec.field(name="sourceBundleID")
    """The id in the archive."""
    bundle_id: Uuid = msgspec.field(name="bundleID")
    """The bundle that gets the tools; with `new-id` a new one."""
    slug: str
    on_conflict: OnConflict
    state: State
    """The state of the bundle's own texts."""
    action: Action
    actions: dict[OnConflict, Action]
    is_enabled: bool
    """The bundle, after the import."""
    tools: tuple[PlannedTool, ...]
    changes: bool
    """False if the store stays as it is."""
    refused: dict[str, Any] | None
    """The error with which the import ends; None if it can be done."""

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        document: dict[str, Any] = msgspec.to_builtins(self)
        return document


def plan(
    store: Store,
    contents: Contents,
    on_conflict: OnConflict = "refuse",
    *,
    enable: bool = False,
    fresh: str | None = None,
) -> ImportPlan:
    """Return what an import would do. `fresh` is the id of a new bundle, if one is made."""
    source = contents.bundle
    here, there = _here(store, source.id)
    state: State = "new"
    if here is not None and here.soft_deleted_at is None:
        is_same = all(getattr(here, name) == getattr(source, name) for name in TEXTS)
        state = "same" if is_same else "differs"
    into = None if state == "new" or on_conflict == "new-id" else here
    pairs = {(one.slug, one.version): one for one in there}
    states = [_state(tool, pairs.get((tool.slug, tool.version))) for tool in contents.tools]
    tools = tuple(
        PlannedTool(tool.slug, tool.version, now, _ACTIONS[now][on_conflict], _ACTIONS[now])
        for tool, now in zip(contents.tools, states, strict=True)
    )
    is_enabled = enable or (into is not None and into.is_enabled)
    actions = {_ACTIONS[now][on_conflict] for now in (state, *states)}
    made = ImportPlan(
        source_id=source.id,
        bundle_id=(fresh or new_id()) if on_conflict == "new-id" else source.id,
        slug=source.slug,
        on_conflict=on_conflict,
        state=state,
        action=_ACTIONS[state][on_conflict],
        actions=_ACTIONS[state],
        is_enabled=is_enabled,
        tools=tools,
        changes=bool(actions & {"add", "replace"}) or (into is not None and is_enabled != into.is_enabled),
        refused=None,
    )
    try:
        store.require_own(made.bundle_id)
        _check(made, into)
        _check_names(contents.tools, there if into is not None else [])
        added = sum(1 for one in tools if one.action == "add")
        check_room(made.bundle_id, added + (0 if into is None else len(there)))
    except ToolcribError as error:
        return msgspec.structs.replace(made, refused=error.as_dict())
    return made


def _here(store: Store, bundle_id: str) -> tuple[BundleRecord | None, list[ToolRecord]]:
    """Return the bundle of this id and its tools; a deleted one too, which has none."""
    try:
        bundle = store.bundle(bundle_id)
        require_whole(bundle)
        return bundle, store.tools(bundle_id)
    except NotFoundError:
        # Not one that another process has just put here: its tools were not read.
        deleted = (one for one in store.bundles() if one.soft_deleted_at is not None)
        return next((one for one in deleted if one.id == bundle_id), None), []


_COMPARED = [name for name in ToolBody.__struct_fields__ if name != "is_enabled"]
"""The switch of a tool is a choice of its store."""


def _state(tool: ArchivedTool, here: ToolRecord | None) -> State:
    if here is None:
        return "new"
    return "same" if all(getattr(here, name) == getattr(tool, name) for name in _COMPARED) else "differs"


def _check(made: ImportPlan, here: BundleRecord | None) -> None:
    """Raise the error of an import; `here` is the bundle that is here and gets the tools, if any."""
    rows = [f"{one.slug}@{one.version}" for one in made.tools if one.action == "conflict"]
    if made.action == "conflict":
        rows.insert(0, f"the texts of the bundle {made.slug}")
    if rows:
        raise ConflictError(
            f"different here: {', '.join(rows[:_MOST_NAMED])}"
            + (f" and {len(rows) - _MOST_NAMED} more" if rows[_MOST_NAMED:] else ""),
            hint="Choose --on-conflict skip, replace or new-id; --dry-run shows what each does.",
        )
    if here is not None and not made.is_enabled and made.changes:
        raise BundleDisabled(
            f"the bundle {here.slug} is here and disabled, so its tools cannot be changed",
            hint="Enable it first, add --enable, or import as a new bundle: --on-conflict new-id",
        )


def _check_names(tools: Iterable[ArchivedTool], here: Iterable[ToolRecord]) -> None:
    """Raise ConflictError if two names in manifests have one slug."""
    by_slug: dict[str, list[ArchivedTool | ToolRecord]] = {}
    every: list[ArchivedTool | ToolRecord] = [*tools, *here]
    for one in every:
        by_slug.setdefault(one.slug, []).append(one)
    for slug, (first, *others) in by_slug.items():
        if others:
            require_one_name(slug, first, others)


def apply(
    store: Store,
    contents: Contents,
    on_conflict: OnConflict = "refuse",
    *,
    enable: bool = False,
    around: Callable[[ImportPlan], AbstractContextManager[object]] = nullcontext,
) -> ImportPlan:
    """Import a bundle, all of it or nothing, and return what was done.

    A new bundle lands disabled, and so does each tool that gets into a bundle that is here, unless `enable`
    is True. Each try to write runs within `around`. Raises the error of the plan's `refused`, with the plan
    in its details, and StateUnavailable.
    """
    # One id for all tries, else no plan would equal the one before.
    planned = partial(plan, store, contents, on_conflict, enable=enable, fresh=new_id())
    for _ in range(_TRIES):
        made = planned()
        if made.refused is not None:
            raise ToolcribError.from_dict({**made.refused, "details": {"plan": made.as_dict()}})
        if not made.changes:
            return made
        bundle, tools = _records(store, contents, made, enable=enable)
        # Planned without the lock, and again under it: if the store has changed since, this is another plan.
        with around(made):
            if store.put_together(bundle, tools, lambda: planned() == made):  # noqa: B023 - called at once
                return made
    raise StateUnavailable(
        f"the bundle {contents.bundle.slug} kept changing during the import", hint="Import it again."
    )


def _records(
    store: Store, contents: Contents, made: ImportPlan, *, enable: bool
) -> tuple[BundleRecord, list[ToolRecord]]:
    """Return the records that the import writes."""
    seconds, now = store.now()
    before = _here(store, made.bundle_id)[0]
    source = contents.bundle
    if before is not None and made.action == "keep":
        bundle = msgspec.structs.replace(before, is_enabled=made.is_enabled)
    else:
        bundle = BundleRecord(
            id=made.bundle_id,
            **{name: getattr(source, name) for name in TEXTS},
            is_enabled=made.is_enabled,
            created_at=now if before is None else before.created_at,
            modified_at=now,
        )
    # A bundle that is here and on would let new tools run at once.
    keep_switch = enable or before is None or before.soft_deleted_at is not None
    tools = []
    for tool, row in zip(contents.tools, made.tools, strict=True):
        if row.action in ("add", "replace"):
            values = {name: getattr(tool, name) for name in ToolBody.__struct_fields__}
            values["is_enabled"] = tool.is_enabled and keep_switch
            # A time in the future would make it the newest version for good.
            created = min(tool.created_at, now)
            tools.append(
                ToolRecord(
                    id=new_id(seconds),
                    bundle_id=made.bundle_id,
                    slug=tool.slug,
                    version=tool.version,
                    created_at=created,
                    modified_at=min(max(tool.modified_at, created), now),
                    **values,
                )
            )
    return bundle, tools
