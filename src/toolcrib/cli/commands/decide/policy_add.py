"""`toolcrib policy add`: one more rule in the project's settings, also for `approvals approve`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from toolcrib.cli.arguments import complete_tool, parse_arguments
from toolcrib.cli.commands.look.show import find_tool
from toolcrib.cli.confirm import Channel, decide, require_person
from toolcrib.cli.files import diff_of, read_inside, replace_file
from toolcrib.cli.options import open_project, project_options, yes_option
from toolcrib.cli.output import one_line, print_json, print_note, print_result
from toolcrib.cli.yaml_text import when_of, with_rule
from toolcrib.errors import DeniedError, NotTrusted, UsageError

if TYPE_CHECKING:
    from toolcrib.project import Config, Project

_ABOUT = "the policy"


@click.command("add", context_settings={"ignore_unknown_options": True})
@click.argument("effect", type=click.Choice(("deny", "ask", "allow")))
@click.argument("tool", required=False, shell_complete=complete_tool)
@click.argument("arguments", nargs=-1)
@project_options
@click.option("--writes", is_flag=True, help="Only tools that do not state that they only read.")
@click.option("--caller", "callers", multiple=True, help="Only cli, local, mcp:CLIENT or token:NAME.")
@click.option("--name", help="The rule's name in messages.")
@click.option("--reason", help="Shown to the caller, and to the person who is asked.")
@yes_option
def add_command(
    effect: str,
    tool: str | None,
    arguments: tuple[str, ...],
    root: str | None,
    as_json: bool,
    writes: bool,
    callers: tuple[str, ...],
    name: str | None,
    reason: str | None,
    yes: bool,
) -> None:
    """Add a rule to the policy. Shows the change of the settings, then asks.

    TOOL is a name, or a pattern such as `repo_*`. With ARGUMENTS, written as for `toolcrib run`, the rule is
    for calls with exactly these values; a call may have more arguments. deny beats ask, and ask beats allow.
    """
    require_person(_ABOUT, refuse=DeniedError)
    if tool is None and not writes and not callers:
        raise UsageError("the rule would be for every call", hint="Name a TOOL, or add --writes or --caller.")
    if tool is not None and tool.startswith("-"):
        raise UsageError(f"there is no option {tool}", hint="See toolcrib policy add --help")
    project = open_project(root)
    is_pattern = tool is None or "*" in tool or "?" in tool
    schema = None if is_pattern else find_tool(project, str(tool)).input_schema
    rule = {
        "name": name,
        "effect": effect,
        "tools": tool and [tool],
        "annotations": {"read_only": False} if writes else None,
        "callers": list(callers),
        "when": arguments and when_of(parse_arguments(arguments, schema)),
        "reason": reason,
    }
    rule = {key: value for key, value in rule.items() if value}
    if not write_rule(project, rule, yes=yes, as_json=as_json):
        raise DeniedError("nothing was changed")
    if as_json:
        print_json({"rule": rule, "path": str(project.place.config)})


def write_rule(
    project: Project,
    rule: dict[str, Any],
    *,
    yes: bool = False,
    channel: Channel | None = None,
    as_json: bool = False,
) -> bool:
    """Show the change of the settings, ask, and make it; return False if the person declines.

    Settings that were trusted are trusted with it. `channel` is how the person has agreed already. With
    `as_json` standard output stays free. Raises UsageError for settings that a rule cannot be added to,
    ConflictError if somebody changes them meanwhile.
    """
    from toolcrib.project import load_config
    from toolcrib.project.config.settings import config_of
    from toolcrib.state import user_name

    path, place = project.place.config, project.place
    before = read_inside(path, place.root)
    then = load_config(path, place.root)
    try:
        text = with_rule(before or "", rule)
    except (ValueError, AttributeError, TypeError):
        raise UsageError(
            f"{path} has another form, so nothing is added to it",
            hint=f"Add this to policy.rules yourself: {json.dumps(rule, ensure_ascii=False)}",
        ) from None
    # A rule that the policy would refuse is refused here, before anything is asked.
    config_of(text, path)
    for line in diff_of(path, before, text).splitlines():
        (print_note if as_json else print_result)(one_line(line))
    channel = channel or decide("Change the policy so?", _ABOUT, yes=yes, refuse=DeniedError)
    if channel is None:
        return False
    project.audit.record("POLICY_CHANGED", approver=user_name(), channel=channel, rule=rule)
    replace_file(path, before, text)
    _trust(project, then, text)
    print_note(f"Added to {path}. To see what it decides: toolcrib policy explain TOOL")
    return True


def _trust(project: Project, then: Config, text: str) -> None:
    """Trust the settings as they are now, if they were trusted and nothing else in them has changed."""
    from toolcrib.project import load_config
    from toolcrib.state import user_name

    trust, now = project.acceptance.trust, load_config(project.place.config, project.root)
    if not trust.is_trusted(then.digest):
        return
    # What else is trusted with the settings must be as it was: only the rule was agreed to.
    same = (now.started, now.unconfined, now.servers) == (then.started, then.unconfined, then.servers)
    if not same or now.document is None or now.document.raw != text.encode():
        raise NotTrusted("the settings have changed meanwhile", hint="To see them: toolcrib trust")
    trust.accept(now.digest, user_name(), now.started, now.policy_document)
