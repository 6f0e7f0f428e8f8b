"""The secrets that a person sets for one project."""

from __future__ import annotations

from toolcrib.errors import UsageError
from toolcrib.guard import ChainedSecrets, UnreadableError, UserSecrets
from toolcrib.guard.secrets.command_sources import KeyringSecrets
from toolcrib.guard.secrets.sources import is_secret_name
from toolcrib.project.project import Project
from toolcrib.state import user_name


def place_of(project: Project) -> KeyringSecrets | UserSecrets | None:
    """Return where a secret is kept that is set: the keyring that the settings name, else the user's file.

    None if the program that opened the project gave it secrets of its own.
    """
    sources = project.secrets.sources if isinstance(project.secrets, ChainedSecrets) else ()
    places = [one for one in sources if isinstance(one, (KeyringSecrets, UserSecrets))]
    return max(places, key=lambda one: isinstance(one, KeyringSecrets), default=None)


def require_name(name: str) -> None:
    """Raise UsageError for a text that is not the name of a secret."""
    if is_secret_name(name) is None:
        raise UsageError(f"{name!r} is not the name of a secret", hint="Use letters, digits and _ . -")


def set_secret(project: Project, name: str, value: str | None, channel: str) -> str:
    """Set a secret, or remove it (None), write a line of the audit log, and return its place in words.

    Raises UsageError if it cannot be set.
    """
    require_name(name)
    if value is not None and (not value or "\0" in value):
        raise UsageError(f"no value for {name} was given, so nothing was changed")
    place = place_of(project)
    if place is None:
        raise UsageError("the program that opened this project gives it its secrets", hint="Set it there.")
    event = "SECRET_REMOVED" if value is None else "SECRET_SET"
    project.audit.record(event, secret=name, place=place.label, approver=user_name(), channel=channel)
    try:
        place.store(name, value)
    except UnreadableError as error:
        raise UsageError(f"{name} was not stored: {error.reason}", hint=error.hint) from None
    return place.label
