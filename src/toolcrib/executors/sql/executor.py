"""Kind `sql`: one statement on a SQLite file, its values bound, run by a confined interpreter.

SQLite reads a file that others may have written, and a query may compute for hours. So it runs confined like
a command, with the tool's own grants. Without a grant to write, the file is opened read-only.
"""

from __future__ import annotations

import stat
from pathlib import Path

from toolcrib.errors import PermissionDenied, ToolFailed, ToolUnavailable
from toolcrib.executors.output import (
    error_facts,
    facts,
    log_streams,
    place_warnings,
    places_reported,
    run_job,
    timed_out,
)
from toolcrib.executors.python.executor import confined_python, job_text, returned
from toolcrib.executors.python.interpreter import interpreter
from toolcrib.executors.workspace.grants import ProjectFiles, links_on
from toolcrib.executors.workspace.workspace import Workspace
from toolcrib.sandbox.files.paths import within
from toolcrib.spec import Call, CallContext, Outcome, SqlExec, Tool
from toolcrib.template import MISSING, Namespaces, Values, parse, render_value

_STATEMENT = Path(__file__).with_name("sqlite_statement.py").resolve()


class SqlExecutor:
    """Runs one SQL statement on a SQLite file."""

    grace_s = 1.0
    """The sandbox ends the process tree itself, first by SIGTERM."""

    def __init__(self, tool: Tool, workspace: Workspace) -> None:
        assert isinstance(tool.config, SqlExec)
        names = Namespaces.of(tool)
        self._tool = tool
        self._config = tool.config
        self._workspace = workspace
        self._parameters = [parse(item, names) for item in tool.config.parameters]

    async def run(self, call: Call, ctx: CallContext) -> Outcome:
        """Run the statement. Return a list of rows as objects, or the number of changed rows."""
        tool, workspace = self._tool, self._workspace
        files = workspace.files()
        path, writable = self._database(files)
        python, grants = interpreter(files, None, tool.name)
        links = links_on((python,), files.paths)
        job = workspace.tool_job(files, tool, ".", read=(*grants, str(_STATEMENT.parent)), links=links)
        values = Values.of(tool, call, ctx)
        bound = [render_value(item, values) for item in self._parameters]
        parameters = [None if item is MISSING else item for item in bound]
        stdin = job_text(
            _STATEMENT.stem,
            "run_statement",
            [path, writable, self._config.statement, parameters],
            path=[str(_STATEMENT.parent)],
        )
        job = workspace.call_job(
            confined_python(job, tool, files, python),
            tool,
            {},
            ctx,
            stdin=stdin,
            **workspace.network(tool).job,
        )
        done = await run_job(ctx, job)
        with places_reported(done):
            if done.timed_out:
                raise timed_out(ctx, done)
            if not done.result:  # Else it says all that a traceback of our own would.
                log_streams(ctx, done, "stdout", "stderr")
            try:
                return Outcome(returned(tool.name, done), place_warnings(done), facts(done))
            except ToolFailed as error:
                from toolcrib.executors.trace.denials import of_text

                said = error.message
                raise of_text(workspace, tool, job, said, said, error_facts(done)) or error from None

    def _database(self, files: ProjectFiles) -> tuple[str, bool]:
        """Return the file, and True if it may be written."""
        tool, config = self._tool, self._config
        assert config.database is not None
        path = files.resolve(config.database)
        grants = files.grants(tool)
        if not grants.cover(path):
            raise PermissionDenied(
                f"{tool.name} may not read its database {config.database!r} ({path})",
                hint="Name its folder under permissions.fs.read in the manifest.",
                details={"path": path},
            )
        if not stat.S_ISREG(files.paths.leads_to(path)):
            raise ToolUnavailable(
                f"the database {config.database!r} of {tool.name} does not exist ({path})",
                hint="Create it, or fix exec.sql.database in the manifest.",
                details={"path": path},
            )
        return path, within(path, *grants.write)
