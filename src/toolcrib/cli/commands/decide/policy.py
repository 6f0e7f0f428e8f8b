"""`toolcrib policy`: rules shown, explained and added."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from toolcrib.cli.arguments import complete_tool, parse_arguments
from toolcrib.cli.commands.decide.policy_add import add_command
from toolcrib.cli.commands.look.show import find_tool
from toolcrib.cli.options import open_project, project_options
from toolcrib.cli.output import print_json, print_note, print_result, printable
from toolcrib.cli.table import print_listing, print_table
from toolcrib.errors import UsageError
from toolcrib.spec import Caller, Tool

if TYPE_CHECKING:
    from toolcrib.guard import Rule
    from toolcrib.project import Project


@click.group("policy")
def command() -> None:
    """Show the policy, add rules, or explain a decision."""


command.add_command(add_command)


@command.command("show")
@project_options
def show_command(root: str | None, as_json: bool) -> None:
    """Show the rules in their order."""
    from toolcrib.project import find, load_config

    policy = load_config(find(root).config).policy
    print_listing(
        as_json,
        {
            "default": policy.default,
            "self_approval": policy.self_approval,
            "rules": [rule.as_dict() for rule in policy.rules],
        },
        ("RULE", "EFFECT", "WHERE"),
        [
            *((rule.name, rule.effect, _conditions(rule)) for rule in policy.rules),
            ("default", policy.default, "no rule matches the call"),
        ],
    )


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
