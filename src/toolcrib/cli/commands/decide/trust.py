"""`toolcrib trust`."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from toolcrib.cli.caller import given_token
from toolcrib.cli.confirm import Channel, at_terminal, decide, require_person
from toolcrib.cli.options import open_project, project_options, yes_option
from toolcrib.cli.output import (
    count,
    one_line,
    print_change,
    print_error,
    print_json,
    print_note,
    print_result,
)
from toolcrib.errors import NotTrusted, UsageError

if TYPE_CHECKING:
    from toolcrib.project import Config, Project
    from toolcrib.project.config.weakening import Weakening
    from toolcrib.project.control.first_use import ReviewSheet

_ABOUT = "projects"


@click.command("trust")
@project_options
@click.option("--show", is_flag=True, help="Only show what waits for acceptance.")
@yes_option
@click.option("--revoke", is_flag=True, help="Take back the acceptance of this project.")
def command(root: str | None, as_json: bool, show: bool, yes: bool, revoke: bool) -> None:
    """Accept a project: its settings and tools, as they are.

    No tool of a cloned project runs before this. The command shows the settings that weaken a protection,
    name the source of a secret or start a process, and what each tool may do. Then it asks once. Later it
    shows what has changed, and asks for that.
    """
    from toolcrib.guard import Trust
    from toolcrib.project import Project, find
    from toolcrib.state import Vault

    if show + yes + revoke > 1:
        raise UsageError("give only one of --show, --yes and --revoke")
    if revoke:
        require_person(_ABOUT, refuse=NotTrusted)
        revoked = Trust(Vault(find(root).root)).revoke()
        note = "This project is no longer accepted." if revoked else "This project was not accepted."
        return print_change(as_json, {"revoked": revoked}, note)
    project = Project.inspect(root)
    state = _State(project)
    if not as_json:
        state.print()
    if state.waits and not show and (yes or not as_json):
        channel = decide(state.question, _ABOUT, yes=yes, refuse=NotTrusted)
        if channel is None:
            raise NotTrusted("nothing was accepted", hint="To read the manifests: toolcrib review --all")
        state.accept(channel)
    if as_json:
        print_json(_document(_State(project)))
    return None


def accepted_project(root: str | None, *, ask: bool) -> Project:
    """Open a project to run its tools. If it is not accepted and somebody is at the terminal, ask first."""
    from toolcrib.project import Project

    project = open_project(root)
    if not ask or project.acceptance.given or given_token() is not None or not at_terminal():
        return project
    state = _State(Project.inspect(root))
    state.print()
    channel = decide(state.question, _ABOUT, refuse=NotTrusted)
    if channel is None:
        raise NotTrusted("the project was not accepted, so nothing was run")
    state.accept(channel)
    return open_project(root)


class _State:
    """A project as it is shown to the person who accepts it."""

    def __init__(self, project: Project) -> None:
        config, trust = project.config, project.acceptance.trust
        self.project = project
        self.known = trust.current() is not None
        """True if it was accepted before."""
        self.settings = config.weakening()
        self.trusted = trust.is_trusted(config.digest)
        """True if the settings are trusted as they are."""
        self.sheets, self.errors = project.first_use.sheets()
        self.waiting = [sheet for sheet in self.sheets if sheet.waits]
        """The tools that need a review."""
        self.waits = not self.known or bool(self.settings and not self.trusted) or bool(self.waiting)
        """True if there is something to accept."""

    @property
    def question(self) -> str:
        return "Accept these changes?" if self.known else "Accept this project, as it is now?"

    def accept(self, channel: Channel) -> None:
        """Record the acceptance of everything that was shown."""
        from toolcrib.state import user_name

        self.project.first_use.accept_project(
            user_name(), self.waiting if self.known else self.sheets, channel=channel
        )
        print_note("Accepted. You are asked again when something changes.")

    def print(self) -> None:
        """Print what there is to accept."""
        if not self.known:
            print_result(one_line(f"{self.project.root}: you have not accepted this project yet."))
        self._print_settings()
        if self.known:
            for number, sheet in enumerate(self.waiting):
                print_result("\n".join([*([""] if number else []), *sheet.lines()]))
        else:
            for line in _overview(self.sheets):
                print_result(line)
        for error in self.errors:
            print_error(error)
        if not self.waits:
            print_note("This project is accepted; nothing waits for you.")
        elif not self.known:
            print_note("None of them runs until you accept this project. To read them: toolcrib review --all")

    def _print_settings(self) -> None:
        config = self.project.config
        path = config.document.path if config.document is not None else ""
        # As a person in this folder would write it.
        path = path.removeprefix(os.getcwd() + os.sep)
        for weak in self.settings:
            line = _line(config, weak)
            place = f"{path}:{line}: " if line is not None else ""
            print_result(one_line(f"{place}{weak.name}: {weak.allows}"))
        for part in (*_started(self), *_servers(self.project)):
            print_result(one_line(part))
        if self.settings and not self.trusted:
            print_note("These settings have no effect until you trust them.")
        elif self.settings:
            print_note("These settings are trusted.")
        elif not self.waits:
            print_note("No setting of this project needs trust.")


def _started(state: _State) -> Iterator[str]:
    """Yield a line for each file of the project that the settings start, with what has changed of it."""
    record, now = state.project.acceptance.trust.current(), state.project.config.started
    then = record.started if record is not None else {}
    for part in sorted({*now, *(then if not state.trusted else ())}):
        changed = "" if now.get(part) == then.get(part) else "new: " if part not in then else "changed: "
        changed = "gone: " if part not in now else changed if record is not None else ""
        yield f"  {changed}{part}"


def _servers(project: Project) -> Iterator[str]:
    """Yield a line for each MCP server that is started here, with what its process may use and may not."""
    for name, one in ({} if project.servers is None else project.servers.mounted).items():
        if grants := one.grants():
            yield f"  server {name} may: {'; '.join(grants)}"
        yield from (f"  server {name} may not write {line}" for line in one.spec.unwritable)


def _overview(sheets: Sequence[ReviewSheet]) -> Iterator[str]:
    """Yield a line for each tool that may change or reach something, then one for all the others."""
    acting = [sheet for sheet in sheets if sheet.reasons]
    files = any(sheet.tool.kind in ("agent", "workflow") for sheet in sheets)
    every = f"{len(sheets)} tools, agents and workflows" if files else count(len(sheets), "tool")
    if acting:
        yield f"{len(acting)} of {every} may change or reach something:"
    width = min(24, max((len(sheet.tool.name) for sheet in acting), default=0))
    for sheet in acting:
        yield one_line(f"  {sheet.tool.name:{width}}  {'; '.join(sheet.reasons)}")
    quiet = [sheet.tool.name for sheet in sheets if not sheet.reasons]
    if quiet:
        others = f"{len(quiet)} of them" if files else count(len(quiet), "tool")
        yield one_line(f"{others} only read{'s' * (len(quiet) == 1)} in the project: {', '.join(quiet)}")


def _document(state: _State) -> dict[str, Any]:
    config, current = state.project.config, state.project.acceptance.trust.current()
    if current is not None and current.digest != config.digest:
        current = None
    return {
        "config": str(state.project.place.config),
        "digest": config.digest,
        "project_digest": state.project.digest().digest,
        "accepted": state.known,
        "trusted": current is not None,
        "by": current.by if current is not None else None,
        "at": current.at if current is not None else None,
        "settings": [
            {"key": weak.name, "allows": weak.allows, "line": _line(config, weak)} for weak in state.settings
        ],
        "started": dict(config.started),
        "tools": [sheet.as_dict() for sheet in state.sheets if sheet.waits],
    }


def _line(config: Config, weak: Weakening) -> int | None:
    """Return the setting's line in `config.yml`; None for what may be in `.mcp.json`."""
    if config.document is None or weak.name.startswith((".mcp.json", "mcp_servers.")):
        return None
    return config.document.locate(weak.key, key=True)[0]
