"""The bodies of an operation: the request body that is sent, and the response that is expected."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from toolcrib.manifest.openapi.document import Node, OpenApiDocument, RefProblem
from toolcrib.manifest.openapi.parameters import Parameter, Request, Unusable
from toolcrib.manifest.openapi.schemas import (
    ObjectFields,
    Schemas,
    described_fields,
    fields_of,
    is_file,
    is_files,
    is_scalar,
)
from toolcrib.manifest.openapi.translation import Schema, flag
from toolcrib.spec import BodyPart, Output, ParameterStyle
from toolcrib.spec.record import record
from toolcrib.template import escape

FORM = "application/x-www-form-urlencoded"
MULTIPART = "multipart/form-data"
_ORDER = ("json", "multipart", "form", "text", "binary")
_TEXTS = (
    "application/xml",
    "application/yaml",
    "application/x-yaml",
    "application/graphql",
    "application/sql",
)
_FILE: Schema = {"type": "string", "contentEncoding": "base64"}
_BASE64 = "The bytes as base64."


def media_kind(media: str) -> str:
    """Return the encoding of a content type: json, multipart, form, text or binary."""
    plain = media.partition(";")[0].strip().lower()
    if plain in ("application/json", "*/*", "application/*", "text/json", "") or plain.endswith("+json"):
        return "json"
    if plain.startswith("multipart/"):
        return "multipart"
    if plain == FORM:
        return "form"
    if (
        plain.startswith("text/")
        or plain in _TEXTS
        or plain.endswith(("+xml", "+yaml", "json-seq", "ndjson"))
    ):
        return "text"
    return "binary"


def place_body(node: Node, request: Request, schemas: Schemas, document: OpenApiDocument) -> None:
    """Add a request body of 3.x. Raises Unusable for one that cannot be read."""
    try:
        body = document.follow(node)
    except RefProblem as problem:
        raise Unusable(f"the body cannot be read: {problem}") from None
    offered = {media: inner for media, inner in body.at("content").entries() if isinstance(inner.value, dict)}
    if not offered:
        if flag(body.object.get("required")) is True:
            raise Unusable("the body is required, but has no content type")
        return
    # JSON first: in no other form does every value keep its type.
    media = min(offered, key=lambda name: _ORDER.index(media_kind(name)))
    _note_choice(media, offered, request)
    inner = document.follow(offered[media]) if "$ref" in offered[media].value else offered[media]
    schema, needs = schemas.use(inner.at("schema"))
    required = flag(body.object.get("required")) is True
    sender = _Sender(request, schemas, required, body.object.get("description"))
    sender.send(media, schema, needs, inner.at("encoding"))


def _note_choice(media: str, offered: Iterable[str], request: Request) -> None:
    """Note that the body has another form in which files could be sent."""
    if media_kind(media) != "multipart" and any(media_kind(other) == "multipart" for other in offered):
        request.notes.append(
            f"the body is sent as {media or 'JSON'}, not as multipart, which could carry files"
        )


def place_old_body(
    parameters: Iterable[Parameter], consumes: Any, request: Request, schemas: Schemas
) -> None:
    """Add the `body` or `formData` parameters of 2.0."""
    medias = [media for media in consumes if isinstance(media, str)] if isinstance(consumes, list) else []
    fields: dict[str, tuple[Parameter, Schema | bool]] = {}
    needs: set[str] = set()
    for parameter in parameters:
        value = parameter.node.object
        if parameter.place == "body":
            schema, needs = schemas.use(parameter.node.at("schema"))
            wanted = [media for media in medias if media_kind(media) not in ("form", "multipart")]
            best = min(wanted or ["application/json"], key=lambda name: _ORDER.index(media_kind(name)))
            _note_choice(best, medias, request)
            sender = _Sender(request, schemas, parameter.required, value.get("description"))
            sender.send(best, schema, needs, Node(None, parameter.node.resource))
            return
        rule = {key: item for key, item in value.items() if key not in ("in", "name", "required")}
        schema, own = schemas.use(Node(rule, parameter.node.resource, parameter.node.pointer))
        fields[parameter.name] = parameter, schema
        needs |= own
    if not fields:
        return
    whole = ObjectFields(
        {name: schema for name, (_, schema) in fields.items()},
        [name for name, (parameter, _) in fields.items() if parameter.required],
        needs,
    )
    files = any(is_file(schema, schemas) for _, schema in fields.values())
    kinds = {media_kind(media) for media in medias}
    # Only a multipart body can hold the bytes of a file, whatever `consumes` says.
    multipart = files or ("multipart" in kinds and "form" not in kinds)
    first = next(iter(fields.values()))[0].node
    encoding = (
        {}
        if multipart
        else {
            name: {"style": "form", "explode": parameter.node.object.get("collectionFormat") == "multi"}
            for name, (parameter, _) in fields.items()
        }
    )
    sender = _Sender(request, schemas, required=True, description="")
    sender.form(whole, Node(encoding, first.resource, ""), multipart=multipart)


class _Sender:
    """Turns one chosen body into arguments and the body's template."""

    def __init__(self, request: Request, schemas: Schemas, required: bool, description: Any) -> None:
        self._request = request
        self._schemas = schemas
        self._required = required
        self._description = description

    def send(self, media: str, schema: Schema | bool, needs: set[str], encoding: Node) -> None:
        """Set the body in the content type `media`."""
        kind, plain = media_kind(media), media.partition(";")[0].strip()
        request = self._request
        if kind in ("form", "multipart"):
            if kind == "multipart" and plain.lower() not in (MULTIPART, "multipart/*"):
                request.notes.append(f"the body is sent as {MULTIPART}, not as {media}")
            found = self._fields(schema, needs)
            if found is None:
                self._whole_form(schema, needs, encoding, kind)
            else:
                self.form(found, encoding, multipart=kind == "multipart")
            return
        if kind == "json" and not is_file(schema, self._schemas):
            if plain.lower() not in ("application/json", "*/*", "application/*", ""):
                request.headers["Content-Type"] = escape(media)
                request.body_format = "json"
            self._json(schema, needs)
            return
        if "*" not in plain and plain:
            request.headers["Content-Type"] = escape(media)
        if kind == "text":
            text = isinstance(schema, dict) and schema.get("type") == "string"
            described = schema if text else {"type": "string"}
            request.body = self._whole(described, needs if text else set(), f"The body as {plain}.")
            request.body_format = "text"
            return
        request.body = self._whole(dict(_FILE), set(), _BASE64)
        request.body_format = "binary"

    def form(self, found: ObjectFields, encoding: Node, *, multipart: bool) -> None:
        """Set a form with a field for each argument."""
        request = self._request
        body: dict[str, str] = {}
        for name, schema in found.properties.items():
            if "${" in name:
                reason = f"the form field {name!r} has a name that cannot be written in a template"
                if self._required and name in found.required:
                    raise Unusable(reason)
                request.notes.append(reason)
                continue
            rule = encoding.at(name).object
            needed = self._required and name in found.required
            if (secret := request.bound(name, required=needed)) is not None:
                body[name] = f"${{{secret}}}"
                continue
            many = is_files(schema, self._schemas)
            file = multipart and (many or is_file(schema, self._schemas))
            shown: Schema | bool = schema
            if file:
                about = schema.get("description", _BASE64) if isinstance(schema, dict) else _BASE64
                one: Schema = {"type": "array", "items": dict(_FILE)} if many else _FILE
                shown = {**one, "description": about}
            argument = request.argument(name, shown, set(), required=needed, wire=name)
            body[name] = f"${{{argument}}}"
            if multipart:
                part = self._part(name, rule, file=file, many=many, shown=schema)
                if part is not None:
                    request.parts[name] = part
            elif not is_scalar(schema, self._schemas):
                request.styles[argument] = _field_style(rule, schema)
        request.needs |= found.needs
        request.body, request.body_format = body, "multipart" if multipart else "form"

    def _whole_form(self, schema: Schema | bool, needs: set[str], encoding: Node, kind: str) -> None:
        """Set a form that is one argument; of a multipart one, its files and types are parts."""
        request = self._request
        known = described_fields(schema, self._schemas)
        files: list[str] = []
        parts: dict[str, BodyPart] = {}
        for name in dict.fromkeys([*known, *encoding.object]):
            rule, shown = encoding.at(name).object, known.get(name, True)
            many = is_files(shown, self._schemas)
            file = many or is_file(shown, self._schemas)
            if kind == "multipart":
                part = self._part(name, rule, file=file, many=many, shown=shown)
                if part is not None:
                    parts[name] = part
            if file and kind == "multipart":
                files.append(name)
            elif file or (kind == "form" and rule):
                request.notes.append(f"the encoding of the form field {name!r} is not used")
        others = schema.get("additionalProperties") if isinstance(schema, dict) else None
        if others is not None and is_file(others, self._schemas):
            request.notes.append("files under keys that the body does not name are sent as text")
        text = f"Files are given as base64: {', '.join(files)}." if files else ""
        request.body = self._whole(schema, needs, text)
        request.body_format, request.parts = kind, parts

    def _part(
        self, name: str, rule: dict[str, Any], *, file: bool, many: bool, shown: Schema | bool
    ) -> BodyPart | None:
        given = rule.get("contentType")
        # The Encoding Object allows a list or a range such as `image/*`, but a part is sent with one type.
        media = given.strip() if isinstance(given, str) and "," not in given and "*" not in given else None
        # It becomes a header of the part, where a line break would add further headers.
        if media is not None and not (media.isascii() and media.isprintable()):
            media = None
        lost = {
            "headers": bool(rule.get("headers")),
            "style": rule.get("style", "form") != "form" or flag(rule.get("explode")) is False,
            "contentType": given is not None and media is None,
        }
        for key in (key for key, is_lost in lost.items() if is_lost):
            self._request.notes.append(f"`{key}` in the encoding of the form field {name!r} is not used")
        if file:
            filename = None
            if not many:
                schema = {"type": "string", "description": f"The file name of {name}."}
                filename = f"${{{self._request.argument(f'{name}_filename', schema, set())}}}"
            return BodyPart("base64", filename, media)
        if media is not None and media_kind(media) == "json" and not is_scalar(shown, self._schemas):
            return BodyPart("json", None, media)
        return None if media is None else BodyPart(None, None, media)

    def _json(self, schema: Schema | bool, needs: set[str]) -> None:
        found = self._fields(schema, needs)
        if found is None:
            self._request.body = self._whole(schema, needs)
            return
        body: dict[str, str] = {}
        for name, rule in found.properties.items():
            needed = name in found.required
            argument = self._request.bound(name, required=needed) or self._request.argument(
                name, rule, set(), required=needed, wire=name
            )
            body[escape(name)] = f"${{{argument}}}"
        self._request.needs |= found.needs
        self._request.body = body

    def _fields(self, schema: Schema | bool, needs: set[str]) -> ObjectFields | None:
        """Return the fields if each can be an argument, else None.

        A field may not have the name of a parameter, nor be required in an optional body.
        """
        found = fields_of(schema, needs, self._schemas)
        # With a field and a parameter of one name the body stays one argument, so that neither is renamed.
        if found is None or found.properties.keys() & self._request.properties.keys():
            return None
        return found if self._required or not found.required else None

    def _whole(self, schema: Schema | bool, needs: set[str], description: str = "") -> str:
        for name in described_fields(schema, self._schemas).keys() & self._request.bind.keys():
            self._request.notes.append(f"the field {name!r} stays in `body`: only an argument can be bound")
        text = "\n".join(text for text in (self._description, description) if isinstance(text, str) and text)
        name = self._request.argument("body", schema, needs, required=self._required, description=text)
        return f"${{{name}}}"


def _field_style(rule: dict[str, Any], schema: Schema | bool) -> ParameterStyle:
    """Return the style of a list or an object in a form (OpenAPI 3.1, Encoding Object)."""
    if rule.keys() & {"style", "explode", "allowReserved"}:
        style = rule.get("style", "form")
        known = style in ("form", "spaceDelimited", "pipeDelimited", "deepObject")
        explode = flag(rule.get("explode"))
        return ParameterStyle(
            style if known else "form",
            explode=style == "form" if explode is None else explode,
            allow_reserved=flag(rule.get("allowReserved")) is True,
        )
    # Without those words a list repeats its field, and an object is sent as JSON (OpenAPI 3.1, Encoding
    # Object).
    if isinstance(schema, dict) and schema.get("type") == "array":
        return ParameterStyle("form", explode=True)
    return ParameterStyle("json")


@record
class ExpectedResponse:
    """The output of a success, and the content type to ask for."""

    output: Output
    accept: str | None = None


def expected_response(
    operation: Node, produces: Any, schemas: Schemas, document: OpenApiDocument
) -> ExpectedResponse:
    """Return the output that responses of status 2xx describe, or else `default`."""
    found: dict[str, Node] = {}
    for status, node in operation.at("responses").entries():
        try:
            found[status.upper()] = document.follow(node)
        except RefProblem:
            continue
    good = {status: node for status, node in found.items() if status[:1] == "2"}
    # `default` describes every status that is not listed, often the errors, so it comes last.
    if not good and "DEFAULT" in found:
        good = {"DEFAULT": found["DEFAULT"]}
    jsons: list[tuple[str, Node]] = []
    others: list[str] = []
    empty = any(status in ("204", "205") for status in good)
    for node in good.values():
        medias = _medias(node, produces, document)
        ours = [(media, inner) for media, inner in medias.items() if media_kind(media) == "json"]
        others += [media for media, inner in medias.items() if media_kind(media) != "json"]
        jsons += ours[:1]
        empty = empty or not medias
    if not jsons:
        kinds = {media_kind(media) for media in others}
        plain = Output("text") if others and kinds <= {"text", "binary"} else Output()
        return ExpectedResponse(plain, others[0] if len(others) == 1 and "*" not in others[0] else None)
    accept = jsons[0][0]
    return ExpectedResponse(
        Output("json", _schema([node for _, node in jsons], schemas, empty=empty)),
        accept if "*" not in accept and accept else None,
    )


def _medias(response: Node, produces: Any, document: OpenApiDocument) -> dict[str, Node]:
    """Return the schemas of a response by content type."""
    if document.version != "2.0":
        return {
            media: inner.at("schema")
            for media, inner in response.at("content").entries()
            if isinstance(inner.value, dict)
        }
    if "schema" not in response.object:
        return {}
    schema = response.at("schema")
    if schema.object.get("type") == "file":
        return {"application/octet-stream": schema}
    medias = [media for media in produces if isinstance(media, str)] if isinstance(produces, list) else []
    return dict.fromkeys(medias or ["application/json"], schema)


def _schema(nodes: list[Node], schemas: Schemas, *, empty: bool) -> Schema | None:
    """Return one schema for all successes; None if any of them has no schema."""
    unique: list[Schema | bool] = []
    needs: set[str] = set()
    for node in nodes:
        # A success without a schema may return anything, so no value can be checked.
        if node.value is None:
            return None
        schema, own = schemas.use(node)
        needs |= own
        if schema not in unique:
            unique.append(schema)
    if any(schema in (True, {}) for schema in unique):
        return None
    # A success without a body has the value null.
    if empty:
        unique.append({"type": "null"})
    only = unique[0]
    schema = {"anyOf": unique} if len(unique) > 1 else dict(only) if isinstance(only, dict) else {"not": {}}
    definitions = schemas.closure(needs)
    return {**schema, "$defs": definitions} if definitions else schema
