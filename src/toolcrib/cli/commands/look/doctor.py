"""`toolcrib doctor`."""

from __future__ import annotations

from typing import Any

import click

from toolcrib.cli.fit import fit_report, print_fit
from toolcrib.cli.hosts import HOSTS
from toolcrib.cli.options import project_options
from toolcrib.cli.output import one_line, print_json, print_result
from toolcrib.cli.table import print_table

_REFUSED = "Command and Python tools are refused, unless a trusted project sets sandbox.minimum:"
_MEANING = {
    "full+cgroup": "Command and Python tools are confined, and every limit is enforced.",
    "full": "Command and Python tools are confined; without a control group their memory is not limited.",
    "landlock": f"{_REFUSED} landlock.",
    "none": f"{_REFUSED} none.",
}


@click.command("doctor")
@click.option(
    "--client",
    type=click.Choice(sorted(HOSTS)),
    help="Show instead what this host's list of the project's tools changes or cannot show.",
)
@project_options
def command(client: str | None, root: str | None, as_json: bool) -> int:
    """Show how well this machine can confine tools.

    Each mechanism is tried. Exit 1 if the level is below full, or with --client if a tool cannot be shown.
    """
    if client is not None:
        fit = fit_report(root, client)
        print_json(fit) if as_json else print_fit(fit)
        return 1 if fit["refused"] else 0
    from toolcrib.project.reports import describe_machine

    document = describe_machine()
    if as_json:
        print_json(document)
    else:
        _print(document)
    return 0 if document["level"].startswith("full") else 1


def _print(document: dict[str, Any]) -> None:
    from toolcrib.state import user_settings_file

    print_result(
        f"toolcrib {document['toolcrib']}, Python {document['python']}, Linux {document['kernel']}\n"
    )
    rows = [
        (
            mechanism["name"],
            "ok" if mechanism["ok"] else "missing",
            mechanism["detail"] + (f". Without it, {mechanism['cost']}" if mechanism["cost"] else ""),
        )
        for mechanism in document["mechanisms"]
    ]
    print_table(("MECHANISM", "", "DETAIL"), rows)
    if document["decideWithoutTerminal"]:
        print_result(
            f"\nWARNING: by decide_without_terminal in {user_settings_file()} any program that runs as you"
            " may decide:"
        )
        for one in document["decideWithoutTerminal"]:
            print_result(one_line(f"  {', '.join(one['what'])} in {', '.join(one['where'])}"))
    print_result(f"\nlevel: {document['level']}. {_MEANING[document['level']]}")
