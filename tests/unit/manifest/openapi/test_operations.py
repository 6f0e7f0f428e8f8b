"""Operations of all versions to tools: names, parameters, bodies, servers, security, and what is skipped."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.manifest.openapi.documents import SERVER, a_document, body, http, imported, one, tool_of
from toolcrib.errors import ManifestError
from toolcrib.spec import Annotations, Auth, BodyPart, Network, ParameterStyle, SecretSpec
from toolcrib.template import Namespaces, Reference, parse_text

LIST = {"type": "array", "items": {"type": "string"}}
OBJECT = {"type": "object"}
FORM = "application/x-www-form-urlencoded"


def parameter(name: str, place: str, schema: Any = None, **more: Any) -> dict[str, Any]:
    return {"name": name, "in": place, "schema": {"type": "string"} if schema is None else schema, **more}


def test_a_plain_operation() -> None:
    operation = {
        "method": "get",
        "operationId": "shop.items/get all!",
        "summary": "Get items",
        "description": "From the\r\nshop.\u202e\U000e0041\ufe01\u3164",
        "tags": ["shop", "7 a", "shop"],
        "deprecated": True,
        "parameters": [
            parameter("id", "path", {"type": "integer"}, required=True, description="Which"),
            parameter("id", "query", deprecated=True),
            parameter("$top", "query", {"type": "integer", "default": 10}, description="How many"),
        ],
    }
    tool = tool_of(one(operation, path="/items/{id}.json"))
    assert tool.name == "shop_items_get_all"
    assert tool.description == "Deprecated. Get items.\n\nFrom the\nshop."
    assert tool.tags == ("shop", "_7-a", "deprecated")
    assert tool.version == "7"
    assert tool.annotations == Annotations(True, False, True, True)
    assert tool.permissions.network == Network("hosts", ("api.example.com",))
    assert http(tool).url == f"{SERVER}/items/${{id}}.json"
    assert http(tool).query == {"id": "${id_query}", "$top": "${top}"}
    assert not http(tool).styles
    assert tool.input_schema == {
        "type": "object",
        "properties": {
            "id": {"type": "integer", "description": "Which"},
            "id_query": {"type": "string", "deprecated": True, "description": "Sent as `id`."},
            "top": {"type": "integer", "description": "How many. Default: 10. Sent as `$top`."},
        },
        "required": ["id"],
        "additionalProperties": False,
    }


@pytest.mark.parametrize(
    ("method", "read_only", "destructive", "idempotent"),
    [
        ("put", False, True, True),
        ("delete", False, True, True),
        ("post", False, None, False),
        ("patch", False, None, False),
        ("head", True, False, True),
        ("options", True, False, True),
    ],
)
def test_hints_by_method(method: str, read_only: bool, destructive: Any, idempotent: bool) -> None:
    assert tool_of(one({"method": method})).annotations == Annotations(
        read_only, destructive, idempotent, True
    )


OLD = {"name": "p", "in": "query", **LIST}
STYLED: list[tuple[str, dict[str, Any], ParameterStyle | None]] = [
    ("3.0.0", parameter("p", "query"), None),
    ("3.0.0", parameter("p", "query", LIST), ParameterStyle("form", explode=True)),
    ("3.0.0", parameter("p", "query", LIST, explode=False), ParameterStyle("form")),
    ("3.0.0", parameter("p", "query", LIST, style="pipeDelimited"), ParameterStyle("pipeDelimited")),
    (
        "3.0.0",
        parameter("p", "query", OBJECT, style="deepObject"),
        ParameterStyle("deepObject", explode=True),
    ),
    ("3.0.0", parameter("p", "query", OBJECT, style="matrix"), ParameterStyle("form", explode=True)),
    ("3.0.0", parameter("p", "query", allowReserved=True), ParameterStyle("form", True, None, True)),
    ("3.0.0", parameter("p", "path", LIST), ParameterStyle("simple")),
    ("3.0.0", parameter("p", "path", style="label"), ParameterStyle("label")),
    (
        "3.0.0",
        parameter("p", "path", LIST, style="matrix", explode=True),
        ParameterStyle("matrix", True, "p"),
    ),
    ("3.0.0", parameter("p", "header", LIST), ParameterStyle("simple")),
    ("3.0.0", parameter("p", "cookie", LIST), ParameterStyle("form", explode=True)),
    ("3.2.0", parameter("p", "cookie", style="cookie"), ParameterStyle("cookie", explode=True)),
    (
        "3.0.0",
        {"name": "p", "in": "query", "content": {"application/json": {"schema": OBJECT}}},
        ParameterStyle("json"),
    ),
    (
        "3.2.0",
        {
            "name": "p",
            "in": "querystring",
            "content": {FORM: {"schema": OBJECT}},
        },
        ParameterStyle("form", explode=True),
    ),
    ("2.0", {"name": "p", "in": "query", **LIST}, ParameterStyle("form")),
    ("2.0", {**OLD, "collectionFormat": "multi"}, ParameterStyle("form", True)),
    ("2.0", {**OLD, "collectionFormat": "tsv"}, ParameterStyle("tabDelimited")),
    (
        "2.0",
        {**OLD, "collectionFormat": "ssv"},
        ParameterStyle("spaceDelimited"),
    ),
    ("2.0", {"name": "p", "in": "path", "required": True, "type": "string"}, None),
]


@pytest.mark.parametrize(("version", "described", "style"), STYLED)
def test_the_style_of_a_parameter(
    version: str, described: dict[str, Any], style: ParameterStyle | None
) -> None:
    tool = tool_of(
        one({"parameters": [described]}, version, path="/x/{p}" if described["in"] == "path" else "/x")
    )
    assert http(tool).styles == ({} if style is None else {"p": style})


def test_a_json_body_becomes_arguments_unless_a_parameter_has_the_name() -> None:
    schema = {
        "allOf": [
            {"$ref": "#/components/schemas/Base"},
            {"type": "object", "required": ["b"], "properties": {"b": {"$ref": "#/components/schemas/Kind"}}},
        ]
    }
    components = {
        "schemas": {
            "Base": {"type": "object", "required": ["a-1"], "properties": {"a-1": {"type": "string"}}},
            "Kind": {"type": "object"},
        }
    }
    tool = tool_of(one(body(schema), components=components))
    assert http(tool).body == {"a-1": "${a-1}", "b": "${b}"}
    assert tool.input_schema["required"] == ["a-1", "b"]
    assert set(tool.input_schema["$defs"]) == {"Kind"}
    tool = tool_of(one({**body(schema), "parameters": [parameter("b", "query")]}, components=components))
    assert http(tool).body == "${body}"
    assert list(tool.input_schema["properties"]) == ["b", "body"]


@pytest.mark.parametrize(
    "schema",
    [
        LIST,
        OBJECT,
        {**OBJECT, "properties": {"a": {}}, "additionalProperties": {"type": "string"}},
        {**OBJECT, "properties": {"a": {}}, "minProperties": 1},
        {"oneOf": [OBJECT]},
    ],
)
def test_a_body_that_is_more_than_its_fields_is_one_argument(schema: dict[str, Any]) -> None:
    assert http(tool_of(one(body(schema)))).body == "${body}"


def test_an_optional_body_whose_fields_are_required_is_one_argument() -> None:
    schema = {**OBJECT, "required": ["a"], "properties": {"a": {}}}
    tool = tool_of(one({"requestBody": {"content": {"application/json": {"schema": schema}}}}))
    assert http(tool).body == "${body}"
    assert "required" not in tool.input_schema


def test_other_bodies() -> None:
    binary = tool_of(one(body({"type": "string", "format": "binary"}, "image/png")))
    assert (http(binary).body_format, http(binary).headers["Content-Type"]) == ("binary", "image/png")
    text = tool_of(one(body({**OBJECT, "properties": {"a": {}}}, "application/xml")))
    assert (http(text).body_format, http(text).body) == ("text", "${body}")
    vendor = tool_of(one(body({"type": "integer"}, "application/vnd.x+json")))
    assert (http(vendor).body_format, http(vendor).headers["Content-Type"]) == (
        "json",
        "application/vnd.x+json",
    )
    tags = {"type": "array", "items": {"type": "string"}}
    form = {
        **OBJECT,
        "required": ["a"],
        "properties": {"a": {"type": "string"}, "t": tags, "o": OBJECT, "d": OBJECT},
    }
    encoding = {"d": {"style": "deepObject", "explode": True}}
    tool = tool_of(one(body(form, FORM, encoding=encoding)))
    assert http(tool).body_format == "form"
    assert http(tool).styles == {
        "t": ParameterStyle("form", explode=True),
        "o": ParameterStyle("json"),
        "d": ParameterStyle("deepObject", explode=True),
    }


FILES = {
    **OBJECT,
    "required": ["file"],
    "properties": {
        "file": {"type": "string", "format": "binary", "description": "The picture"},
        "more": {"type": "array", "items": {"type": "string", "format": "binary"}},
        "meta": OBJECT,
        "note": {"type": "string"},
    },
}


@pytest.mark.parametrize("version", ["3.0.0", "2.0"])
def test_a_form_with_files(version: str) -> None:
    encoding = {"file": {"contentType": "image/png"}, "meta": {"contentType": "application/json"}}
    operation = body(FILES, "multipart/form-data", encoding=encoding)
    if version == "2.0":
        operation = {
            "parameters": [
                {
                    "name": "file",
                    "in": "formData",
                    "type": "file",
                    "required": True,
                    "description": "The picture",
                },
                {"name": "note", "in": "formData", "type": "string"},
            ]
        }
    tool = tool_of(one(operation, version))
    properties = tool.input_schema["properties"]
    assert http(tool).body_format == "multipart"
    media = "image/png" if version != "2.0" else None
    assert http(tool).parts["file"] == BodyPart("base64", "${file_filename}", media)
    assert properties["file"] == {"type": "string", "contentEncoding": "base64", "description": "The picture"}
    assert tool.input_schema["required"] == ["file"]
    if version != "2.0":
        assert http(tool).parts["more"] == BodyPart("base64")
        assert http(tool).parts["meta"].encoding == "json"
        assert properties["more"]["items"] == {"type": "string", "contentEncoding": "base64"}


ATTACHMENT = {
    "anyOf": [
        {
            "type": "object",
            "required": ["file"],
            "properties": {"file": {"$ref": "#/components/schemas/File"}},
        },
        {"type": "object", "required": ["url"], "properties": {"url": {"type": "string"}}},
    ],
    "properties": {
        "pages": {"type": "array", "items": {"type": "string", "contentEncoding": "binary"}},
        "either": {
            "oneOf": [
                {"type": "string", "format": "binary"},
                {"type": "array", "items": {"type": "string", "format": "binary"}},
            ]
        },
        "meta": {"type": "object"},
    },
}


@pytest.mark.parametrize("required", [True, False])
def test_files_in_a_body_that_is_one_argument(required: bool) -> None:
    encoding = {
        "meta": {"contentType": "application/json"},
        "file": {"contentType": "image/png, image/jpeg", "headers": {"X-A": {}}},
    }
    operation = body(ATTACHMENT, "multipart/form-data", encoding=encoding)
    operation["requestBody"]["required"] = required
    found = imported(
        one(operation, "3.1.0", components={"schemas": {"File": {"type": "string", "format": "binary"}}})
    )
    (tool,) = found.tools
    assert http(tool).body == "${body}"
    assert http(tool).parts == {
        "file": BodyPart("base64", "${file_filename}"),
        "pages": BodyPart("base64"),
        "either": BodyPart("base64"),
        "meta": BodyPart("json", None, "application/json"),
    }
    assert "Files are given as base64: " in tool.input_schema["properties"]["body"]["description"]
    assert set(tool.input_schema["properties"]) == {"body", "file_filename"}
    assert found.operations[0].notes == [
        "`headers` in the encoding of the form field 'file' is not used",
        "`contentType` in the encoding of the form field 'file' is not used",
    ]


def test_a_form_in_json_says_that_a_multipart_form_is_offered() -> None:
    content = {"application/json": {"schema": OBJECT}, "multipart/form-data": {"schema": FILES}}
    found = imported(one({"requestBody": {"content": content}}))
    assert found.operations[0].notes == [
        "the body is sent as application/json, not as multipart, which could carry files"
    ]
    related = imported(one(body(FILES, "multipart/related")))
    assert related.operations[0].notes == [
        "the body is sent as multipart/form-data, not as multipart/related"
    ]


def test_arguments_with_other_names_say_what_is_sent() -> None:
    parameters = [parameter("DateSent<", "query", description="Before"), parameter("DateSent>", "query")]
    operation = {"parameters": parameters, **body({**OBJECT, "properties": {"a b": True, "ok": {}}})}
    properties = tool_of(one(operation)).input_schema["properties"]
    assert properties == {
        "DateSent": {"type": "string", "description": "Before. Sent as `DateSent<`."},
        "DateSent__query": {"type": "string", "description": "Sent as `DateSent>`."},
        "a_b": {"description": "Sent as `a b`."},
        "ok": {},
    }


@pytest.mark.parametrize("place", ["query", "header", "path", "json", "form"])
def test_a_bound_parameter_is_a_secret_and_no_argument(place: str) -> None:
    schema = {**OBJECT, "required": ["token"], "properties": {"token": {"type": "string"}, "a": {}}}
    media = {"json": "application/json", "form": FORM}.get(place)
    operation = (
        {"parameters": [parameter("token", place, required=True)]} if media is None else body(schema, media)
    )
    path = "/{token}/x" if place == "path" else "/x"
    tool = tool_of(one(operation, path=path), bind={"token": "SLACK_TOKEN"})
    config = http(tool)
    assert "token" not in tool.input_schema["properties"]
    sent = {"query": config.query, "header": config.headers, "path": {"token": config.url}}.get(
        place, config.body
    )
    assert "${secret:SLACK_TOKEN}" in sent["token"]
    assert tool.permissions.secrets == (SecretSpec("SLACK_TOKEN"),)


def test_a_binding_of_nothing_is_refused() -> None:
    with pytest.raises(ManifestError, match="no operation has a parameter or a field 'tokn'"):
        imported(one({"parameters": [parameter("token", "query")]}), bind={"tokn": "SLACK_TOKEN"})
    whole = body({**OBJECT, "additionalProperties": True, "properties": {"token": {}}})
    operations = {"/x": {"post": whole, "get": {"parameters": [parameter("token", "query")]}}}
    found = imported(a_document(paths=operations), bind={"token": "SLACK_TOKEN"})
    assert found.operations[0].notes == ["the field 'token' stays in `body`: only an argument can be bound"]


def test_type_words_of_other_languages() -> None:
    words = {"a": "dict", "b": "float", "c": "tuple", "d": "any"}
    schema = {**OBJECT, "properties": {name: {"type": word} for name, word in words.items()}}
    properties = tool_of(one(body(schema))).input_schema["properties"]
    assert properties == {"a": OBJECT, "b": {"type": "number"}, "c": {"type": "array"}, "d": {}}


SERVERS: list[tuple[dict[str, Any], str, str]] = [
    ({"servers": [{"url": "https://a.example/v2/"}]}, "https://a.example/v2/x", "a.example"),
    ({"servers": [{"url": "HTTP://127.0.0.1:8080"}]}, "http://127.0.0.1:8080/x", "127.0.0.1:8080"),
    ({"servers": [{"url": "//a.example/"}]}, "https://a.example/x", "a.example"),
    ({"servers": [{"url": "a.example/v1"}]}, "https://a.example/v1/x", "a.example"),
    ({"servers": [{"url": "https://a.example:443/?q#f"}]}, "https://a.example/x", "a.example"),
    (
        {
            "servers": [
                {
                    "url": "https://{region}.a.example{port}/{v}",
                    "variables": {
                        "region": {"enum": ["eu", "us"]},
                        "v": {"default": "v3"},
                        "port": {"default": ""},
                    },
                }
            ]
        },
        "https://eu.a.example/v3/x",
        "eu.a.example",
    ),
]


@pytest.mark.parametrize(("more", "url", "host"), SERVERS)
def test_servers(more: dict[str, Any], url: str, host: str) -> None:
    tool = tool_of(one({}, **more))
    assert http(tool).url == url
    assert tool.permissions.network.allow == (host,)


def test_the_nearest_server_holds_and_a_given_one_above_all() -> None:
    document = one({"servers": [{"url": "https://op.example"}]}, servers=[{"url": "https://doc.example"}])
    assert http(tool_of(document)).url == "https://op.example/x"
    assert http(tool_of(document, server="http://localhost:1/y/")).url == "http://localhost:1/y/x"
    old = one({"schemes": ["http"]}, "2.0", schemes=["https"])
    assert http(tool_of(old)).url == "http://api.example.com/v1/x"
    with pytest.raises(ManifestError, match="neither http nor https"):
        imported(document, server="ftp://x")


@pytest.mark.parametrize("servers", [[], [{"url": "/v1"}], [{"url": "https://{where}/"}]])
def test_without_a_server_every_operation_says_so(servers: list[Any]) -> None:
    found = imported(one({}, servers=servers))
    assert not found.tools
    (made,) = found.operations
    assert "--server URL" in made.reason


SCHEMES: dict[str, dict[str, Any]] = {
    "key": {"type": "apiKey", "in": "header", "name": "X-Key"},
    "query": {"type": "apiKey", "in": "query", "name": "key"},
    "token": {"type": "http", "scheme": "Bearer"},
    "login": {"type": "http", "scheme": "basic"},
    "oauth": {"type": "oauth2", "flows": {}},
    "digest": {"type": "http", "scheme": "digest"},
    "odd": {"type": "apiKey", "in": "header", "name": "My Key"},
}
HEADER_KEY = Auth("api_key", "SHOP_KEY", None, "header", "X-Key")


@pytest.mark.parametrize(
    ("security", "auth", "optional"),
    [
        ([{"key": []}], (Auth("api_key", "SHOP_KEY", location="header", name="X-Key"),), False),
        ([{"token": []}, {}], (Auth("bearer", "SHOP_TOKEN"),), True),
        ([{"login": []}], (Auth("basic", "SHOP_LOGIN_PASSWORD", "SHOP_LOGIN_USER"),), False),
        ([{"oauth": ["a"]}], (Auth("bearer", "SHOP_OAUTH"),), False),
        ([{"oauth": ["a"]}, {"token": []}], (Auth("bearer", "SHOP_TOKEN"),), False),
        ([{"digest": []}, {"token": []}], (Auth("bearer", "SHOP_TOKEN"),), False),
        (
            [{"token": [], "login": []}, {"key": []}],
            (Auth("api_key", "SHOP_KEY", None, "header", "X-Key"),),
            False,
        ),
        (
            [{"key": [], "query": []}],
            (
                HEADER_KEY,
                Auth("api_key", "SHOP_QUERY", None, "query", "key"),
            ),
            False,
        ),
        ([{"oauth": [], "token": []}], (Auth("bearer", "SHOP_OAUTH"),), False),
        ([{"digest": []}], (), False),
        ([{"odd": []}], (), False),
        ([], (), False),
    ],
)
def test_security(security: list[Any], auth: tuple[Auth, ...], optional: bool) -> None:
    tool = tool_of(one({"security": security}, components={"securitySchemes": SCHEMES}))
    assert tool.auth == auth
    names = {name for entry in auth for name in (entry.secret, entry.username_secret) if name}
    assert {secret.name for secret in tool.permissions.secrets} == names
    if auth and auth[0].type != "basic":
        assert all(secret.required is not optional for secret in tool.permissions.secrets)


def test_a_key_is_no_argument_and_secrets_can_be_named() -> None:
    document = one(
        {"parameters": [parameter("x-key", "header"), parameter("shop_key", "query")]},
        components={"securitySchemes": SCHEMES},
        security=[{"key": []}],
    )
    tool = tool_of(document, secrets={"key": "MINE"})
    assert list(tool.input_schema["properties"]) == ["shop_key"]
    assert tool.permissions.secrets == (SecretSpec("MINE"),)
    tool = tool_of(one({"parameters": [parameter("Authorization", "header", required=True)]}))
    assert tool.auth == (Auth("api_key", "SHOP_AUTHORIZATION", None, "header", "Authorization"),)
    assert not tool.input_schema["properties"]


def test_what_a_success_looks_like() -> None:
    def answers(**responses: Any) -> dict[str, Any]:
        return {"responses": {status[1:]: {"description": "", **rest} for status, rest in responses.items()}}

    def json(schema: Any, media: str = "application/json") -> dict[str, Any]:
        return {"content": {media: {"schema": schema}}}

    tool = tool_of(one(answers(_201=json({"type": "string"}, "application/vnd.x+json"), _400=json({}))))
    assert tool.output.schema == {"type": "string"}
    assert http(tool).headers == {"Accept": "application/vnd.x+json"}
    tool = tool_of(one(answers(_200=json({"type": "string"}), _202=json({"type": "integer"}), _204={})))
    assert tool.output.schema == {"anyOf": [{"type": "string"}, {"type": "integer"}, {"type": "null"}]}
    tool = tool_of(one(answers(_200=json({}, "text/csv"))))
    assert (tool.output.format, tool.output.schema) == ("text", None)
    old = one({"produces": ["application/json"], **answers(_200={"schema": {"type": "integer"}})}, "2.0")
    assert tool_of(old).output.schema == {"type": "integer"}


def test_names_are_legal_and_unique() -> None:
    long = "a" * 80
    ids = ["go", "go", "", long, long, "ü", "GO"]
    paths = {f"/p{at}": {"get": {"operationId": name} if name else {}} for at, name in enumerate(ids)}
    names = [tool.name for tool in imported(a_document(paths=paths), prefix="s_").tools]
    assert names == [
        "s_go",
        "s_go_2",
        "s_get_p2",
        "s_" + "a" * 62,
        "s_" + "a" * 60 + "_2",
        "s_operation",
        "s_GO",
    ]
    assert [tool.name for tool in imported(a_document(paths=paths), only=["get_*", "GO"]).tools] == [
        "get_p2",
        "GO",
    ]
    with pytest.raises(ManifestError, match="cannot begin a tool name"):
        imported(a_document(), prefix="a b")


SKIPPED: list[tuple[dict[str, Any], str]] = [
    ({"method": "trace"}, "not support the method TRACE"),
    ({"method": "query"}, "not support the method QUERY"),
    ({"parameters": [{"$ref": "#/components/parameters/No"}]}, "leads to nothing"),
    ({"parameters": [{"in": "query", "required": True}]}, "has no name or position"),
    ({"parameters": [{"name": "a", "in": {}, "required": True}]}, "has no name or position"),
    ({"parameters": [{"$ref": f"#/servers/{'9' * 5000}"}]}, "leads to nothing"),
    ({"parameters": [parameter("a b", "header", required=True)]}, "not valid in a header"),
    ({"requestBody": {"$ref": "#/components/requestBodies/No"}}, "the body cannot be read"),
    ({"requestBody": {"required": True, "content": {}}}, "no content type"),
    ({"servers": [{"url": "ws://x"}]}, "neither http nor https"),
    ({"servers": [{"url": "https://user:pass@x/"}]}, "a user name, or a host name"),
]


@pytest.mark.parametrize(("operation", "reason"), SKIPPED)
def test_a_bad_operation_is_skipped_and_the_others_are_not(operation: dict[str, Any], reason: str) -> None:
    document = one(operation)
    document["paths"]["/good"] = {"get": {}}
    document["paths"]["/no"] = {"$ref": "#/paths/~1nowhere"}
    document["paths"]["/odd"] = {"get": "nothing"}
    found = imported(document)
    assert [tool.name for tool in found.tools] == ["get_good"]
    bad, good, no, odd = found.operations
    assert reason in bad.reason
    assert good.tool == "get_good"
    assert "leads to nothing" in no.reason
    assert odd.reason == "the operation is not an object"
    assert found.as_json()["skipped"] == 3


def test_methods_of_3_2_stand_apart() -> None:
    more = {"additionalOperations": {"LINK": {}, "PUT": {"operationId": "put"}}}
    found = imported(a_document("3.2.0", paths={"/x": more}))
    assert [(made.method, made.reason) for made in found.operations] == [
        ("LINK", "HTTP tools do not support the method LINK"),
        ("PUT", ""),
    ]
    assert http(found.tools[0]).method == "PUT"


def test_what_is_left_out_is_noted() -> None:
    operation = {"parameters": [parameter("Host", "header"), parameter("gone", "path"), {"in": "query"}]}
    found = imported(one(operation, path="/x/{undescribed}#frag", webhooks={"w": {}}))
    (made,) = found.operations
    said = "; ".join(made.notes)
    for part in (
        "set by the client",
        "is not in the path",
        "without a name",
        "has no description",
        "after `#`",
    ):
        assert part in said
    assert http(found.tools[0]).url == f"{SERVER}/x/${{undescribed}}"
    assert "1 webhooks" in found.notes[0]


@pytest.mark.parametrize("text", ["${secret:SHOP_KEY}", "$${secret:SHOP_KEY}", "$$${SHOP_KEY}", "${v}", "$"])
def test_no_text_of_a_document_is_a_placeholder(text: str) -> None:
    operation = {
        "method": "get",
        "parameters": [parameter("v", "path"), parameter("SHOP_KEY", "query")],
        "responses": {"200": {"description": text, "content": {f"application/json;{text}": {"schema": {}}}}},
    }
    document = one(
        operation,
        "2.0",
        path=f"/{text.replace('}', '')}{{v}}",
        basePath=f"/{text}",
        security=[{"key": []}],
        securityDefinitions={"key": {**SCHEMES["key"], "in": "query", "name": text}},
        produces=[f"application/json;{text}"],
    )
    tool = tool_of(document)
    names = Namespaces.of(tool)
    for template in (http(tool).url, *http(tool).headers.values()):
        found = [part for part in parse_text(template, names).parts if isinstance(part, Reference)]
        assert [part.name for part in found] == (["v"] if template == http(tool).url else [])
    written = "".join(
        "@" if isinstance(part, Reference) else part.text for part in parse_text(http(tool).url, names).parts
    )
    assert written == f"https://api.example.com/{text}/{text.replace('}', '')}@"
    assert "SHOP_KEY" not in tool.input_schema["properties"]


def test_no_content_type_of_a_body_is_a_placeholder() -> None:
    media = "application/${secret:SHOP_KEY}+json"
    body = {"content": {media: {"schema": {"type": "object", "properties": {"a": {"type": "string"}}}}}}
    tool = tool_of(one({"method": "post", "requestBody": body}))
    template = http(tool).headers["Content-Type"]
    parts = parse_text(template, Namespaces.of(tool)).parts
    assert [part for part in parts if isinstance(part, Reference)] == []
