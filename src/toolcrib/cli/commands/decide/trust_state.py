"""A project as it is shown to the person who decides whether to trust it, and their answer."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from toolcrib.cli.commands.decide.trust_servers import WAIT_S, trust_listed
from toolcrib.cli.confirm import Channel, at_terminal, choose
from toolcrib.cli.output import count, one_line, print_error, print_note, print_result
from toolcrib.errors import NotFoundError, NotTrusted, ToolcribError, UsageError
from toolcrib.spec.moment import written

if TYPE_CHECKING:
    from toolcrib.project import Config, Project
    from toolcrib.project.config.weakening import Weakening
    from toolcrib.project.tools.server_sheets import ServerSheet
    from toolcrib.project.tools.servers import Servers
    from toolcrib.project.trust.sheets import TrustSheet
    from toolcrib.spec import Network, Tool


class TrustState:
    """The part of a project that waits for trust: all, or the tools, agents and workflows of these names."""

    def __init__(
        self,
        project: Project,
        names: tuple[str, ...] = (),
        network: Network | None = None,
        wait_s: float = WAIT_S,
        failed: Mapping[str, ToolcribError] | None = None,
    ) -> None:
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
            self.tools, self.servers = _named(project, names)
            self.sheets = [trust.sheet(one) for one in self.tools]
            self.errors: list[ToolcribError] = []
            self.waiting = [one for one in self.sheets if one.status != "trusted"]
        else:
            self.tools, self.servers = [], _sheets(project.servers)
            self.sheets, self.errors = trust.sheets(whole=not self.known)
            self.waiting = [one for one in self.sheets if one.waits or not self.known]
        self.settings_wait = not names and (not self.known or bool(self.settings and not self.trusted))
        """True if the settings are part of what the answer covers."""
        self._noted = trust.ledger.created()
        self.created = [one for one in self._noted if os.path.lexists(one.path)]
        """Files that start other programs, which calls have created and no person has seen yet."""
        self.network, self._wait_s, self.failed = network, wait_s, dict(failed or {})
        if network is not None:
            self._require_one_server()
        self.unseen = self._unseen() if self.settings_wait else ()
        """The servers of which the answer covers whatever they list once it has started them."""
        self.offers = [
            one for name, one in self.servers.items()
            if name not in self.unseen and (one.names or network is not None)
        ]  # fmt: skip
        """The servers that offer something which waits."""

    @property
    def asks(self) -> bool:
        """True if there is something to accept."""
        return self.settings_wait or bool(self.waiting or self.offers)

    @property
    def waits(self) -> bool:
        """True if there is something to accept, or a server that has never listed its tools."""
        return self.asks or not all(one.known for one in self.servers.values())

    @property
    def starting(self) -> list[str]:
        """The servers to start before the question: none before their settings are trusted."""
        return [] if self.settings_wait else list(self.servers)

    def _require_one_server(self) -> None:
        if len(self.names) != 1 or not self.servers:
            raise UsageError("--allow needs the name of one server", hint="toolcrib trust NAME --allow HOST")
        assert self.project.servers is not None
        self.project.servers.get(next(iter(self.servers))).require_open_hosts()

    def _unseen(self) -> list[str]:
        """Return the servers that were never trusted, or whose entry or code has changed since."""
        from toolcrib.guard import SETTINGS, changed_parts

        servers, row = self.project.servers, self.project.trust.ledger.last(SETTINGS)
        before = {} if row is None else row.shown.get("started", {})
        changed = changed_parts(before, self.project.config.started)
        return [
            name
            for name, one in ({} if servers is None else servers.mounted).items()
            if one.trust.last() is None or any(part.startswith(f"mcp_servers.{name}/") for part in changed)
        ]

    # -- shown -----------------------------------------------------------------------------------------

    def print(self, *, whole: bool = False) -> None:
        """Print what there is to accept: groups with counts, or each sheet `whole`."""
        if not self.known:
            print_result(one_line(f"{self.project.root}: you have not accepted this project yet."))
        if whole:
            for number, sheet in enumerate(self.sheets):
                print_result("\n".join([*([""] if number else []), *sheet.lines()]))
            for server in self.servers.values():
                print_result("\n".join(server.whole()))
        else:
            for line in self.lines():
                print_result(line)
        for error in self.errors:
            print_error(error)
        self.print_created()
        if not self.waits:
            print_note("Nothing waits for trust." if not self.names else "It is trusted as it is.")

    def print_created(self) -> None:
        """Print the files that were created; a person at the terminal has seen them then."""
        from toolcrib.executors.workspace.grants import startup_use

        for file in self.created:
            made = f"{file.path} was created by {file.tool} on {written(file.at)}"
            print_note(one_line(f"{made}: {startup_use(file.path)}"))
        if self._noted and at_terminal():
            self.project.trust.ledger.drop_created(file.path for file in self._noted)

    def lines(self) -> Iterator[str]:
        """Yield what waits, in groups."""
        from toolcrib.project.tools.server_sheets import reach_of
        from toolcrib.project.trust.sheets import SHOWN, cut, lines_of

        weak = [self._weak_line(one) for one in self.settings] if self.settings_wait else []
        # Whole: what a setting starts must not be hidden behind a long text.
        yield from (one_line(line) for line in weak[:SHOWN])
        if len(weak) > SHOWN:
            rest = (one.name for one in self.settings[SHOWN:])
            yield cut(f"and {count(len(weak) - SHOWN, 'setting')} more: {', '.join(dict.fromkeys(rest))}")
        if self.settings_wait and (started := self._started()):
            yield cut(started)
        starts = [self.servers[name] for name in self.unseen]
        for one in starts[:SHOWN]:
            yield from one.starts()
        if len(starts) > SHOWN:
            yield cut(
                f"and starts and trusts {len(starts) - SHOWN} servers more: {', '.join(self.unseen[SHOWN:])}"
            )
        if self.settings_wait:
            notes = self.project.config.servers.notes
            yield from (cut(f"server {name}: {text}") for name, text in notes.items())
        yield from lines_of(self.waiting)
        for one in self.offers:
            yield from one.lines()
            if self.network is not None:
                yield f"server {one.name}: may {reach_of(self.network)}"

    def waiting_lines(self) -> Iterator[str]:
        """Yield a line for each thing that waits."""
        from toolcrib.project.trust.sheets import STATUS

        if not self.known:
            yield one_line(f"{self.project.root}: not accepted")
        elif self.settings_wait:
            names = ", ".join(dict.fromkeys(one.name for one in self.settings))
            yield one_line(f"settings: {names}")
        yield from (one_line(f"{one.tool.name}: {STATUS[one.status]}") for one in self.waiting)
        for server in self.servers.values():
            yield from (one_line(f"{name}: {STATUS['new']}") for name in server.new)
            yield from (one_line(f"{name}: {STATUS['changed']}") for name in server.changed)
            if not server.known:
                yield one_line(f"server {server.name}: it has not listed its tools yet")

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
        from toolcrib.project.trust.sheets import folded

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
            key = choose(self.question, "yds", "trust", yes=yes)
            if key == "d":
                self._page()
            elif key == "s":
                return self._one_by_one()
            elif key == "y":
                channel: Channel = "flag" if yes else "terminal"
                return self.accept(self.waiting, self.offers, channel, settings=self.settings_wait)
            else:
                raise NotTrusted("nothing was accepted", hint="To look again: toolcrib trust --show")

    def accept(
        self, sheets: Sequence[TrustSheet], offers: Sequence[ServerSheet], channel: Channel, *, settings: bool
    ) -> None:
        """Record the trust in what was shown, and start the servers that the answer starts."""
        from toolcrib.state import user_name

        servers = self.project.servers
        rows = (
            [] if servers is None else [servers.get(one.name).row(one.names, self.network) for one in offers]
        )
        trust = self.project.trust
        trust.accept(user_name(), sheets, settings=settings, channel=channel, more=rows)
        print_note("Trusted. You are asked again when something changes.")
        if settings and self.servers:
            self.failed |= trust_listed(str(self.project.root), self.unseen, self._wait_s, channel)

    def _page(self) -> None:
        """Show files and differences through the pager."""
        lines = list(self.lines())
        for sheet in self.waiting:
            lines += ["", *sheet.lines()]
        for server in self.offers:
            lines += ["", *server.whole()]
        click.echo_via_pager("\n".join(lines) + "\n")

    def _one_by_one(self) -> None:
        chosen, servers, settings = [], [], self.settings_wait
        if not self.known or settings:  # Without the project no tool runs, so it comes first.
            question = f"Trust {'the changed settings' if self.known else 'the project with these settings'}?"
            settings = choose(question, "y", "trust") == "y"
            if not (settings or self.known):
                raise NotTrusted("nothing was accepted", hint="To look again: toolcrib trust --show")
        for sheet in self.waiting:
            print_note("\n".join(sheet.lines()))
            if choose(f"Trust {one_line(sheet.tool.name)}?", "y", "trust") == "y":
                chosen.append(sheet)
        for server in self.offers:
            print_note("\n".join(server.whole()))
            if choose(f"Trust server {server.name}?", "y", "trust") == "y":
                servers.append(server)
        if not (chosen or servers or settings):
            raise NotTrusted("nothing was accepted", hint="To look again: toolcrib trust --show")
        self.accept(chosen, servers, "terminal", settings=settings)

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
            "at": None if row is None else written(row.at),
            "settings": [
                {"key": weak.name, "allows": weak.allows, "line": _line(config, weak)}
                for weak in self.settings
            ],
            "started": dict(config.started),
            "created": [{**file._asdict(), "at": written(file.at)} for file in self.created],
            "waits": self.waits,
            "servers": [
                {**one.as_dict(), "error": _error(self.failed.get(name))}
                for name, one in self.servers.items()
            ],
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


def _error(error: ToolcribError | None) -> dict[str, Any] | None:
    return None if error is None else error.as_dict()


def _sheets(servers: Servers | None, names: Collection[str] | None = None) -> dict[str, ServerSheet]:
    """Return the servers, all or those of these names, as they are shown."""
    from toolcrib.project.tools.server_sheets import server_sheet

    found = {} if servers is None else servers.mounted
    return {name: server_sheet(one) for name, one in found.items() if names is None or name in names}


def _named(project: Project, names: tuple[str, ...]) -> tuple[list[Tool], dict[str, ServerSheet]]:
    """Return the tools, agents and workflows of these names, and the servers. Raises NotFoundError."""
    files = project.files_as_tools()
    mounted = {} if project.servers is None else project.servers.mounted
    found: list[Tool] = []
    servers: list[str] = []
    for name in names:
        kind, _, own = name.partition(":")
        if name in files:
            found.append(files[name])
        elif kind in ("agent", "workflow"):
            raise NotFoundError(f"there is no {kind} named {own!r}")
        elif kind == "server":
            if project.servers is None:
                raise NotFoundError("the project names no MCP server")
            servers.append(project.servers.get(own).spec.name)
        elif name in mounted and name not in project.toolset:
            servers.append(name)
        else:
            found.append(project.get(name.removeprefix("tool:")))
    return found, _sheets(project.servers, servers)
