"""The bodies of requests about bundles and tools, and the types of their paths."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType, field

from toolcrib.bundles import ToolBody
from toolcrib.bundles.answers import BundleAnswer, ToolAnswer
from toolcrib.bundles.records import Translations
from toolcrib.errors import InvalidInput, Violation
from toolcrib.manifest.native.schema import block_schema

Slug = Annotated[
    str,
    Meta(
        extra_json_schema={"format": "slug", "minLength": 1, "maxLength": 64},
        description="Unicode letters, decimal digits and dashes, in form NFC.",
        examples=["weather"],
    ),
]
Version = Annotated[
    str,
    Meta(
        extra_json_schema={"format": "version", "minLength": 1, "maxLength": 64},
        description="Unicode letters, decimal digits, dashes and dots, in form NFC.",
        examples=["v1"],
    ),
]
BundleId = Annotated[
    str,
    Meta(
        pattern="^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$",
        extra_json_schema={"format": "uuid"},
        description="A UUID of version 7, in lower case.",
    ),
]
ToolName = Annotated[
    str,
    Meta(
        description="The name of a tool, such as `name` or `bundle/slug@version`.",
        examples=["weather/forecast@v1"],
    ),
]


def _named(text: str, example: str = "01979c3e-5b1a-7c21-9d0e-2f6b8a4c1d37") -> Any:
    return Annotated[str, Meta(description=text, examples=[example])]


PATH: dict[str, Any] = {
    "bundleID": BundleId,
    "toolSlug": Slug,
    "v": Version,
    "name": ToolName,
    "callId": _named("`callId` of a call."),
    "agent": _named("Name of an agent.", "writer"),
    "runId": _named("`id` of a run."),
    "sessionId": _named("`id` of a session."),
    "artifactId": _named("`id` of an artifact."),
    "workflow": _named("`name` of a workflow.", "report"),
    "approvalId": _named("`id` of an approval."),
    "messageId": _named("`id` of a message."),
    "asset": _named("Name of a file of the web page.", "index.js"),
    "tokenName": _named("`name` of a token.", "ci"),
    "secretName": _named("`name` of a secret.", "SHOP_KEY"),
    "server": _named("`name` of an MCP server.", "tickets"),
    "stamp": _named("Proof that this link was sent to the account."),
    "channel": _named("Channel of the account.", "telegram"),
    "account": _named("Id of the account.", "12345"),
}
"""The types of the parameters of paths, by name."""
Tag = Annotated[str, Meta(pattern=r"^[a-zA-Z_][a-zA-Z0-9_-]{0,63}$", examples=["weather"])]
_AS_IN_PATH = Annotated[str, Meta(description="As in the path, if it is given.")]


_IGNORED = Meta(description="Ignored.", extra_json_schema={"readOnly": True})


def in_zone(moment: datetime) -> datetime:
    """Return a time of a query; one without a zone is in UTC."""
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


class Body(Struct, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A JSON body. Other fields are refused."""


class Switch(Body, kw_only=True):
    """Turns something on or off."""

    is_enabled: bool


class BundlePut(Body, kw_only=True):
    """A bundle. The fields that the store sets may be there too: they are ignored."""

    slug: Slug
    display_name: str = ""
    description: str = ""
    translations: Translations = UNSET
    is_enabled: bool = True
    id: _AS_IN_PATH | UnsetType = UNSET


_Retry = Annotated[dict[str, Any], Meta(extra_json_schema=block_schema("retry"))]
_Limits = Annotated[dict[str, Any], Meta(extra_json_schema=block_schema("limits"))]
_Auth = Annotated[Any, Meta(extra_json_schema=block_schema("auth"))]


class GoImpl(Body, kw_only=True):
    """A Python function that the program has registered."""

    go_func: str
    """Its name, such as `github.com/acme/agent/tools.Weather`."""
    retry: _Retry | UnsetType = UNSET
    limits: _Limits | UnsetType = UNSET


class HttpImpl(Body, kw_only=True):
    """An HTTP request."""

    url_template: Annotated[str, Meta(pattern="^https?://", examples=["https://api.example.com/${city}"])]
    """`${name}` is an argument, or else a secret."""
    method: str | UnsetType = UNSET
    """`GET` (the default), `POST`, `PUT`, `PATCH`, `DELETE`, `HEAD` or `OPTIONS`, in any case."""
    headers: dict[str, str] | UnsetType = UNSET
    body_template: str | UnsetType = UNSET
    success_codes: list[Annotated[int, Meta(ge=100, le=599)]] | UnsetType = UNSET
    """Default: any 2xx."""
    timeout_ms: Annotated[int, Meta(ge=0, le=86_400_000)] | UnsetType = UNSET
    response_encoding: Literal["json", "text"] | UnsetType = UNSET
    extract_expr: str | UnsetType = UNSET
    """JSONPath if it begins with `$`, else a regular expression."""
    error_mode: Literal["fail", "empty"] | UnsetType = UNSET
    auth: _Auth | UnsetType = UNSET
    retry: _Retry | UnsetType = UNSET
    limits: _Limits | UnsetType = UNSET


class NativeImpl(Body, kw_only=True):
    """A manifest of Toolcrib's own format."""

    manifest: str
    """Its text, YAML."""


class _Tool(Body, kw_only=True, tag_field="type"):
    display_name: str = ""
    description: str = ""
    translations: Translations = UNSET
    tags: tuple[Tag, ...] = ()
    is_enabled: bool = True
    arg_schema: dict[str, Any] = field(default_factory=dict)
    """JSON Schema of the arguments. Without one the tool takes an empty object."""
    output_schema: dict[str, Any] | None = None
    bundle_id: _AS_IN_PATH | UnsetType = field(default=UNSET, name="bundleID")
    slug: _AS_IN_PATH | UnsetType = UNSET
    version: _AS_IN_PATH | UnsetType = UNSET


class GoTool(_Tool, kw_only=True, tag="go"):
    """A tool that calls a function of this program."""

    impl: GoImpl


class HttpTool(_Tool, kw_only=True, tag="http"):
    """A tool that sends an HTTP request."""

    impl: HttpImpl


class NativeTool(_Tool, kw_only=True, tag="native"):
    """A tool described by a manifest."""

    impl: NativeImpl


def readable(form: type[Body], answer: type[Struct]) -> Any:
    """Return a form that also takes the other fields of an answer, so what was read can be written."""
    own = {one.encode_name for one in msgspec.structs.fields(form)} | {form.__struct_config__.tag_field}
    ignored = [
        (one.name, Annotated[one.type | UnsetType, _IGNORED], field(default=UNSET, name=one.encode_name))
        for one in msgspec.structs.fields(answer)
        if one.encode_name not in own
    ]
    own_doc = {"__doc__": form.__doc__}
    return msgspec.defstruct(form.__name__, ignored, bases=(form,), kw_only=True, namespace=own_doc)


BUNDLE_PUT: Any = readable(BundlePut, BundleAnswer)
TOOL_PUT: Any = (
    readable(GoTool, ToolAnswer) | readable(HttpTool, ToolAnswer) | readable(NativeTool, ToolAnswer)
)


def require_same(body: BundlePut | GoTool | HttpTool | NativeTool, **path: str) -> None:
    """Raise InvalidInput if a body names something else than the path: `path` maps its fields to that."""
    wrong = [
        Violation(f"$.{one.encode_name}", f"is not {path[one.name]!r}, as in the path")
        for one in msgspec.structs.fields(body)
        if one.name in path and getattr(body, one.name) not in (UNSET, path[one.name])
    ]
    if wrong:
        listed = "; ".join(f"{one.path} {one.message}" for one in wrong)
        raise InvalidInput(listed, hint="Leave it out, or write the same.", violations=wrong)


def tool_body(put: GoTool | HttpTool) -> ToolBody:
    """Return the part of a tool that the store takes."""
    own = {name: getattr(put, name) for name in ToolBody.__struct_fields__ if name not in ("type", "impl")}
    kind: Literal["go", "http"] = "go" if isinstance(put, GoTool) else "http"
    return ToolBody(type=kind, impl=msgspec.to_builtins(put.impl), **own)
