"""The routes of tokens, and of the settings."""

from __future__ import annotations

import time
from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType

from toolcrib.bundles.records import Moment
from toolcrib.errors import ConflictError, DeniedError, NotFoundError, UsageError
from toolcrib.guard import Tokens
from toolcrib.serve.http import Answer, Routes
from toolcrib.serve.rest.records import Body
from toolcrib.serve.rest.services import RestRequest, location, require_person
from toolcrib.spec import Scope
from toolcrib.state import user_name

ROUTES = Routes()


class TokenAnswer(Struct, frozen=True, kw_only=True):
    """The facts about a token, which is shown only once."""

    name: str
    scopes: list[Scope]
    tools: list[str] | None
    """Patterns of the tools that it covers; null for all."""
    owner: str
    """The person it acts for."""
    created: Moment
    expires: Moment | None


class TokenList(Struct, frozen=True, kw_only=True):
    """All tokens, the oldest first, expired ones too."""

    tokens: list[TokenAnswer]


class MadeToken(TokenAnswer, frozen=True, kw_only=True):
    """A token that was just created."""

    token: str
    """The token itself. It is not shown again."""


class NewToken(Body, kw_only=True):
    """A token to create."""

    name: Annotated[str, Meta(examples=["ci"])]
    scopes: Annotated[list[Scope], Meta(min_length=1)]
    tools: list[str] | None = None
    """Patterns of full names, with `*` and `?`; null for all tools."""
    expires_in_s: Annotated[float, Meta(gt=0, examples=[86_400.0])] | UnsetType = UNSET
    """Seconds; without it the token is valid until it is revoked."""
    owner: str | UnsetType = UNSET
    """The person it acts for, who may not approve its calls (default: you)."""


class SettingAnswer(Struct, frozen=True, kw_only=True):
    """One setting of the project."""

    key: str
    value: Any
    """The value in the file of settings; null for the default. Secrets are masked."""
    waits: str | None
    """The rights that it would give beyond the default, if that waits for trust."""


class Settings(Struct, frozen=True, kw_only=True):
    """All settings."""

    settings: list[SettingAnswer]


@ROUTES.add("GET", "/tokens", "admin", {200: TokenList})
def list_tokens(request: RestRequest) -> Answer:
    """List the tokens, without their secrets."""
    return Answer(TokenList(tokens=[TokenAnswer(**one.as_dict()) for one in _tokens(request).all()]))


@ROUTES.add(
    "POST",
    "/tokens",
    "admin",
    {201: MadeToken},
    DeniedError,
    ConflictError,
    UsageError,
    body=NewToken,
    located=True,
)
def create_token(request: RestRequest) -> Answer:
    """Create a token. Only the session of a person does, never a token."""
    require_person(request, "token", "toolcrib token create NAME")
    body: NewToken = request.body()
    until = None if body.expires_in_s is UNSET else time.time() + body.expires_in_s
    tokens, owner = _tokens(request), user_name() if body.owner is UNSET else body.owner
    text = tokens.create(body.name, body.scopes, body.tools, owner=owner, expires=until)
    made = MadeToken(token=text, **tokens.get(body.name).as_dict())
    return Answer(made, 201, location(request, f"/tokens/{made.name}"))


@ROUTES.add("DELETE", "/tokens/{tokenName}", "admin", {204: None}, NotFoundError)
def revoke_token(request: RestRequest) -> Answer:
    """Revoke a token: it is refused from now on."""
    _tokens(request).revoke(request.path["tokenName"])
    return Answer(status=204)


@ROUTES.add("GET", "/settings", "admin", {200: Settings})
def show_settings(request: RestRequest) -> Answer:
    """Return all settings of the project, and which of them wait for trust."""
    project = request.services.project
    waiting = {one.name: one.allows for one in project.waiting}
    values: dict[str, Any] = project.redact(project.config.as_written())
    found = [SettingAnswer(key=key, value=value, waits=waiting.get(key)) for key, value in values.items()]
    return Answer(Settings(settings=found))


def _tokens(request: RestRequest) -> Tokens:
    tokens: Tokens = request.services.access.tokens
    return tokens
