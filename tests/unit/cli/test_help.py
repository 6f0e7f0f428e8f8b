"""The help of every command: its first line fits, and its examples are calls that the program takes."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

import click

from toolcrib.cli.examples import examples_of
from toolcrib.cli.group import COMMANDS, toolcrib


def commands(command: click.Command, context: click.Context) -> Iterator[tuple[click.Command, click.Context]]:
    """Yield a command and those below it, each with its context."""
    yield command, context
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from commands(
                below, click.Context(below, info_name=name, parent=context, terminal_width=78)
            )


def program() -> click.Context:
    """Return a context of the program with its own settings: click keeps the help option of the first one."""
    return click.Context(toolcrib, info_name="toolcrib", terminal_width=78, **toolcrib.context_settings)


EVERY = list(commands(toolcrib, program()))


def test_every_first_line_fits_uncut() -> None:
    for command, context in EVERY:
        text = command.get_help(context)
        assert max(map(len, text.splitlines())) <= 80, context.command_path
        _, _, listed = text.partition("Commands:\n")
        for line in listed.partition("\n\n")[0].splitlines():
            assert line.startswith("  "), text
            assert line[2] != " ", f"{context.command_path}: wrapped: {line}"
            assert not line.endswith("..."), f"{context.command_path}: cut: {line}"


def test_every_command_that_ends_by_itself_writes_json() -> None:
    without = {
        context.command_path.removeprefix("toolcrib ")
        for command, context in EVERY
        if not isinstance(command, click.Group) and not any("--json" in one.opts for one in command.params)
    }
    servers = {"bridge", "channel", "operator", "serve", "sidecar", "worker"}
    assert without == {"approvals watch", "ui", *servers}


def test_the_list_of_commands_shows_the_first_line_of_each_help() -> None:
    helps = {context.command_path: command.help or "" for command, context in EVERY}
    for name, (_, summary) in COMMANDS.items():
        assert helps[f"toolcrib {name}"].partition("\n")[0] == summary


def test_every_help_ends_with_two_examples_one_a_line() -> None:
    for command, context in EVERY[1:]:
        examples = examples_of(context.command_path)
        assert len(examples) == 2, context.command_path
        expected = "\n".join(["  Examples:", *(f"    {line}" for line in examples)])
        assert command.get_help(context).endswith(expected), context.command_path


def test_every_example_is_a_call_that_the_program_takes() -> None:
    for line in {line for _, context in EVERY for line in examples_of(context.command_path)}:
        words = shlex.split(line.partition(" > ")[0].partition("toolcrib ")[2])
        command: click.Command = toolcrib
        context = program()
        while isinstance(command, click.Group):
            name, below, words = command.resolve_command(context, words)
            assert below is not None
            context, command = click.Context(below, info_name=name, parent=context), below
        command.make_context(command.name, words, parent=context.parent)  # raises UsageError


def test_the_help_of_the_program_is_one_screen_that_names_every_command_once() -> None:
    text = toolcrib.get_help(program())
    assert len(text.splitlines()) <= 24
    listed = text.partition("All commands")[2].partition("Options:")[0]
    names = [name for row in listed.splitlines()[1:] for name in row.strip().partition("  ")[2].split(", ")]
    assert sorted(name.strip() for name in names if name) == sorted(COMMANDS)


def test_there_are_few_commands() -> None:
    assert len(COMMANDS) <= 34


def test_rare_options_stand_last() -> None:
    for command, context in EVERY:
        rare = [one.name in ("data", "database") for one in command.params]
        assert rare == sorted(rare), context.command_path
