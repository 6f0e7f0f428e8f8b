"""One MCP server of a project: its tools in the project's toolset, and what of them a person has trusted."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from shutil import rmtree
from typing import Any, Protocol

from toolcrib import __version__
from toolcrib.core.bound import BoundTool
from toolcrib.core.toolset import Toolset
from toolcrib.errors import ApprovalRequired, UsageError
from toolcrib.executors.mcp.connections import Link
from toolcrib.executors.mcp.definitions import (
    PROMPT,
    RESOURCE,
    Definition,
    digest,
    masked,
    names_of,
    takes_address,
    tool_of,
)
from toolcrib.executors.mcp.executor import McpExecutor
from toolcrib.executors.mcp.launch.packages import Unresolved
from toolcrib.executors.mcp.process.local import grants_of, unconfined_program
from toolcrib.executors.mcp.server import McpServer
from toolcrib.guard import Ledger, Trusted
from toolcrib.guard.trust.definitions import ServerTrust, differences
from toolcrib.manifest.dialects.mcp_servers import Resolved, ServerSpec
from toolcrib.manifest.kinds import made_of
from toolcrib.manifest.lint.wording import hidden_characters, instructions, texts
from toolcrib.spec import ApprovalRule, McpExec, Network, Tool
from toolcrib.state import Vault

_ALL_OF_IT = "the permission `network: host` of its server covers all of this machine's network"
_MOST_WHY = 2_000
"""Characters of the reason why a tool waits."""


class Host(Protocol):
    """The servers of a project, as far as each one of them needs the others."""

    vault: Vault
    ledger: Ledger
    root: Path
    toolset: Toolset
    timeout_ms: int
    trusted: bool
    whole: bool
    owners: dict[str, Mounted]

    def mask(self, value: Any, /) -> Any:
        """Return a value with secrets masked."""

    def note(self, event: str, /, **fields: Any) -> None:
        """Write a line of the audit log."""

    def link(self, mounted: Mounted) -> Link:
        """Return a new connection to this server."""


class Mounted:
    """One server, and its tools in the project's toolset."""

    def __init__(self, spec: ServerSpec, servers: Host) -> None:
        self._servers = servers
        self.trust = ServerTrust(servers.vault, servers.ledger, spec.name, spec.identity)
        self._version = self.trust.version
        self._entry = spec
        self.spec = self._with_trust()
        """The server with what a person has trusted of it."""
        self.live: dict[str, Definition] = {}
        """The definitions that it offers, or offered last."""
        self.known = False
        """True once it has listed its tools, in this process or an earlier one."""
        self.logging_in = False
        """True while a person logs in to it."""
        self._unusable: list[str] = []
        self._taken: list[str] = []
        self.waiting: dict[str, str] = {}
        """Tool name here to the reason why it waits for trust."""
        self.new: set[str] = set()
        """Tool names here of which no version was trusted; no model sees them."""
        self.tools: dict[str, str] = {}
        """Tool name of the server to the name here."""
        self._listed: dict[str, Tool] = {}
        self.server = McpServer(
            spec,
            partial(servers.link, self),
            on_tools=self._offered,
            on_event=servers.note,
            version=__version__,
        )

    def list_last(self) -> None:
        """List the tools that it offered when it last ran."""
        self._unusable = self.trust.unusable()
        if seen := self.trust.seen():
            self.known = True
            self._mount(seen)

    def _offered(self, definitions: list[Definition], left: list[str]) -> None:
        found = {str(one["name"]): masked(one, self._servers.mask) for one in definitions}
        self.known, self._unusable = True, left
        spec = self.spec
        left += [
            f"{name!r}: its entry names this tool, which it does not offer"
            for name in (*spec.tools, *spec.disabled_tools)
            if name != "*" and name not in found
        ]
        self.trust.see(found, left)
        self._mount(found)

    # -- trust ---------------------------------------------------------------------------------------

    def row(self, names: Collection[str] | None = None, network: Network | None = None) -> Trusted:
        """Return the ledger's row that trusts its tools of these names here, or all, beside those of before.

        `network` are the hosts that it may reach from now on; None: those of before.
        """
        if network is not None:
            self.require_open_hosts()
        chosen = {own: self.live[own] for own, name in self.tools.items() if names is None or name in names}
        kept = {} if names is None else self.trust.pins()
        pins = {name: pin for name, pin in kept.items() if name not in (names or ())}
        return self.trust.row(self.trust.trusted() | chosen, network or self.trust.network(), pins)

    def resolved_row(self, missing: Unresolved) -> Trusted:
        """Download what its launcher lacks, without running it, and return the row that remembers it.

        Once it is stored, `clear_older` removes what was downloaded before. Raises ToolUnavailable.
        """
        trust, found = self.trust, missing.resolve(self._servers.vault.programs)
        return trust.row(trust.trusted(), trust.network(), trust.pins(), asdict(found))

    def clear_older(self) -> None:
        """Remove what was downloaded for it before what the ledger remembers."""
        self.clear(str((self.trust.resolved() or {}).get("folder", "")))

    def clear(self, kept: str = "") -> None:
        """Remove what was downloaded for it, but for the folder `kept`."""
        for folder in self._servers.vault.programs.glob(f"{self.spec.name}.*"):
            if str(folder) != kept:
                rmtree(folder, ignore_errors=True)

    def row_without(self, names: Collection[str]) -> Trusted:
        """Return the ledger's row that trusts its tools of these names no longer."""
        kept = {own: one for own, one in self.trust.trusted().items() if self.tools.get(own) not in names}
        pins = {name: pin for name, pin in self.trust.pins().items() if name not in names}
        return self.trust.row(kept, self.trust.network(), pins)

    def require_open_hosts(self) -> None:
        """Raise UsageError if its entry in the settings decides which hosts it may reach."""
        if not self.spec.is_local or self.spec.states_network:
            raise UsageError(
                f"the entry of {self.spec.name} decides which hosts it may reach",
                hint="Change permissions.network there, then: toolcrib trust",
            )

    def reread(self) -> None:
        """Take up what was trusted since, also by another process."""
        version = self.trust.version
        if version == self._version:
            return
        self._version, spec = version, self._with_trust()
        if spec != self.spec:
            self.spec = spec
            self.server.renew()
        self._mount(self.live)

    @property
    def is_unconfined(self) -> bool:
        """True if it runs without a sandbox, with all rights of this user."""
        return bool(unconfined_program(self.spec, str(self._servers.root)))

    @property
    def waits_for_hosts(self) -> bool:
        """True if its tools take addresses, and nobody has decided yet which hosts it may reach."""
        return (
            self.spec.is_local
            and not self.spec.states_network
            and self.trust.network() is None
            and not self.is_unconfined
            and any(map(takes_address, self.live.values()))
        )

    def _with_trust(self) -> ServerSpec:
        """Return the server with the hosts that a person has allowed it, and what was downloaded for it."""
        spec, found, network = self._entry, self.trust.resolved(), self.trust.network()
        spec = replace(spec, resolved=None if found is None else made_of(Resolved, dict(found)))
        if network is None or spec.states_network or not spec.is_local:
            return spec
        return replace(spec, permissions=replace(spec.permissions, network=network))

    def suspicious(self, name: str) -> str | None:
        """Return why no person may trust a tool's words unseen; None if there is no such reason."""
        tool = self.offered(name)
        for _, text in texts(tool):
            if hidden_characters(text):
                return "has invisible characters"
            if (found := instructions(text)) is not None:
                return f"reads like instructions to the model: {found[:100]!r}"
        return None

    def definition(self, name: str) -> Definition:
        """Return the definition of a tool, by its name here, as the server sent it last."""
        return next(self.live[own] for own, one in self.tools.items() if one == name)

    def trusted_definition(self, name: str) -> Definition | None:
        """Return the definition of a tool, by its name here, that a person trusted last."""
        trusted = self.trust.trusted()
        return next((trusted.get(own) for own, one in self.tools.items() if one == name), None)

    def offered(self, name: str) -> Tool:
        """Return the tool of this name here as the server describes it now, trusted or not."""
        live = self.definition(name)
        return tool_of(self.spec, name, live, digest(live), approval=ApprovalRule())

    def require_same(self, tool: Tool) -> None:
        """Refuse a call of a tool that the server does not describe as it did when the call was checked."""
        assert isinstance(tool.config, McpExec)
        live = self.live.get(tool.config.tool)
        if live is None or digest(live) != tool.config.definition:
            why = self.waiting.get(tool.name) or f"the MCP server {self.spec.name} has changed it meanwhile"
            raise ApprovalRequired(
                f"{tool.name} was not called: {why}",
                hint=f"To see the change and accept it: toolcrib trust {self.spec.name}",
            )

    # -- its tools here ------------------------------------------------------------------------------

    def _mount(self, found: dict[str, Definition]) -> None:
        """Put these tools of the server, and no others, into the toolset."""
        found = {own: one for own, one in found.items() if self._takes(own)}
        toolset, trusted, owners = self._servers.toolset, self.trust.trusted(), self._servers.owners
        self.live, self.waiting, before, self.new = found, {}, self.new, set()
        self._taken = []
        names = names_of(self.spec.name, found, prefix=self.spec.prefix)
        for name in set(self.tools.values()) - set(names.values()):
            if self._listed.pop(name, None) is not None:
                toolset.remove(name)
        self.tools = names
        pins = self.trust.pins()
        for own, name in names.items():
            tool = self._described(name, found[own], trusted.get(own), pins.get(name))
            if self._listed.get(name) == tool:
                continue
            if self._listed.pop(name, None) is not None:
                toolset.remove(name)
            if (other := toolset.same_name(name)) is not None:
                named = f"named {other}" if other == name else f"{other}, of the same name for clients,"
                self._taken.append(f"{own!r}: the project has a tool {named} already")
                continue
            make = partial(McpExecutor, tool, self.server, self.require_same)
            toolset.add(BoundTool(tool, make, timeout_ms=self._servers.timeout_ms))
            self._listed[name], owners[name] = tool, self
        if self.new != before:  # The lists of models change by it.
            toolset.announce()

    def unmount(self) -> None:
        """Take its tools out of the toolset."""
        self._mount({})
        owners = self._servers.owners
        for name in [one for one, owner in owners.items() if owner is self]:
            del owners[name]

    def _takes(self, own: str) -> bool:
        """Return True unless its entry leaves this tool out."""
        spec = self.spec
        if own.startswith((PROMPT, RESOURCE)):
            return True
        return not {own, "*"}.isdisjoint(spec.tools) and {own, "*"}.isdisjoint(spec.disabled_tools)

    def definitions(self) -> dict[str, str]:
        """Return the digest of each tool's definition, by the tool's name here."""
        return {name: digest(self.live[own]) for own, name in self.tools.items() if name in self._listed}

    def _described(self, name: str, live: Definition, trusted: Definition | None, pin: str | None) -> Tool:
        """Return the tool as it is shown: the trusted definition until a person has trusted the new one."""
        now = digest(live)
        shown = live if trusted is None or pin == now or self._servers.whole else trusted
        if shown is not live and digest(shown) != now:
            changes = "; ".join(differences(shown, live))
            self._wait(name, f"its definition has changed since it was trusted: {changes}")
        elif trusted is None and pin != now and not self._servers.whole:
            self.new.add(name)
            self._wait(name, f"it is new from the MCP server {self.spec.name}, and nobody has trusted it")
        # Trusting the settings allowed the start; each call still needs approval.
        on_host = self.spec.is_local and self.spec.permissions.network.mode == "host"
        approval = ApprovalRule(on_host, _ALL_OF_IT if on_host else "")
        return tool_of(self.spec, name, shown, now, approval=approval)

    def _wait(self, name: str, why: str) -> None:
        self.waiting[name] = f"{why[:_MOST_WHY]} (`toolcrib trust {self.spec.name}`)"

    def grants(self) -> list[str]:
        """List in words what its process may use, one line each; nothing of a remote server."""
        return grants_of(self.spec, str(self._servers.root)) if self.spec.is_local else []

    @property
    def left(self) -> list[str]:
        """Unusable tools, and why."""
        return [*self._unusable, *self._taken]

    def as_dict(self) -> dict[str, Any]:
        """Return its state as JSON."""
        server, spec = self.server, self.spec
        state = "logging in" if self.logging_in else server.state
        error = None if self.logging_in else server.error
        return {
            "name": spec.name,
            "transport": spec.transport,
            "where": spec.where,
            "state": state if self._servers.trusted else "not trusted",
            "protocol": server.protocol or None,
            "tools": sorted(self.tools.values()),
            "waiting": self.waiting,
            "unusable": self.left,
            "starts": server.starts,
            "error": None if error is None else error.as_dict(),
            "stderr": server.stderr,
            "sandbox": server.enforcement.get("level"),
            "permissions": spec.permissions.as_json(),
            "grants": self.grants(),
            "unwritable": list(spec.unwritable),
        }
