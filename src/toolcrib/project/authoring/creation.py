"""Tools made by agents: checked, limited by the project's ceiling, and written whole or not at all.

The maker of a tool is recorded in the user's own folder before its manifest is written. A person must
trust the tool before its first call and approve each of its calls.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import shutil
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from fcntl import LOCK_EX
from pathlib import Path
from typing import Any

import orjson

from toolcrib.errors import (
    ConflictError,
    InvalidInput,
    PermissionDenied,
    RateLimited,
    StateUnavailable,
    Violation,
)
from toolcrib.guard import excess, shown
from toolcrib.guard.audit.files import lock_file
from toolcrib.manifest import FILE_NAME, KINDS, Diagnostic, check_tool, dump, failure, load, parse_tool
from toolcrib.project.project import Project
from toolcrib.spec import Tool
from toolcrib.spec.record import record
from toolcrib.state.private import sync_folder, write_synced, written

RESERVED = (
    "agent_create", "glee_agent_create", "glee_task", "glee_tool", "glee_tool_create", "glee_tools_list",
    "glee_workflow", "task", "tool_call", "tool_create", "tools_list", "tools_search", "workflow_run",
)  # fmt: skip
"""Names of meta-tools."""
_MAX_BYTES = 131_072
_WAIT_S = 10.0
_name = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}\Z").match
_REFUSED = frozenset({"hidden-characters", "instruction-text"})
"""Warnings for people that are errors in the texts that an agent writes for other agents."""
_STAGE = ".new-"


@record
class ToolDraft:
    """A tool that was checked and not written yet."""

    tool: Tool
    creator: str
    warnings: tuple[Diagnostic, ...]


def create_tool(project: Project, name: str, definition: Mapping[str, Any], creator: str) -> Tool:
    """Make a tool from a definition as in `tool.yml`, and add it to the open project.

    `definition` may leave out `name`; `approval.required` becomes true whatever it says. `creator` is who
    makes it. Raises InvalidInput (name, size, kind), ManifestError (each finding of the lint),
    PermissionDenied (each permission beyond `security.max_permissions`), ConflictError (the name is taken),
    RateLimited (there are `limits.created_tools` already), AuditUnavailable; then nothing was written.
    """
    made = publish(project, draft(project, name, definition, creator))
    project.catalog.adopt(made.tool, made.warnings)
    return made.tool


def draft(project: Project, name: str, definition: Mapping[str, Any], creator: str) -> ToolDraft:
    """Check a definition, and write nothing. Raises as `create_tool` does."""
    checked_name(name)
    # `publish` checks again under its lock.
    require_room(project, "tools", [path.name for path in project.place.tools.glob("*")])
    creator = shown_creator(creator)
    manifest = _manifest(name, definition, creator)
    path = str(project.place.tools / name / FILE_NAME)
    document = load(f"# Made by the agent {creator}.\n{dump(manifest)}".encode(), path)
    tool = parse_tool(document, name)
    found = check_tool(tool, document)
    wrong = [finding for finding in found if finding.is_error or finding.rule in _REFUSED]
    if wrong:
        raise failure(wrong)
    beyond = excess(tool, project.config.max_permissions, project.root)
    refuse_beyond(project, f"{name} asks for more than agents may give to a tool here", beyond)
    return ToolDraft(tool, creator, tuple(found))


def publish(project: Project, made: ToolDraft) -> ToolDraft:
    """Record the maker of the tool, then write its manifest. Raises as `create_tool` does."""
    tool = made.tool
    assert tool.source is not None
    digest = tool.source.sha256
    with making(project, project.place.tools) as folder:
        there, names = os.listdir(folder), project.toolset.names
        same = project.toolset.same_name(tool.name)
        require_free(tool.name, (*RESERVED, *names, *there), "a tool", same)
        require_room(project, "tools", there)
        with noted(project, tool.name, made.creator, digest):
            _put(folder, tool.name, tool.source.raw)
            try:
                asked = tool.permissions.as_json()
                fields = {"name": tool.name, "creator": made.creator, "permissions": asked, "digest": digest}
                project.audit.record("TOOL_CREATED", **fields)
            except BaseException:
                shutil.rmtree(folder / tool.name)
                raise
    return made


@contextmanager
def making(project: Project, folder: Path) -> Iterator[Path]:
    """Let one process of this user make something in a folder of the project, and only if it is audited.

    Yield a path that leads to the folder even if a link takes its place meanwhile.
    """
    project.place.require_folder()
    project.audit.ensure()
    with suppress(OSError):
        folder.mkdir(exist_ok=True)
    path = project.vault.folder / "create.lock"
    with written(path):
        lock = path.open("ab+", buffering=0)  # With "ab", opening a FIFO would wait for a reader.
    with lock:
        try:
            lock_file(lock.fileno(), LOCK_EX, _WAIT_S)
        except OSError:
            message = "another process has been making a tool for too long"
            hint = "Look for a stopped process of Toolcrib."
            raise StateUnavailable(message, hint=hint, retryable=True) from None
        try:
            # A link could lead anywhere.
            opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            raise ConflictError(
                f"{folder} is not a folder of the project's own, or cannot be read",
                hint="Make it a real folder, not a link.",
                details={"path": str(folder)},
            ) from None
        try:
            place = Path(f"/proc/self/fd/{opened}")
            yield place
            sync_folder(place)
        finally:
            os.close(opened)


@contextmanager
def noted(project: Project, name: str, creator: str, digest: str) -> Iterator[None]:
    """Record the maker of what is made in this block; the record goes if it is not made."""
    ledger = project.trust.ledger
    entry = ledger.note_maker(name, creator, digest)
    try:
        yield
    except BaseException:
        ledger.drop_maker(entry)
        raise


def refuse_beyond(project: Project, message: str, beyond: Sequence[Violation]) -> None:
    """Refuse what asks for more than agents may give here: `PermissionDenied`."""
    if not beyond:
        return
    hint = "Ask for less, or have a person raise security.max_permissions in the project's settings."
    if any(weak.name == "security.max_permissions" for weak in project.waiting):
        hint = "The project's ceiling has no effect until a person has run `toolcrib trust`."
    elif project.config.max_permissions is None:
        hint = "The project sets no security.max_permissions, so a tool made by an agent may ask for nothing."
    text = f"{message}: {'; '.join(one.message for one in beyond)}"
    raise PermissionDenied(text, hint=hint, violations=beyond)


def shown_creator(creator: str) -> str:
    """Return the name of a creator in one line that is safe to print."""
    return shown(creator).replace("\n", " ").strip()[:100] or "unknown"


def checked_name(name: Any) -> None:
    """Refuse a name that an agent may not give: `InvalidInput`."""
    if not isinstance(name, str) or not _name(name) or name in RESERVED:
        name_shown = shown(repr(name)[:80])
        raise InvalidInput(
            f"a tool cannot be named {name_shown} here",
            hint="1 to 64 of A-Z, a-z, 0-9, '_', '-', beginning with a letter or digit; no meta-tool.",
            violations=[Violation("$.name", f"{name_shown} is not a name that an agent may give")],
        )


def _manifest(name: str, definition: Any, creator: str) -> dict[str, Any]:
    """Return the definition as plain JSON, with its name, and with approval required."""
    data = json_object(name, definition)
    kinds = sorted(kind.name for kind in KINDS.used if kind.for_agents)
    if data.get("kind") not in kinds:
        raise unfit("$.kind", f"must be one of: {', '.join(kinds)}")
    approval = data.get("approval", {})
    if not isinstance(approval, dict):
        raise unfit("$.approval", "must be an object")
    reason = approval.get("reason") or f"Made by the agent {creator}"
    first: dict[str, Any] = {key: data[key] for key in ("description", "kind", "version") if key in data}
    return {"name": name, **first, **data, "approval": {**approval, "required": True, "reason": reason}}


def json_object(name: str, definition: Any) -> dict[str, Any]:
    """Return a definition as plain JSON; `InvalidInput` for one that is none, is too large, or has another
    name."""
    if not isinstance(definition, Mapping):
        raise unfit("$", "must be an object: what the file would say")
    try:
        raw = orjson.dumps(dict(definition))
    except (TypeError, RecursionError) as error:
        raise unfit("$", f"is not JSON: {error}") from None
    if len(raw) > _MAX_BYTES:
        raise unfit("$", f"has {len(raw):,} bytes, more than the limit of {_MAX_BYTES:,}")
    data: dict[str, Any] = orjson.loads(raw)
    if data.get("name", name) != name:
        raise unfit("$.name", f"is {shown(repr(data['name'])[:80])}, but it is to be named {name!r}")
    return data


def unfit(path: str, message: str) -> InvalidInput:
    """Return the error of a definition at this place."""
    what = path.removeprefix("$.") if path != "$" else "the definition"
    return InvalidInput(f"{what} {message}", violations=[Violation(path, message)])


def require_free(name: str, taken: Iterable[str], what: str, same: str | None = None) -> None:
    """Refuse a name that is taken, or too similar to one: in another case, or in other code points.

    `same` is a tool that has the same name for clients.
    """
    # Two names that look alike could make a person approve the wrong tool.
    other = {_folded(one): one for one in taken}.get(_folded(name)) or same
    if other is not None:
        name_shown = shown(other)
        raise ConflictError(
            f"there is {what} named {name_shown} already"
            + ("" if other == name else f", and {name} is too similar to it"),
            hint="Choose another name. Only a person can change an existing one.",
            details={"taken": name_shown},
        )


def require_room(project: Project, what: str, names: Iterable[str]) -> None:
    """Raise `RateLimited` if agents have made as many of these as they may."""
    most, made = project.config.created_tools, len(project.trust.ledger.makers().keys() & set(names))
    if made >= most:
        raise RateLimited(
            f"agents have made {made} {what} here, which is the limit",
            hint="A person can remove some, or raise limits.created_tools.",
            details={"limit": most},
        )


def _folded(name: str) -> str:
    """Return the name as it is compared with others."""
    return unicodedata.normalize("NFKC", name).casefold()


def _put(folder: Path, name: str, text: bytes) -> None:
    """Move a complete folder to its place. Comes under the lock of `making`."""
    for left in folder.glob(f"{_STAGE}*"):  # by a process that died
        shutil.rmtree(left, ignore_errors=True)
    stage = folder / f"{_STAGE}{secrets.token_hex(8)}"
    try:
        stage.mkdir(0o755)
        write_synced(stage / FILE_NAME, text, 0o644)
        sync_folder(stage)
        # A reader sees a whole tool or none. It fails if there is a folder of this name with something in it.
        stage.rename(folder / name)
    except OSError as error:
        shutil.rmtree(stage, ignore_errors=True)
        if error.errno in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
            raise ConflictError(f"there is a tool named {name} already") from None
        raise StateUnavailable(f"the tool {name} cannot be written: {error.strerror}") from None
