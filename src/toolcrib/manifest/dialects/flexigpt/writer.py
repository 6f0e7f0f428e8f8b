"""Write tools as records of FlexiGPT."""

from __future__ import annotations

import json
from typing import Any

from toolcrib.errors import ManifestError
from toolcrib.manifest.dialects.base import respelled
from toolcrib.manifest.dialects.flexigpt.dialect import BASE_MS
from toolcrib.manifest.native.writer import manifest_of
from toolcrib.manifest.requests import with_auth_written
from toolcrib.spec import FunctionExec, HttpExec, Retry, Tool
from toolcrib.template import Namespaces, TextTemplate, literal_text
from toolcrib.template.respelling import spell
from toolcrib.template.url import parse_query


def in_terms(tool: Tool) -> Tool:
    """Write `auth` as headers and query where a template can say it, as other programs read records too."""
    return respelled(with_auth_written(tool, tool.config) if isinstance(tool.config, HttpExec) else tool)


def write_record(tool: Tool) -> bytes:
    """Return the file of a tool that `in_terms` returned."""
    return (json.dumps(record_of(tool), indent=2, ensure_ascii=False) + "\n").encode()


def record_of(tool: Tool) -> dict[str, Any]:
    """Return the record of a tool, without everything that FlexiGPT cannot express."""
    kept = dict(tool.extensions.get("flexigpt", {}))
    rest = kept.pop("impl", {})
    record: dict[str, Any] = {key: kept.pop(key) for key in ("schemaVersion", "bundleID") if key in kept}
    record |= {"slug": tool.name, "version": str(tool.version), "description": tool.description}
    config = tool.config
    if isinstance(config, FunctionExec):
        record |= {"type": "go", "impl": {"goFunc": config.reference, **_rules(tool), **rest}}
    elif isinstance(config, HttpExec):
        record |= {"type": "http", "impl": {**_impl(tool, config), **_rules(tool), **rest}}
    else:
        message = f"{tool.name} is of kind {tool.kind}; FlexiGPT has http and go (a registered function) only"
        raise ManifestError(message)
    record["argSchema"] = tool.input_schema
    if tool.output.schema is not None:
        record["outputSchema"] = tool.output.schema
    if tool.tags:
        record["tags"] = list(tool.tags)
    if tool.source is None or tool.source.dialect != "flexigpt":
        record["isEnabled"] = True  # explicit, so that no default of another program applies
    return {**record, **kept}


def _rules(tool: Tool) -> dict[str, Any]:
    """Return auth, retry and limits, in the shape of a manifest."""
    manifest = manifest_of(tool)
    rules: dict[str, Any] = {key: manifest[key] for key in ("auth", "retry", "limits") if key in manifest}
    if tool.retry is not None and tool.retry == Retry(tool.retry.max_attempts, base_ms=BASE_MS):
        rules["retry"] = {"max_attempts": tool.retry.max_attempts}
    return rules


def _impl(tool: Tool, config: HttpExec) -> dict[str, Any]:
    impl: dict[str, Any] = {"method": config.method, "urlTemplate": _url(tool, config)}
    if config.headers:
        impl["headers"] = {name: literal_text(value) for name, value in config.headers.items()}
    if config.body is not None:
        impl["bodyTemplate"] = config.body if isinstance(config.body, str) else _body(tool, config.body)
    expression = config.jsonpath or (
        f"re:{config.regex}" if config.regex else config.json_path and f"$.{config.json_path}"
    )
    more = {
        "successCodes": list(config.success_codes),
        "timeoutMs": config.timeout_ms,
        "responseEncoding": tool.output.format == "text" and "text",
        "extractExpr": expression,
        "errorMode": config.error_mode != "fail" and config.error_mode,
    }
    return impl | {key: value for key, value in more.items() if value}


def _url(tool: Tool, config: HttpExec) -> str:
    """Return the URL with the query, encoded as it is sent."""
    entries = [
        f"{name}={spell(value.parts)}"
        for name, value in parse_query(config.query, Namespaces.of(tool))
        if isinstance(value, TextTemplate)
    ]
    return config.url + ("&" if "?" in config.url else "?") * bool(entries) + "&".join(entries)


def _body(tool: Tool, body: Any) -> str:
    """Return a body as JSON text; arguments that are not texts are written without quotes."""
    named = tool.input_schema.get("properties", {})
    text = json.dumps(body, ensure_ascii=False)
    for name, rule in named.items():
        if isinstance(rule, dict) and rule.get("type", "string") != "string":
            text = text.replace(f'"${{{name}}}"', f"${{{name}}}")
    return text
