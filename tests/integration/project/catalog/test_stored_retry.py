"""The delay between attempts of a record that names none: that of its format, or of the settings."""

from __future__ import annotations

import pytest

from tests.crib import Crib
from toolcrib.bundles import BundleBody, ToolBody
from toolcrib.spec import Retry
from toolcrib.spec.identifier import new_id


@pytest.mark.parametrize(
    ("settings", "method", "retry"),
    [
        ("", "GET", Retry(2, base_ms=500)),
        ("retry: {max_attempts: 4}", "GET", Retry(4, base_ms=500)),
        ("retry: {max_attempts: 4, jitter: 0.5}", "GET", Retry(4, jitter=0.5)),
        ("", "POST", Retry(1, base_ms=500)),
    ],
)
async def test_a_record_waits_between_attempts(crib: Crib, settings: str, method: str, retry: Retry) -> None:
    crib.write(".toolcrib/config.yml", settings)
    crib.tool(
        "native",
        "http",
        {"method": "GET", "url": "https://example.com/"},
        permissions={"network": {"allow": ["example.com"]}},
    )
    crib.trust()
    async with crib.open() as project:
        bundle, store = new_id(), project.bundles.store
        store.put_bundle(bundle, BundleBody(slug="shop"))
        impl = {"method": method, "urlTemplate": "https://example.com/"}
        store.put_tool(bundle, "a", "1", ToolBody(description="A", type="http", impl=impl))
        assert project.bound(project.bundles.name(bundle, "a", "1")).retry == retry
        assert project.bound("native").retry == Retry(
            retry.max_attempts if method == "GET" else 2, retry.jitter
        )
