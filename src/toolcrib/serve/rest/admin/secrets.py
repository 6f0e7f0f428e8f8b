"""The routes of secrets. None of them returns a value."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct, convert

from toolcrib.errors import DeniedError, UsageError
from toolcrib.project.own_secrets import place_of, set_secret
from toolcrib.project.reports import secret_needs
from toolcrib.serve.http import Answer, Routes
from toolcrib.serve.rest.records import Body
from toolcrib.serve.rest.services import RestRequest, require_person

ROUTES = Routes()
_ONE = "/secrets/{secretName}"
_COMMAND = "toolcrib secrets set NAME"


class UsedBy(Struct, kw_only=True):
    """A tool that declares a secret."""

    name: str
    required: bool
    """True if it cannot run without the secret."""


class SecretState(Struct, kw_only=True):
    """One secret that tools declare. Its value is never shown."""

    name: str
    state: Literal["resolved", "missing", "unreadable"]
    source: str | None
    reason: str | None
    hint: str | None
    short: bool
    """True for fewer than 8 characters: such a value can be guessed."""
    own: bool
    """True if its value was set by a person for this project, who can remove it."""
    tools: list[UsedBy]
    hosts: list[str]
    """The hosts that HTTP tools may send it to."""


class Secrets(Struct, kw_only=True):
    """Every secret that tools declare."""

    ok: bool
    """False if a tool cannot run without one of them."""
    secrets: list[SecretState]


class SecretValue(Body, kw_only=True):
    """The value of a secret."""

    value: Annotated[str, Meta(min_length=1, max_length=65_536)]


@ROUTES.add("GET", "/secrets", "admin", {200: Secrets})
def list_secrets(request: RestRequest) -> Answer:
    """List every secret that a tool declares, and its state."""
    project = request.services.project
    needs = secret_needs(project.catalog.with_secrets(), project.secrets)
    place = place_of(project)
    own = None if place is None else place.label
    found = [convert({**need.as_dict(), "own": need.status.source == own}, SecretState) for need in needs]
    return Answer(Secrets(ok=not any(need.blocks for need in needs), secrets=found))


@ROUTES.add("PUT", _ONE, "admin", {204: None}, DeniedError, UsageError, body=SecretValue)
def put_secret(request: RestRequest) -> Answer:
    """Set a secret of this project. Only the session of a person does, never a token.

    It is kept in the keyring that the settings name, else in the person's own folder, and comes before the
    other sources.
    """
    require_person(request, "trust", _COMMAND)
    set_secret(request.services.project, request.path["secretName"], request.body().value, "page")
    return Answer(status=204)


@ROUTES.add("DELETE", _ONE, "admin", {204: None}, DeniedError, UsageError)
def remove_secret(request: RestRequest) -> Answer:
    """Remove the value that a person has set; other sources count again. Only a person's session does."""
    require_person(request, "trust", _COMMAND)
    set_secret(request.services.project, request.path["secretName"], None, "page")
    return Answer(status=204)
