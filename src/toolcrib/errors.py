"""The exception tree: every refusal and failure a user can meet, with one stable code each.

The code of a class is its name in lower case with underscores, unless the class states another;
`docs/errors.md` lists all. A tool's own code steers its call by raising one of the signals: `RetryableError`,
`ToolCancel`, `ToolDiscard`, `ToolSnooze`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

if TYPE_CHECKING:
    from datetime import timedelta


class Violation(NamedTuple):
    """One place where a value is wrong: `path` is a JSON path (`$.items[0].name`)."""

    path: str
    message: str


class ToolcribError(Exception):
    """Something inside Toolcrib failed."""

    code: ClassVar[str] = "internal"
    status: ClassVar[int] = 500
    """HTTP status code of this error."""
    exit_code: ClassVar[int] = 1
    """Exit code of the command line."""
    retryable: bool = False
    """True if the same call may succeed later without a change."""

    def __init_subclass__(cls) -> None:
        # A class elsewhere has the code of the one that it extends.
        if cls.__module__ == __name__ and "code" not in cls.__dict__:
            cls.code = re.sub(r"\B(?=[A-Z])", "_", cls.__name__).lower()

    def __init__(
        self,
        message: str | None = None,
        *,
        hint: str | None = None,
        violations: Sequence[Violation] = (),
        details: Mapping[str, Any] | None = None,
        retryable: bool | None = None,
    ) -> None:
        self.message = message or self._default_message()
        self.hint = hint
        self.violations = tuple(violations)
        self.details: dict[str, Any] = dict(details or {})
        if retryable is not None:
            self.retryable = retryable
        super().__init__(self.message)
        if hint:
            self.add_note(f"hint: {hint}")  # A traceback shows it, also in a notebook.

    @classmethod
    def _default_message(cls) -> str:
        docs = (kind.__doc__ for kind in cls.__mro__)
        return next(doc.strip().splitlines()[0] for doc in docs if doc and doc.strip())

    def apply_mask(self, mask: Callable[[Any], Any]) -> None:
        """Mask everything that a caller sees of the error, in place."""
        self.message = mask(self.message)
        self.args = (self.message,)  # `str` shows these, not the message.
        self.hint, self.details = mask(self.hint), mask(self.details)
        self.violations = tuple(
            v._replace(path=mask(v.path), message=mask(v.message)) for v in self.violations
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the error as JSON, the same at every interface.

        Keys: code, message, retryable, hint, violations (a list of `{path, message}`), details.
        """
        return {
            "code": self.code,
            "message": self.message,
            "retryable": self.retryable,
            "hint": self.hint,
            "violations": [{"path": v.path, "message": v.message} for v in self.violations],
            "details": self.details,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ToolcribError:
        """Return the error that `as_dict` wrote; an unknown code gives a plain `ToolcribError`."""
        kind = next((kind for kind in _tree(ToolcribError) if kind.code == data.get("code")), ToolcribError)
        return kind(
            data.get("message"),
            hint=data.get("hint"),
            violations=[Violation(v["path"], v["message"]) for v in data.get("violations", ())],
            details=data.get("details"),
            retryable=data.get("retryable"),
        )


def _tree(kind: type[ToolcribError]) -> list[type[ToolcribError]]:
    return [kind, *(below for child in kind.__subclasses__() for below in _tree(child))]


class UsageError(ToolcribError):
    """The command line or the call is not used as it should be."""

    code = "usage"
    status = 400
    exit_code = 2


class MethodNotAllowed(UsageError):
    """This address does not support this HTTP method."""

    status = 405


class NotFoundError(ToolcribError):
    """The thing that was named does not exist."""

    code = "not_found"
    status = 404
    exit_code = 3


class ToolNotFound(NotFoundError):
    """There is no tool of this name."""


class ProjectNotFound(NotFoundError):
    """No project root was found here or in any folder above."""


class BundleDeleting(NotFoundError):
    """The bundle was deleted and is not removed yet."""

    status = 410


class InvalidInput(ToolcribError):
    """Arguments, a body or a query do not have the form that they must have; nothing ran."""

    status = 400
    exit_code = 4


class DefinitionError(InvalidInput):
    """A tool is defined in a way that cannot be described or called."""

    code = "invalid_definition"


class ManifestError(InvalidInput):
    """A manifest cannot be read or breaks a rule of the format."""

    code = "invalid_manifest"


class ConfigError(InvalidInput):
    """The project's configuration cannot be read or breaks a rule."""

    code = "invalid_config"


class InvalidId(InvalidInput):
    """The id is not a UUID of version 7."""


class InvalidSlug(InvalidInput):
    """The slug or version has characters or a length that are not allowed."""


class MissingField(InvalidInput):
    """A field that the record needs is missing."""


class TooLarge(InvalidInput):
    """The body of the HTTP request is larger than the limit."""

    status = 413


class UnsupportedMediaType(InvalidInput):
    """The body of the HTTP request is not of a supported type."""

    status = 415


class InvalidArchive(InvalidInput):
    """The archive is not a bundle as `toolcrib bundle export` writes it; nothing of it was imported."""


class DeniedError(ToolcribError):
    """The call is not allowed."""

    code = "denied"
    status = 403
    exit_code = 5


class ApprovalRequired(DeniedError):
    """A person must approve this call before it runs."""


class ApprovalDenied(DeniedError):
    """A person refused this call."""


class PolicyDenied(DeniedError):
    """The project's policy does not allow this caller this call."""


class NotTrusted(DeniedError):
    """The project, or one of its settings, has no effect until its user accepts it with `toolcrib trust`."""


class InvalidToken(DeniedError):
    """The token is unknown, revoked or expired, or does not allow this."""

    status = 401


class PermissionDenied(DeniedError):
    """The tool's permissions do not allow what it tried to do."""


class HostNotAllowed(DeniedError):
    """The tool may not reach this host."""


class BuiltInReadOnly(DeniedError):
    """Built-in bundles and tools can only be switched on and off."""

    code = "builtin_read_only"


class BundleReadOnly(DeniedError):
    """The tools of a project or server are defined there; their bundle can only be switched on and off."""


class BudgetExceeded(DeniedError):
    """The run of an agent has used up one of its budgets."""


class LockDrift(DeniedError):
    """The tool differs from what the project's lock file pins."""


class RateLimited(ToolcribError):
    """This tool was called too often; `details.retryAfterS` is the number of seconds to wait."""

    status = 429
    retryable = True

    @classmethod
    def of(cls, tool: str, why: str, wait_s: float) -> RateLimited:
        """Return the error for a tool that may be called again after this time."""
        seconds = max(0.001, round(wait_s + 0.0005, 3))
        return cls(
            f"{tool} {why}; try again in {seconds:g} s",
            hint=f"Wait {seconds:g} s and call again.",
            details={"retryAfterS": seconds},
        )


class ConflictError(ToolcribError):
    """The name or version is taken, or the state has changed meanwhile."""

    code = "conflict"
    status = 409
    exit_code = 7


class IdempotencyConflict(ConflictError):
    """The idempotency key was used for another call, or that call is still running."""


class BundleDisabled(ConflictError):
    """The bundle is disabled, so its tools cannot be changed or called."""


class BundleFull(ConflictError):
    """The bundle has as many tools as a bundle can have."""


class BundleNotEmpty(ConflictError):
    """The bundle still has tools, so it cannot be deleted."""


class PreconditionFailed(ConflictError):
    """The record has changed since the version that `If-Match` names."""

    status = 412


class ToolDisabled(ConflictError):
    """The tool is disabled."""


class UnavailableError(ToolcribError):
    """Something that the call needs is not available."""

    code = "unavailable"
    status = 503


class SandboxUnavailable(UnavailableError):
    """The kernel cannot confine this tool here, so it was not run."""


class SecretMissing(UnavailableError):
    """A secret that the tool declares is not set; nothing ran."""


class ToolUnavailable(UnavailableError):
    """The program, module or function of this tool does not exist here."""


class StateUnavailable(UnavailableError):
    """The project's or the user's database cannot be read or written."""


class AuditUnavailable(UnavailableError):
    """The audit log cannot be written, so nothing runs."""


class CapabilityMissing(UnavailableError):
    """The client that called does not support what the tool needs of it."""


class InputRequired(ToolcribError):
    """The tool needs input of the client that called; `details` has the `requests` and the tool's `state`.

    MCP clients of protocol 2026-07-28 get the requests and call again with the answers.
    """

    status = 409


class TimedOut(ToolcribError):
    """The call took longer than its limit and was stopped."""

    status = 504
    exit_code = 6
    retryable = True


class SlowRequest(TimedOut):
    """The body of the HTTP request did not arrive in time."""

    status = 408


class Cancelled(ToolcribError):
    """The caller cancelled the call."""

    status = 499
    exit_code = 130


class ToolFailed(ToolcribError):
    """The tool ran and failed."""

    status = 502


class ToolCancelled(ToolFailed):
    """The tool ended its call: another attempt would not help."""


class CommandFailed(ToolFailed):
    """The command ended with an exit code that does not mean success."""


class HttpFailed(ToolFailed):
    """The HTTP request failed or was answered with an error status."""


class ModelFailed(ToolFailed):
    """The provider of a model failed or refused the request."""


class InvalidOutput(ToolFailed):
    """The tool's output does not match its output schema."""


class ToolSignal(Exception):
    """The base of the exceptions by which a tool's own code steers its call."""

    def __init__(self, reason: str | BaseException = "") -> None:
        self.reason = str(reason) or type(self).__name__
        super().__init__(self.reason)


class RetryableError(ToolSignal):
    """A transient failure: the attempt counts and the call is tried again."""


class ToolCancel(ToolSignal):
    """An unrecoverable failure: the call ends at once, the run continues."""


class ToolDiscard(ToolSignal):
    """The input is fundamentally wrong: the call ends at once as `invalid_input`."""


class ToolSnooze(ToolSignal):
    """Not now: try again after `delay`, 0 to a day, without using up an attempt.

    The delay is a number of seconds or a `timedelta`.
    """

    MAX_DELAY_S = 86_400

    def __init__(self, delay: float | timedelta, reason: str | BaseException = "") -> None:
        super().__init__(reason)
        seconds = delay if isinstance(delay, int | float) else delay.total_seconds()
        self.delay = float(min(max(0, seconds), self.MAX_DELAY_S))

    def __reduce__(self) -> tuple[type[ToolSnooze], tuple[float, str]]:
        return type(self), (self.delay, self.reason)
