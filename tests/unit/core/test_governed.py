"""A toolset whose calls a project governs: its controls, middleware, limits and rules of retry."""

from __future__ import annotations

from typing import Any

from toolcrib import Retry, Toolset
from toolcrib.core.controls import Controls
from toolcrib.errors import DeniedError
from toolcrib.middleware import as_middleware


def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


async def test_a_project_that_takes_a_toolset_keeps_the_rules_it_has() -> None:
    order: list[str] = []

    def named(name: str) -> Any:
        def wrap(following: Any) -> Any:
            async def handle(call: Any, ctx: Any) -> Any:
                order.append(name)
                return await following(call, ctx)

            return handle

        return wrap

    tools, strict = Toolset(), Toolset(safe_retry=Retry(max_attempts=1), timeout_ms=90_000)
    for one in (tools, strict):
        one.use(named("own"))
        one.register(add, idempotent=True)
        one.register("quick", lambda: 1, description="One", timeout_ms=5)
        one.govern(
            Controls(require=(_only_small,)),
            [as_middleware(named("project"))],
            safe_retry=Retry(max_attempts=3),
            timeout_ms=100_000,
            missing=lambda _: None,
            lenient=True,
        )
        one.register("late", lambda: 2, description="Two")
    assert (await tools.call("add", {"a": "1"})).value == 2, "the project reads almost right arguments"
    assert order == ["project", "own"]
    assert (await tools.call("add", {"a": 10})).error is not None
    assert [tools.bound(name).timeout_ms for name in ("add", "quick", "late")] == [100_000, 5, 100_000]
    assert [strict.bound(name).timeout_ms for name in ("add", "late")] == [90_000, 90_000]
    assert (tools.bound("add").retry.max_attempts, strict.bound("add").retry.max_attempts) == (3, 1)


def _only_small(ctx: Any) -> None:
    if ctx.arguments["a"] > 5:
        raise DeniedError("too large")
