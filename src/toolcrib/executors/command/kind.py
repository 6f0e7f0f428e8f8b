"""Kind `command`: a program and its arguments, or one shell line."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from toolcrib.errors import UsageError
from toolcrib.manifest.kinds import Effect, Kind, Start, block_of, filled_in, in_workspace, made_of
from toolcrib.manifest.plugins import on_call
from toolcrib.manifest.starter import Answers, Made, Starter, placeholders
from toolcrib.manifest.yaml.form import Misfit
from toolcrib.spec import CommandExec, Tool
from toolcrib.template import Namespaces, Values, literal_text, parse, parse_conditional, render_env

_FOR_SHELL = ("|", "||", "&&", ">", ">>", "<", "2>&1")


def _make(answers: Answers) -> Made:
    """Return the words of the command line; arguments without a placeholder follow them."""
    try:
        words = shlex.split(answers.runs)
        quoted = shlex.split(answers.runs, posix=False)
    except ValueError as error:
        raise UsageError(f"the command line cannot be read: {error}") from None
    if not words:
        raise UsageError("a command needs the command line that it runs", hint="--run 'wc -l ${path}'")
    if for_shell := next((word for word in quoted if word in _FOR_SHELL), None):
        raise UsageError(
            f"`{for_shell}` is for a shell, and a command runs without one",
            hint="Write the line into a script, and its path here; or put `sh -c '…'` around it.",
        )
    used = set(placeholders(answers.runs))
    words += [f"${{{name}}}" for name in answers.arguments if name not in used]
    return Made({"entrypoint": words[0], "args": words[1:], "stdout": {"format": "text"}})


_FOLDER = "toolcrib.executors.command"


def _parse(block: dict[str, Any]) -> CommandExec:
    whole = dict(block)
    stdout = whole.pop("stdout", {})
    return made_of(CommandExec, {**whole, "stdout_format": stdout.get("format")})


def _write(config: CommandExec) -> dict[str, Any]:
    block = block_of(config)
    return {
        "stdout" if key == "stdout_format" else key: {"format": value} if key == "stdout_format" else value
        for key, value in block.items()
    }


def _effect(tool: Tool, names: Namespaces) -> Effect:
    config = tool.config
    assert isinstance(config, CommandExec)
    env = {
        name: parse(literal_text(value) if isinstance(value, bool | int | float) else value, names)
        for name, value in config.env.items()
    }
    what = (
        config.entrypoint,
        parse(list(config.args), names),
        parse(config.shell, names),
        config.allow_dash,
        env,
        config.cwd,
        parse(config.stdin, names),
        config.stdout_format or tool.output.format,
        config.exit_codes_ok,
    )
    return {("exec", "auth", "outputs.format"): what}


def _plan(tool: Tool, block: dict[str, Any], values: Values) -> dict[str, Any]:
    from toolcrib.executors.command.shell import parse_shell, variables_with_values

    plan, config, names = filled_in(tool, block, values), tool.config, Namespaces.of(tool)
    assert isinstance(config, CommandExec)
    if config.shell is not None:
        env = {name: render_env(parse_conditional(text, names), values) for name, text in config.env.items()}
        given = {name: text for name, text in env.items() if text is not None}
        template = parse_conditional(config.shell, names)
        line = parse_shell(template, variables_with_values(config.env, names)).line(values)
        plan["would"]["shell"] = line.shown(line.environment(values, config.allow_dash, given))
    return plan


def _touches(tool: Tool) -> Iterator[str]:
    assert isinstance(tool.config, CommandExec)
    if tool.config.allow_code:
        yield "code: values of a call may be run as code"


def _starts(config: CommandExec) -> Start:
    words = config.args if config.shell is None else (config.shell,)
    return Start((config.entrypoint, *words), config.cwd)


KIND = Kind(
    name="command",
    config=CommandExec,
    executor=in_workspace(f"{_FOLDER}.executor:CommandExecutor"),
    starter=Starter(
        _make,
        runs="What does it run? (such as: wc -l ${path})",
        reads="Which folders may it read? (such as: src docs)",
        writes="Which folders may it write?",
        format="text",
    ),
    schema=Path(__file__).with_name("schema.json"),
    docs=("a confined process", "the kernel: see [The sandbox](sandbox.md)"),
    parse=_parse,
    write=_write,
    misfits=(Misfit(("exit_codes_ok",), "minItems", rule="exit-codes", hint="write `exit_codes_ok: [0]`"),),
    templated=("args", "env", "stdin", "shell"),
    fixed=("entrypoint", "cwd"),
    lint=on_call(f"{_FOLDER}.lint:check"),
    absent=on_call(f"{_FOLDER}.lint:absent"),
    starts=_starts,
    effect=_effect,
    plan=_plan,
    touches=_touches,
    granted=lambda tool, granted: replace(granted, secrets=tool.permissions.secrets),
    confined=True,
    for_agents=True,
    untraceable=None,
)
