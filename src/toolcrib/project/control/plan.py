"""What a call would do: the `exec` block with its arguments filled in, or the steps of a composite tool."""

from __future__ import annotations

import os
from typing import Any
from urllib.parse import quote

from toolcrib.manifest import TEMPLATED, reread
from toolcrib.spec import CompositeExec, HttpExec, SecretSpec, Tool
from toolcrib.template import MISSING, Namespaces, Values, parse, parse_url, render_url, render_value

__all__ = ["plan_of"]


def plan_of(tool: Tool, arguments: dict[str, Any]) -> dict[str, Any]:
    """The plan as JSON. Where a secret would stand, its name does; nothing but a URL is encoded yet."""
    plan: dict[str, Any] = {"tool": tool.name, "kind": tool.kind, "arguments": arguments}
    if isinstance(tool.config, CompositeExec):
        plan["steps"] = _steps(tool)
    elif (document := reread(tool)) is not None:
        block = document.data["exec"][tool.kind]
        plan["would"] = {key: _filled(tool, key, value, arguments) for key, value in block.items()}
    return plan


def _filled(tool: Tool, key: str, value: Any, arguments: dict[str, Any]) -> Any:
    if key not in TEMPLATED[tool.kind]:
        return value
    values = Values(
        arguments,
        secrets={secret.name: _shown(secret) for secret in tool.permissions.secrets},
        env={name: os.environ[name] for name in tool.permissions.env if name in os.environ},
        context={"version": str(tool.version), "name": tool.name, "slug": tool.name},
    )
    if isinstance(tool.config, HttpExec) and key == "url":
        return _url(tool, tool.config, values)
    filled = render_value(parse(value, Namespaces.of(tool)), values)
    return None if filled is MISSING else filled


def _url(tool: Tool, config: HttpExec, values: Values) -> str:
    """The URL as it would be sent, but for the query that stands apart from it."""
    template = parse_url(
        config.url, Namespaces.of(tool), host_placeholders=tool.permissions.network.mode == "hosts"
    )
    url = render_url(template, values, styles=config.styles)
    for secret in tool.permissions.secrets:
        url = url.replace(quote(_shown(secret), safe=""), _shown(secret))
    return url


def _shown(secret: SecretSpec) -> str:
    return f"<secret {secret.name}>"


def _steps(tool: Tool) -> list[dict[str, Any]]:
    from toolcrib.executors.composite import plans

    out: list[dict[str, Any]] = []
    for plan in plans(tool):
        step = plan.step
        told: dict[str, Any] = {"id": step.id, "tool": step.tool, "after": sorted(plan.needs)}
        if step.when:
            told["when"] = [
                one.value if one.how == "truth" else {"value": one.value, one.how: one.other}
                for one in step.when
            ]
        if step.foreach is not None:
            told |= {"foreach": step.foreach, "concurrency": step.concurrency}
        told["args"] = step.args
        if step.on_error != "fail":
            told["on_error"] = {"default": step.default} if step.on_error == "default" else step.on_error
        out.append(told)
    return out
