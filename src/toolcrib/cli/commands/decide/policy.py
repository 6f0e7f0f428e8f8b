"""`toolcrib policy`: rules shown, explained, tried and added."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from toolcrib.cli.arguments import complete_tool, parse_arguments
from toolcrib.cli.commands.look.show import find_tool
from toolcrib.cli.confirm import Channel, decide, require_person
from toolcrib.cli.options import open_project, project_options, yes_option
from toolcrib.cli.output import one_line, print_json, print_note, print_result, printable
from toolcrib.cli.table import print_entries, print_table
from toolcrib.errors import DeniedError, UsageError
from toolcrib.spec import Caller, Tool
from toolcrib.state.private import diff_of

if TYPE_CHECKING:
    from toolcrib.guard import Rule
    from toolcrib.project import Project


def rule_for(tool: str, caller: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the rule that allows a caller's calls of a tool with these arguments."""
    return {"effect": "allow", "tools": [tool], "callers": [caller], "when": when_of(arguments)}


def when_of(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the condition that a call has these arguments, and maybe more."""
    constants = {name: {"const": value} for name, value in arguments.items()}
    return {"properties": constants, "required": list(arguments)}


def _rule_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the arguments and options of a rule."""
    for one in reversed(
        (
            click.argument("effect", type=click.Choice(("deny", "ask", "allow"))),
            click.argument("tool", required=False, shell_complete=complete_tool),
            click.argument("arguments", nargs=-1),
            project_options,
            click.option("--writes", is_flag=True, help="Only tools that do not state that they only read."),
            click.option(
                "--caller", "callers", multiple=True, help="Only cli, local, mcp:CLIENT or token:NAME."
            ),
        )
    ):
        command = one(command)
    return command


def _rule(
    project: Project,
    effect: str,
    tool: str | None,
    arguments: tuple[str, ...],
    *,
    writes: bool,
    callers: tuple[str, ...],
    **more: str | None,
) -> dict[str, Any]:
    """Return the rule that a command line states. Raises UsageError."""
    if tool is None and not writes and not callers:
        raise UsageError("the rule would be for every call", hint="Name a TOOL, or add --writes or --caller.")
    if tool is not None and tool.startswith("-"):
        raise UsageError(f"there is no option {tool}", hint="See toolcrib policy --help")
    is_pattern = tool is None or "*" in tool or "?" in tool
    schema = None if is_pattern else find_tool(project, str(tool)).input_schema
    rule = {
        "effect": effect,
        "tools": tool and [tool],
        "annotations": {"read_only": False} if writes else None,
        "callers": list(callers),
        "when": arguments and when_of(parse_arguments(arguments, schema)),
        **more,
    }
    return {key: value for key, value in rule.items() if value}


@click.command("add", context_settings={"ignore_unknown_options": True})
@_rule_options
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
    require_person("trust")
    project = open_project(root)
    rule = _rule(project, effect, tool, arguments, writes=writes, callers=callers, name=name, reason=reason)
    if not write_rule(project, rule, yes=yes, as_json=as_json):
        raise DeniedError("nothing was changed")
    if as_json:
        print_json({"rule": rule, "path": str(project.place.config)})


@click.command("try", context_settings={"ignore_unknown_options": True})
@_rule_options
@click.option("--days", type=click.IntRange(1, 366), default=7, show_default=True, help="Days of calls.")
def try_command(
    effect: str,
    tool: str | None,
    arguments: tuple[str, ...],
    root: str | None,
    as_json: bool,
    writes: bool,
    callers: tuple[str, ...],
    days: int,
) -> None:
    """Try a rule on the calls of the audit log. Nothing runs or changes.

    TOOL and ARGUMENTS are those of `toolcrib policy add`. Shows how many of the calls would have been
    allowed, asked about or denied, and each call that the rule matches.
    """
    from toolcrib.project.new_rule import rehearse, rule_of

    project = open_project(root)
    rule = _rule(project, effect, tool, arguments, writes=writes, callers=callers)
    found = rehearse(project, rule_of(rule), datetime.now(UTC) - timedelta(days=days))
    if as_json:
        print_json({"rule": rule, **found})
        return
    rows = [(what, *(str(found[what][one]) for one in ("allow", "ask", "deny"))) for what in ("now", "then")]
    print_table(("", "ALLOW", "ASK", "DENY"), rows)
    if found["gone"]:
        print_note(f"{found['gone']} calls are of tools that there are no longer.")
    if not found["matching"]:
        print_note("The rule matches none of these calls.")
        return
    print_entries(found["matching"], ("TIMES", "TOOL", "CALLER", "NOW", "THEN", "ARGUMENTS"))


def write_rule(
    project: Project,
    rule: dict[str, Any],
    *,
    yes: bool = False,
    channel: Channel | None = None,
    as_json: bool = False,
) -> bool:
    """Show the change of the settings, ask, and make it; return False if the person declines.

    `channel` is how the person has agreed already. With `as_json` standard output stays free. Raises as
    `NewRule` does.
    """
    from toolcrib.project.new_rule import NewRule

    new = NewRule.of(project.place, rule)
    for line in diff_of(new.path, new.before, new.text).splitlines():
        (print_note if as_json else print_result)(one_line(line))
    channel = channel or decide("Make this change?", "trust", yes=yes)
    if channel is None:
        return False
    new.add(project, channel)
    print_note(f"Added to {new.path}. To see what it decides: toolcrib policy explain TOOL")
    return True


@click.group("policy")
def command() -> None:
    """Show the policy, add or try rules, or explain a decision."""


command.add_command(add_command)
command.add_command(try_command)


@command.command("show")
@project_options
def show_command(root: str | None, as_json: bool) -> None:
    """Show the rules in their order."""
    from toolcrib.project import find, load_config

    policy = load_config(find(root).config).policy
    if as_json:
        rules = [rule.as_dict() for rule in policy.rules]
        print_json({"default": policy.default, "selfApproval": policy.self_approval, "rules": rules})
        return
    rows = [(rule.name, rule.effect, _conditions(rule)) for rule in policy.rules]
    print_table(("RULE", "EFFECT", "WHERE"), [*rows, ("default", policy.default, "no rule matches the call")])


@command.command("explain", context_settings={"ignore_unknown_options": True})
@click.argument("tool", shell_complete=complete_tool)
@click.argument("arguments", nargs=-1)
@project_options
@click.option(
    "--as",
    "callers",
    default=("cli",),
    show_default=True,
    multiple=True,
    help="The caller: cli, local, mcp:CLIENT or token:NAME. Twice for a client with a token.",
)
def explain_command(
    tool: str, arguments: tuple[str, ...], root: str | None, as_json: bool, callers: tuple[str, ...]
) -> None:
    """Explain the decision about a call of TOOL. Nothing runs.

    ARGUMENTS are written as for `toolcrib run`. If the tool needs some and none are given, the answer is the
    strictest decision that any arguments could lead to.
    """
    from toolcrib.project.reports import explain_call

    project = open_project(root)
    found: Tool = find_tool(project, tool)
    given = parse_arguments(arguments, found.input_schema)
    document = explain_call(project, found, given, *_caller(project, callers))
    if as_json:
        print_json(document)
    else:
        _print(document)


def _caller(project: Project, names: tuple[str, ...]) -> tuple[str, Caller | None]:
    """Return the caller of these names, and its identity if one of them is `token:NAME`."""
    from toolcrib.guard import Tokens

    tokens = [name for name in names if name.startswith("token:")]
    clients = [name for name in names if name not in tokens]
    if len(tokens) > 1 or len(clients) > 1:
        raise UsageError(
            f"{' and '.join(names)} are two callers", hint="Give one, or a token and the client that uses it."
        )
    if not tokens:
        return clients[0], None
    identity = Tokens(project.vault).get(tokens[0].removeprefix("token:")).caller
    return tokens[0], replace(identity, client=clients[0] if clients else "")


def _print(document: dict[str, Any]) -> None:
    print_result(printable(f"{document['effect']}: {document['why']}"))
    if document["steps"]:
        rows = [(step["rule"], step["effect"], _match(step)) for step in document["steps"]]
        print_table(("RULE", "EFFECT", ""), rows)
    if document["arguments"] is None:
        print_note("No arguments were given: this is the strictest decision that any could lead to.")
    if not document["listed"]:
        print_note("This caller does not see the tool in lists.")


def _match(step: dict[str, Any]) -> str:
    answer = {True: "matches", False: "no", None: "may match"}[step["matched"]]
    return answer if step["condition"] is None else f"{answer}: {step['condition']}: {step['why']}"


def _conditions(rule: Rule) -> str:
    parts = [
        f"{name}: {', '.join(value) if isinstance(value, list) else json.dumps(value, ensure_ascii=False)}"
        for name, value in rule.as_dict().items()
        if name not in ("name", "effect", "reason")
    ]
    conditions = "; ".join(parts) or "always"
    return f"{conditions} ({rule.reason})" if rule.reason else conditions
