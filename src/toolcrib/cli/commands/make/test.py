"""`toolcrib test`."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import click

from toolcrib.cli.caller import caller_of
from toolcrib.cli.options import FileCommand, project_options
from toolcrib.cli.output import print_diagnostics, print_json, print_note, print_result, printable, shown
from toolcrib.cli.progress import waiting
from toolcrib.errors import InvalidInput, NotFoundError, UsageError

if TYPE_CHECKING:
    from toolcrib.manifest import Diagnostic
    from toolcrib.project.authoring.examples import Tried

_CASSETTE = click.Path(dir_okay=False, path_type=Path)
_LABELS = {"passed": "ok     ", "failed": "FAILED ", "skipped": "skipped"}


@click.command("test", cls=FileCommand)
@click.argument("names", nargs=-1)
@project_options
@click.option("--live", is_flag=True, help="Also run tools that use the network.")
@click.option(
    "--record", type=_CASSETTE, help="As --live, and keep the answers of HTTP servers in this file."
)
@click.option("--replay", type=_CASSETTE, help="Take the answers of HTTP servers from this file.")
def command(
    names: tuple[str, ...],
    root: str | None,
    as_json: bool,
    live: bool,
    record: Path | None,
    replay: Path | None,
) -> int:
    """Run the examples in the manifests and compare the results.

    `...` in an example's expected_output matches any text. Tools that use the network, need approval or
    lack a secret are skipped, with the reason. A recorded file has no secrets, and replaying it needs none.
    Exit 1 if an example fails. Without NAMES, exit 4 if a manifest has errors.
    """
    from toolcrib.cli.commands.decide.accepting import accepted_project, ask_for_trust
    from toolcrib.egress.cassettes import cassette
    from toolcrib.project import Project
    from toolcrib.project.authoring.examples import ReplayedSecrets, try_examples

    if record and replay:
        raise UsageError("--record and --replay exclude each other", hint="Record first, then replay.")
    if replay and not replay.is_file():
        raise NotFoundError(f"there is no cassette {replay}", hint=f"Make it with --record {replay}.")
    project = accepted_project(root, ask=not as_json)
    if replay:
        project = Project.open(root, secrets=ReplayedSecrets(project.secrets))
    caller, identity = caller_of(project)
    if not project.trust.given:
        raise project.trust.refusal(own=identity is None)
    if not as_json:
        ask_for_trust(
            project,
            lambda tool: bool(tool.examples) and (not names or tool.name in names),
            "run the examples",
        )

    path = record or replay
    answers = cassette(path, "record" if record else "replay", project.redact) if path else nullcontext()

    async def run_examples() -> tuple[list[Tried], list[Diagnostic]]:
        found: list[Tried] = []
        async with project:
            with answers, waiting("running examples") as say:
                trying = try_examples(
                    project,
                    names,
                    live=live or record is not None,
                    replayed=replay is not None,
                    caller=caller,
                    identity=identity,
                )
                async for one in trying:
                    found.append(one)
                    say(f"{len(found)} done, {one.tool} last")
            return found, [] if names else project.errors

    found, broken = asyncio.run(run_examples())
    counts = _report(found, broken, as_json=as_json)
    return 1 if counts["failed"] else InvalidInput.exit_code if broken else 0


def _report(found: list[Tried], broken: list[Diagnostic], *, as_json: bool) -> dict[str, int]:
    """Print the outcomes; return how many there are of each."""
    counts = {outcome: sum(one.outcome == outcome for one in found) for outcome in _LABELS}
    if as_json:
        diagnostics = [finding.as_dict() for finding in shown(broken)]
        print_json({"examples": [one.as_dict() for one in found], **counts, "diagnostics": diagnostics})
        return counts
    for one in found:
        print_result(printable(f"{_LABELS[one.outcome]} {one.tool}[{one.number}] {one.description}".rstrip()))
        for line in one.problem.splitlines():
            print_note(f"        {line}")
    print_diagnostics(broken)
    if not found:
        print_note("There is nothing to test: no manifest here has `examples`.")
    print_note(", ".join(f"{number} {outcome}" for outcome, number in counts.items()))
    return counts
