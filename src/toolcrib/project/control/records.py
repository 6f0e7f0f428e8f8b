"""The records of a call: its masked secrets, its lines in the audit log, and its long or binary outputs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any

from toolcrib.builtin.names import READER
from toolcrib.core.context import Context
from toolcrib.core.controls import Proceed
from toolcrib.core.decision import goes_on
from toolcrib.errors import (
    AuditUnavailable,
    Cancelled,
    DeniedError,
    InvalidInput,
    RateLimited,
    SecretMissing,
    UnavailableError,
)
from toolcrib.guard import (
    AuditLog,
    Ledger,
    MaskingFilter,
    Redactor,
    among,
    encode_field,
    encode_fields,
    resolve,
)
from toolcrib.spec import Caller, Result, SecretSource, Tool
from toolcrib.spec.calls.caller import OWN_CALLERS
from toolcrib.spec.calls.content import Content, data_of
from toolcrib.spec.views import TEXT_LIMIT, value_text
from toolcrib.state import Vault
from toolcrib.state.shared import shared_property

if TYPE_CHECKING:
    from toolcrib.state.artifacts import Artifact, Artifacts

_REMEMBERED = 4
"""Values of one secret that are masked: the present one and those before it."""


class SecretsStep:
    """Resolves the secrets of a call, and masks every secret that this project has seen."""

    def __init__(self, source: SecretSource) -> None:
        self._source = source
        self._known: dict[str, tuple[str, ...]] = {}
        self.redactor: Redactor | None = None
        """Masks every known secret; None while none is known."""
        self._logs = MaskingFilter(self.mask)

    def __call__(self, proceed: Proceed) -> Proceed:
        """Put this step before the rest of the path. A missing secret stops the call: `SecretMissing`."""

        def step(ctx: Context) -> Awaitable[Result]:
            permissions = ctx.bound.tool.permissions
            if permissions.secrets:
                ctx.secrets = resolve(permissions, self._source)
                self.learn(ctx.secrets)
            # After `learn`, so that it masks the secrets of this very call too.
            ctx.redactor = self.redactor
            return proceed(ctx)

        return step

    def require(self, tool: Tool) -> None:
        """Raise SecretMissing if a required secret of the tool has no value."""
        resolve(tool.permissions, self._source)

    def know(self, tools: Iterable[Tool]) -> None:
        """Mask the secrets that these tools declare from now on, whichever tool prints them."""
        self.know_names({secret.name for tool in tools for secret in tool.permissions.secrets})

    def know_names(self, names: AbstractSet[str]) -> None:
        """Mask these secrets from now on."""
        for name in among(self._source, names):
            try:
                value = self._source.get(name)
            except SecretMissing:  # Reported when the tool is called.
                continue
            if value:
                self.learn({name: value})

    def mask(self, value: Any) -> Any:
        """Return a JSON value with every known secret masked."""
        return value if self.redactor is None else self.redactor.redact(value)

    def close(self) -> None:
        """Leave the loggers as they were."""
        self._logs.remove()

    def learn(self, secrets: Mapping[str, str]) -> None:
        """Mask these values from now on."""
        new = {name: value for name, value in secrets.items() if value not in self._known.get(name, ())}
        if new:
            for name, value in new.items():  # The value before it may still turn up.
                self._known[name] = (value, *self._known.get(name, ()))[:_REMEMBERED]
            self.redactor = Redactor(self._known)
            # Logs of Toolcrib are masked from the first secret on, and cost nothing before.
            self._logs.install()


_NOT_ENFORCED = ("missing", "unprotected", "replaced", "exceeded")
"""Parts of the enforcement report that are written down where they say something."""


class CallAudit:
    """Writes the calls of one project into its audit log, with secrets masked."""

    def __init__(self, log: AuditLog, secrets: SecretsStep, ledger: Ledger) -> None:
        self._log, self._secrets, self._ledger = log, secrets, ledger

    def ensure(self, _ctx: Context) -> None:
        """Refuse the call if the log cannot be written: `AuditUnavailable`."""
        self._log.ensure()

    def start(self, ctx: Context) -> None:
        """Write TOOL_STARTED, or refuse the call: `AuditUnavailable`. The last step before the tool runs."""
        asked = self._encode(ctx)
        ids = "" if ctx.call_id is None and ctx.permit is None else _ids(ctx)
        number = self._log.start(f"{asked}{encode_field('caller', ctx.caller)}{ids}")
        ctx.start_line = number, asked, ids

    def record(self, ctx: Context, result: Result) -> None:
        """Write one line: TOOL_EXECUTED, TOOL_REFUSED, TOOL_WAITS or TOOL_REPLAYED."""
        refused, caller, error = was_refused(ctx, result), encode_field("caller", ctx.caller), result.error
        waits = result.status == "pending" or (refused and ctx.stored and error and goes_on(error))
        status: str = "success" if result.status == "ok" else "refused" if refused else result.status
        code, event = "", "TOOL_REFUSED" if refused else "TOOL_EXECUTED"
        if ctx.created:
            self._ledger.note_created(ctx.tool, ctx.created)
        if error is not None:
            mechanism = error.details.get("mechanism")
            named = {"mechanism": mechanism} if refused and isinstance(mechanism, str) else {}
            code = encode_fields({"code": error.code, **named})
        if ctx.replayed:
            event = "TOOL_REPLAYED"
        elif waits:
            event, status = "TOOL_WAITS", "pending"
        elif ctx.stored and isinstance(error, Cancelled):
            status, code = "interrupted", ""
        ended = f" status={status}{code}{caller} ms={result.duration_ms:.3f}{_facts(ctx, result)}"
        if ctx.start_line is None:
            self._log.append(event, self._encode(ctx) + ended)
        else:
            # The arguments are not encoded and masked again: the end repeats what the start wrote.
            start, asked, _ = ctx.start_line
            try:
                self._log.append(event, f"{asked}{ended} start={start}")
            except AuditUnavailable as error:
                error.message = f"{ctx.tool} ran, but the end of the call is not recorded. {error.message}"
                error.args, error.retryable = (error.message,), False
                error.details["started"] = True
                raise

    def _encode(self, ctx: Context) -> str:
        """Return name and arguments as they are written, with secrets masked."""
        fields, redactor = {"name": ctx.tool, "params": _params(ctx.arguments)}, self._secrets.redactor
        written = encode_fields(fields)
        if redactor is None:
            return written
        # This is their JSON, in which every secret shows, unless something is escaped or left out.
        if "\\u" not in written and " cut=[" not in written and redactor.is_clear(written):
            return written
        return encode_fields(redactor.redact(fields))


def was_refused(ctx: Context, result: Result) -> bool:
    """Return True if nothing of the tool ran: it was denied, could not start, or its input did not fit."""
    error = result.error
    if error is None:
        return False
    if ctx.started == 0:
        return True
    # It ran in a sandbox, and was refused a host there or ended from outside.
    if "enforcement" in error.details or error.details.get("started"):
        return False
    if isinstance(error, InvalidInput):  # Found while its request was put together, unless the tool says so.
        return error.details.get("raisedBy") != "tool"
    return isinstance(error, (DeniedError, RateLimited, UnavailableError))


def _ids(ctx: Context) -> str:
    fields = {} if ctx.call_id is None else {"call": ctx.call_id}
    if ctx.permit is not None:
        fields["approval"] = ctx.permit.approval_id
    return encode_fields(fields)


def _facts(ctx: Context, result: Result) -> str:
    """Return the call's id, sandbox and approval as they are written."""
    details, permit = result.details if result.error is None else result.error.details, ctx.permit
    if not details and permit is None and not ctx.created:
        if ctx.start_line is not None:
            return ctx.start_line[2]
        return "" if ctx.call_id is None else _ids(ctx)
    fields: dict[str, Any] = {} if ctx.call_id is None else {"call": ctx.call_id}
    if details and isinstance(sandbox := details.get("enforcement"), dict):
        fields["sandbox"] = sandbox.get("level")
        fields |= {f"sandbox_{name}": sandbox[name] for name in _NOT_ENFORCED if sandbox.get(name)}
    if ctx.created:
        fields["created"] = list(ctx.created)
    if permit is not None:
        fields.update(approval=permit.approval_id, approver=permit.approver, edited=permit.edited)
    elif ctx.started == 0 and details and isinstance(approval := details.get("approval"), str):
        fields["approval"] = approval
    return encode_fields(fields)


def _params(arguments: Any) -> Any:
    """Return arguments as they are written down; before they are checked they can be anything."""
    if isinstance(arguments, dict):
        return arguments
    if isinstance(arguments, bytes):
        return arguments.decode(errors="replace")
    return dict(arguments) if isinstance(arguments, Mapping) else arguments


_FOLDER = "artifacts"
_INLINE_BYTES = 1024 * 1024
"""Bytes of an image or a sound that are returned in the result itself."""


def owner_of(caller: str, identity: Caller | None) -> str:
    """Return the name under which a caller's artifacts are kept."""
    # A client chooses its own name, so another one could take it; nobody can forge the token's.
    if identity is not None:
        return f"token:{identity.name}"
    return "local" if caller in OWN_CALLERS else caller


class KeptOutputs:
    """Keeps what a result cannot contain. `began` is called whenever an output was kept."""

    def __init__(self, vault: Vault) -> None:
        self._vault = vault
        self.began: Callable[[], None] = lambda: None

    @property
    def exist(self) -> bool:
        """True once any process has kept an output."""
        return (self._vault.path / _FOLDER).is_dir()

    @shared_property
    def store(self) -> Artifacts:
        """The artifacts of the project."""
        from toolcrib.state.artifacts import Artifacts

        return Artifacts(self._vault.folder / _FOLDER)

    def readable(self, caller: str, identity: Caller | None) -> str | None:
        """Return the owner whose artifacts a caller may read; None for this machine's own user: all."""
        return None if identity is None and caller in OWN_CALLERS else owner_of(caller, identity)

    def keep(self, ctx: Context, result: Result) -> None:
        """Keep the output of a call if it is longer than its text view, and binary data in any case."""
        if ctx.tool == READER and ctx.bound.tool.is_builtin:
            return  # It is kept already.
        if result.blocks:
            self._keep_blocks(ctx, result)
            return
        value = result.value
        limit = result.text_limit or TEXT_LIMIT
        if value is None or value.__class__ in (bool, int, float):
            return
        # A character has at most four bytes in UTF-8.
        if value.__class__ is str and len(value) * 4 <= limit:
            return
        # The path has masked the value before this step, so no secret gets into the file.
        data = value_text(value).encode("utf-8", "replace")
        if len(data) > limit:
            media_type = "text/plain" if isinstance(value, str) else "application/json"
            artifact = self._put(ctx, result, data, media_type)
            result.details = {**(result.details or {}), "artifact": artifact.as_json()}

    def _keep_blocks(self, ctx: Context, result: Result) -> None:
        """Keep the data of all blocks; what is too large to be returned becomes a link to it."""
        blocks, kept = list(result.blocks), []
        is_value = result.value == {"content": blocks}
        for number, block in enumerate(blocks):
            found = data_of(block)
            if found is None:
                continue
            data, media_type = found
            artifact = self._put(ctx, result, data, media_type or "application/octet-stream")
            kept.append(artifact.as_json())
            if len(data) > (TEXT_LIMIT if block["type"] == "resource" else _INLINE_BYTES):
                link = Content.link(artifact.uri, artifact.id, artifact.media_type)
                blocks[number] = {**link.block, "size": len(data)}
            elif block["type"] == "resource":
                blocks[number] = {**block, "resource": {**block["resource"], "uri": artifact.uri}}
        if kept:
            result.blocks = tuple(blocks)
            if is_value:
                result.value = {"content": blocks}
            result.details = {**(result.details or {}), "artifacts": kept}

    def _put(self, ctx: Context, result: Result, data: bytes, media_type: str) -> Artifact:
        owner = owner_of(ctx.caller, ctx.identity)
        artifact = self.store.put(
            data, media_type, tool=ctx.tool, call_id=result.call_id or ctx.call_id, caller=owner
        )
        self.began()
        return artifact
