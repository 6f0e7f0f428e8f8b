"""Commands of curl as manifests."""

from __future__ import annotations

import pytest

from toolcrib.errors import ManifestError
from toolcrib.manifest import check_tool, dump, load, parse_tool
from toolcrib.manifest.curl import read_curl


def usable(text: str) -> dict[str, object]:
    """Return the manifest of a command, which lint finds no error in."""
    manifest, _ = read_curl(text)
    tool = parse_tool(load(dump(manifest).encode(), "tool.yml"))
    assert [one.message for one in check_tool(tool) if one.is_error] == []
    return manifest


def test_the_query_becomes_arguments() -> None:
    made = usable("curl 'https://api.example.com/v1/forecast?latitude=44.4&hourly=rain' --compressed -s")
    http = made["exec"]["http"]  # type: ignore[index]
    assert http["url"] == "https://api.example.com/v1/forecast"
    assert http["query"] == {"latitude": "${latitude}", "hourly": "${hourly}"}
    assert made["permissions"] == {"network": {"allow": ["api.example.com"]}}
    assert made["examples"][0]["params"] == {"latitude": "44.4", "hourly": "rain"}  # type: ignore[index]


def test_the_fields_of_a_json_body_keep_their_types() -> None:
    made = usable(
        "curl -X POST https://api.example.com/orders \\\n  -H 'Content-Type: application/json' \\\n"
        """  -d '{"count": 3, "express": true, "to": {"city": "Genoa"}}'"""
    )
    assert made["exec"]["http"]["body"] == {  # type: ignore[index]
        "count": "${count}",
        "express": "${express}",
        "to": "${to}",
    }
    properties = made["inputs"]["schema"]["properties"]  # type: ignore[index]
    assert [one["type"] for one in properties.values()] == ["integer", "boolean", "object"]


def test_a_number_that_is_written_otherwise_is_named() -> None:
    made, notes = read_curl("""curl https://a.b -d '{"price": 1.10, "n": 2, "m": 0.5}'""")
    assert made["examples"] == [
        {"description": "As in the command.", "params": {"price": 1.1, "n": 2, "m": 0.5}}
    ]
    assert notes == ["the number 1.10 of the body is 1.1 in the example"]


@pytest.mark.parametrize(
    ("words", "header"),
    [
        ("-H 'Authorization: Bearer hush'", {"Authorization": "Bearer ${AUTHORIZATION_API_EXAMPLE_COM}"}),
        ("-H 'X-API-Key: hush'", {"X-API-Key": "${X_API_KEY_API_EXAMPLE_COM}"}),
        ("-u ann:hush", {"Authorization": "Basic ${AUTHORIZATION_API_EXAMPLE_COM}"}),
        ("-b session=hush", {"Cookie": "${COOKIE_API_EXAMPLE_COM}"}),
    ],
)
def test_secrets_are_left_out(words: str, header: dict[str, str]) -> None:
    made = usable(f"curl {words} https://api.example.com/me")
    assert made["exec"]["http"]["headers"] == header  # type: ignore[index]
    assert "hush" not in dump(made)


def test_a_form_is_sent_as_one() -> None:
    made = usable("curl https://api.example.com/login -d name=ann -d page=2")
    http = made["exec"]["http"]  # type: ignore[index]
    assert (http["method"], http["body_format"]) == ("POST", "form")
    assert http["body"] == {"name": "${name}", "page": "${page}"}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "wget https://example.com",
        "curl 'https://x",
        "curl example.com",
        "curl http://[x/",
        "curl --proxy x https://a.b",
        "curl https://a.b -d '{\"n\": 12345678901234567890123}'",
        "curl https://a.b -d '{\"n\": 1E400}'",
    ],
)
def test_what_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(ManifestError):
        read_curl(text)
