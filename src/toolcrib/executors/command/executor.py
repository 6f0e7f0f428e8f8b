"""Kind `command`: a program and its arguments, or one shell line with values as variables; confined."""

from __future__ import annotations

import json
import stat

from toolcrib.errors import InvalidInput, PermissionDenied, ToolFailed, ToolUnavailable
from toolcrib.executors.output import (
    MAX_OUTPUT,
    facts,
    log_streams,
    place_warnings,
    places_reported,
    refuse_exit,
    run_followed,
    timed_out,
    value_of,
)
from toolcrib.executors.workspace.grants import ProjectFiles
from toolcrib.executors.workspace.workspace import Workspace
from toolcrib.sandbox import Completed, Confinement
from toolcrib.sandbox.files.paths import PathCache, Paths
from toolcrib.spec import Call, CallContext, CommandExec, Outcome, Tool
from toolcrib.template import (
    MISSING,
    Namespaces,
    Template,
    Values,
    parse,
    parse_conditional,
    render_argv,
    render_env,
    render_value,
)


class CommandExecutor:
    """Runs one command tool. The constructor raises `ManifestError` for a bad template."""

    grace_s = 1.0
    """The sandbox ends the process tree itself, first by SIGTERM."""

    def __init__(self, tool: Tool, workspace: Workspace) -> None:
        assert isinstance(tool.config, CommandExec)
        names = Namespaces.of(tool)
        self._tool = tool
        self._config = tool.config
        self._workspace = workspace
        config = tool.config
        self._argv = [parse_conditional(element, names) for element in config.args]
        self._env = {name: parse_conditional(text, names) for name, text in config.env.items()}
        self._shell = None
        if config.shell is not None:
            from toolcrib.executors.command.shell import parse_shell, variables_with_values

            self._shell = parse_shell(
                parse_conditional(config.shell, names), variables_with_values(config.env, names)
            )
        self._stdin = parse(tool.config.stdin, names)
        self._grounds: PathCache[tuple[str, Confinement]] = PathCache(1)

    async def run(self, call: Call, ctx: CallContext) -> Outcome:
        """Run the command once."""
        tool, config = self._tool, self._config
        values = Values.of(tool, call, ctx)
        # Worked out once, and again when a path that it depends on has changed.
        entrypoint, ground = self._grounds.get(None, self._prepare)
        network = self._workspace.network(tool)
        env = {name: text for name, t in self._env.items() if (text := render_env(t, values)) is not None}
        if self._shell is None:
            arguments = render_argv(self._argv, values)
        else:
            line = self._shell.line(values)
            arguments = ["-c", line.text]
            # The shell reads values as variables, so nothing in them is its grammar.
            env |= line.environment(values, config.allow_dash, env)
        job = self._workspace.call_job(
            ground,
            tool,
            {**values.env, **env},
            ctx,
            argv=(entrypoint, *arguments),
            stdin=_encoded(input_text(self._stdin, values)),
            output_limit=tool.limits.output_bytes or MAX_OUTPUT,
            **network.job,
        )
        done = await self._run(ctx, job)
        warnings: list[str] = []
        with places_reported(done), network.explained(hint=True):
            if done.timed_out:
                raise timed_out(ctx, done)
            log_streams(ctx, done, "stderr")
            try:
                refuse_exit(tool.name, done, config.exit_codes_ok)
            except ToolFailed as error:
                raise (None if network.refused else self._denied(job, error)) or error from None
            value = value_of(ctx, tool.name, done, config.stdout_format or tool.output.format, warnings)
        return Outcome(value, (*warnings, *network.warnings, *place_warnings(done)), facts(done))

    def _denied(self, job: Confinement, error: ToolFailed) -> PermissionDenied | None:
        from toolcrib.executors.trace.denials import of_text

        text = error.details["stderr"]
        return of_text(self._workspace, self._tool, job, text, error.message, error.details)

    async def _run(self, ctx: CallContext, job: Confinement) -> Completed:
        try:
            return await run_followed(ctx, job)
        except ToolUnavailable as error:
            from toolcrib.executors.trace.denials import of_interpreter

            raise of_interpreter(self._workspace, self._tool, job, error) or error from None

    def _prepare(self, paths: Paths) -> tuple[str, Confinement]:
        """Return the program, and the part of the job that all calls share."""
        files = self._workspace.files(paths)
        entrypoint, grant = self._entrypoint(files)
        job = self._workspace.tool_job(files, self._tool, self._config.cwd, read=grant, links=())
        return entrypoint, job

    def _entrypoint(self, files: ProjectFiles) -> tuple[str, tuple[str, ...]]:
        """The program as the sandbox finds it, and the grant it needs to be seen there.

        A name without a slash is looked for among the system's programs; anything else is a file, from the
        project root. The file itself is always readable, its folder only if granted.
        """
        written = self._config.entrypoint
        if "/" not in written or self._shell is not None:
            return written, ()
        path = files.resolve(written)
        if not files.inside(written):
            raise PermissionDenied(
                f"the command {written!r} of {self._tool.name} leads out of the project, to {path}",
                hint="To allow it, write its real path in exec.command.entrypoint.",
                details={"path": path},
            )
        if not stat.S_ISREG(files.paths.leads_to(path)):
            raise ToolUnavailable(
                f"the command {written!r} of {self._tool.name} does not exist ({path})",
                hint="Create it, or fix exec.command.entrypoint in the manifest.",
                details={"path": path},
            )
        return path, (path,)


def input_text(template: Template, values: Values) -> str:
    """Return the standard input of a command: a text as it is, anything else as JSON."""
    value = render_value(template, values)
    if value is None or value is MISSING:
        return ""
    return value if isinstance(value, str) else json.dumps(value)


def _encoded(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise InvalidInput("stdin contains half of a surrogate pair") from None
