"""A project as it is shown to the person who decides whether to trust it, and their answer."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from toolcrib.cli.confirm import Channel, choose
from toolcrib.cli.output import count, one_line, print_error, print_note, print_result
from toolcrib.errors import NotFoundError, NotTrusted, ToolcribError

if TYPE_CHECKING:
    from toolcrib.project import Config, Project
    from toolcrib.project.config.weakening import Weakening
    from toolcrib.project.trust.sheets import TrustSheet
    from toolcrib.spec import Tool

_ABOUT = "trust"


class TrustState:
    """What of a project waits for trust: all of it, or the tools, agents and workflows of these names."""

    def __init__(self, project: Project, names: tuple[str, ...] = ()) -> None:
        from toolcrib.project.config.settings import is_trusted

        config, trust = project.config, project.trust
        self.project, self.names = project, names
        self.known = trust.given
        """True if the project was accepted before."""
        self.settings = config.weakening()
        """Settings that weaken a guard, name a source of secrets or start a process."""
        self.trusted = is_trusted(config.digest, trust.ledger)
        """True if the settings are trusted as they are."""
        if names:
            if not self.known:
                raise trust.refusal(own=True)
            self.tools = _named(project, names)
            self.sheets = [trust.sheet(one) for one in self.tools]
            self.errors: list[ToolcribError] = []
            self.waiting = [one for one in self.sheets if one.status != "trusted"]
        else:
            self.sheets, self.errors = trust.sheets(whole=not self.known)
            self.waiting = [one for one in self.sheets if one.waits or not self.known]
        self.settings_wait = not names and (not self.known or bool(self.settings and not self.trusted))
        """True if the settings are part of what the answer covers."""

    @property
    def waits(self) -> bool:
        """True if there is something to accept."""
        return self.settings_wait or bool(self.waiting)

    # -- shown -----------------------------------------------------------------------------------------

    def print(self, *, whole: bool = False) -> None:
        """Print what there is to accept: groups with counts, or each sheet `whole`."""
        if not self.known:
            print_result(one_line(f"{self.project.root}: you have not accepted this project yet."))
        if whole:
            for number, sheet in enumerate(self.sheets):
                print_result("\n".join([*([""] if number else []), *sheet.lines()]))
        else:
            for line in self.lines():
                print_result(line)
        for error in self.errors:
            print_error(error)
        if not self.waits:
            print_note("Nothing waits for trust." if not self.names else "It is trusted as it is.")

    def lines(self) -> Iterator[str]:
        """Yield what waits, in groups."""
        from toolcrib.project.trust.groups import SHOWN, cut, lines_of

        weak = [self._weak_line(one) for one in self.settings] if self.settings_wait else []
        yield from (cut(line) for line in weak[:SHOWN])
        if len(weak) > SHOWN:
            rest = (one.name for one in self.settings[SHOWN:])
            yield cut(f"and {count(len(weak) - SHOWN, 'setting')} more: {', '.join(dict.fromkeys(rest))}")
        if self.settings_wait and (started := self._started()):
            yield cut(started)
        yield from lines_of(self.waiting)

    def waiting_lines(self) -> Iterator[str]:
        """Yield a line for each thing that waits."""
        from toolcrib.project.trust.sheets import STATUS

        if not self.known:
            yield one_line(f"{self.project.root}: not accepted")
        elif self.settings_wait:
            names = ", ".join(dict.fromkeys(one.name for one in self.settings))
            yield one_line(f"settings: {names}")
        yield from (one_line(f"{one.tool.name}: {STATUS[one.status]}") for one in self.waiting)

    def _weak_line(self, weak: Weakening) -> str:
        config = self.project.config
        path = config.document.path if config.document is not None else ""
        # As a person in this folder would write it.
        path, line = path.removeprefix(os.getcwd() + os.sep), _line(config, weak)
        place = f"{path}:{line}: " if line is not None else ""
        return f"{place}{weak.name}: {weak.allows}"

    def _started(self) -> str:
        """Return a line about the files of the project that the settings start, with what has changed."""
        from toolcrib.guard import SETTINGS, changed_parts
        from toolcrib.project.trust.groups import folded

        row, now = self.project.trust.ledger.last(SETTINGS), self.project.config.started
        if row is None:
            return f"These settings start code of the project: {folded(_files(now))}" if now else ""
        changed = changed_parts(row.shown.get("started", {}), now)
        return f"Code that the settings start has changed: {folded(_files(changed))}" if changed else ""

    # -- decided ---------------------------------------------------------------------------------------

    @property
    def question(self) -> str:
        """The question that one answer decides."""
        return "Trust this?" if self.known else "Trust this project, as it is now?"

    def decide(self, *, yes: bool = False) -> None:
        """Ask, and record the answer. Raises NotTrusted if nothing is accepted."""
        while True:
            key = choose(self.question, "yds", _ABOUT, yes=yes, refuse=NotTrusted)
            if key == "d":
                self._page()
            elif key == "s":
                return self._one_by_one()
            elif key == "y":
                return self.accept(self.waiting, "flag" if yes else "terminal")
            else:
                raise NotTrusted("nothing was accepted", hint="To look again: toolcrib trust --show")

    def accept(self, sheets: Sequence[TrustSheet], channel: Channel) -> None:
        """Record the trust in what was shown."""
        from toolcrib.state import user_name

        self.project.trust.accept(user_name(), sheets, settings=self.settings_wait, channel=channel)
        print_note("Trusted. You are asked again when something changes.")

    def _page(self) -> None:
        """Show files and differences through the pager."""
        lines = list(self.lines())
        for sheet in self.waiting:
            lines += ["", *sheet.lines()]
        click.echo_via_pager("\n".join(lines) + "\n")

    def _one_by_one(self) -> None:
        chosen = []
        if not self.known:  # Without the project no tool runs, so it comes first.
            question = "Trust the project with these settings?"
            if choose(question, "y", _ABOUT, refuse=NotTrusted) is None:
                raise NotTrusted("nothing was accepted", hint="To look again: toolcrib trust --show")
        for sheet in self.waiting:
            print_note("\n".join(sheet.lines()))
            if choose(f"Trust {one_line(sheet.tool.name)}?", "y", _ABOUT, refuse=NotTrusted) == "y":
                chosen.append(sheet)
        self.accept(chosen, "terminal")

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        from toolcrib.guard import SETTINGS

        config, row = self.project.config, self.project.trust.ledger.last(SETTINGS)
        return {
            "config": str(self.project.place.config),
            "digest": config.digest,
            "accepted": self.known,
            "trusted": self.trusted,
            "by": None if row is None else row.by,
            "at": None if row is None else row.at,
            "settings": [
                {"key": weak.name, "allows": weak.allows, "line": _line(config, weak)}
                for weak in self.settings
            ],
            "started": dict(config.started),
            "waits": self.waits,
            "tools": [
                {**one.as_dict(), "code": list(one.code()) if self.names else []} for one in self.waiting
            ],
        }


def _files(parts: Any) -> list[str]:
    """Return the files of parts such as `mcp_servers.a/script/servers/a.py`, each once."""
    return list(dict.fromkeys(part.split("/", 2)[-1] for part in sorted(parts)))


def _line(config: Config, weak: Weakening) -> int | None:
    """Return the setting's line in `config.yml`; None for what may be in `.mcp.json`."""
    if config.document is None or weak.name.startswith((".mcp.json", "mcp_servers.")):
        return None
    return config.document.locate(weak.key, key=True)[0]


def _named(project: Project, names: tuple[str, ...]) -> list[Tool]:
    """Return the tools, agents and workflows of these names. Raises NotFoundError."""
    files = {one.name: one for one in (*project.agents.reviewed(), *project.workflows.reviewed())}
    found: list[Tool] = []
    for name in names:
        kind = name.partition(":")[0]
        if name in files:
            found.append(files[name])
        elif kind in ("agent", "workflow"):
            raise NotFoundError(f"there is no {kind} named {name.partition(':')[2]!r}")
        else:
            found.append(project.get(name.removeprefix("tool:")))
    return found
