"""FlexiGPT's HTTP tools, from their own files, against servers that answer for real."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from tests.crib import Crib, failed
from tests.integration.egress.servers import serving
from toolcrib import Result
from toolcrib.spec import Call

SECRET = "k3y/+value"
NESTED = {"current": {"condition": {"text": "Sunny"}}, "days": [{"t": 1}, {"t": 2}]}
CITY = {"city": {"type": "string", "description": "The city"}}
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Web:
    """A server that keeps what it got, and answers by the first part of the path."""

    def __init__(self) -> None:
        self.got: list[dict[str, Any]] = []
        self.elsewhere = ""
        self.fails = 0
        """So many answers to `/flaky` fail before one does not."""
        self._answers: dict[str, Callable[[], Any]] = {
            "echo": lambda: web.json_response(self.got[-1]),
            "nested": lambda: web.json_response(NESTED),
            "text": lambda: web.Response(text="it is 21 degrees"),
            "broken": lambda: web.Response(text="{", content_type="application/json"),
            "html": lambda: web.Response(text="<p>busy</p>", content_type="text/html"),
            "nothing": lambda: web.Response(status=204),
            "missing": lambda: web.json_response({"error": f"no {SECRET}"}, status=404),
            "down": lambda: web.Response(status=503, text="down"),
            "teapot": lambda: web.json_response({"short": "stout"}, status=418),
            "away": lambda: web.Response(status=302, headers={"Location": self.elsewhere}),
            "big": lambda: web.Response(body=b"x" * 20_000_000),
        }

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.got.append(
            {
                "method": request.method,
                "path": request.raw_path,
                "headers": {name.lower(): value for name, value in request.headers.items()},
                "body": (await request.read()).decode(),
            }
        )
        first = request.path.split("/")[1]
        if first == "slow":
            await asyncio.sleep(600)
        if first == "flaky":
            self.fails -= 1
            return self._answers["down" if self.fails >= 0 else "echo"]()  # type: ignore[no-any-return]
        return self._answers[first]()  # type: ignore[no-any-return]


@asynccontextmanager
async def at_hand() -> AsyncIterator[tuple[Web, str]]:
    """A server and its address."""
    server = Web()
    async with serving(server.answer) as port:
        yield server, f"http://127.0.0.1:{port}"


def flexigpt(crib: Crib, url: str, properties: dict[str, Any] | None = None, **impl: Any) -> None:
    """A record at `.toolcrib/tools/weather/tool.json`; what `impl` names besides is the record's."""
    record: dict[str, Any] = {
        "schemaVersion": "xyz",
        "bundleID": "018faf50-b7b6-7a01-9a05-a22a6e0af101",
        "slug": "weather",
        "version": "v2",
        "description": "Weather of a city",
        "type": "http",
        "argSchema": {"type": "object", "properties": properties or CITY, "required": ["city"]},
    }
    record |= {key: impl.pop(key) for key in ("outputSchema",) if key in impl}
    crib.write(
        ".toolcrib/tools/weather/tool.json", json.dumps({**record, "impl": {"urlTemplate": url, **impl}})
    )


async def invoke(crib: Crib, **arguments: Any) -> Result:
    async with crib.open() as project:
        return await project.invoke(Call("weather", arguments))


def refused(result: Result, reason: str | None = None) -> dict[str, Any]:
    """The details of a failed request."""
    failed(result, "http_failed")
    assert result.error is not None
    assert reason is None or result.error.details["reason"] == reason
    return dict(result.error.details)


# -- FlexiGPT -----------------------------------------------------------------------------------------


async def test_a_record_puts_every_value_in_its_place(crib: Crib) -> None:
    crib.secrets = {"WEATHER_API_KEY": SECRET}
    properties = {
        **CITY,
        "days": {"type": "integer", "description": "Days"},
        "unit": {"type": "string", "description": "Unit"},
    }
    async with at_hand() as (server, url):
        flexigpt(
            crib,
            url + "/echo/${city}/current.json?q=${city}&days=${days}&key=${WEATHER_API_KEY}",
            properties,
            headers={
                "User-Agent": "MyApp/${version}",
                "X-Unit": "${unit}",
                "X-Key": "Bearer ${WEATHER_API_KEY}",
            },
        )
        result = await invoke(crib, city="../a b&key=x", days=3)
    (got,) = server.got
    assert got["path"] == (
        "/echo/..%2Fa%20b%26key%3Dx/current.json?q=..%2Fa%20b%26key%3Dx&days=3&key=k3y%2F%2Bvalue"
    )
    assert (got["headers"]["user-agent"], got["headers"]["x-key"]) == ("MyApp/v2", f"Bearer {SECRET}")
    assert "x-unit" not in got["headers"], "a header without its value is left out"
    assert result.unwrap()["headers"]["x-key"] == "Bearer ***WEATHER_API_KEY***"
    assert SECRET not in str(result.as_dict())
    assert crib.last().fields["status"] == "success"


@pytest.mark.parametrize(
    ("template", "kind", "arguments", "sent"),
    [
        ('{"city": "${city}", "n": ${n}, "all": ${all}}', None,
         {"city": '", "x": "1', "n": 2, "all": [1, "a"]}, {"city": '", "x": "1', "n": 2, "all": [1, "a"]}),
        ('{"city": "${city}", "n": ${n}}', None, {"city": "Bern"}, {"city": "Bern"}),
        ("city=${city}&n=${n}", "application/x-www-form-urlencoded", {"city": "a&n=9", "n": 2},
         "city=a%26n%3D9&n=2"),
        ("Weather of ${city}!", "text/plain", {"city": "Bern"}, "Weather of Bern!"),
    ],
)  # fmt: skip
async def test_a_body_template_is_filled_and_no_value_adds_to_it(
    crib: Crib, template: str, kind: str | None, arguments: dict[str, Any], sent: Any
) -> None:
    properties = {
        **CITY,
        "n": {"type": "integer", "description": "N"},
        "all": {"type": "array", "description": "A"},
    }
    async with at_hand() as (server, url):
        headers = {"headers": {"Content-Type": kind}} if kind else {}
        flexigpt(crib, url + "/echo", properties, method="post", bodyTemplate=template, **headers)
        (await invoke(crib, **arguments)).unwrap()
    (got,) = server.got
    assert got["method"] == "POST"
    assert (json.loads(got["body"]) if kind is None else got["body"]) == sent
    assert got["headers"]["content-type"].startswith(kind or "application/json")


@pytest.mark.parametrize(
    ("path", "impl", "value"),
    [
        ("/nested", {}, NESTED),
        ("/nested", {"extractExpr": "$.current.condition.text"}, "Sunny"),
        ("/nested", {"extractExpr": "$.days[*].t"}, [1, 2]),
        ("/text", {"responseEncoding": "text"}, "it is 21 degrees"),
        ("/text", {"responseEncoding": "text", "extractExpr": r"(\d+) degrees"}, "21"),
        ("/text", {"responseEncoding": "text", "extractExpr": r"/\d+/"}, "21"),
        ("/teapot", {"successCodes": [200, 418]}, {"short": "stout"}),
        ("/nothing", {}, None),
        ("/missing", {"errorMode": "empty"}, None),
        ("/nested", {"extractExpr": "$.gone", "errorMode": "empty"}, None),
    ],
)
async def test_what_is_taken_from_an_answer(crib: Crib, path: str, impl: dict[str, Any], value: Any) -> None:
    async with at_hand() as (_, url):
        flexigpt(crib, url + path, **impl)
        result = await invoke(crib, city="x")
    assert result.unwrap() == value
    if impl.get("errorMode") == "empty":
        assert "error_mode is empty" in result.warnings[0]


async def test_an_output_that_does_not_fit_its_schema_fails_the_call(crib: Crib) -> None:
    async with at_hand() as (_, url):
        flexigpt(crib, url + "/nested", extractExpr="$.days", outputSchema={"type": "string"})
        told = failed(await invoke(crib, city="x"), "invalid_output")
    assert "string" in told


# -- what the server does -----------------------------------------------------------------------------


def a_tool(crib: Crib, url: str, path: str, limit_ms: int = 100_000) -> None:
    flexigpt(crib, url + path, timeoutMs=limit_ms)


async def test_a_status_that_is_no_success_is_an_error(crib: Crib) -> None:
    async with at_hand() as (server, url):
        a_tool(crib, url, "/missing")
        result = await invoke(crib, city="x")
        details = refused(result)
        assert (details["status"], len(server.got)) == (404, 1)
        assert "404 Not Found" in failed(result, "http_failed")
        a_tool(crib, url, "/down")
        details = refused(await invoke(crib, city="x"))
        assert (details["status"], details["body"]) == (503, "down")


async def test_a_server_that_is_down_for_a_moment_is_asked_again(crib: Crib) -> None:
    async with at_hand() as (server, url):
        server.fails = 1
        a_tool(crib, url, "/flaky")
        result = await invoke(crib, city="x")
    assert (result.ok, len(server.got)) == (True, 2)


async def test_a_slow_server_is_not_waited_for(crib: Crib) -> None:
    async with at_hand() as (_, url):
        a_tool(crib, url, "/slow", 700)
        told = failed(await invoke(crib, city="x"), "timed_out")
    assert "700 ms" in told


async def test_an_answer_that_is_not_json(crib: Crib) -> None:
    async with at_hand() as (_, url):
        a_tool(crib, url, "/broken")
        refused(await invoke(crib, city="x"), "bad_json")
        a_tool(crib, url, "/html")
        assert (await invoke(crib, city="x")).unwrap() == "<p>busy</p>", "another type is text"


async def test_an_answer_without_end_is_not_read_to_its_end(crib: Crib) -> None:
    async with at_hand() as (_, url):
        a_tool(crib, url, "/big")
        refused(await invoke(crib, city="x"), "too_large")


async def test_a_redirect_to_another_host_is_refused(crib: Crib) -> None:
    async with at_hand() as (server, url), at_hand() as (other, elsewhere):
        server.elsewhere = elsewhere + "/echo"
        a_tool(crib, url, "/away")
        told = failed(await invoke(crib, city="x"), "host_not_allowed")
        assert "is not a host this tool may reach" in told
        assert other.got == []
        server.elsewhere = url + "/echo/here"
        assert (await invoke(crib, city="x")).unwrap()["path"] == "/echo/here"


async def test_nobody_listens(crib: Crib) -> None:
    async with at_hand() as (_, url):
        pass
    a_tool(crib, url, "/echo")
    assert "Connection refused" in failed(await invoke(crib, city="x"), "http_failed")


async def test_a_secret_that_is_missing_stops_the_call_before_anything_is_sent(crib: Crib) -> None:
    async with at_hand() as (server, url):
        flexigpt(crib, url + "/echo?key=${WEATHER_API_KEY}")
        assert "WEATHER_API_KEY" in failed(await invoke(crib, city="x"), "secret_missing")
        flexigpt(crib, url + "/echo", headers={"X-Key": "${API_TOKEN}"})
        assert "API_TOKEN" in failed(await invoke(crib, city="x"), "secret_missing")
        assert server.got == []


async def test_the_projects_list_of_hosts_holds(crib: Crib) -> None:
    async with at_hand() as (server, url):
        a_tool(crib, url, "/echo")
        file = crib.home / "config.yml"
        text = file.read_text() if file.exists() else ""
        file.write_text(text + "security: {allowed_hosts: [api.example.com]}\n")
        failed(await invoke(crib, city="x"), "host_not_allowed")
        assert server.got == []


async def test_somebody_else_is_asked_to_wait_until_a_person_has_looked(crib: Crib) -> None:
    async with at_hand() as (server, url):
        a_tool(crib, url, "/echo")
        crib.accept = "trusted"
        async with crib.open() as project:
            first = await project.invoke(Call("weather", {"city": "x"}, caller="mcp:x"))
            assert "nobody has trusted this tool" in failed(first, "approval_required")
            project.trust.trust(project.get("weather"), "ann")
            second = await project.invoke(Call("weather", {"city": "x"}, caller="mcp:x"))
        assert (second.ok, len(server.got)) == (True, 1)
