"""A note to who waits for what no process takes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from toolcrib.cli.output import one_line, print_note
from toolcrib.errors import ToolcribError

if TYPE_CHECKING:
    from toolcrib.project import Project

_LOOK_S = 2.0


@asynccontextmanager
async def noting_unserved(
    project: Project, tools: Callable[[], set[str] | None], here: str = ""
) -> AsyncIterator[None]:
    """Print a note, while inside, if nothing serves the project, or nothing that does has one of these tools.

    `tools` returns those whose calls wait, or None if nothing is waited for. `here` is the command that
    continues in this terminal.
    """
    task = asyncio.create_task(_note(project, tools, here))
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def _note(project: Project, tools: Callable[[], set[str] | None], here: str) -> None:
    noted = last = ""
    while True:
        await asyncio.sleep(_LOOK_S)
        with suppress(ToolcribError):  # The database is away: the log says so.
            found = await asyncio.to_thread(_unserved, project, tools, here)
            if found == last and found not in ("", noted):  # Not only between two workers.
                noted = found
                print_note(found)
            last = found


def _unserved(project: Project, tools: Callable[[], set[str] | None], here: str) -> str:
    waited_for = tools()
    if waited_for is None:
        return ""
    status = project.calls.status()
    if not status["workers"]:
        start = f", or continue it here: `{here}`" if here else ""
        return f"No process serves this project, so nothing continues. Start `toolcrib worker`{start}."
    missing = ", ".join(f"`{one_line(name)}`" for name in sorted(waited_for & set(status["unserved"])))
    if not missing:
        return ""
    start = "toolcrib worker --app MODULE:FUNCTION"
    return f"No process that serves has {missing}. Start one that does; for tools of a program: `{start}`."
