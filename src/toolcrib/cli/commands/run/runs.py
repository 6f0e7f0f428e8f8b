"""`toolcrib runs`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from toolcrib.cli.arguments import parse_arguments
from toolcrib.cli.caller import caller_of, seen_by
from toolcrib.cli.commands.decide.accepting import ask_for_files
from toolcrib.cli.commands.run.matching import change_all, filter_options, made_by, many_options, mine
from toolcrib.cli.commands.run.sessions import command as sessions
from toolcrib.cli.commands.run.unserved import note_if_unserved, noting_unserved
from toolcrib.cli.options import id_or_last, open_project, page_options, project_options, require_id
from toolcrib.cli.output import (
    one_line,
    print_change,
    print_error,
    print_json,
    print_note,
    print_result,
    print_shown,
)
from toolcrib.cli.table import print_listing
from toolcrib.errors import Cancelled, NotFoundError, TimedOut, ToolcribError, UsageError
from toolcrib.spec.moment import written

if TYPE_CHECKING:
    from toolcrib.project import Project
    from toolcrib.runs.filters import Filters
    from toolcrib.runs.sessions import Run, RunEvent

_STATES = ("queued", "ready", "running", "waiting", "done", "failed", "cancelled")
chosen_option = id_or_last("run", "runs")


@click.group("runs")
def command() -> None:
    """Run agents, and follow, cancel, retry and fork their runs.

    Runs are stored before they begin, and continue if a process dies.
    """


command.add_command(sessions)


@command.command("run")
@click.argument("agent")
@click.argument("prompt")
@click.argument("variables", nargs=-1, metavar="[NAME=VALUE]…")
@project_options
@click.option("--session", metavar="ID", help="The session to continue (default: a new one).")
@click.option("--detach", is_flag=True, help="Print the id at once, and let a worker do it.")
@click.option("--stream", is_flag=True, help="Print the answer as it arrives.")
@click.option("--timeout", type=click.FloatRange(min=0), help="Wait at most this many seconds.")
def run_command(
    agent: str,
    prompt: str,
    variables: tuple[str, ...],
    root: str | None,
    as_json: bool,
    session: str | None,
    detach: bool,
    stream: bool,
    timeout: float | None,
) -> int:
    """Run an agent, and print its answer.

    Variables are given as arguments of tools are: `name=text`, `name:=json`. The tools of the
    run get them, and the model does not.
    """
    project = open_project(root)
    caller, identity = caller_of(project)
    ask_for_files(project)
    session_id = None if session is None else project.runs.store.resolve(session, "sessions")
    run_id = project.runs.start(
        session_id, agent, prompt, parse_arguments(variables), stream=stream, caller=caller, identity=identity
    )
    if detach:
        print_shown(as_json, project.runs.find(run_id).document, run_id)
        note_if_unserved(project, set(), waits=f"toolcrib runs wait {run_id}")
        return 0
    return _print_end(asyncio.run(followed(project, run_id, timeout, stream=stream and not as_json)), as_json)


@command.command("list")
@project_options
@filter_options("runs", _STATES)
@page_options("run")
def list_command(root: str | None, as_json: bool, limit: int, before: str | None, filters: Filters) -> None:
    """List runs, the newest first.

    Those of sub-agents are in `runs show`, below the run that called them.
    """
    project = open_project(root, load=False)
    if (session := filters.get("session_id")) is not None:
        filters["session_id"] = project.runs.store.resolve(session, "sessions")
    found = project.runs.page(limit=limit, before=before, top=True, **mine(filters, seen_by(project)))
    print_listing(
        as_json,
        "runs",
        [run.document for run in found],
        (
            "ID",
            "STATE",
            "AGENT",
            ("STEPS", "iteration"),
            ("TOKENS", _tokens),
            ("CREATED", "createdAt"),
            "PROMPT",
            ("ERROR", lambda run: (run["error"] or {}).get("message")),
        ),
        empty="There are no such runs." if filters else "There are no runs.",
        limit=limit,
    )


@command.command("show")
@project_options
@chosen_option
def show_command(root: str | None, as_json: bool, chosen: str | None) -> None:
    """Show one run with its timeline: steps, calls, sub-agents, times.

    ID may be the beginning of an id, if no other begins so.
    """
    project, run = _one(root, chosen)
    tree = [project.runs.timeline(one.id) for one in project.runs.tree(run.id)]
    lines = _timeline(tree[0], {one["id"]: one for one in tree})
    print_shown(as_json, {**tree[0], "below": tree[1:]}, "\n".join(lines))


@command.command("watch")
@click.argument("chosen", required=False, metavar="[ID]")
@project_options
@click.option("--last", is_flag=True, help="The newest run, in place of an ID.")
@click.option("--after", type=click.IntRange(min=0), default=0, help="Only events after this number.")
@click.option("--all", "every", is_flag=True, help="Events of all runs, until interrupted.")
def watch_command(
    chosen: str | None, root: str | None, as_json: bool, last: bool, after: int, every: bool
) -> None:
    """Print the events of a run and those below it, as they come.

    Each has a number: `--after` continues from there. With `--json`, each line is one event.
    """
    if every:
        project = open_project(root, load=False)
        # The stream of all runs has no filter by caller.
        if seen_by(project) is not None:
            raise UsageError("a token without the scope admin cannot watch the runs of other callers")
        asyncio.run(_watch(project, None, after, as_json))
    else:
        require_id(chosen is not None, last, "runs")
        project, run = _one(root, chosen)
        asyncio.run(_watch(project, run.id, after, as_json))


@command.command("wait")
@project_options
@chosen_option
@click.option("--timeout", type=click.FloatRange(min=0), help="Wait at most this many seconds.")
def wait_command(root: str | None, as_json: bool, chosen: str | None, timeout: float | None) -> int:
    """Wait until a run has ended, and print its answer.

    Meanwhile this process continues runs that no worker has taken.
    """
    project, run = _one(root, chosen, load=True)
    return _print_end(asyncio.run(followed(project, run.id, timeout)), as_json)


@command.command("cancel")
@project_options
@many_options("runs", _STATES)
@chosen_option
def cancel_command(root: str | None, as_json: bool, chosen: str | None, filters: Filters, yes: bool) -> int:
    """Cancel a run and all below it, or all that match. What workers report later is refused."""
    if filters:
        project = open_project(root, load=False)
        return change_all(project, "runs", "cancel", filters, seen_by(project), yes=yes, as_json=as_json)
    project, run = _one(root, chosen)
    project.runs.cancel(run.id)
    _print_run(project, run.id, as_json)
    return 0


@command.command("retry")
@project_options
@many_options("runs", _STATES)
@chosen_option
@click.option("--from", "iteration", type=click.IntRange(min=0), help="Continue after this iteration.")
def retry_command(
    root: str | None,
    as_json: bool,
    chosen: str | None,
    iteration: int | None,
    filters: Filters,
    yes: bool,
) -> int:
    """Continue a failed run after an iteration, or all that match.

    By default after its last complete one. The agent is used as it is defined now. To continue it in this
    terminal: `toolcrib runs wait --last`.
    """
    if filters:
        if iteration is not None:
            raise UsageError("--from names an iteration of one run, and a filter many runs")
        project = open_project(root)
        return change_all(project, "runs", "retry", filters, made_by(project), yes=yes, as_json=as_json)
    project, run = _one(root, chosen, load=True)
    project.runs.retry(run.id, iteration, identity=caller_of(project)[1])
    _print_begun(project, run.id, as_json)
    return 0


@command.command("fork")
@project_options
@chosen_option
@click.option("--from", "iteration", type=click.IntRange(min=0), help="Continue after this iteration.")
@click.option("--prompt", help="The next message to the model.")
def fork_command(
    root: str | None, as_json: bool, chosen: str | None, iteration: int | None, prompt: str | None
) -> None:
    """Begin another run that continues after an iteration of this one.

    It has a session of its own. The first run stays as it is.
    """
    project, run = _one(root, chosen, load=True)
    caller, identity = caller_of(project)
    forked = project.runs.fork(run.id, iteration, prompt, caller=caller, identity=identity)
    _print_begun(project, forked, as_json)


@command.command("prune")
@project_options
def prune_command(root: str | None, as_json: bool) -> None:
    """Remove calls and runs that ended long ago.

    The settings `retention` say how long they are kept. Whoever serves does that by and by. The audit log
    stays as it is.
    """
    project = open_project(root, load=False)
    if seen_by(project) is not None:
        raise UsageError("a token without the scope admin cannot remove what others made")
    removed = project.pruner.prune()
    print_change(as_json, removed._asdict(), f"removed: {removed.calls:,} calls, {removed.runs:,} runs")


def _one(root: str | None, beginning: str | None, *, load: bool = False) -> tuple[Project, Run]:
    """Return the project, and the run that is meant."""
    project = open_project(root, load=load)
    whose = seen_by(project)
    if beginning is not None:
        return project, project.runs.find(project.runs.store.resolve(beginning), whose)
    newest = project.runs.page(limit=1, top=True, caller=whose)
    if not newest:
        raise NotFoundError("there are no runs")
    return project, newest[0]


async def followed(
    project: Project, run_id: str, timeout_s: float | None = None, *, stream: bool = False
) -> Run:
    """Return a run once it has ended, or the time is over; notes say what it waits for meanwhile."""
    async with (
        project,
        noting_unserved(
            project,
            lambda: ready_tools(project, run_id),
            asking=lambda: _tools(project, project.runs.tree(run_id), "waiting"),
        ),
    ):
        if stream:
            # To read events serves nothing: without a worker elsewhere none would come.
            project.calls.serve()
            async for event in project.runs.events(run_id):
                if event.kind == "text":
                    print_result(event.document["detail"]["text"], nl=False)
            print_result("")
        return await project.runs.wait(run_id, timeout_s)


async def _watch(project: Project, run_id: str | None, after: int, as_json: bool) -> None:
    root_id = None if run_id is None else project.runs.find(run_id).root_id
    depths = {} if root_id is None else {one.id: one.depth for one in project.runs.tree(root_id)}
    here = "" if run_id is None else f"toolcrib runs wait {run_id}{project.place.option}"
    async with noting_unserved(project, lambda: ready_tools(project, run_id), here):
        async for event in project.runs.events(run_id, after, tree=True):
            if as_json:
                print_result(json.dumps(event.document))
                continue
            # A run below this one that has begun since.
            if event.run_id not in depths:
                depths[event.run_id] = project.runs.find(event.run_id).depth
            print_result(_event_line(event, depths[event.run_id]))


def ready_tools(project: Project, run_id: str | None) -> set[str] | None:
    """Return the tools of a run, or of all, whose calls wait for a worker; None if no run does."""
    from toolcrib.runs.sessions import ENDED

    if run_id is None:
        waits = any(project.runs.page(state=state, limit=1) for state in _STATES if state not in ENDED)
        return {one.tool for one in project.calls.stored.queue()} if waits else None
    tree = project.runs.tree(run_id)
    if tree[0].state in ENDED:
        return None
    return _tools(project, tree, "ready")


def _tools(project: Project, tree: Iterable[Run], state: str) -> set[str]:
    """Return the tools of these runs that have calls in this state."""
    steps = [step for one in tree for step in project.runs.timeline(one.id)["iterations"]]
    return {
        one["name"] for step in steps for one in step["calls"] if "callId" in one and one["state"] == state
    }


def _print_run(project: Project, run_id: str, as_json: bool) -> None:
    run = project.runs.find(run_id)
    print_shown(as_json, run.document, f"{run.id} {run.state}")


def _print_begun(project: Project, run_id: str, as_json: bool) -> None:
    """Print a run that begins or continues, with a note if nothing serves it."""
    _print_run(project, run_id, as_json)
    note_if_unserved(project, set(), waits=f"toolcrib runs wait {run_id}")


def _print_end(run: Run, as_json: bool) -> int:
    """Print the answer of a run, or its error, and return the exit code."""
    from toolcrib.runs.sessions import ENDED

    error = None if run.error is None else ToolcribError.from_dict(json.loads(run.error))
    code = 0 if error is None else error.exit_code
    if run.state == "cancelled":
        code = Cancelled.exit_code
    if run.state not in ENDED:
        code = TimedOut.exit_code
    if as_json:
        print_json(run.document)
    elif error is not None:
        print_error(error)
    elif run.state == "done":
        print_result(run.answer or "")
    else:
        print_note(f"The run has no answer: it is {run.state}. To wait for it: toolcrib runs wait {run.id}")
    return code


def _tokens(run: Mapping[str, Any]) -> str:
    return f"{run['inputTokens'] + run['outputTokens']:,}"


def _event_line(event: RunEvent, depth: int) -> str:
    detail = event.document["detail"]
    words = " ".join(f"{name}={_short(value)}" for name, value in detail.items() if value is not None)
    place = f"{event.number:6} {written(event.at)} {'  ' * depth}{event.run_id[-8:]}"
    return f"{place} {event.kind} {words}".rstrip()


def _short(value: Any) -> str:
    return one_line(value if isinstance(value, str) else json.dumps(value))[:100]


def _timeline(run: dict[str, Any], tree: dict[str, dict[str, Any]], indent: str = "") -> Iterable[str]:
    """Yield the lines of a run, with those below it where they were called."""
    cost = "unknown" if run["costUsd"] is None else f"${run['costUsd']:.4f}"
    yield f"{indent}run {run['id']} of {run['agent']}: {run['state']}"
    tokens = f"{run['inputTokens']:,} tokens in, {run['outputTokens']:,} out"
    yield f"{indent}  {tokens}, cost {cost}, {run['activeS']:.2f} s of work"
    yield f"{indent}  prompt: {one_line(run['prompt'])}"
    for one in run["iterations"]:
        took = _seconds(one["beganAt"], one["answeredAt"])
        replaced = "" if one["live"] else " (replaced by a retry)"
        step = f"{indent}  {one['number']}. {one['model']} {took:.2f} s{replaced}"
        yield f"{step} {one_line(one['text'])}".rstrip()
        for call in one["calls"]:
            times = call.get("beganAt"), call.get("endedAt")
            spent = "" if None in times else f" {_seconds(*times):.2f} s"
            shown = one_line(json.dumps(call["arguments"]))
            waits = "" if call.get("served", True) else ": no worker has this tool"
            yield f"{indent}     {call['name']} {shown}: {call['state']}{spent}{waits}"
            if call.get("runId") in tree:
                yield from _timeline(tree[call["runId"]], tree, f"{indent}       ")
    if run["error"]:
        yield f"{indent}  error: {one_line(run['error']['message'])}"
    if run["answer"]:
        yield f"{indent}  answer: {one_line(run['answer'])}"


def _seconds(begin: str, end: str) -> float:
    return (datetime.fromisoformat(end) - datetime.fromisoformat(begin)).total_seconds()
