"""Kind `http`: one HTTP request."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from toolcrib.errors import InvalidInput, UsageError
from toolcrib.executors.host import Host
from toolcrib.manifest.kinds import Kind, block_of, filled_in, made_of, shown_secret
from toolcrib.manifest.plugins import on_call
from toolcrib.manifest.starter import Answers, Made, Starter
from toolcrib.manifest.yaml.form import Misfit
from toolcrib.spec import Annotations, BodyPart, Executor, FieldMap, HttpExec, ParameterStyle, Tool
from toolcrib.template import Namespaces, Values
from toolcrib.template.url import parse_url, render_url

_BARE = re.compile(r"(?<!\$)\{+\w*\}+")


def _make(answers: Answers) -> Made:
    """Return a GET request of the URL; arguments without a placeholder go into its query."""
    runs = answers.runs
    try:
        host = urlsplit(runs).hostname
    except ValueError:  # such as an unclosed bracket
        host = None
    if not runs.startswith(("https://", "http://")) or not host or "$" in host:
        hint = "--run 'https://api.example.com/v1/${id}'"
        raise UsageError("an HTTP tool needs a URL that begins with https:// and a host", hint=hint)
    if bare := _BARE.search(runs):
        hint = f"Write ${{{bare[0].strip('{}')}}}"
        raise UsageError(f"`{bare[0]}` is not a placeholder", hint=hint)
    url, _, query = runs.partition("?")
    pairs = dict(pair.partition("=")[::2] for pair in query.split("&") if pair)
    pairs |= {name: f"${{{name}}}" for name in answers.arguments if f"${{{name}}}" not in runs}
    block = {"method": "GET", "url": url, **({"query": pairs} if pairs else {})}
    return Made(block, {"network": {"allow": [host]}})


_READS = frozenset({"GET", "HEAD", "OPTIONS"})
_REPEATABLE = _READS | {"PUT", "DELETE"}
_ORDER = (
    "method", "url", "headers", "query", "cookies", "styles", "body_format", "body", "parts", "timeout_ms",
    "success_codes", "error_mode", "response",
)  # fmt: skip


def _parse(block: dict[str, Any]) -> HttpExec:
    whole = {**block, "method": block.get("method", "GET").upper()}
    response = dict(whole.pop("response", None) or {})
    whole["max_response_bytes"] = response.pop("max_bytes", None)
    whole |= response
    whole["fields"] = [FieldMap(**entry) for entry in response.get("fields", ())]
    whole["styles"] = {name: ParameterStyle(**style) for name, style in block.get("styles", {}).items()}
    whole["parts"] = {name: BodyPart(**part) for name, part in block.get("parts", {}).items()}
    return made_of(HttpExec, whole)


def _write(config: HttpExec) -> dict[str, Any]:
    block = block_of(config)
    block["styles"] = {name: block_of(style) for name, style in config.styles.items()}
    block["parts"] = {name: block_of(part) for name, part in config.parts.items()}
    block["response"] = {key: block[key] for key in ("json_path", "jsonpath", "regex") if key in block}
    if config.fields:
        block["response"]["fields"] = [block_of(field) for field in config.fields]
    if config.max_response_bytes is not None:
        block["response"]["max_bytes"] = config.max_response_bytes
    empty = [key for key in ("styles", "parts", "response") if not block[key]]
    return {key: block[key] for key in _ORDER if key in block and key not in empty}


def _plan(tool: Tool, block: dict[str, Any], values: Values) -> dict[str, Any]:
    from toolcrib.executors.http.binding import bind_auth

    headers, query, cookies, basic = bind_auth(tool)
    block = {"method": "GET", **block}
    for key, added in (("headers", headers), ("query", query), ("cookies", cookies)):
        if added:
            block[key] = {**(block.get(key) or {}), **added}
    rest = filled_in(tool, {key: value for key, value in block.items() if key != "url"}, values)["would"]
    made = {"Authorization": f"Basic <secret {basic[0].username}>"} if basic else {}
    for auth in tool.auth:
        if auth.type == "oauth2":
            made["Authorization"] = "Bearer <access token>"
        elif auth.type == "hmac" and auth.location == "header" and auth.name:
            made[auth.name] = f"<signature by {auth.secret}>"
    if made:
        rest["headers"] = {**(rest.get("headers") or {}), **made}
        block["headers"] = rest["headers"]
    return {"would": {key: _url(tool, values) if key == "url" else rest[key] for key in block}}


def _url(tool: Tool, values: Values) -> str:
    """Return the URL as it would be sent, without the separate query."""
    config = tool.config
    assert isinstance(config, HttpExec)
    with_hosts = tool.permissions.network.mode == "hosts"
    template = parse_url(config.url, Namespaces.of(tool), host_placeholders=with_hosts)
    url = render_url(template, values, styles=config.styles)
    for secret in tool.permissions.secrets:
        shown = shown_secret(secret.name)
        url = url.replace(quote(shown, safe=""), shown)
    return url


def _annotations(config: HttpExec) -> Annotations:
    method = config.method.upper()
    return Annotations(read_only=method in _READS, idempotent=method in _REPEATABLE)


def _sends_files(tool: Tool) -> bool:
    config = tool.config
    assert isinstance(config, HttpExec)
    return config.body_format == "file" or any(part.encoding == "file" for part in config.parts.values())


def _reader(tool: Tool, host: Host) -> Callable[[str], bytes]:
    """Return a function that reads a file beneath the tool's granted folders, by openat2."""
    from toolcrib.egress import MAX_REQUEST_BYTES
    from toolcrib.executors.file.granted import GrantedFiles
    from toolcrib.sandbox import FilePart, Roots

    workspace = host.workspace()
    granted = GrantedFiles(tool, workspace)

    def read(path: str) -> bytes:
        def part(roots: Roots, found: str) -> FilePart:
            return roots.read(found, 0, MAX_REQUEST_BYTES)

        content = granted.use(str(Path(workspace.root, path)), "read", part).value
        if content.total > len(content.data):
            raise InvalidInput(f"{path} is larger than {MAX_REQUEST_BYTES:,} bytes, the most that is sent")
        return content.data

    return read


def _executor(tool: Tool, host: Host) -> Executor:
    from toolcrib.executors.http.executor import HttpExecutor

    return HttpExecutor(
        tool,
        host.egress(),
        allowed_hosts=host.allowed_hosts,
        retry=host.retry,
        on_check=host.observe_host,
        token_folder=host.token_folder,
        learn=host.learn,
        read_file=_reader(tool, host) if _sends_files(tool) else None,
    )


KIND = Kind(
    name="http",
    config=HttpExec,
    executor=_executor,
    starter=Starter(
        _make,
        runs="Which URL? (such as: https://api.example.com/v1/${id})",
        format="text",
    ),
    schema=Path(__file__).with_name("schema.json"),
    docs=(
        "Toolcrib sends the request",
        "the guarded client: see [HTTP tools](http-tools.md#where-a-request-may-go)",
    ),
    parse=_parse,
    write=_write,
    misfits=(Misfit(("response", "fields"), rule="response"),),
    templated=("url", "headers", "query", "cookies", "body", "parts"),
    lint=on_call("toolcrib.executors.http.lint:check"),
    effect=on_call("toolcrib.executors.http.effect:effect"),
    plan=_plan,
    url=lambda config: config.url,
    annotations=_annotations,
    traced=lambda config: {"http.request.method": config.method.upper()},
    touches=lambda _: (),
    takes_auth=True,
    for_agents=True,
    untraceable=None,
)
