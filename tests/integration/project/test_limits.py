"""Limits: each one has its number in one documented table, and its own clear error."""

from __future__ import annotations

import asyncio
import os
import re
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tests.crib import Crib
from tests.integration.egress.servers import serving
from toolcrib import Retry
from toolcrib.bundles import BundleBody, Store, ToolBody
from toolcrib.bundles.records import MOST_TOOLS
from toolcrib.core.bound import DEFAULT_TIMEOUT_MS
from toolcrib.egress.message import DEFAULT_RESPONSE_BYTES, MAX_REQUEST_BYTES
from toolcrib.errors import BundleFull
from toolcrib.executors.output import MAX_OUTPUT
from toolcrib.serve.http.route import MAX_BODY
from toolcrib.spec import Result
from toolcrib.spec.identifier import new_id
from toolcrib.spec.views import TEXT_LIMIT
from toolcrib.state.artifacts import KEPT_S, MAX_BYTES, QUOTA_BYTES

TABLE = re.compile(r"^\| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)
MIB = 1024 * 1024


def test_the_table_has_the_numbers_that_are_in_force() -> None:
    text = (Path(__file__).parents[3] / "docs/limits.md").read_text()
    numbers = {row[0]: row[1] for row in TABLE.findall(text)}
    for row, number in {
        "text of a result for a model": f"{TEXT_LIMIT:,} bytes",
        "output of a program": f"{MAX_OUTPUT // MIB} MiB",
        "request of an HTTP tool": f"{MAX_REQUEST_BYTES // MIB} MiB",
        "answer to an HTTP tool": f"{DEFAULT_RESPONSE_BYTES // MIB} MiB",
        "body of a REST request": f"{MAX_BODY // MIB} MiB",
        "time of one attempt": f"{DEFAULT_TIMEOUT_MS // 60_000} minutes",
        "attempts": f"{Retry(max_attempts=2).max_attempts} where",
        "tools of one bundle": f"{MOST_TOOLS:,} versions",
        "one artifact": f"{MAX_BYTES // MIB} MiB",
        "all artifacts of a project": f"{QUOTA_BYTES // MIB} MiB",
        "time that an artifact is kept": f"{KEPT_S / 86_400:.0f} days",
    }.items():
        assert numbers[row].startswith(number), (row, numbers[row])


@pytest.mark.parametrize(
    ("limits", "code", "message"),
    [
        ({"limits": {"calls_per_minute": 1}}, "rate_limited", r"t may be called 1 times a minute; try again"),
        ({"limits": {"min_interval_ms": 60_000}}, "rate_limited", r"t may be called once in 60,000 ms"),
        (
            {"limits": {"concurrent_calls": 1}},
            "rate_limited",
            r"t has reached its limit of calls at a time: 1",
        ),
        ({"response": {"max_bytes": 9}}, "http_failed", r"the answer is larger than 9 bytes"),
        ({"retry": {"max_attempts": 3}}, "http_failed", r"answered 503"),
        ({"file": MAX_REQUEST_BYTES + 1}, "invalid_input", r"big is larger than 67,108,864 bytes"),
    ],
)
async def test_beyond_a_limit_a_call_has_a_clear_error(
    crib: Crib, limits: dict[str, Any], code: str, message: str
) -> None:
    free, free_at_once = asyncio.Event(), "limits" not in limits
    asked: list[str] = []
    if free_at_once:
        free.set()

    async def answer(request: web.Request) -> web.Response:
        asked.append(request.path)
        await free.wait()
        return web.Response(text="0123456789", status=503 if "retry" in limits else 200)

    config: dict[str, Any] = {"method": "GET", "url": "http://127.0.0.1:PORT/"}
    more = {key: value for key, value in limits.items() if key in ("limits", "retry")}
    if "response" in limits:
        config["response"] = limits["response"]
    if "file" in limits:
        config |= {"method": "PUT", "body_format": "file", "body": "${path}"}
        with (crib.root / "big").open("wb") as file:
            os.truncate(file.fileno(), limits["file"])
    async with serving(answer) as port:
        config["url"] = f"http://127.0.0.1:{port}/"
        grants = {"network": {"allow": [f"127.0.0.1:{port}"]}, "fs": {"read": ["big"]}}
        crib.tool("t", "http", config, {"path": {}}, permissions=grants, **more)
        async with crib.open() as project:
            calls = [asyncio.ensure_future(project.call("t", {"path": "big"})) for _ in range(2)]
            first, _ = await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
            free.set()
            await asyncio.gather(*calls)
    refused: Result = next(iter(first)).result()
    assert refused.error is not None, refused.value
    assert refused.error.code == code
    assert re.search(message, refused.error.message)
    assert refused.attempts == (3 if "retry" in limits else 1)
    assert len(asked) == (6 if "retry" in limits else 0 if "file" in limits else 2 if free_at_once else 1)


def test_a_bundle_is_full_at_its_limit_for_each_process(tmp_path: Path) -> None:
    """A process that has counted the tools learns of those that another one puts."""
    first, second, bundle = Store(tmp_path), Store(tmp_path), new_id()
    first.put_bundle(bundle, BundleBody(slug="many"))
    body = ToolBody(display_name="T", type="go", impl={"goFunc": "x"})
    for number in range(MOST_TOOLS - 150):
        (tmp_path / "bundles" / bundle / "tools" / f"{number}.json").touch()
    first.put_tool(bundle, "first", "1", body)
    for number in range(149):
        second.put_tool(bundle, f"second-{number}", "1", body)
    for store in (first, second):
        with pytest.raises(BundleFull, match=r"10,001 versions of tools; at most 10,000 fit"):
            store.put_tool(bundle, "more", "1", body)
    first.delete_tool(bundle, "first", "1")
    second.put_tool(bundle, "more", "1", body)
    with pytest.raises(BundleFull):
        first.put_tool(bundle, "first", "1", body)
