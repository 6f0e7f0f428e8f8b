"""Kind `python`: a function of a module, called in a confined interpreter of its own."""

from __future__ import annotations

import base64
import json
import os
import re
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from toolcrib.errors import CommandFailed, ToolFailed
from toolcrib.executors.output import (
    MAX_OUTPUT,
    SIGNALS,
    ending,
    facts,
    log_streams,
    place_warnings,
    places_reported,
    raise_failure,
    redactor_of,
    run_job,
    timed_out,
)
from toolcrib.executors.python.interpreter import home_of, interpreter, is_known
from toolcrib.executors.workspace.grants import ProjectFiles, links_on
from toolcrib.executors.workspace.workspace import Workspace
from toolcrib.sandbox import Completed, Confinement, Script
from toolcrib.sandbox.files.paths import PathCache, Paths, within
from toolcrib.spec import Call, CallContext, Outcome, PythonExec, Tool
from toolcrib.template import MISSING, Namespaces, Values, parse, render_value

_PYTHON = re.compile(r"python3(\.\d+)?t?")
_MODULE = re.compile(r"[A-Za-z_]\w{0,99}(\.\w{1,99}){0,9}", re.ASCII)
_GOOD = b'{"value":'
"""The beginning of an answer with a value."""
_FAILURE = ("error", "message", "signal", "delay")
"""The keys of an answer without a value."""
_CHILD = str(Path(__file__).with_name("child.py").resolve())


class _Ground(NamedTuple):
    """The part of the job that all calls of a tool share."""

    job: Confinement
    path: list[str]
    """Search path of its module: folders that no tool may write, and last its working folder."""


class PythonExecutor:
    """Runs one Python tool. Its module is imported only inside the sandbox.

    `module` is searched in the tool's own folder, then in the project's home folder (for `tools.NAME` beside
    the manifest), then in `cwd`. No tool may write the first two.
    """

    grace_s = 1.0
    """The sandbox ends the process tree itself, first by SIGTERM."""

    def __init__(self, tool: Tool, workspace: Workspace) -> None:
        assert isinstance(tool.config, PythonExec)
        names = Namespaces.of(tool)
        self._tool = tool
        self._config = tool.config
        self._workspace = workspace
        self._args = [parse(item, names) for item in tool.config.args or ()]
        self._kwargs = {name: parse(item, names) for name, item in (tool.config.kwargs or {}).items()}
        self._grounds: PathCache[_Ground] = PathCache(1)

    async def run(self, call: Call, ctx: CallContext) -> Outcome:
        """Call the function in an interpreter of its own."""
        tool = self._tool
        values = Values.of(tool, call, ctx)
        ground = self._grounds.get(None, self._prepare)
        network = self._workspace.network(tool)
        job = self._workspace.call_job(
            ground.job,
            tool,
            values.env,
            ctx,
            stdin=self._job(values, ground.path),
            **network.job,
        )
        done = await run_job(ctx, job)
        with places_reported(done), network.explained():
            if done.timed_out:
                raise timed_out(ctx, done)
            log_streams(ctx, done, "stdout", "stderr")
            answer = _answer(tool.name, done)
        with places_reported(done), network.explained(hint=answer.get("cause") is not None):
            value = self._value(job, done, answer, ctx)
        return Outcome(value, (*network.warnings, *place_warnings(done)), facts(done))

    def _prepare(self, paths: Paths) -> _Ground:
        tool, config, files = self._tool, self._config, self._workspace.files(paths)
        python, grants = interpreter(files, config.venv, tool.name)
        links = links_on((python, *home_of(python, paths)), paths)
        job = self._workspace.tool_job(files, tool, config.cwd, read=grants, links=links)
        own = files.folder(tool)
        # Folders that no tool may write come first, so no tool can put a module in front of another's.
        path = [*([own] if own is not None else []), files.home, job.cwd]
        return _Ground(confined_python(job, tool, files, python), path)

    def _job(self, values: Values, path: list[str]) -> bytes:
        args: list[Any] = [render_value(item, values) for item in self._args]
        # Arguments at the end that were not given are left out, so the function's own defaults apply.
        while args and args[-1] is MISSING:
            args.pop()
        kwargs = {name: render_value(item, values) for name, item in self._kwargs.items()}
        config = self._config
        if config.by_name:
            kwargs = dict(values.arguments)
        return job_text(
            config.module,
            config.function,
            [None if item is MISSING else item for item in args],
            kwargs={name: item for name, item in kwargs.items() if item is not MISSING},
            path=path[:-1],
            cwd=path[-1:],
            returns=config.returns,
            trace=self._workspace.watch is not None,
        )

    def _value(self, job: Confinement, done: Completed, answer: dict[str, Any], ctx: CallContext) -> Any:
        if self._workspace.watch is not None:
            self._workspace.watch.add_report(answer.get("trace"))
        if "value" not in answer and answer["signal"] is None:
            from toolcrib.executors.trace.denials import of_exception

            # Before it is cut for the error: a part of a secret is not recognised any more.
            if (redactor := redactor_of(ctx)) is not None:
                answer["message"] = redactor.redact(answer["message"])
            if (denied := of_exception(self._workspace, self._tool, job, done, answer)) is not None:
                raise denied
            try:
                return _value_in(answer, done)
            except ToolFailed as error:
                error.hint = error.hint or self._how_to_find(answer)
                raise
        return _value_in(answer, done)

    def _how_to_find(self, answer: dict[str, Any]) -> str | None:
        """Return what to do about a module that was not found; None for another failure."""
        name = (answer.get("cause") or {}).get("module")
        if not isinstance(name, str) or not _MODULE.fullmatch(name):
            return None
        config, files = self._config, self._workspace.files()
        if not within(config.module.replace(".", "/"), name.replace(".", "/")):
            pip = f"{config.venv or '.venv'}/bin/pip install {name.partition('.')[0]}"
            if config.venv is not None:
                return f"Install it where the tool runs: {pip}"
            how = f"python3 -m venv .venv && {pip}, then write `venv: .venv` beside exec.python.module."
            return f"The tool has no packages of its own: {how}"
        file = config.module.replace(".", "/") + ".py"
        there = os.path.join(files.resolve(config.cwd), file)
        if within(there, files.root) and os.path.isfile(there):
            shown = os.path.relpath(there, files.root)
            return f"{shown} exists, but the tool may not read it: add it to permissions.fs.read."
        own = files.folder(self._tool) or files.root
        return f"Write {os.path.relpath(own, files.root)}/{file}, or fix exec.python.module."


def job_text(module: str, function: str, args: list[Any], *, path: list[str], **more: Any) -> bytes:
    """Return what our child reads: the function to call. `more` are further keys, see `child.py`."""
    job = {"module": module, "function": function, "args": args, "path": path}
    return json.dumps({"kwargs": {}, "cwd": [], "returns": "json"} | job | more).encode()


def confined_python(job: Confinement, tool: Tool, files: ProjectFiles, python: str) -> Confinement:
    """Return the job of a tool, to run our child in an interpreter."""
    return replace(
        job,
        argv=(python, "-I", "-X", "utf8", _CHILD),
        read=(*job.read, _CHILD),
        output_limit=MAX_OUTPUT,
        result_limit=tool.limits.output_bytes or MAX_OUTPUT,
        good=_GOOD,
        script=_script(files, python, job.write),
    )


def _script(files: ProjectFiles, python: str, write: tuple[str, ...]) -> Script | None:
    """Return the script for a warm interpreter; None to start the interpreter inside the sandbox.

    A launcher is not confined. So only the machine's interpreters and our own may become one: any other
    may come with the project. Nor may the tool be able to write any part of it.
    """
    paths = files.paths
    real = paths.real(python)
    if not is_known(real, paths) or within(real, files.root, files.home):
        return None
    prefix = os.path.dirname(os.path.dirname(real))
    # Whoever can write one of these would run in the launcher, outside of every sandbox.
    parts = (real, paths.real(f"{prefix}/lib"), paths.real(f"{prefix}/lib64"))
    if any(within(part, grant) or within(grant, part) for part in parts for grant in write):
        return None
    return Script(_CHILD, real, python) if _PYTHON.fullmatch(Path(real).name) else None


def returned(name: str, done: Completed) -> Any:
    """Return the value that a confined interpreter answered. Raises the failure that it reported, if any."""
    return _value_in(_answer(name, done), done)


def _value_in(answer: dict[str, Any], done: Completed) -> Any:
    if isinstance(encoded := answer.get("base64"), str):
        with suppress(ValueError):
            return base64.b64decode(encoded, validate=True)
    if "value" in answer:
        return answer["value"]
    name, message, signal, delay = (answer[key] for key in _FAILURE)
    return raise_failure(str(name), str(message), signal, delay, facts(done))


def _answer(name: str, done: Completed) -> dict[str, Any]:
    """Return the answer of our child: with a value, or with all keys of a failure."""
    if done.result_total > len(done.result):
        raise ToolFailed(
            f"{name} returned {done.result_total:,} bytes, more than its limit of {len(done.result):,}",
            hint="Return less, or raise limits.output_bytes in the manifest.",
            details=facts(done),
        )
    try:
        answer = json.loads(done.result.decode())
    except (RecursionError, ValueError):
        answer = None
    if isinstance(answer, dict) and "value" in answer:
        return answer
    # The tool's own code may write here in our child's place.
    if (
        isinstance(answer, dict)
        and answer.keys() >= {*_FAILURE}
        and answer["signal"] in [None, *SIGNALS]
        and isinstance(answer.get("cause") or {}, dict)
    ):
        return answer
    raise CommandFailed(
        f"{name} did not return: its interpreter {ending(done)}",
        hint="The tool's own code ended it: a crash, os._exit, too much memory.",
        details=facts(done),
    )
