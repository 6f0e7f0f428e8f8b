"""`toolcrib policy`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from toolcrib.cli.arguments import complete_tool
from toolcrib.cli.output import json_option, note, printable, root_option, write_json

if TYPE_CHECKING:
    from toolcrib.guard import Rule, RuleCheck
    from toolcrib.project import Project
    from toolcrib.spec import Caller, Tool

__all__ = ["command"]


@click.group("policy")
def command() -> None:
    """Show the project's policy, and explain what it says of a call."""


@command.command("show")
@root_option
@json_option
def show(root: str | None, as_json: bool) -> None:
    """Show the rules, in the order they are written."""
    from toolcrib.project import find, load_config

    policy = load_config(find(root).config).policy
    if as_json:
        rules = [rule.as_dict() for rule in policy.rules]
        write_json({"default": policy.default, "self_approval": policy.self_approval, "rules": rules})
        return
    from toolcrib.cli.table import print_table

    rows = [(rule.name, rule.effect, _conditions(rule)) for rule in policy.rules]
    print_table(("RULE", "EFFECT", "WHERE"), [*rows, ("default", policy.default, "no rule matches the call")])


@command.command("explain")
@click.argument("tool", shell_complete=complete_tool)
@click.argument("arguments", nargs=-1)
@root_option
@json_option
@click.option(
    "--as",
    "caller",
    default="cli",
    show_default=True,
    help="Who calls: cli, local, mcp:CLIENT or token:NAME.",
)
def explain(tool: str, arguments: tuple[str, ...], root: str | None, as_json: bool, caller: str) -> None:
    """Say what the policy decides on a call of TOOL, by which rule, and why. Nothing is run.

    ARGUMENTS are given as to `toolcrib run`. Without any, where the tool needs some, the decision is the
    strongest that any arguments could lead to.
    """
    from toolcrib.cli.commands.look.show import find_tool
    from toolcrib.guard import Policy
    from toolcrib.project import Project

    project = Project.open(root)
    found: Tool = find_tool(project, tool)
    given = _normalised(found, arguments)
    identity = _identity(project, caller)
    policy = Policy(project.config.policy)
    decision = policy.decide(found, caller, given)
    refused = _beyond_token(identity, found)
    steps = policy.explain(found, caller, given)
    document = {
        "tool": found.name,
        "bundle": found.bundle,
        "caller": caller,
        "arguments": given,
        "effect": "deny" if refused is not None else decision.effect,
        "rule": decision.rule.name if decision.rule is not None and refused is None else None,
        "why": refused or decision.why,
        "listed": policy.visible(found, caller, identity),
        "steps": [_step(step) for step in steps],
    }
    if as_json:
        write_json(document)
    else:
        _print(document)


def _normalised(tool: Tool, words: tuple[str, ...]) -> dict[str, Any] | None:
    """The arguments as they would run; None for none given where some are needed."""
    from toolcrib.cli.arguments import parse_arguments
    from toolcrib.errors import InvalidInput
    from toolcrib.schema import ArgumentCheck

    try:
        return ArgumentCheck(tool.input_schema).check(parse_arguments(words))
    except InvalidInput:
        if words:
            raise
        return None


def _identity(project: Project, caller: str) -> Caller | None:
    """What a token allows; any other caller is this machine's own user, or a client they started."""
    kind, _, name = caller.partition(":")
    if kind != "token":
        return None
    from toolcrib.guard import Tokens
    from toolcrib.state import Vault

    return Tokens(Vault(project.root)).get(name).caller


def _beyond_token(identity: Caller | None, tool: Tool) -> str | None:
    from toolcrib.errors import InvalidToken
    from toolcrib.guard import require_scope

    if identity is None:
        return None
    try:
        require_scope(identity, "invoke", tool)
    except InvalidToken as error:
        return error.message
    return None


def _step(step: RuleCheck) -> dict[str, Any]:
    return {
        "rule": step.rule.name,
        "effect": step.rule.effect,
        "matched": step.matched,
        "condition": step.condition,
        "why": step.why,
    }


def _print(document: dict[str, Any]) -> None:
    from toolcrib.cli.table import print_table

    print(printable(f"{document['effect']}: {document['why']}"))
    if document["steps"]:
        rows = [(step["rule"], step["effect"], _told(step)) for step in document["steps"]]
        print_table(("RULE", "EFFECT", ""), rows)
    if document["arguments"] is None:
        note("No arguments were given: this is the strongest that any could lead to.")
    if not document["listed"]:
        note("The tool is not listed to this caller.")


def _told(step: dict[str, Any]) -> str:
    told = {True: "matches", False: "no", None: "may match"}[step["matched"]]
    return told if step["condition"] is None else f"{told}: {step['condition']}: {step['why']}"


def _conditions(rule: Rule) -> str:
    import json

    said = rule.as_dict()
    parts = [
        f"{name}: {', '.join(value) if isinstance(value, list) else json.dumps(value, ensure_ascii=False)}"
        for name, value in said.items()
        if name not in ("name", "effect", "reason")
    ]
    told = "; ".join(parts) or "always"
    return f"{told} ({rule.reason})" if rule.reason else told
