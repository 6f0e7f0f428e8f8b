"""`toolcrib bridge`."""

from __future__ import annotations

import asyncio
import os
from contextlib import ExitStack
from pathlib import Path

import click

from toolcrib.cli.options import root_option
from toolcrib.cli.output import print_note
from toolcrib.errors import UsageError

_NAMES = ("telegram", "discord", "slack", "whatsapp", "webhook", "console")


@click.command("bridge")
@click.option("--ipc", type=click.Path(path_type=Path), help="The folder that the containers of a pod share.")
@click.option(
    "--state",
    type=click.Path(path_type=Path),
    help="Keep messages in this file, not in a project's database; the agent must not reach it.",
)
@click.option(
    "--channel",
    "channels",
    multiple=True,
    type=click.Choice(_NAMES),
    help="A channel that messages may be for (default: all).",
)
@click.option("--agent", help="The agent of the project that answers what people write.")
@click.option(
    "--page", metavar="URL", help="The address of the project's server: links of questions lead there."
)
@click.option("--owner", "owners", type=int, multiple=True, help="A user id whose messages count too.")
@root_option
def command(
    ipc: Path | None,
    state: Path | None,
    channels: tuple[str, ...],
    agent: str | None,
    page: str | None,
    owners: tuple[int, ...],
    root: str | None,
) -> None:
    """Pass messages of a pod or project on to NATS, until SIGTERM or Ctrl-C.

    A message waits in the database until NATS has stored it. At a signal the bridge ends when nothing waits
    any more, at a second one at once. With --agent, each message of a person begins a
    run, whose answer goes back; `toolcrib worker` executes the runs. What waits for approval is sent to the
    approvals.people of the project, who decide in their chats.
    """
    from toolcrib.cli.commands.decide.accepting import accepted_project
    from toolcrib.pods.bridge import Bridge
    from toolcrib.pods.inbox import Inbox
    from toolcrib.pods.questions import Questions
    from toolcrib.pods.running import until_stopped
    from toolcrib.pods.spool import Spool
    from toolcrib.state import PROJECT, Database, SqliteDatabase

    if state is not None and agent is not None:
        raise UsageError("--agent needs a project, and --state is used without one", hint="Leave one out.")
    project = None if state is not None else accepted_project(root, ask=True, load=False)

    with ExitStack() as later:
        database: Database
        if state is None:
            assert project is not None
            database = project.calls.stored.database
        else:
            database = SqliteDatabase(state, PROJECT)
            later.callback(database.close)
        spool = None
        if ipc is not None:
            spool = Spool(ipc, "messages", owners)
            later.callback(spool.close)
        bridge = Bridge(database, os.environ, channels or _NAMES, spool)
        others = [Inbox(project, agent).run] if project is not None and agent is not None else []
        if project is not None and project.chat_approvals.accounts:
            questions = Questions(project, page or "")
            bridge.complete = questions.complete
            others.append(questions.run)
        print_note("passing messages on")
        asyncio.run(until_stopped(bridge.run(*others), bridge.drained))
    print_note("stopped")
