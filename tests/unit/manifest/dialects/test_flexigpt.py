"""Records of FlexiGPT: the blocks of a manifest in `impl`, and placeholders that are typing errors."""

from __future__ import annotations

import json
from typing import Any

import pytest

from toolcrib.manifest import Entry, check_tool, entries
from toolcrib.manifest.convert import convert
from toolcrib.spec import Limits, Retry, Tool

RECORD: dict[str, Any] = {
    "slug": "weather",
    "version": "v1",
    "description": "Weather of a city",
    "type": "http",
    "argSchema": {"type": "object", "properties": {"city": {"type": "string", "description": "A city."}}},
    "impl": {"urlTemplate": "https://api.example.com/?q=${city}"},
}
OAUTH2 = {
    "type": "oauth2",
    "secret": "CLIENT_SECRET",
    "username_secret": "CLIENT_ID",
    "oauth2": {"token_url": "https://login.example.com/token"},
}


def entry(**impl: Any) -> Entry:
    record = {**RECORD, "impl": {**RECORD["impl"], **impl}}
    (found,) = entries("tool.json", json.dumps(record, indent=1).encode(), "flexigpt")
    return found


def tool(**impl: Any) -> Tool:
    found = entry(**impl)
    assert found.tool is not None, found.found
    assert not [one for one in check_tool(found.tool, found.document) if one.is_error]
    return found.tool


def test_auth_retry_and_limits_have_the_shapes_of_a_manifest() -> None:
    made = tool(auth=OAUTH2, retry={"max_attempts": 4}, limits={"calls_per_minute": 6})
    assert (made.auth[0].type, made.auth[0].secret) == ("oauth2", "CLIENT_SECRET")
    assert made.limits == Limits(calls_per_minute=6)
    assert {secret.name for secret in made.permissions.secrets} == {"CLIENT_ID", "CLIENT_SECRET"}
    assert made.permissions.network.allow == ("api.example.com", "login.example.com")
    two = tool(
        auth=[
            {"type": "bearer", "secret": "TOKEN"},
            {"type": "api_key", "secret": "KEY", "in": "query", "name": "k"},
        ]
    )
    assert [one.type for one in two.auth] == ["bearer", "api_key"]


@pytest.mark.parametrize(
    ("given", "retry"),
    [
        ({"max_attempts": 3}, Retry(3, base_ms=500)),
        ({"max_attempts": 3, "jitter": 0}, Retry(3)),
        ({"max_attempts": 3, "jitter": 0.5}, Retry(3, jitter=0.5)),
        ({"max_attempts": 3, "backoff_ms": 0}, Retry(3, backoff_ms=0)),
        ({"max_attempts": 3, "base_ms": 100}, Retry(3, base_ms=100)),
    ],
)
def test_half_a_second_stands_between_attempts_where_no_delay_is_given(
    given: dict[str, Any], retry: Retry
) -> None:
    assert tool(retry=given).retry == retry


@pytest.mark.parametrize(
    ("impl", "where"),
    [
        ({"retry": {"attempts": 3}}, "$.impl.retry.attempts"),
        ({"limits": {"calls_per_minute": 0}}, "$.impl.limits.calls_per_minute"),
        ({"auth": {"type": "bearer", "token": "x"}}, "$.impl.auth.token"),
        ({"auth": "bearer"}, "$.impl.auth"),
    ],
)
def test_another_shape_is_refused_at_its_place(impl: dict[str, Any], where: str) -> None:
    found = entry(**impl)
    assert found.tool is None
    assert where in [one.where for one in found.found]


def test_the_blocks_outlast_a_conversion_to_a_manifest_and_back() -> None:
    first = tool(auth=OAUTH2, retry={"max_attempts": 4}, limits={"calls_per_minute": 6})
    native = convert(first, "native")
    assert native.losses == ()
    (again,) = entries("weather/tool.yml", native.text, "native")
    assert again.tool is not None
    back = convert(again.tool, "flexigpt")
    assert back.losses == ()
    impl = json.loads(back.text)["impl"]
    assert impl["auth"]["oauth2"] == OAUTH2["oauth2"]
    assert (impl["retry"], impl["limits"]) == ({"max_attempts": 4}, {"calls_per_minute": 6})


@pytest.mark.parametrize(
    ("url", "line", "nearest"),
    [
        ("https://api.example.com/?q=${citty}", 15, "${city}"),
        ("https://api.example.com/?q=${city}&k=${City}", 15, "${city}"),
    ],
)
def test_a_typing_error_in_the_name_of_an_argument_is_refused(url: str, line: int, nearest: str) -> None:
    (wrong,) = [one for one in entry(urlTemplate=url).found if one.is_error]
    assert (wrong.line, wrong.rule) == (line, "placeholder")
    assert nearest in (wrong.hint or "")


@pytest.mark.parametrize("name", ["CITTY", "WEATHER_API_KEY", "token"])
def test_any_other_name_is_a_secret(name: str) -> None:
    made = tool(urlTemplate=f"https://api.example.com/?q=${{city}}&k=${{{name}}}")
    assert [secret.name for secret in made.permissions.secrets] == [name]
