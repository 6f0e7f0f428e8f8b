"""The step that limits how often and how many calls run."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from toolcrib import Context, Result
from toolcrib.project.control.steps import RateStep
from toolcrib.spec import Limits


async def test_a_lease_that_comes_after_the_call_was_cancelled_is_released() -> None:
    asked, go_on, released = threading.Event(), threading.Event(), threading.Event()

    def acquire(*_: Any, **__: Any) -> Any:
        asked.set()
        go_on.wait(100)
        return SimpleNamespace(release=released.set)

    async def proceed(_: Context) -> Result:
        raise AssertionError

    store: Any = SimpleNamespace(state=SimpleNamespace(waits=True), rates=SimpleNamespace(acquire=acquire))
    ctx = Context("limited", {})
    ctx.bound = SimpleNamespace(is_rated=True, limits=Limits(concurrent_calls=1))  # type: ignore[assignment]
    call = asyncio.ensure_future(RateStep(store, Limits())(proceed)(ctx))
    assert await asyncio.to_thread(asked.wait, 100)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert not released.is_set()
    go_on.set()
    assert await asyncio.to_thread(released.wait, 100)
