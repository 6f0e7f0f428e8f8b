"""The program: its commands by name, imported on use, and its end with an exit code."""

from __future__ import annotations

import errno
import gc
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from toolcrib import __version__
from toolcrib.cli.caller import admit, require_open, take_token
from toolcrib.cli.examples import examples_of
from toolcrib.cli.output import print_error, print_interrupted, print_result, results
from toolcrib.errors import StateUnavailable, ToolcribError, UnavailableError, UsageError

COMMANDS = {
    "agents": ("run.agents", "Show, import and choose agents, and hand tasks to them."),
    "approvals": ("decide.approvals", "Approve or deny calls that wait for a person."),
    "audit": ("look.audit", "Verify, show and search the audit log."),
    "bundle": ("bundles.bundle", "Manage bundles, groups of tools with one switch, and their tools."),
    "bridge": ("pods.bridge", "Pass messages of a pod or project on to NATS, until SIGTERM or Ctrl-C."),
    "calls": ("run.calls", "Submit calls that survive any process; follow, cancel and retry them."),
    "channel": ("pods.channel", "Deliver messages from NATS to one service, until SIGTERM or Ctrl-C."),
    "connect": ("connect.connect", "Let an agent host use the project's tools over MCP."),
    "doctor": ("look.doctor", "Show how well this machine can confine tools."),
    "import": ("make.importing", "Create tools from OpenAPI documents and from other formats."),
    "init": ("make.init", "Create a project in FOLDER (default: here)."),
    "lint": ("make.lint", "Check settings and manifests for errors."),
    "list": ("look.list", "List the tools of the project, or those that match WORDS."),
    "messages": ("pods.messages", "List messages to people on channels, and send dead letters again."),
    "new": ("make.new", "Create a manifest for a new tool."),
    "operator": ("pods.operator", "Run AgentRuns in a Kubernetes cluster, until SIGTERM or Ctrl-C."),
    "pod": ("pods.pod", "Run agents as Kubernetes would, on this machine."),
    "pod-run": ("pods.pod_run", "Run the task that the environment describes, and print the answer."),
    "policy": ("decide.policy", "Show the policy, add or try rules, or explain a decision."),
    "run": ("run.run", "Run one tool."),
    "runs": ("run.runs", "Run agents, and follow, cancel, retry and fork their runs."),
    "secrets": ("connect.secrets", "Set secrets, and show which ones the tools need."),
    "serve": ("connect.serve", "Serve the project's tools over MCP or REST."),
    "servers": ("connect.servers", "Manage the MCP servers that the project uses."),
    "sidecar": ("pods.sidecar", "Run the commands of an agent runner, confined, until SIGTERM."),
    "show": ("look.show", "Show one tool: its arguments, permissions and examples."),
    "status": ("look.status", "Show workers, queue, and what waits or cannot be used."),
    "test": ("make.test", "Run the examples in the manifests and compare the results."),
    "token": ("connect.token", "Create, list and revoke access tokens."),
    "trace": ("run.trace", "Run one tool and print the smallest permissions it needed."),
    "trust": ("decide.trust", "Trust what is new or has changed in a project."),
    "ui": ("connect.ui", "Open the web page of the project."),
    "worker": ("run.worker", "Run the calls that were submitted, until SIGTERM or Ctrl-C."),
    "workflows": ("run.workflows", "Run tools, agents and workflows in steps."),
}
"""Command name to its module below `toolcrib.cli.commands`, and to the first line of its help."""
_FIRST = ("init", "new", "list", "run", "trust", "connect", "serve", "ui")
"""The commands of the first hour."""
_GROUPS = {
    "making": "init new lint test trace import bundle",
    "calling": "run calls agents workflows runs worker",
    "deciding": "trust approvals policy",
    "connecting": "connect serve ui servers secrets token",
    "looking": "list show status audit doctor",
    "pods": "bridge channel messages operator pod pod-run sidecar",
}
"""Every command, in the groups of `toolcrib help GROUP`."""
_RARE = ("database", "data")
"""The options that stand last in the help of a command."""
_MEANT = {
    "add": "new or servers add",
    "call": "run",
    "check": "lint",
    "completion": "--completion",
    "convert": "import convert",
    "create": "init or new",
    "exec": "run",
    "logs": "audit tail",
    "ls": "list",
    "mcp": "serve or servers",
    "schema": "lint --schema",
    "search": "list",
    "sessions": "runs sessions",
    "start": "serve",
    "submit": "calls submit",
    "tool": "bundle tool",
    "validate": "lint",
    "web": "ui",
    "version": "--version",
}
"""Words that people try, and the commands that they mean."""


class _Commands(click.Group):
    """A group that imports a command when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(f"toolcrib.cli.commands.{COMMANDS[cmd_name][0]}").command
        # Here, because every command passes it: one that checks no token is closed to all tokens.
        require_open(cmd_name, command)
        _add_examples(command, f"toolcrib {cmd_name}")
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if ctx.resilient_parsing:  # A shell completes words: nothing is printed.
            args = args[args[:1] == ["help"] :]
            if not args or args[0] not in COMMANDS:
                return None, None, []
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            from toolcrib.spec.naming import nearest

            close = _MEANT.get(args[0]) or nearest(args[0], COMMANDS)
            ctx.fail(f"there is no command {args[0]!r}." + (f" Did you mean {close}?" if close else ""))
        return super().resolve_command(ctx, args)

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write one screen: the first commands, and the names of all."""
        formatter.write_text(f"Usage: {ctx.command_path} [OPTIONS] COMMAND [ARGS]...\n\n  {_ABOUT}")
        with formatter.section("The first hour"):
            formatter.write_dl([(name, COMMANDS[name][1]) for name in _FIRST])
        with formatter.section("All commands (toolcrib help GROUP, or toolcrib help COMMAND)"):
            formatter.write_dl([(name, ", ".join(words.split())) for name, words in _GROUPS.items()])
        formatter.write(_END)

    def main(self, args: Sequence[str] | None = None, *rest: Any, **extra: Any) -> Any:
        """Run a command and end the process with its exit code."""
        take_token()
        _open_closed_streams()
        for stream in (sys.stdout, sys.stderr):
            # A character that the locale's encoding lacks becomes an escape, not the end of the program.
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(errors="backslashreplace")
        words = list(sys.argv[1:] if args is None else args)
        if words[:1] == ["help"]:
            if words[1:2] and words[1] in _GROUPS:
                return _print_group(words[1])
            words = [*words[1:], "--help"]
        as_json = "--json" in (words[: words.index("--")] if "--" in words else words)
        code: Any = 1
        try:
            os.getcwd()  # Here, because all commands name files from it.
            code = super().main(words, *rest, **extra | {"standalone_mode": False})
            results().flush()
        except Exception as error:
            try:
                code = _report(error, words, as_json=as_json)
                results().flush()
            except OSError:
                # Nobody reads the output any more, or the disk is full, and that has been reported.
                # Python writes what is left in its buffer at exit: that must not fail again.
                os.dup2(os.open(os.devnull, os.O_WRONLY), results().fileno())
        except KeyboardInterrupt:
            code = print_interrupted(as_json=as_json)
        gc.freeze()  # Otherwise Python looks through all that was ever loaded once more before it ends.
        sys.exit(code if isinstance(code, int) else 0)


def _add_examples(command: click.Command, path: str) -> None:
    """End the help of a command, and of those below it, with examples; `\\b` keeps the line breaks.

    Lists and completions show the whole first sentence.
    """
    command.params.sort(key=lambda one: one.name in _RARE)
    command.short_help = (command.help or "").partition("\n")[0].partition(". ")[0].rstrip(".") + "."
    command.epilog = "\n".join(["\b", "Examples:", *(f"  {line}" for line in examples_of(path))])
    for name, part in getattr(command, "commands", {}).items():
        _add_examples(part, f"{path} {name}")


def _print_group(name: str) -> None:
    """Print the commands of one group."""
    formatter = click.HelpFormatter()
    with formatter.section(name.capitalize()):
        formatter.write_dl([(one, COMMANDS[one][1]) for one in _GROUPS[name].split()])
    print_result(formatter.getvalue(), nl=False)
    print_result("\ntoolcrib help COMMAND explains one of them.")
    results().flush()
    sys.exit(0)


def _report(error: Exception, words: Sequence[str], *, as_json: bool) -> int:
    """Print why a command ended, and return its exit code; with `--json` as a document."""
    if isinstance(error, BrokenPipeError):
        raise error
    if isinstance(error, click.Abort):
        return print_interrupted(as_json=as_json)
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        error.show()
        return 2
    if isinstance(error, click.ClickException):
        path = " ".join(["toolcrib", *(word for word in words[:1] if word in COMMANDS)])
        if isinstance(error, click.UsageError) and error.ctx:  # The parser leaves it out.
            path = error.ctx.command_path
        error = UsageError(" ".join(error.format_message().split()), hint=f"See {path} --help")
    elif isinstance(error, FileNotFoundError) and error.filename is None:
        error = UsageError("the working folder no longer exists", hint="Change to a folder that exists.")
    elif isinstance(error, OSError) and _is_of_output(error):
        error, as_json = StateUnavailable(f"standard output cannot be written: {error.strerror}"), False
    elif isinstance(error, OSError) and error.errno in _OF_NAMES:
        error = UsageError(f"{error.filename} cannot be used: {error.strerror}", hint="Name another path.")
    elif isinstance(error, OSError) and isinstance(error.filename, str) and error.errno in _OF_THE_MACHINE:
        error = _unusable(Path(error.filename).absolute(), error)
    elif not isinstance(error, ToolcribError):
        import traceback

        traceback.print_exception(error)
        error = ToolcribError(
            f"{type(error).__name__}: {error}",
            hint="This is a bug in Toolcrib: please report it with the lines above.",
        )
    return print_error(error, as_json=as_json)


def _unusable(path: Path, error: OSError) -> ToolcribError:
    from toolcrib.state import cache_home, data_home

    text = f"{path} cannot be used: {error.strerror}"
    hint = "Give this user the right to use it, or free disk space if the disk is full."
    homes = (data_home(), cache_home())
    if {".toolcrib", ".glee"} & {*path.parts} or any(home and path.is_relative_to(home) for home in homes):
        named = "TOOLCRIB_DATA names another folder for your own data."
        return StateUnavailable(text, hint=f"{hint} {named}")
    return UnavailableError(text, hint=hint)


def _open_closed_streams() -> None:
    """Open the null device for each standard stream that the caller closed.

    Otherwise the next file that is opened takes its number, and results or errors are written into it.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, which is this one
            setattr(sys, name, open(number, "r" if number == 0 else "w", closefd=False))  # noqa: SIM115


_OF_NAMES = (errno.ENAMETOOLONG, errno.ELOOP, errno.EISDIR, errno.ENOTDIR)
_OF_THE_MACHINE = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT)


def _is_of_output(error: OSError) -> bool:
    """Return True if writing a result failed, for example on a full disk."""
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    module = at.tb_frame.f_globals.get("__name__", "") if at is not None else ""
    # Commands open no other file without a name.
    return error.filename is None and module.startswith(("click.", "toolcrib.cli."))


def _print_completion(ctx: click.Context, _option: click.Parameter, shell: str | None) -> None:
    """Print the script that completes commands, options and names of tools, and end the program."""
    if shell is None or ctx.resilient_parsing:
        return
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    source = kind(toolcrib, {}, "toolcrib", "_TOOLCRIB_COMPLETE").source()
    # Else fish cuts each summary at its first comma.
    print_result(source.replace('string split "," $', 'string split --max 1 "," $'))
    ctx.exit()


_ABOUT = "The tool crib for AI agents: describe, check, confine and run their tools."
_END = """
Options: --root PATH, --completion bash|zsh|fish, --version, -h or --help
Exit: 0 ok 1 failure 2 usage 3 not found 4 invalid 5 denied 6 timeout 7 conflict
"""


@click.group(
    cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]}, invoke_without_command=True
)
@click.version_option(__version__, "--version", message="toolcrib %(version)s")
@click.option(
    "--completion",
    type=click.Choice(["bash", "zsh", "fish"]),
    expose_value=False,
    is_eager=True,
    callback=_print_completion,
    help="Print the completion script for a shell.",
)
@click.option("--root", type=click.Path(), help="The project, a folder or FILE.py, for every command.")
@click.pass_context
def toolcrib(ctx: click.Context, root: str | None) -> None:
    """The tool crib for AI agents: describe, check, confine and run their tools.

    Without a command it says where you stand, and what to do next.
    """
    if root is not None:
        os.environ["TOOLCRIB_ROOT"] = root
    if ctx.invoked_subcommand is None:
        from toolcrib.cli.commands.look.here import show_here

        admit(ctx, None, root)
        show_here(root)


_add_examples(toolcrib, "toolcrib")
