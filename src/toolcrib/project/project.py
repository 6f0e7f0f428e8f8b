"""An open project: settings, manifests, executors, secrets and audit behind one call path."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from toolcrib.core.bound import Bound
from toolcrib.core.events import stream_events
from toolcrib.core.toolset import Toolset, run_sync
from toolcrib.errors import StateUnavailable
from toolcrib.guard import SETTINGS, EnvironmentSecrets, Ledger, Rule, Trusted
from toolcrib.manifest import Diagnostic
from toolcrib.project.catalog.catalog import ProjectCatalog
from toolcrib.project.catalog.lists import ListParts
from toolcrib.project.catalog.registry import CatalogChange
from toolcrib.project.config.settings import Config, is_trusted, load_config
from toolcrib.project.control.steps import ProjectSteps
from toolcrib.project.control.store import DecisionStore
from toolcrib.project.durable.durable import DurableParts
from toolcrib.project.preview import Preview
from toolcrib.project.program import Program
from toolcrib.project.root import Place, beside_settings, find, require_own_folder
from toolcrib.project.setup import Setup
from toolcrib.project.tools.binding import Binder
from toolcrib.project.tools.middleware import named_middleware
from toolcrib.spec import Call, Caller, CallEvent, CallEvents, Result, SecretSource, Tool
from toolcrib.state import Vault, require_database
from toolcrib.state.shared import shared_property

if TYPE_CHECKING:
    from toolcrib.guard.idempotency import RecordedCalls
    from toolcrib.project.control.approvals import ApprovalService, Elicitation
    from toolcrib.project.control.chats import ChatApprovals
    from toolcrib.project.tools.servers import Servers

Accept = Literal["trusted", "all"]


def _settings_of(place: Place, data: Path | None = None) -> tuple[Vault, Config, Ledger]:
    """Return the user's data about a project, its settings, and the ledger that accepts them."""
    vault, above = Vault(place.path, data), place.above
    ledger = Ledger(vault if above is None else Vault(above.path, data))
    if place.file is not None and above is None:
        return vault, Config(), ledger
    return vault, load_config(place.config, place.root).since(ledger), ledger


class Project(ListParts, DurableParts):
    """A project's tools behind one call path. Use it as an async context manager, or `aclose` it.

    Manifests that do not load are in `diagnostics`, and never hide the others. A manifest is checked in full
    when its tool is first listed or called.
    """

    def __init__(
        self,
        place: Place,
        config: Config,
        *,
        secrets: SecretSource | None = None,
        trusted: bool = False,
        vault: Vault | None = None,
        ledger: Ledger | None = None,
        accept: Accept = "trusted",
        database: str | None = None,
        program: Program | None = None,
        note: str = "",
    ) -> None:
        self._setup = setup = Setup.of(place, config, secrets, trusted, vault, ledger, whole=accept == "all")
        self.place, self.root, self.note = place, place.root, note
        self.sandbox_level, self.waiting = setup.sandbox_level, setup.waiting
        self.config = config = setup.config
        self.vault, self.audit, self.secrets = setup.vault, setup.audit, setup.secrets
        store = DecisionStore(place, self.vault, config, database)
        self._steps = steps = ProjectSteps(setup, store, self.parts_of, self.get)
        self.fingerprint, self.trust, self.pins = steps.fingerprints.of, steps.trust, steps.pins
        """Returns the digest of a tool; what is trusted; the versions of tools in `toolcrib.lock`."""
        self.redact, self.hides, self.outputs = steps.secrets.mask, steps.access.hides, steps.outputs
        """Masks secrets in a JSON value; returns True if a caller may not see every tool; keeps artifacts."""
        self.folders, self._program = steps.folders, program
        self.toolset = Toolset(timeout_ms=config.timeout_ms) if program is None else program.toolset
        """Every tool. Functions registered here get the project's guard and audit too."""
        self.toolset.govern(
            steps.controls,
            named_middleware(setup),
            safe_retry=config.retry,
            timeout_ms=config.timeout_ms,
            missing=lambda name: self.catalog.why_missing(name),  # noqa: PLW0108 - made below
            lenient=config.lenient,
        )
        self.on_change = self.toolset.on_change
        """Calls a listener after each change of the list, and returns a function that ends this."""
        self.functions = Toolset()
        """The functions that manifests of kind `function` name; they are not tools themselves."""
        self._preview = preview = Preview(self.bound, steps)
        binder = Binder(setup, self.toolset, self.functions, steps, preview, self.invoke)
        self.catalog = catalog = ProjectCatalog(setup, self.toolset, steps, binder)
        self.listed = catalog.listed
        """Returns the `tools` by name, or their entries in MCP's list."""
        self.offered, self.untrusted = steps.trust.offered, catalog.untrusted
        """Returns a tool as a model may read it, or None; how many tools no model's list has."""
        self.bundles = catalog.bundles
        """The catalogue: every tool by its source, with pages, search, counts and switches."""
        self.plan, self.asks, self.permissions_of = preview.plan, preview.asks, preview.permissions_of
        self.questions, self.is_approved = preview.questions, preview.is_approved
        steps.plan = self.plan
        catalog.load()
        self.trust.settle = self._settle
        self.trust.found = lambda stored: [
            *catalog.every(stored=stored), *self.files_as_tools().values()
        ]  # fmt: skip

    @classmethod
    def open(
        cls,
        root: str | os.PathLike[str] | Program | None = None,
        *,
        secrets: SecretSource | None = None,
        accept: Accept = "trusted",
        data: str | os.PathLike[str] | None = None,
        database: str | None = None,
        load: bool = True,
    ) -> Project:
        """Open the project at `root`, or the nearest one upward from the working folder.

        `accept` says what may run: `trusted`, what this user has made or accepted; `all`,
        whatever the project holds, with its settings: the program answers for it. `data` is the user's data
        folder, which holds the bundles; by default the one of the platform. `database` is `sqlite`, the
        project's own file, or the address of a Postgres server; without it `--database`, `$DATABASE_URL` and
        the settings count.

        A Python file, `FILE.py[:OBJECT]`, is a project too. Its code runs here, unless `load` is False: then
        there are no tools, and only what is stored can be looked at.

        Raises ProjectNotFound, ConfigError, UsageError for another address, and NotTrusted for a folder of
        another user; for a file NotFoundError and what `Program.load` raises.
        """
        if database is not None:
            require_database(database)
        data = None if data is None else Path(data)
        place = root.place if isinstance(root, Program) else find(root, data)

        def is_accepted(above: Place) -> bool:
            with closing(Ledger(Vault(above.path, data))) as known:
                return known.last(SETTINGS) is not None

        place, note = beside_settings(place, is_accepted)
        vault, config, ledger = _settings_of(place, data)
        make = partial(cls, place, config, secrets=secrets, vault=vault, ledger=ledger)
        make = partial(make, database=database, note=note)
        if place.file is not None and load:
            make = partial(make, program=root if isinstance(root, Program) else Program.load(place))
        if accept == "all":
            return make(trusted=True, accept="all")
        if place.file is None and ledger.last(SETTINGS) is None:
            require_own_folder(place)
        return make(trusted=not config.weakening() or is_trusted(config.digest, ledger))

    @classmethod
    def inspect(cls, root: str | os.PathLike[str] | None = None) -> Project:
        """Open a project to show it as it would be once accepted.

        Nothing of it is started and no secret is read. Raises ProjectNotFound and ConfigError.
        """
        place = find(root)
        vault, config, ledger = _settings_of(place)
        return cls(place, config, secrets=EnvironmentSecrets({}), trusted=True, vault=vault, ledger=ledger)

    @property
    def servers(self) -> Servers | None:
        """The MCP servers that the project names; None if it names none."""
        return self.catalog.servers

    @property
    def diagnostics(self) -> list[Diagnostic]:
        """Errors and warnings of manifests, as far as they are known yet."""
        return self.catalog.registry.diagnostics

    @property
    def errors(self) -> list[Diagnostic]:
        """The errors among the `diagnostics`, which are found much faster than warnings."""
        return self.catalog.registry.all_errors

    @property
    def revision(self) -> int:
        """Changes whenever the list of tools changes, also by what a person trusts or switches."""
        switches = self._steps.store.switches
        switches.look()
        return self.toolset.revision + self.trust.ledger.revision + switches.revision

    def get(self, name: str) -> Tool:
        """Return one tool. Raises ToolNotFound, or ManifestError if its manifest does not load."""
        return self.catalog.get(name)

    def bound(self, name: str) -> Bound:
        """Return one tool ready to be called. Raises as `get` does.

        A tool of a bundle is found by `[BUNDLE/]NAME[@VERSION]`; its full name is in the tool.
        """
        return self.catalog.bound(name)

    def invoke(self, call: Call) -> Coroutine[Any, Any, Result]:
        """Make a call, by the one path that every call takes."""
        return self.catalog.invoke(call)

    def invoke_sync(self, call: Call) -> Result:
        """Do the same as `invoke`, for code without `await`."""
        return run_sync(lambda: self.invoke(call))

    def use_rules(self, rules: tuple[Rule, ...]) -> None:
        """Decide by these rules of the policy from now on."""
        self.config = replace(self.config, rules=rules)
        self._steps.access.use(self.config.policy)
        self.toolset.announce()

    def subscribe(
        self, caller: str = "local", identity: Caller | None = None, *, size: int = 1_000
    ) -> CallEvents:
        """Return the events of running calls, of tools that this caller may see. Close it in the end.

        Nothing more comes once the caller's token is no longer valid.
        """
        access, get = self._steps.access, self.toolset.get
        access.require_valid(identity)

        def visible(name: str) -> bool:
            access.require_valid(identity)  # What it raises drops the event, as False does.
            return access.visible(get(name), caller, identity)

        return self.toolset.subscribe_where(visible, size)

    def call(
        self,
        name: str,
        arguments: Mapping[str, Any] | bytes | str | None = None,
        *,
        wait: Literal["raise", "block", "pending"] = "raise",
        idempotency_key: str | None = None,
        **options: Any,
    ) -> Coroutine[Any, Any, Result]:
        """Call a tool and return its `Result`; further options as of `Toolset.call`.

        `wait` is what to do if a call needs approval: fail, wait for it, or return a `pending` result. Of
        calls with the same `idempotency_key` one runs, and the others get its result.
        """
        options |= {"wait": wait, "idempotency_key": idempotency_key}
        return self.invoke(Call(name, {} if arguments is None else arguments, **options))

    def stream(
        self, name: str, arguments: Mapping[str, Any] | bytes | str | None = None, **options: Any
    ) -> AsyncGenerator[CallEvent | Result]:
        """Call a tool, yield each `CallEvent` and, at last, its `Result`; as `Toolset.stream` does."""
        return stream_events(lambda listener: self.call(name, arguments, on_event=listener, **options))

    @shared_property
    def approval_service(self) -> ApprovalService:
        """The calls that wait for approval, for a person to decide on."""
        from toolcrib.project.control.approvals import ApprovalService

        store = self._steps.store
        parts = store.approvals, self.get, self.trust, self.audit, self.redact, self.config
        return ApprovalService(*parts, store.wake_decided)

    @shared_property
    def chat_approvals(self) -> ChatApprovals:
        """The calls that wait for approval, for people to decide on in their chats."""
        from toolcrib.project.control.chats import ChatApprovals

        return ChatApprovals(self.approval_service, self.config, self.vault.key)

    @property
    def recorded(self) -> RecordedCalls:
        """The results of what was asked for with an idempotency key."""
        return self._steps.store.recorded

    def check(self) -> None:
        """Raise StateUnavailable or AuditUnavailable if no call could run here now."""
        self.audit.ensure()
        if self.has_state:
            with self._steps.store.state.read() as tx:
                tx.one("SELECT 1")

    @property
    def has_state(self) -> bool:
        """True if calls may wait here, or were recorded with a key."""
        return self._steps.store.exists

    def _settle(self, rows: Sequence[Trusted], by: str, channel: str, revoked: Sequence[str]) -> None:
        # Without a database nothing waits, and to look must not make one. Trust counts also where the
        # database cannot be reached now: the calls that wait there are looked at again when they are shown.
        if self.has_state:
            with suppress(StateUnavailable):
                self.approval_service.settle(rows, by, channel, revoked)

    @property
    def elicitation(self) -> Elicitation | None:
        """Asks the users of calling clients for approval; None unless the settings allow that."""
        if "elicitation" not in self.config.approval_channels:
            return None
        from toolcrib.project.control.approvals import Elicitation

        return Elicitation(self.approval_service)

    def parts_of(self, tool: Tool) -> list[Tool]:
        """Return every tool that a call of this one may lead to."""
        return self._preview.parts_of(tool)

    async def watch(self, report: Callable[[CatalogChange], None] | None = None) -> None:
        """Put changes of tools, sources and bundles into effect until the project is closed.

        Returns when it has begun. Running calls end on the tool they began with. A manifest with errors
        leaves the tool as it was. `report` is called with each change, on this event loop.
        """
        await self.catalog.watch(report)

    async def __aenter__(self) -> Project:
        await self.toolset.__aenter__()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close connections, tools with resources, and the audit log."""
        try:
            await self._stop_serving()
            await self.catalog.aclose()
        finally:
            self.catalog.close()
            self._steps.store.close()
            self.trust.ledger.close()
            self._steps.secrets.close()
            self.audit.close()
