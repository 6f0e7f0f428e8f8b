"""A confined process's output as a tool's value: text decoded, JSON parsed, cuts and failures told."""

from __future__ import annotations

import logging
import os
import signal
from dataclasses import replace
from typing import Any

from toolcrib.errors import CommandFailed, ToolcribError, ToolFailed
from toolcrib.guard import BytesMasker, Redactor, StreamMasker
from toolcrib.sandbox import Completed
from toolcrib.spec import CallContext

__all__ = [
    "MAX_OUTPUT",
    "beginning",
    "decoded",
    "ending",
    "facts",
    "log_streams",
    "made_meanwhile",
    "masked",
    "redactor_of",
    "refuse_exit",
    "timed_out",
    "uncut",
    "value_of",
]

_log = logging.getLogger("toolcrib.tools")

MAX_OUTPUT = 1_048_576
"""Bytes kept of each output stream unless the tool's limits say otherwise."""
_TOLD = 4_000
"""Characters of stderr told in an error."""
_LOGGED = 64_000
"""Characters of each stream that are logged."""
_BEGIN = 4_096
"""Bytes that are looked at for the beginning of what is no JSON."""


def redactor_of(ctx: CallContext) -> Redactor | None:
    """What masks the secrets that may turn up in this call's texts; None where there are none.

    All that is shown is masked at the end of the call path. What is cut before that has to be masked before
    it is cut: a part of a secret is not known as one.
    """
    if isinstance(ctx.redactor, Redactor):
        return ctx.redactor
    return Redactor(ctx.secrets) if ctx.secrets else None


def masked(ctx: CallContext, done: Completed) -> Completed:
    """The run with the secrets in its standard error masked, so that any part of that can be told."""
    if not done.stderr or (redactor := redactor_of(ctx)) is None:
        return done
    if done.stderr_total > len(done.stderr):
        return replace(done, stderr=BytesMasker(redactor).feed(done.stderr))
    return replace(done, stderr=redactor.redact(done.stderr))


def uncut(ctx: CallContext, data: bytes) -> bytes:
    """The beginning of something longer, its secrets masked and without the one that it may break off in."""
    redactor = redactor_of(ctx)
    return data if redactor is None else BytesMasker(redactor).feed(data)


def beginning(ctx: CallContext, text: str, limit: int) -> str:
    """The first `limit` characters and an ellipsis, its secrets masked as in `uncut`; all of a short text."""
    if len(text) <= limit:
        return text
    redactor = redactor_of(ctx)
    text = text[:limit]
    return (text if redactor is None else StreamMasker(redactor).feed(text)) + "…"


def decoded(data: bytes, warnings: list[str], what: str) -> str:
    """The text; bytes that are not UTF-8 are replaced and a warning says so."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        warnings.append(f"{what} is not UTF-8 (byte {error.start}); such bytes are replaced by \ufffd")
        return data.decode(errors="replace")


def facts(done: Completed) -> dict[str, Any]:
    """What `Result.details` says of the process: exit, what was cut, what the sandbox held."""
    found: dict[str, Any] = {"exit_code": done.exit_code}
    if done.signal is not None:
        found["signal"] = _signal(done.signal)
    if done.stdout_total > len(done.stdout):
        found["truncated"] = {"kept_bytes": len(done.stdout), "total_bytes": done.stdout_total}
    found["enforcement"] = dict(done.enforcement)
    return found


def log_streams(ctx: CallContext, done: Completed, *streams: str) -> None:
    """Log what the tool wrote beside its value, at INFO to `toolcrib.tools`, its secrets masked."""
    if not _log.isEnabledFor(logging.INFO):
        return
    redactor = redactor_of(ctx)
    for stream in streams:
        written: bytes = getattr(done, stream)
        if not written.strip():
            continue
        if getattr(done, f"{stream}_total") > len(written):
            written = uncut(ctx, written)
        text = written.decode(errors="replace")
        text = text if redactor is None else redactor.redact_text(text)
        cut = " …" if len(text) > _LOGGED else ""
        _log.info("%s wrote to %s:\n%s%s", ctx.tool, stream, text[:_LOGGED].rstrip(), cut)


def made_meanwhile(done: Completed) -> tuple[str, ...]:
    """Warnings about places that would have been protected had they been there when the call began."""
    made = [path for path in done.enforcement.get("unprotected", ()) if os.path.lexists(path)]
    return (
        *(f"{place} was made while the tool ran: look at it before you use it" for place in made),
        *(
            f"{place} was replaced from outside while the tool ran, which could write it from then on: "
            "look at it before you use it"
            for place in done.enforcement.get("replaced", ())
        ),
    )


def timed_out(ctx: CallContext, done: Completed) -> ToolcribError:
    """The error of a process stopped at its limit, with what it had written to standard error by then."""
    error = ctx.timed_out()
    error.details.update(enforcement=dict(done.enforcement), stderr=_last(done.stderr))
    return error


def refuse_exit(name: str, done: Completed, accepted: tuple[int, ...]) -> None:
    """`CommandFailed` with exit code and stderr unless the exit code is accepted."""
    if done.exit_code in accepted:
        return
    stderr = _last(done.stderr)
    raise CommandFailed(
        f"{name} {ending(done)}" + (f": {stderr}" if stderr else ""),
        details={**facts(done), "stderr": stderr},
    )


def ending(done: Completed) -> str:
    """How the process ended, in words, and which limits it met."""
    met = " and ".join(str(limit) for limit in done.enforcement.get("exceeded", ()))
    why = f", having met its limit of {met}" if met else ""
    if done.signal is not None:
        return f"was ended by {_signal(done.signal)}{why}"
    return f"ended with exit code {done.exit_code}{why}"


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # One of the real-time signals, which have no names.
        return f"signal {number}"


def _last(stderr: bytes) -> str:
    text = stderr.decode(errors="replace").strip()
    return text if len(text) <= _TOLD else "… " + text[-_TOLD:]


def value_of(ctx: CallContext, name: str, done: Completed, form: str, warnings: list[str]) -> Any:
    """Standard output as text or JSON."""
    written = done.stdout
    if done.stdout_total > len(done.stdout):
        if form == "json":
            raise ToolFailed(
                f"{name} wrote {done.stdout_total} bytes, more than the {len(done.stdout)} that are kept",
                hint="Write less, or raise limits.output_bytes in the manifest.",
                details=facts(done),
            )
        warnings.append(f"the output is cut: {len(done.stdout)} of {done.stdout_total} bytes are kept")
        written = uncut(ctx, written)
    if form == "text":
        return decoded(written, warnings, "the output")
    import orjson

    try:
        return orjson.loads(done.stdout)
    except orjson.JSONDecodeError as error:
        begin = beginning(ctx, done.stdout[:_BEGIN].decode(errors="replace"), 200)
        raise ToolFailed(
            f"{name} wrote no JSON: {error}; it begins with {begin!r}",
            hint="Mend the program, or set outputs.format: text.",
            details=facts(done),
        ) from None
