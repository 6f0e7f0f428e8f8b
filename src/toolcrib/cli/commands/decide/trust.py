"""`toolcrib trust`."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from toolcrib.cli.output import json_option, note, printable, root_option, say, write_json
from toolcrib.errors import NotTrusted

if TYPE_CHECKING:
    from toolcrib.guard import Trust
    from toolcrib.project import Config
    from toolcrib.project.config.weakening import Weakening

__all__ = ["command"]


@click.command("trust")
@root_option
@json_option
@click.option("--show", is_flag=True, help="Only show what needs trust, and whether it has it.")
@click.option("--yes", is_flag=True, help="Trust the settings as they are now, without a question.")
@click.option("--revoke", is_flag=True, help="Trust nothing of this project any more.")
def command(root: str | None, as_json: bool, show: bool, yes: bool, revoke: bool) -> None:
    """Let those settings count that weaken a guard, name a secret's source or start a process.

    Shows them, and asks. It holds for the settings as they are, byte for byte: a change voids it.
    """
    from toolcrib.errors import UsageError
    from toolcrib.guard import Trust
    from toolcrib.project import find, load_config
    from toolcrib.state import Vault, user_name

    if show + yes + revoke > 1:
        raise UsageError("--show, --yes and --revoke exclude each other")
    place = find(root)
    trust = Trust(Vault(place.root))
    if revoke:
        _revoke(trust, as_json)
        return
    config = load_config(place.config, place.root)
    waiting = config.weakening()
    trusted = trust.is_trusted(config.digest)
    if not as_json:
        _tell(config, waiting, trusted)
    if waiting and not trusted and not show and (yes or not as_json):
        if not yes:
            _ask()
        trust.accept(config.digest, user_name())
        note("Trusted. A change of the file voids it.")
    if as_json:
        write_json(_document(config, waiting, trust, str(place.config)))


def _one_line(text: str) -> str:
    """What a project says, shown so that it passes for no line of ours."""
    return printable(text).replace("\n", "\N{REPLACEMENT CHARACTER}")


def _revoke(trust: Trust, as_json: bool) -> None:
    revoked = trust.revoke()
    if as_json:
        write_json({"revoked": revoked})
    else:
        note("Nothing of this project is trusted any more." if revoked else "Nothing was trusted.")


def _tell(config: Config, waiting: Sequence[Weakening], trusted: bool) -> None:
    for weak in waiting:
        line = _line(config, weak)
        place = f"{_file(config)}:{line}: " if line is not None else ""
        say(_one_line(f"{place}{weak.name}: {weak.allows}"))
    if not waiting:
        note("Nothing in the project's settings needs trust.")
    elif trusted:
        note("These settings are trusted.")
    else:
        note("These settings do not count until they are trusted.")


def _ask() -> None:
    """The person's answer; `NotTrusted` for no, and where nobody can be asked."""
    from toolcrib.cli.approval import forget_typed

    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise NotTrusted("nobody is here to be asked", hint="Run it in a terminal, or give --yes.")
    forget_typed()
    note("Trust them? [y/N] ", nl=False)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise NotTrusted("the settings were not trusted", hint="They go on not to count; all others do.")


def _document(config: Config, waiting: Sequence[Weakening], trust: Trust, path: str) -> dict[str, Any]:
    current = trust.current()
    trusted = current is not None and current.digest == config.digest
    return {
        "config": path,
        "digest": config.digest,
        "trusted": trusted,
        "by": current.by if current is not None and trusted else None,
        "at": current.at if current is not None and trusted else None,
        "settings": [
            {"key": weak.name, "allows": weak.allows, "line": _line(config, weak)} for weak in waiting
        ],
    }


def _file(config: Config) -> str:
    path = config.document.path if config.document is not None else ""
    return path.removeprefix(os.getcwd() + os.sep)  # noqa: PTH109 - text is what is compared


def _line(config: Config, weak: Weakening) -> int | None:
    """The setting's line in `config.yml`; None for a file of its own, which its name names."""
    if config.document is None or weak.name == ".mcp.json":
        return None
    return config.document.locate(weak.key, key=True)[0]
