"""A note to who waits for what no process takes, or for a person's approval."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from toolcrib.cli.confirm import is_person
from toolcrib.cli.output import cut_names, one_line, print_note
from toolcrib.errors import ToolcribError

if TYPE_CHECKING:
    from toolcrib.project import Project

_LOOK_S = 2.0


@asynccontextmanager
async def noting_unserved(
    project: Project,
    tools: Callable[[], set[str] | None],
    here: str = "",
    asking: Callable[[], set[str]] = set,
) -> AsyncIterator[None]:
    """Print a note, while inside, if nothing serves the project, or nothing that does has one of these tools.

    `tools` returns those whose calls wait, or None if nothing is waited for. `here` is the command that
    continues in this terminal. `asking` returns the tools whose calls wait for approval; a note
    names them too.
    """
    task = asyncio.create_task(_note(lambda: _unserved(project, tools, here) or _asking(project, asking())))
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def note_if_unserved(project: Project, tools: set[str], *, waits: str) -> bool:
    """Print a note if nothing that serves takes what was stored; the command `waits` would continue it.

    Return True if it was printed.
    """
    found = ""
    with suppress(ToolcribError):
        if found := _unserved(project, lambda: tools, waits + project.place.option):
            print_note(found)
    return found != ""


async def _note(look: Callable[[], str]) -> None:
    noted = last = ""
    while True:
        await asyncio.sleep(_LOOK_S)
        with suppress(ToolcribError):  # The database is away: the log says so.
            found = await asyncio.to_thread(look)
            if found == last and found not in ("", noted):  # Not only between two workers.
                noted = found
                print_note(found)
            last = found


def _asking(project: Project, tools: set[str]) -> str:
    if not tools:
        return ""
    how = f": toolcrib approvals list{project.place.option}" if is_person() else "."
    return (
        f"Waits for a person's approval of {', '.join(f'`{one_line(name)}`' for name in sorted(tools))}{how}"
    )


def _unserved(project: Project, tools: Callable[[], set[str] | None], here: str) -> str:
    waited_for = tools()
    if waited_for is None:
        return ""
    status = project.calls.status()
    if not status["workers"]:
        start = f"Start `toolcrib worker{project.place.option}`"
        start += f", or continue it here: `{here}`." if here else "."
        return f"No process serves this project, so nothing continues. {start}"
    missing = waited_for & set(status["unserved"])
    if not missing:
        return ""
    for worker in status["workers"]:
        for reason, names in worker["refused"].items():
            if refused := missing.intersection(names):
                return f"{worker['name']} does not serve {cut_names(sorted(refused))}: {one_line(reason)}"
    start = f"toolcrib worker{project.place.option or ' --app MODULE:FUNCTION'}"
    return (
        f"No process that serves has {cut_names(sorted(missing))}. Start one that does;"
        f" for tools of a program: `{start}`."
    )
