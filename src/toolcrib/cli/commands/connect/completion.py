"""`toolcrib completion`."""

from __future__ import annotations

import click

from toolcrib.cli.output import print_result


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print the completion of commands for a shell.

    It completes commands, options and names of tools. Load it in the file that your shell reads at its
    start: ~/.bashrc, ~/.zshrc, or ~/.config/fish/completions/toolcrib.fish.
    """
    from click.shell_completion import get_completion_class

    from toolcrib.cli.group import toolcrib

    kind = get_completion_class(shell)
    assert kind is not None
    print_result(kind(toolcrib, {}, "toolcrib", "_TOOLCRIB_COMPLETE").source())
