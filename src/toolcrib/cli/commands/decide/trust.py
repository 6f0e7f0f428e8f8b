"""`toolcrib trust`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from toolcrib.cli.confirm import confirm
from toolcrib.cli.options import project_options, yes_option
from toolcrib.cli.output import one_line, print_json, print_note, print_result
from toolcrib.errors import NotTrusted, UsageError

if TYPE_CHECKING:
    from toolcrib.guard import Trust
    from toolcrib.project import Config
    from toolcrib.project.config.weakening import Weakening


@click.command("trust")
@project_options
@click.option("--show", is_flag=True, help="Only show the settings that need trust.")
@yes_option
@click.option("--revoke", is_flag=True, help="Stop trusting the settings of this project.")
def command(root: str | None, as_json: bool, show: bool, yes: bool, revoke: bool) -> None:
    """Trust this project's settings.

    Some settings have no effect until you trust them: those that weaken a protection, name the source of a
    secret or start a process. The command shows them, then asks. Any change of the file ends the trust.
    """
    from toolcrib.guard import Trust
    from toolcrib.project import find, load_config
    from toolcrib.state import Vault, user_name

    if show + yes + revoke > 1:
        raise UsageError("give only one of --show, --yes and --revoke")
    place = find(root)
    trust = Trust(Vault(place.root))
    if revoke:
        _revoke(trust, as_json)
        return
    config = load_config(place.config, place.root)
    settings = config.weakening()
    trusted = trust.is_trusted(config.digest)
    if not as_json:
        _print(config, settings, trusted)
    if settings and not trusted and not show and (yes or not as_json):
        if not yes and not confirm("Trust them?", no_terminal=NotTrusted):
            raise NotTrusted("the settings were not trusted", hint="All other settings have their effect.")
        trust.accept(config.digest, user_name())
        print_note("Trusted, until the file changes.")
    if as_json:
        print_json(_document(config, settings, trust, str(place.config)))


def _revoke(trust: Trust, as_json: bool) -> None:
    revoked = trust.revoke()
    if as_json:
        print_json({"revoked": revoked})
    else:
        print_note("These settings are no longer trusted." if revoked else "Nothing was trusted.")


def _print(config: Config, settings: Sequence[Weakening], trusted: bool) -> None:
    path = config.document.path if config.document is not None else ""
    path = path.removeprefix(os.getcwd() + os.sep)  # noqa: PTH109 - text is what is compared
    for weak in settings:
        line = _line(config, weak)
        place = f"{path}:{line}: " if line is not None else ""
        print_result(one_line(f"{place}{weak.name}: {weak.allows}"))
    if not settings:
        print_note("No setting of this project needs trust.")
    elif trusted:
        print_note("These settings are trusted.")
    else:
        print_note("These settings have no effect until you trust them.")


def _document(config: Config, settings: Sequence[Weakening], trust: Trust, path: str) -> dict[str, Any]:
    current = trust.current()
    if current is not None and current.digest != config.digest:
        current = None
    return {
        "config": path,
        "digest": config.digest,
        "trusted": current is not None,
        "by": current.by if current is not None else None,
        "at": current.at if current is not None else None,
        "settings": [
            {"key": weak.name, "allows": weak.allows, "line": _line(config, weak)} for weak in settings
        ],
    }


def _line(config: Config, weak: Weakening) -> int | None:
    """Return the setting's line in `config.yml`; None for `.mcp.json`, which is a file of its own."""
    if config.document is None or weak.name == ".mcp.json":
        return None
    return config.document.locate(weak.key, key=True)[0]
