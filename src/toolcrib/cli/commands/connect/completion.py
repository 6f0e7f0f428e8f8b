"""`toolcrib completion`."""

from __future__ import annotations

import click

from toolcrib.cli.output import print_result


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print the completion script for a shell.

    It completes commands, options and names of tools. bash: add `eval "$(toolcrib completion bash)"` to
    ~/.bashrc. zsh: add the same line with zsh to ~/.zshrc, below compinit. fish: write the output to
    ~/.config/fish/completions/toolcrib.fish.
    """
    from click.shell_completion import get_completion_class

    from toolcrib.cli.group import toolcrib

    kind = get_completion_class(shell)
    assert kind is not None
    source = kind(toolcrib, {}, "toolcrib", "_TOOLCRIB_COMPLETE").source()
    # Else fish cuts each summary at its first comma.
    print_result(source.replace('string split "," $', 'string split --max 1 "," $'))
