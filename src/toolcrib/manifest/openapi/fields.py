"""The fields of an OpenAPI document that are imported, each with its meaning in a manifest."""

from __future__ import annotations

from toolcrib.manifest.dialects.fields import Field, Fields

__all__ = [
    "FIELDS",
]

_STYLE = "The style: [`exec.http.styles`](http-tools.md#lists-and-objects)."
_SERVERS = Field("list", "the document's, or where it was fetched", "The first gives `exec.http.url`.")
_PARAMETERS = Field("list", "", "An argument each; an operation overrides the parameters of its path.")
_SECURITY = Field("list", "", "[`auth`](openapi.md#security) and `permissions.secrets`.")
_MEDIA = Field("list of texts", "", "2.0: the content types to choose from.")
_SAME = (
    "title", "description", "deprecated", "contentEncoding", "contentMediaType", "$comment",
    "minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties",
    "minContains", "maxContains", "minimum", "maximum", "multipleOf", "uniqueItems",
    "allOf", "anyOf", "oneOf", "not", "if", "then", "else", "prefixItems", "patternProperties",
    "dependentSchemas", "dependentRequired", "additionalProperties", "contains", "propertyNames",
    "unevaluatedItems", "unevaluatedProperties",
)  # fmt: skip

FIELDS: Fields = {
    "": {
        "openapi": Field(
            "`3.0.x`, `3.1.x`, `3.2.x`", "required", "The version that the document is read as."
        ),
        "swagger": Field("`2.0`", "", "The same, for version 2.0."),
        "info": Field("object", "required", "`title` begins the names of secrets, `version` is `version`."),
        "servers": _SERVERS,
        "host": Field("text", "", "2.0: the host of `exec.http.url`, and `permissions.network`."),
        "basePath": Field("text", "", "2.0: begins the path of `exec.http.url`."),
        "schemes": Field("list of texts", "", "2.0: `https` is taken first."),
        "consumes": _MEDIA,
        "produces": _MEDIA,
        "security": _SECURITY,
        "components": Field("object", "", "The targets of references, and `securitySchemes`."),
        "securityDefinitions": Field("object", "", "2.0: as `components.securitySchemes`."),
        "paths": Field("object", "required", "A tool of each operation."),
        "webhooks": Field("object", "", "Not imported: they cannot be called. The report counts them."),
    },
    "info": {
        "title": Field("text", "the file's name", "Begins the names of secrets."),
        "version": Field("text", "`1`", "`version`"),
    },
    "servers[]": {
        "url": Field("text", "required", "`exec.http.url`; its host is `permissions.network`."),
        "variables": Field(
            "object", "", "`default`, or the first of `enum`, replaces the variable in the URL."
        ),
    },
    "servers[].variables.NAME": {
        "default": Field("text", "the first of `enum`", "The value in the URL."),
        "enum": Field("list of texts", "", "See `default`."),
    },
    "components": {
        "securitySchemes": Field("object", "", "The schemes that `security` names, by the fields below."),
    },
    "components.securitySchemes.NAME": {
        "type": Field("text", "required", "`auth.type`, see [security](openapi.md#security)."),
        "scheme": Field("text", "", "Of type `http`: `bearer` or `basic`; the report names others."),
        "in": Field("`header`, `query` or `cookie`", "", "`auth.in`"),
        "name": Field("text", "", "`auth.name`"),
    },
    "paths.PATH": {
        "description": Field("text", "", "`description` of operations that have none."),
        "parameters": _PARAMETERS,
        "servers": _SERVERS,
        "additionalOperations": Field("object", "", "3.2: operations of other methods, which are skipped."),
    },
    "paths.PATH.METHOD": {
        "operationId": Field(
            "text", "method and path", "`name`: letters, digits, `_`, `-`, at most 64, unique."
        ),
        "summary": Field("text", "", "Begins `description`."),
        "description": Field("text", "method and path", "`description`, without hidden characters."),
        "deprecated": Field("true or false", "`false`", "`Deprecated.` in `description`, and a tag."),
        "tags": Field("list of texts", "", "`tags`"),
        "parameters": _PARAMETERS,
        "requestBody": Field(
            "object", "", "Arguments and `exec.http.body`, see [bodies](openapi.md#bodies)."
        ),
        "responses": Field("object", "", "`outputs`: of status 2xx the schema if it is JSON, else text."),
        "security": _SECURITY,
        "servers": _SERVERS,
        "schemes": Field("list of texts", "", "2.0: as in the document."),
        "consumes": _MEDIA,
        "produces": _MEDIA,
    },
    "PARAMETER": {
        "name": Field(
            "text", "required", "The argument; `_` replaces characters that no argument name may have."
        ),
        "in": Field(
            "`path`, `query`, `header`, `cookie`, `querystring`, `body`, `formData`", "required", "Its place."
        ),
        "required": Field("true or false", "`false`", "`true`: the argument is in `required`."),
        "description": Field("text", "", "`description` of the argument."),
        "deprecated": Field("true or false", "`false`", "`deprecated` of the argument."),
        "schema": Field("JSON Schema", "any", "The argument's schema."),
        "content": Field(
            "object", "", "The schema of its one content type; of JSON, the value is written as JSON."
        ),
        "style": Field("text", "by place", _STYLE),
        "explode": Field("true or false", "by style", _STYLE),
        "allowReserved": Field("true or false", "`false`", _STYLE),
        "collectionFormat": Field("text", "`csv`", f"2.0. {_STYLE}"),
        "type": Field("text", "", "2.0: with all else that a schema has, the argument's schema."),
    },
    "requestBody": {
        "description": Field("text", "", "`description` of the argument `body`."),
        "required": Field("true or false", "`false`", "`true`: the arguments of the body may be required."),
        "content": Field("object", "required", "JSON is taken first, then forms, text, bytes."),
    },
    "requestBody.content.TYPE": {
        "schema": Field("JSON Schema", "any", "Arguments: one for each field, or one `body`."),
        "encoding": Field("object", "", "By field, see below."),
    },
    "requestBody.content.TYPE.encoding.NAME": {
        "contentType": Field("text", "by schema", "`exec.http.parts.<name>.content_type`"),
        "style": Field("text", "`form`", _STYLE),
        "explode": Field("true or false", "by style", _STYLE),
        "allowReserved": Field("true or false", "`false`", _STYLE),
    },
    "responses.STATUS": {
        "content": Field("object", "", "Its JSON gives `outputs.schema`, and the header `Accept`."),
        "schema": Field("JSON Schema", "", "2.0: `outputs.schema`."),
    },
    "SCHEMA": {
        "$ref": Field(
            "text", "", "Its target is in `$defs`, once; it may not lie outside the document's folder."
        ),
        "$dynamicRef": Field("text", "", "As `$ref`."),
        "$recursiveRef": Field("text", "", "As `$ref`."),
        "type": Field(
            "text, or list of texts", "", "`type`; common misspellings (`int`, `file`) are corrected."
        ),
        "nullable": Field("true or false", "`false`", "3.0: `null` is allowed too."),
        "x-nullable": Field("true or false", "`false`", "2.0: as `nullable`."),
        "format": Field("text", "", "The same; `binary` in a body is an argument in base64."),
        "enum": Field("list", "", "The same; numbers among the options of a text are text."),
        "const": Field("any", "", "The same."),
        "default": Field("any", "", "Added to the description of the argument; never sent."),
        "example": Field("any", "", "As `examples`."),
        "examples": Field("list or object", "", "The same, the first three that are short."),
        "pattern": Field(
            "text", "", "The same, if it can be matched in linear time; else left out and reported."
        ),
        "required": Field("list of texts", "", "The same, without properties of the other direction."),
        "properties": Field("object", "", "The same, but for `readOnly` ones in a request."),
        "readOnly": Field("true or false", "`false`", "The property is no argument."),
        "writeOnly": Field("true or false", "`false`", "The property is not required in a response."),
        "items": Field("schema, or list", "", "The same; a list is `prefixItems`."),
        "additionalItems": Field("schema", "", "`items` behind a list of `items`."),
        "discriminator": Field("object", "", "Its mapping distinguishes the alternatives."),
        "exclusiveMinimum": Field("number, or true", "", "The same; `true` makes `minimum` exclusive."),
        "exclusiveMaximum": Field("number, or true", "", "The same; `true` makes `maximum` exclusive."),
        "dependencies": Field("object", "", "`dependentRequired` and `dependentSchemas`."),
        **{key: Field("as in JSON Schema", "", "The same.") for key in _SAME},
    },
    "SCHEMA.discriminator": {
        "propertyName": Field("text", "required", "The property that selects the alternative."),
        "mapping": Field("object of texts", "by name", "Its values, and their alternatives."),
    },
}
"""Every field that is imported. Others, such as extensions (`x-…`), are ignored."""
