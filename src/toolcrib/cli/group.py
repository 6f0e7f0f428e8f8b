"""The program itself: its commands by name, loaded on use, and how it ends."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import click

from toolcrib import __version__
from toolcrib.cli.output import tell_error, tell_interrupted
from toolcrib.errors import ToolcribError, UsageError

__all__ = ["COMMANDS", "toolcrib"]

COMMANDS = {
    "approvals": ("decide.approvals", "Decide on calls that wait for a person."),
    "audit": ("look.audit", "Check, show and search the audit log."),
    "convert": ("make.convert", "Write tools in another format, and say what gets lost."),
    "doctor": ("look.doctor", "Show what this machine can confine, and how."),
    "import": ("make.import_openapi", "Make tools of the operations of an OpenAPI document."),
    "init": ("make.init", "Make a project here, with example tools if wanted."),
    "lint": ("make.lint", "Check every manifest; exit 4 on any error."),
    "list": ("look.list", "List the project's tools."),
    "lock": ("decide.lock", "Pin every tool as it is now, or check the pins."),
    "policy": ("decide.policy", "Show the policy, and explain what it says of a call."),
    "review": ("decide.review", "Look at tools before their first use, and say that you have."),
    "run": ("run.run", "Run one tool."),
    "schema": ("make.schema", "Print the JSON Schema of the manifest format."),
    "search": ("look.search", "Find tools by name, tags, description and argument names."),
    "secrets": ("connect.secrets", "Show which secrets the tools need, and whether they are there."),
    "serve": ("connect.serve", "Serve the project's tools over MCP."),
    "servers": ("connect.servers", "Show MCP servers that the project uses; review what they offer."),
    "show": ("look.show", "Show one tool: arguments, permissions, examples."),
    "test": ("make.test", "Run the examples of the tools, and compare."),
    "trace": ("run.trace", "Run one tool watched, and print the smallest permissions that the run needed."),
    "token": ("connect.token", "Make, list and revoke callers' tokens."),
    "trust": ("decide.trust", "Let settings count that weaken a guard."),
}
"""Command name to its module below `toolcrib.cli.commands` and its one line of help."""


class _Commands(click.Group):
    """Commands that are imported when they are asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(f"toolcrib.cli.commands.{COMMANDS[cmd_name][0]}").command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            from toolcrib.spec.naming import nearest

            close = nearest(args[0], COMMANDS)
            ctx.fail(f"there is no command {args[0]!r}." + (f" Did you mean {close}?" if close else ""))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl((name, text) for name, (_, text) in sorted(COMMANDS.items()))

    def main(self, args: Sequence[str] | None = None, *rest: Any, **extra: Any) -> Any:
        """Run and end the process with the exit code that the outcome has."""
        _fill_closed()
        for stream in (sys.stdout, sys.stderr):
            # What the locale's encoding cannot write becomes an escape instead of the end of the program.
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(errors="backslashreplace")
        extra["standalone_mode"] = False
        words = list(sys.argv[1:] if args is None else args)
        options = words[: words.index("--")] if "--" in words else words
        code: Any = 1
        try:
            code = super().main(words, *rest, **extra)
            sys.stdout.flush()
        except Exception as error:
            try:
                code = _failed(error, as_json="--json" in options)
                sys.stdout.flush()
            except OSError:  # Nobody reads any more, or the disk is full, which has been told.
                _abandon_output()
        except KeyboardInterrupt:
            code = tell_interrupted(as_json="--json" in options)
        sys.exit(code if isinstance(code, int) else 0)


def _failed(error: Exception, *, as_json: bool) -> int:
    """Tell why a command ended; with `--json` that too is one document on standard output."""
    if isinstance(error, BrokenPipeError):
        raise error
    if isinstance(error, click.Abort):
        return tell_interrupted(as_json=as_json)
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        error.show()
        return 2
    if isinstance(error, click.ClickException):
        path = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx else "toolcrib"
        return tell_error(UsageError(error.format_message(), hint=f"See {path} --help"), as_json=as_json)
    if isinstance(error, ToolcribError):
        return tell_error(error, as_json=as_json)
    if isinstance(error, OSError) and _of_output(error):
        return tell_error(ToolcribError(f"standard output cannot be written: {error.strerror}"))
    import traceback

    traceback.print_exception(error)
    fault = ToolcribError(
        f"{type(error).__name__}: {error}", hint="This is a fault of Toolcrib: please report what is above."
    )
    return tell_error(fault, as_json=as_json)


def _fill_closed() -> None:
    """Open what a caller closed of the first three descriptors: no file of ours shall take its place."""
    closed = [number for number in range(3) if not _is_open(number)]
    for number in closed:
        nowhere = os.open(os.devnull, os.O_RDONLY if number == 0 else os.O_WRONLY)
        if nowhere != number:
            os.dup2(nowhere, number)
            os.close(nowhere)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if number in closed:
            setattr(sys, name, open(number, "r" if number == 0 else "w", closefd=False))  # noqa: SIM115


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def _of_output(error: OSError) -> bool:
    """Whether writing a result failed, on a full disk say: commands open no other file without a name."""
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    module = at.tb_frame.f_globals.get("__name__", "") if at is not None else ""
    return error.filename is None and module.startswith(("click.", "toolcrib.cli."))


def _abandon_output() -> None:
    """Nobody reads any more: have nothing left that Python could fail to write at exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "--version", message="toolcrib %(version)s")
def toolcrib() -> None:
    """The tool crib for AI agents: tools described, checked, confined, run and accounted for.

    Exit codes: 0 ok, 1 failure, 2 usage, 3 not found, 4 validation or manifest errors, 5 denied or not
    approved, 6 timed out, 7 conflict, 130 interrupted.
    """
