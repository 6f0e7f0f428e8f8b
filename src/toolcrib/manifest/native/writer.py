"""A tool as a native manifest again: the data that reads back as the same tool."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, replace
from typing import Any

from toolcrib.errors import ManifestError
from toolcrib.manifest.http.requests import signed
from toolcrib.spec import (
    Auth,
    BuiltinExec,
    CommandExec,
    Comparison,
    CompositeExec,
    ExecConfig,
    FileExec,
    FunctionExec,
    HttpExec,
    Output,
    Permissions,
    PythonExec,
    Spelling,
    SqlExec,
    Step,
    Tool,
)
from toolcrib.template import Namespaces, parse_conditional, respell, spell

__all__ = ["as_native", "as_plain", "manifest_of", "with_auth_written"]

_TEXTS: dict[type[ExecConfig], tuple[str, ...]] = {
    HttpExec: ("url", "headers", "query", "cookies", "body"),
    CommandExec: ("args", "env"),
    FileExec: ("path", "content"),
}
"""What holds placeholders of the kinds that other formats have."""

_STEP = Step("", "")


def as_native(tool: Tool) -> Tool:
    """The tool in the terms of a native manifest, whose placeholders are spelled `${name}`.

    Raises ManifestError for what only Vega can say: conditions, values in a shell line, `builtin`.
    """
    if tool.source is None or tool.source.dialect != "vega":
        return tool
    config, names = tool.config, Namespaces.of(tool)
    try:
        if isinstance(config, CommandExec):
            config = _command_of(config, names)
        elif isinstance(config, BuiltinExec):
            raise ManifestError("it calls another tool as `builtin`, which only Vega has")
        else:
            config = _plainly(config, names)
    except ManifestError as error:
        told = f"{tool.name} cannot be written in another format than vega: {error}"
        raise ManifestError(told, hint=error.hint) from None
    return replace(tool, config=config, source=None)


def as_plain(tool: Tool) -> Tool:
    """As `as_native`, in what every format has: a secret is `${NAME}`, `auth` stands in the request."""
    tool = as_native(tool)
    if isinstance(tool.config, HttpExec):
        tool = with_auth_written(tool, tool.config)
    return replace(tool, config=_plainly(tool.config, Namespaces.of(tool)))


def with_auth_written(tool: Tool, config: HttpExec) -> Tool:
    """The tool with its `auth` as headers and query of the request; what no template can say stays."""
    headers, query = dict(config.headers), dict(config.query)
    left: list[Auth] = []
    for auth in tool.auth:
        place, name, value = signed(auth) or ("", "", "")
        if place == "header" and name.lower() not in {header.lower() for header in headers}:
            headers[name] = value
        elif place == "query" and name not in query:
            query[name] = value
        else:
            left.append(auth)
    return replace(tool, config=replace(config, headers=headers, query=query), auth=tuple(left))


def _plainly(config: ExecConfig, names: Namespaces) -> ExecConfig:
    keys = _TEXTS.get(type(config), ())
    made: ExecConfig = replace(
        config, **{key: respell(getattr(config, key), names, Spelling.DOLLAR_BRACE) for key in keys}
    )
    return made


def _command_of(config: CommandExec, names: Namespaces) -> CommandExec:
    line = parse_conditional(config.shell or "", names)
    if line.literal is None:
        raise ManifestError(
            "values stand in its shell line",
            hint="write the program and its arguments as a manifest of kind command",
        )
    args = ("-c", spell(line.parts, Spelling.DOLLAR_BRACE))
    return replace(
        config, args=args, env=respell(config.env, names, Spelling.DOLLAR_BRACE), shell=None, allow_dash=()
    )


def manifest_of(tool: Tool) -> dict[str, Any]:
    """The native manifest as data, keys in the order of the documentation; what holds anyway is left out.

    Of a tool that `as_native` was not asked for, what only its own format has stands in it too.
    """
    config = tool.config
    approval = {"required": tool.approval.required or None, "reason": tool.approval.reason or None}
    manifest: dict[str, Any] = {
        "name": tool.name,
        "description": tool.description,
        "kind": tool.kind,
        "version": tool.version,
        "tags": list(tool.tags),
        "annotations": _said(asdict(tool.annotations)),
        "inputs": {"schema": tool.input_schema},
        "outputs": _outputs(tool.output),
        "exec": {tool.kind: _CONFIGS[type(config)](config)},
        "auth": _auth(tool.auth),
        "permissions": _permissions(tool.permissions),
        "approval": _said(approval),
        "retry": _said(asdict(tool.retry)) if tool.retry is not None else {},
        "limits": _said(asdict(tool.limits)),
        "examples": [
            {
                key: value
                for key, value in asdict(example).items()
                if value is not None and (key, value) != ("description", "")
            }
            for example in tool.examples
        ],
        "extensions": tool.extensions,
    }
    return {key: value for key, value in manifest.items() if value not in ({}, [])}


def _outputs(output: Output) -> dict[str, Any]:
    found: dict[str, Any] = {"format": output.format} if output.format != "json" else {}
    if output.schema is not None:
        found["schema"] = output.schema
    if output.on_violation != "warn":
        found["on_violation"] = output.on_violation
    return found


def _permissions(permissions: Permissions) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if permissions.network.mode != "none":
        found["network"] = permissions.network.as_json()
    if permissions.read or permissions.write:
        found["fs"] = {"read": list(permissions.read), "write": list(permissions.write)}
    if permissions.secrets:
        found["secrets"] = {
            secret.name: {"type": secret.type, "required": secret.required} for secret in permissions.secrets
        }
    if permissions.env:
        found["env"] = list(permissions.env)
    return found


def _http(config: HttpExec) -> dict[str, Any]:
    response = {
        "json_path": config.json_path,
        "jsonpath": config.jsonpath,
        "regex": config.regex,
        "fields": [asdict(entry) for entry in config.fields],
        "max_bytes": config.max_response_bytes,
    }
    return _filled(
        {
            "method": config.method,
            "url": config.url,
            "headers": config.headers,
            "query": config.query,
            "cookies": config.cookies,
            "styles": {
                name: {key: value for key, value in asdict(style).items() if value not in (None, False)}
                for name, style in config.styles.items()
            },
            "body_format": config.body_format,
            "body": config.body,
            "parts": {name: _said(asdict(part)) for name, part in config.parts.items()},
            "timeout_ms": config.timeout_ms,
            "success_codes": list(config.success_codes),
            "error_mode": config.error_mode if config.error_mode != "fail" else None,
            "response": _filled(response),
        },
        keep=("body", "parts"),
        drop={"parts": {}},
    )


def _command(config: CommandExec) -> dict[str, Any]:
    return _filled(
        {
            "entrypoint": config.entrypoint,
            "args": list(config.args),
            "cwd": config.cwd if config.cwd != "." else None,
            "env": config.env,
            "stdin": config.stdin,
            "stdout": {"format": config.stdout_format} if config.stdout_format else {},
            "exit_codes_ok": list(config.exit_codes_ok) if config.exit_codes_ok != (0,) else [],
            "timeout_ms": config.timeout_ms,
            "shell": config.shell,
            "allow_dash": list(config.allow_dash),
        },
        keep=("stdin", "cwd"),
    )


def _python(config: PythonExec) -> dict[str, Any]:
    return _filled(
        {
            "module": config.module,
            "function": config.function,
            "args": list(config.args),
            "kwargs": config.kwargs,
            "venv": config.venv,
            "cwd": config.cwd if config.cwd != "." else None,
            "return": config.returns if config.returns != "json" else None,
            "timeout_ms": config.timeout_ms,
        },
        keep=("venv", "cwd"),
    )


def _file(config: FileExec) -> dict[str, Any]:
    return _filled(
        {
            "action": config.action,
            "path": config.path,
            "content": config.content,
            "encoding": config.encoding if config.encoding != "utf-8" else None,
            "mode": f"{config.mode:04o}" if config.mode != 0o644 else None,
            "mkdir": config.mkdir or None,
        },
        keep=("content",),
    )


def _composite(config: CompositeExec) -> dict[str, Any]:
    steps = [_step(step) for step in config.steps]
    return {"steps": steps} if config.output is None else {"steps": steps, "output": config.output}


def _step(step: Step) -> dict[str, Any]:
    return _filled(
        {
            "id": step.id,
            "tool": step.tool,
            "args": step.args,
            "needs": list(step.needs),
            "when": [_comparison(one) for one in step.when],
            "foreach": step.foreach,
            "concurrency": step.concurrency if step.concurrency != _STEP.concurrency else None,
            "on_error": {"default": step.default}
            if step.on_error == "default"
            else (step.on_error if step.on_error != "fail" else None),
        },
        keep=("foreach",),
    )


def _comparison(one: Comparison) -> Any:
    return one.value if one.how == "truth" else {"value": one.value, one.how: one.other}


def _builtin(config: BuiltinExec) -> dict[str, Any]:
    return {"function": config.function}


def _function(config: FunctionExec) -> dict[str, Any]:
    return {"reference": config.reference}


def _sql(config: SqlExec) -> dict[str, Any]:
    return _filled(
        {
            "engine": config.engine,
            "database": config.database,
            "statement": config.statement,
            "parameters": list(config.parameters),
            "connection": config.connection,
            "timeout_ms": config.timeout_ms,
        }
    )


_CONFIGS: dict[type[ExecConfig], Callable[[Any], dict[str, Any]]] = {
    HttpExec: _http,
    CommandExec: _command,
    PythonExec: _python,
    FileExec: _file,
    FunctionExec: _function,
    SqlExec: _sql,
    CompositeExec: _composite,
    BuiltinExec: _builtin,
}


def _auth(entries: Iterable[Auth]) -> Any:
    names = {"location": "in"}
    blocks = [
        {names.get(key, key): value for key, value in asdict(entry).items() if value is not None}
        for entry in entries
    ]
    return blocks[0] if len(blocks) == 1 else blocks


def _filled(
    block: dict[str, Any], keep: tuple[str, ...] = (), drop: dict[str, Any] | None = None
) -> dict[str, Any]:
    """A block without its empty keys; those of `keep` are only left out for None, or what `drop` says."""
    dropped = drop or {}
    return {
        key: value
        for key, value in block.items()
        if value is not None
        and (value != dropped[key] if key in dropped else key in keep or value not in ({}, [], ""))
    }


def _said(block: dict[str, Any]) -> dict[str, Any]:
    """A block without what is not said."""
    return {key: value for key, value in block.items() if value is not None}
