"""Kind `builtin`: another name and schema for a function that is registered in the same toolset."""

from __future__ import annotations

from toolcrib.errors import ToolUnavailable
from toolcrib.manifest.kinds import Kind, in_process, kind_of
from toolcrib.spec import BuiltinExec, Call, CallContext, Catalog, Outcome, Tool


class BuiltinExecutor:
    """Calls the function on the call path, so that its own checks, approval and limits apply too."""

    grace_s = 1.0
    """The function ends by its own limit."""

    def __init__(self, tool: Tool, catalog: Catalog) -> None:
        assert isinstance(tool.config, BuiltinExec)
        self._tool = tool
        self._function = tool.config.function
        self._catalog = catalog

    async def run(self, call: Call, ctx: CallContext) -> Outcome:
        """Call the function. Raises ToolUnavailable if none is registered by that name."""
        found = next((tool for tool in self._catalog.tools() if tool.name == self._function), None)
        if found is None or not (found.is_builtin or kind_of(found).of_program):
            raise ToolUnavailable(
                f"{self._tool.name}: {self._function!r} is "
                + ("not registered" if found is None else f"no function, but a tool of kind {found.kind}"),
                hint=f"Register a Python function as {self._function!r} in the same toolset.",
                details={"function": self._function},
            )
        arguments = call.arguments
        inner = call.inner(self._function, dict(arguments) if isinstance(arguments, dict) else arguments)
        # The same tool by another name: what a person decided about one holds for the other.
        inner.approved_by, inner.approval_channel = call.approved_by, call.approval_channel
        inner.timeout_ms, inner.on_event = max(1, int(ctx.remaining * 1000)), ctx.relay
        result = await self._catalog.invoke(inner)
        return Outcome(result.unwrap(), tuple(result.warnings))


KIND = Kind(
    name="builtin",
    config=BuiltinExec,
    executor=lambda tool, host: BuiltinExecutor(tool, host.catalog),
    docs=("as the registered function that it names", "the same as that function"),
    fixed=("function",),
    touches=in_process,
    untraceable=(
        "calls a registered function: it runs in this process, which is not observed",
        "Make it a tool of kind python, which runs confined.",
    ),
)
