"""One shell line of a caller, run in the sandbox with the folders and the network of its tool."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from toolcrib.builtin.definition import Builtin, integer, string
from toolcrib.builtin.settings import HOSTS, BuiltinSettings
from toolcrib.builtin.site import Site
from toolcrib.errors import InvalidInput, PermissionDenied, TimedOut, Violation
from toolcrib.executors.output import (
    MAX_OUTPUT,
    decoded,
    ending,
    facts,
    place_warnings,
    places_reported,
    run_followed,
    uncut,
)
from toolcrib.executors.workspace.workspace import CallNetwork, Workspace
from toolcrib.sandbox import Completed, Confinement
from toolcrib.sandbox.files.paths import PathCache, Paths
from toolcrib.spec import Annotations, CallContext, Example, Network, Outcome, Permissions, Tool
from toolcrib.spec.calls.content import media_type_of
from toolcrib.spec.record import record

_OPTIONS: Mapping[str, Any] = {
    "properties": {
        "network": {
            "description": "`false` (default), `true`, `host` or `{allow: [hosts]}`, as in a manifest.",
            "anyOf": [{"type": "boolean"}, {"const": "host"}, HOSTS],
        }
    }
}
_FOLDERS = 16
"""Working folders whose sandboxes are kept in mind."""


def _permissions(name: str, settings: BuiltinSettings) -> Permissions:
    """Return the permissions of a shell tool: all roots, and the network of its option `network`."""
    network = Network.parse(settings.of(name).get("network", False))
    return Permissions(network, settings.read, settings.write)


def shell_tool(
    name: str, description: str, *, workdir: str, limit: str, about: str, default_s: int, **bounds: int
) -> Builtin:
    """Return a tool that runs a shell line. `workdir` describes its folder.

    `limit` is the name of the argument with its seconds, `about` the description of that.
    """

    async def run(
        site: Site, ctx: CallContext, command: str, workdir: str | None = None, **seconds: int
    ) -> Outcome:
        return await _result(site, ctx, command, workdir, seconds.get(limit, default_s))

    return Builtin(
        name=name,
        description=description,
        properties={
            "command": string("The shell command, run by `sh -c`.", minLength=1),
            "workdir": string(workdir),
            limit: integer(about, minimum=1, **bounds, default=default_s),
        },
        run=run,
        permissions=partial(_permissions, name),
        options=_OPTIONS,
        runs_shell=True,
        annotations=Annotations(read_only=False, destructive=True, idempotent=False, open_world=False),
        examples=[Example("List files", {"command": "ls -l"})],
        grace_s=1.0,
    )


@record
class Ran:
    """A command that has ended."""

    done: Completed
    job: Confinement
    network: CallNetwork

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings about its network and about places that were replaced."""
        return (*self.network.warnings, *place_warnings(self.done))


async def run_confined(
    site: Site,
    ctx: CallContext,
    argv: tuple[str, ...],
    workdir: str | None,
    timeout_s: float,
    **more: Any,
) -> Ran:
    """Run a command with the folders and the network of its tool, whatever its exit code is.

    `more` are further fields of its `Confinement`. Raises PermissionDenied for a working folder outside of
    the roots.
    """
    workspace, tool = site.host.workspace(), site.tool
    network = workspace.network(tool)
    job = workspace.call_job(
        _ground(site, workdir or "."),
        tool,
        tool.permissions.environment(os.environ),
        ctx,
        argv=argv,
        output_limit=tool.limits.output_bytes or MAX_OUTPUT,
        **more,
        **network.job,
    )
    limit_ms = max(1, int(timeout_s * 1000))
    done = await run_followed(ctx, replace(job, timeout_ms=min(limit_ms, job.timeout_ms)))
    return Ran(done, job, network)


async def _result(
    site: Site, ctx: CallContext, command: str, workdir: str | None, timeout_s: float
) -> Outcome:
    """Run a line and return its output as text. Raises TimedOut with the output so far."""
    ran = await run_confined(site, ctx, ("/bin/sh", "-c", command), workdir, timeout_s)
    done, job = ran.done, ran.job
    warnings: list[str] = []
    text = _text(ctx, done, warnings)
    if done.timed_out:
        # The limit that ends it names the error: the caller's own, or the one of the tool.
        own = int(timeout_s * 1000) < job.timeout_ms
        error = TimedOut(f"the command took longer than {timeout_s:g} s") if own else ctx.timed_out()
        error.details |= {**facts(done), "output": text}
        error.message += f". Until then it wrote:\n{text}" if done.stdout or done.stderr else ""
        error.args = (error.message,)
        with places_reported(done):
            raise error
    if (
        done.exit_code
        and not ran.network.refused
        and (denied := _denied(site.host.workspace(), site.tool, job, done))
    ):
        warnings.append(f"{denied.message}. {denied.hint}")
    return Outcome(text, (*warnings, *ran.warnings), facts(done))


def _denied(workspace: Workspace, tool: Tool, job: Confinement, done: Completed) -> PermissionDenied | None:
    from toolcrib.executors.trace.denials import of_text

    said = done.stderr.decode(errors="replace").strip()
    return of_text(workspace, tool, job, said, said.rpartition("\n")[2], {})


def _ground(site: Site, workdir: str) -> Confinement:
    """Return the sandbox for a working folder, which must be beneath a root."""
    workspace = site.host.workspace()
    known: PathCache[Confinement] = site.kept.setdefault("grounds", PathCache(_FOLDERS))

    def prepare(paths: Paths) -> Confinement:
        files = workspace.files(paths)
        folder = site.absolute(workdir)
        # Resolved before it is compared: a link in a root may lead out of it.
        if not files.grants(site.tool).cover(files.resolve(folder)):
            raise PermissionDenied(f"path escapes sandbox: {workdir}", details={"path": workdir})
        if not files.paths.is_folder(folder):
            why = "is not a folder" if files.paths.leads_to(folder) else "does not exist"
            raise InvalidInput(f"workdir {workdir} {why}", violations=(Violation("$.workdir", why),))
        return workspace.tool_job(files, site.tool, folder, read=(), links=())

    return known.get(workdir, prepare)


def _text(ctx: CallContext, done: Completed, warnings: list[str]) -> str:
    """Return standard output, standard error and exit code as one text."""
    text = _stream(ctx, done.stdout, done.stdout_total, "the output", warnings)
    if done.stderr:
        error = _stream(ctx, done.stderr, done.stderr_total, "standard error", warnings)
        text += ("\n" if text else "") + f"STDERR: {error}"
    code = done.exit_code if done.signal is None else 128 + done.signal  # As a shell counts them.
    if done.signal is not None:
        warnings.append(f"the command {ending(done)}")
    if code:
        text += f"\n(exit code: {code})"
    return text or "(no output)"


def _stream(ctx: CallContext, kept: bytes, total: int, name: str, warnings: list[str]) -> str:
    if total > len(kept):
        warnings.append(
            f"{name} is cut at its limit: {len(kept):,} of {total:,} bytes are kept;"
            " to get all, write it to a file and read that in parts"
        )
        kept = uncut(ctx, kept)
    text = decoded(kept, warnings, name)
    return f"({total:,} bytes of binary data: {media_type_of(kept)})" if text is None else text
