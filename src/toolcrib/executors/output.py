"""The output of a confined process as a tool's value: decoding, limits, failures."""

from __future__ import annotations

import codecs
import errno
import logging
import math
import os
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any, NoReturn

import orjson

from toolcrib.errors import (
    CommandFailed,
    PermissionDenied,
    RetryableError,
    ToolCancel,
    ToolcribError,
    ToolDiscard,
    ToolFailed,
    ToolSignal,
    ToolSnooze,
)
from toolcrib.executors.workspace.grants import startup_files
from toolcrib.guard import BytesMasker, Redactor, StreamMasker
from toolcrib.sandbox import Completed, Confinement, run, signal_name
from toolcrib.sandbox.files.paths import within
from toolcrib.spec import CallContext
from toolcrib.spec.calls.content import is_garbled

_log = logging.getLogger("toolcrib.tools")

MAX_OUTPUT = 1_048_576
"""Bytes kept of each output stream unless the tool's limits say otherwise."""
_MAX_STDERR = 4_000
"""Characters of standard error in an error's message."""
_MAX_LOGGED = 64_000
"""Characters of each stream in a log record."""
_NO_FILES = (
    "No process of this user can start now: its programs pass on more open files at once than the kernel"
    " allows (ETOOMANYREFS). End the program that does, or raise the limit of open files (ulimit -n)."
)
_MAX_QUOTED = 200
"""Characters of invalid JSON in an error's message."""


def redactor_of(ctx: CallContext) -> Redactor | None:
    """Return the redactor of this call's secrets, None if it has none.

    The call path masks every result. Text that is cut before that must be masked before it is cut, because
    the redactor does not find a part of a secret.
    """
    if isinstance(ctx.redactor, Redactor):
        return ctx.redactor.secrets
    return Redactor(ctx.secrets) if ctx.secrets else None


async def run_job(ctx: CallContext, job: Confinement) -> Completed:
    """Run a command as `masked` returns it, and note in `ctx.created` what it has created."""
    unprotected: Sequence[str] = ()
    try:
        done = await run(job)
        unprotected = done.enforcement.get("unprotected", ())
        return masked(ctx, done)
    finally:  # Also of a call that is cancelled.
        if job.write:
            # A folder with too many entries refuses the next call; this one has run.
            with suppress(PermissionDenied):
                ctx.created += created_in(job, unprotected)


async def run_followed(ctx: CallContext, job: Confinement) -> Completed:
    """Run a command as `run_job` does. A call that is followed reports its lines as they come."""
    if not ctx.is_followed:
        return await run_job(ctx, job)
    lines = Lines(ctx)
    done = await run_job(ctx, replace(job, on_output=lines.feed))
    lines.end()
    return done


def masked(ctx: CallContext, done: Completed) -> Completed:
    """Return the run with all secrets in its standard error masked."""
    if not done.stderr or (redactor := redactor_of(ctx)) is None:
        return done
    cut = done.stderr_total > len(done.stderr)
    # Where it is cut, the end may be the beginning of a secret, and is left out.
    mask = BytesMasker(redactor).feed if cut else redactor.redact
    return replace(done, stderr=mask(done.stderr))


def uncut(ctx: CallContext, data: bytes) -> bytes:
    """Mask the beginning of a longer output, and leave out a secret that may be cut off at its end."""
    redactor = redactor_of(ctx)
    return data if redactor is None else BytesMasker(redactor).feed(data)


def beginning(ctx: CallContext, text: str, limit: int) -> str:
    """Return the first `limit` characters and an ellipsis, masked as in `uncut`; a short text as it is."""
    if len(text) <= limit:
        return text
    redactor = redactor_of(ctx)
    text = text[:limit]
    return (text if redactor is None else StreamMasker(redactor).feed(text)) + "…"


def decoded(data: bytes, warnings: list[str], source: str) -> str | None:
    """Return the text; None for an image, an archive or the like.

    Bytes that are not UTF-8 are replaced, with a warning.
    """
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        if is_garbled(data):
            return None
        warnings.append(f"{source} is not UTF-8 (byte {error.start}); such bytes are replaced by \ufffd")
        return data.decode(errors="replace")


def facts(done: Completed) -> dict[str, Any]:
    """Return the process's part of `Result.details`: exit code, truncation, enforcement report."""
    found: dict[str, Any] = {"exitCode": done.exit_code}
    if done.signal is not None:
        found["signal"] = signal_name(done.signal)
    if done.stdout_total > len(done.stdout):
        found["truncated"] = {"keptBytes": len(done.stdout), "totalBytes": done.stdout_total}
    found["enforcement"] = dict(done.enforcement)
    return found


def error_facts(done: Completed) -> dict[str, Any]:
    """Return `facts` and the end of standard error."""
    return {**facts(done), "stderr": _last(done.stderr)}


class Lines:
    """Gives a call's listener the lines of a command's output as they come, and the rest at the end."""

    def __init__(self, ctx: CallContext) -> None:
        self._ctx = ctx
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""
        self._is_text = True

    def feed(self, data: bytes) -> None:
        """Take the next bytes. From the first ones on that are not text, nothing is passed on."""
        self._is_text = self._is_text and not is_garbled(data)
        if not self._is_text:
            return
        text = self._rest + self._decoder.decode(data)
        lines, newline, self._rest = text.rpartition("\n")
        if newline:
            self._ctx.chunk(lines + newline)

    def end(self) -> None:
        """Give the text after the last line break."""
        if self._is_text and (rest := self._rest + self._decoder.decode(b"", True)):
            self._ctx.chunk(rest)


def log_streams(ctx: CallContext, done: Completed, *streams: str) -> None:
    """Log these output streams, masked, at INFO to `toolcrib.tools`."""
    if not _log.isEnabledFor(logging.INFO):
        return
    redactor = ctx.redactor or redactor_of(ctx)
    for stream in streams:
        written: bytes = getattr(done, stream)
        if not written.strip():
            continue
        if getattr(done, f"{stream}_total") > len(written):
            written = uncut(ctx, written)
        text = written.decode(errors="replace")
        text = text if redactor is None else redactor.redact(text)
        cut = " …" if len(text) > _MAX_LOGGED else ""
        _log.info("%s wrote to %s:\n%s%s", ctx.tool, stream, text[:_MAX_LOGGED].rstrip(), cut)


def created_in(job: Confinement, unprotected: Iterable[str] = ()) -> tuple[str, ...]:
    """Return what exists now, did not when a process was started, and would have been protected from it."""
    missing = (path for path in unprotected if os.path.lexists(path))
    known = {*job.protect, *job.scratch}
    startup = (
        path
        for path in startup_files(folder for folder in job.write if folder not in job.scratch)
        if path not in known and not any(within(grant, path) for grant in job.write)
    )
    return tuple(dict.fromkeys((*missing, *startup)))


def place_warnings(done: Completed) -> tuple[str, ...]:
    """Return warnings about protected places that were replaced during the call."""
    why = "was replaced from outside while the tool ran, so the tool could write it"
    return tuple(f"{path} {why}: check it before you use it" for path in done.enforcement.get("replaced", ()))


@contextmanager
def places_reported(done: Completed) -> Iterator[None]:
    """Add the warnings about protected places to a failure, which has no warnings of its own."""
    try:
        yield
    except (ToolcribError, ToolSignal) as error:
        if found := "; ".join(place_warnings(done)):
            if isinstance(error, ToolSignal):
                error.reason += f" ({found})"
            else:
                error.hint = f"{found}; {error.hint}" if error.hint else found
        raise


def timed_out(ctx: CallContext, done: Completed) -> ToolcribError:
    """Return the error of a process that was stopped at its time limit."""
    error = ctx.timed_out()
    error.details.update(enforcement=dict(done.enforcement), stderr=_last(done.stderr))
    if _passes_no_files():
        error.hint = _NO_FILES
    return error


def _passes_no_files() -> bool:
    """Return True if no open file can be passed to a process now: the start of one waits for that."""
    near, far = socket.socketpair()
    with near, far:
        try:
            socket.send_fds(near, [b"x"], [near.fileno()])
        except OSError as error:
            return error.errno == errno.ETOOMANYREFS
    return False


def refuse_exit(name: str, done: Completed, accepted: tuple[int, ...]) -> None:
    """Raise `CommandFailed` unless the exit code is an accepted one."""
    if done.exit_code in accepted:
        return
    details = error_facts(done)
    stderr = details["stderr"]
    raise CommandFailed(f"{name} {ending(done)}" + (f": {stderr}" if stderr else ""), details=details)


def ending(done: Completed) -> str:
    """Return in words how the process ended and which limits it reached."""
    met = " and ".join(str(limit) for limit in done.enforcement.get("exceeded", ()))
    why = f", having reached its limit of {met}" if met else ""
    if done.signal is not None:
        return f"was ended by {signal_name(done.signal)}{why}"
    return f"ended with exit code {done.exit_code}{why}"


def _last(stderr: bytes) -> str:
    text = stderr.decode(errors="replace").strip()
    return text if len(text) <= _MAX_STDERR else "… " + text[-_MAX_STDERR:]


def value_of(ctx: CallContext, name: str, done: Completed, form: str, warnings: list[str]) -> Any:
    """Return standard output as text or JSON, or as bytes if it is not text.

    Raises ToolFailed for invalid or cut JSON.
    """
    kept, total = len(done.stdout), done.stdout_total
    if form != "text":
        return _json(ctx, name, done)
    data = done.stdout
    if total > kept:
        warnings.append(
            f"the output is cut at the tool's limit: {kept:,} of {total:,} bytes are kept;"
            " ask for less, or raise limits.output_bytes in the manifest"
        )
        data = uncut(ctx, data)
    text = decoded(data, warnings, "the output")
    return data if text is None else text


def _json(ctx: CallContext, name: str, done: Completed) -> Any:
    kept, total = len(done.stdout), done.stdout_total
    if total > kept:
        raise ToolFailed(
            f"{name} wrote {total:,} bytes, more than its limit of {kept:,}",
            hint="Write less, or raise limits.output_bytes in the manifest.",
            details=facts(done),
        )
    try:
        return orjson.loads(done.stdout)
    except orjson.JSONDecodeError as error:
        text = done.stdout[: 4 * _MAX_QUOTED + 4].decode(errors="replace")
        raise ToolFailed(
            f"{name} wrote invalid JSON: {error}; it begins with {beginning(ctx, text, _MAX_QUOTED)!r}",
            hint="Fix the program, or set outputs.format: text.",
            details=facts(done),
        ) from None


SIGNALS: dict[str, type[ToolSignal]] = {
    kind.__name__: kind for kind in (RetryableError, ToolCancel, ToolDiscard, ToolSnooze)
}
"""Signals by name, so that code without Toolcrib can raise its own exceptions of these names.

A `ToolSnooze` needs an attribute `delay`, a finite number of seconds. Any other exception of that name is an
ordinary failure: to run the tool again at once would repeat it without end.
"""


def raise_failure(
    name: str,
    message: str,
    signal: str | None = None,
    delay: Any = None,
    details: Mapping[str, Any] | None = None,
) -> NoReturn:
    """Raise the signal of that name, or `ToolFailed` with the exception's type and message."""
    if signal == "ToolSnooze" and (type(delay) is int or (type(delay) is float and math.isfinite(delay))):
        raise ToolSnooze(delay, message)
    if signal is not None and signal != "ToolSnooze":
        raise SIGNALS[signal](message)
    text = message if name in ("Exception", "RuntimeError") and message else f"{name}: {message}"
    raise ToolFailed(text.removesuffix(": "), details={"exception": name, **(details or {})})
