"""Spans of calls, by OpenTelemetry's conventions for generative AI and for MCP."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from toolcrib.errors import ToolcribError, UnavailableError
from toolcrib.middleware.handler import Handler, Middleware, tool_of
from toolcrib.spec import Call, CallContext, Outcome

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer
else:
    Tracer = Any  # So that the types of the options can be read without the package.


def tracing_middleware(tracer: Tracer | None = None, *, content: bool = False) -> Middleware:
    """Make a span `execute_tool NAME` of each call, below the span that is current where the call is made.

    That may be in another process: durable calls and runs keep their trace.

    A call of an MCP client is a span `tools/call NAME` of kind server. `tracer` is the program's own; by
    default that of the global provider. With `content`, arguments and result are attributes too; they may
    hold personal data. Raises UnavailableError if opentelemetry-api is not installed.
    """
    try:
        from opentelemetry import trace
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
    except ImportError:
        from toolcrib.state.installation import install_hint

        raise UnavailableError(
            "tracing needs opentelemetry-api, which is not installed", hint=install_hint("otel")
        ) from None
    remote = TraceContextTextMapPropagator()
    own = tracer or trace.get_tracer("toolcrib")

    def tracing(following: Handler) -> Handler:
        async def handle(call: Call, ctx: CallContext) -> Outcome:
            mcp = call.caller.startswith("mcp:")
            name = f"{'tools/call' if mcp else 'execute_tool'} {call.tool}"
            # By the conventions for MCP the client has the other half of this span.
            kind = trace.SpanKind.SERVER if mcp else trace.SpanKind.INTERNAL
            with own.start_as_current_span(
                name,
                remote.extract({"traceparent": call.trace}) if call.trace else None,
                kind=kind,
                attributes=_attributes(call, ctx, mcp),
                set_status_on_exception=False,
            ) as span:
                try:
                    if content:
                        span.set_attribute("gen_ai.tool.call.arguments", _text(call.arguments))
                    outcome = await following(call, ctx)
                except BaseException as error:
                    code = error.code if isinstance(error, ToolcribError) else type(error).__qualname__
                    span.set_attribute("error.type", code)
                    span.set_status(trace.StatusCode.ERROR)
                    raise
                if content:
                    span.set_attribute("gen_ai.tool.call.result", _text(outcome.value))
                return outcome

        return handle

    return tracing


def _attributes(call: Call, ctx: CallContext, mcp: bool) -> dict[str, Any]:
    from toolcrib.manifest.kinds import kind_of

    tool = tool_of(ctx)
    found = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": call.tool,
        "gen_ai.tool.call.id": ctx.identify(),
        "gen_ai.tool.type": "extension" if tool else None,
        "gen_ai.tool.description": tool.description if tool else None,
        "gen_ai.conversation.id": ctx.session_id,
        "mcp.method.name": "tools/call" if mcp else None,
        **(kind_of(tool).traced(tool.config) if tool else {}),
    }
    return {name: value for name, value in found.items() if value is not None}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
