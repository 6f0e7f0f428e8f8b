"""No export holds the value of a secret."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.bundles.archive.samples import MANIFEST, filled, native, tool
from toolcrib.bundles import BundleBody, Store, ToolBody
from toolcrib.bundles.archive import export_bundle
from toolcrib.errors import DeniedError
from toolcrib.guard import EnvironmentSecrets
from toolcrib.spec.identifier import new_id

VALUE = "s3cr3t-value/1"
URL = "https://example.com"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


def refused(store: Store, body: ToolBody, **values: str) -> str:
    """An export of a bundle with this tool is refused; gives the places."""
    bundle = new_id()
    store.put_bundle(bundle, BundleBody(slug="a"))
    store.put_tool(bundle, "x", "1", body)
    with pytest.raises(DeniedError) as caught:
        export_bundle(store, bundle, EnvironmentSecrets(values))
    everything = json.dumps(caught.value.as_dict())
    assert not any(value in everything for value in values.values())
    return " ".join(violation.path for violation in caught.value.violations)


def test_names_of_secrets_leave_and_values_stay(store: Store) -> None:
    assert export_bundle(store, filled(store), EnvironmentSecrets({"WEATHER_KEY": VALUE}))
    named = {"urlTemplate": URL + "?q=${WEATHER_KEY}", "bodyTemplate": f"now {VALUE}"}
    assert "x@1 $.impl.bodyTemplate" in refused(store, tool(impl=named), WEATHER_KEY=VALUE)


@pytest.mark.parametrize(
    "text", [VALUE, base64.b64encode(VALUE.encode()).decode(), VALUE.encode().hex(), "s3cr3t-value%2F1"]
)
def test_a_value_is_found_however_it_is_written(store: Store, text: str) -> None:
    named = {"urlTemplate": URL + "?q=${WEATHER_KEY}", "headers": {"X-A": f"a {text} b"}}
    assert "headers" in refused(store, tool(impl=named), WEATHER_KEY=VALUE)
    assert "argSchema" in refused(
        store, tool(impl={"urlTemplate": "${WEATHER_KEY}"}, arg_schema={"default": text}), WEATHER_KEY=VALUE
    )


def test_variables_that_are_named_like_secrets_count_without_a_tool_that_names_them(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ACME_API_KEY", VALUE)
    bundle = new_id()
    store.put_bundle(bundle, BundleBody(slug="a", description=f"use {VALUE}"))
    with pytest.raises(DeniedError, match=r"bundle \$\.description"):
        export_bundle(store, bundle)


@pytest.mark.parametrize(
    "impl",
    [
        {"urlTemplate": URL, "headers": {"Authorization": "Bearer abc"}},
        {"urlTemplate": URL, "headers": {"X-API-Key": "abc"}},
        {"urlTemplate": "https://ann:pass@example.com"},
        {"urlTemplate": "https://ann:pass@[${address}]"},
        {"urlTemplate": URL + "?q=${q}&api_key=abc"},
        {"urlTemplate": URL, "bodyTemplate": "token ghp_" + "a" * 36},
        {"urlTemplate": URL, "bodyTemplate": "-----BEGIN RSA PRIVATE KEY-----\nabc"},
        {"urlTemplate": URL, "bodyTemplate": "AKIA" + "A" * 16},
    ],
)
def test_literal_credentials_are_found_by_their_form(store: Store, impl: dict[str, Any]) -> None:
    assert "impl" in refused(store, tool(impl=impl))


def test_a_manifest_is_searched_by_its_own_keys(store: Store) -> None:
    text = MANIFEST.replace("kind: file", "kind: http").replace(
        "file: {action: read, path: notes.txt}",
        "http: {method: GET, url: https://example.com, headers: {Authorization: Bearer abc}}",
    )
    assert "headers.Authorization" in refused(store, native(text))
    bundle = new_id()
    store.put_bundle(bundle, BundleBody(slug="b"))
    store.put_tool(bundle, "x", "1", native(text.replace("Bearer abc", '"Bearer ${WEATHER_KEY}"')))
    assert export_bundle(store, bundle, EnvironmentSecrets({"WEATHER_KEY": VALUE}))
