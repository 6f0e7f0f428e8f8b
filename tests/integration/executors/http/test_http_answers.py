"""Answers to HTTP tools: extraction, success, and every kind of failure."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, ClassVar

import pytest
from aiohttp import web

from tests.integration.egress.servers import raw
from tests.integration.executors.http.http_doubles import SECRET, Attempt, Server, a_tool
from toolcrib.egress import Egress
from toolcrib.errors import (
    HostNotAllowed,
    HttpFailed,
    InvalidInput,
    TimedOut,
    ToolcribError,
)
from toolcrib.executors.http.executor import HttpExecutor
from toolcrib.spec import (
    Call,
    FieldMap,
    Output,
    Retry,
)

# Answers


@pytest.mark.parametrize(
    ("config", "body", "value"),
    [
        ({}, {"a": 1}, {"a": 1}),
        ({}, [1], [1]),
        ({}, None, None),
        ({"json_path": "a.b"}, {"a": {"b": 3}}, 3),
        ({"json_path": "a[1].b"}, {"a": [0, {"b": None}]}, None),
        ({"json_path": "a.1.b"}, {"a": [0, {"b": False}]}, False),
        (
            {"json_path": "a", "fields": (FieldMap("x", "p.q"), FieldMap("y", "z[0]"))},
            {"a": {"p": {"q": 1}}},
            {"x": 1, "y": None},
        ),
        (
            {"fields": (FieldMap("x", "x"),)},
            [{"x": 1, "y": 2}, {}, 5, None],
            [{"x": 1}, {"x": None}, {"x": None}, {"x": None}],
        ),
        ({"json_path": "a", "fields": (FieldMap("x", "x"),)}, {"a": None}, None),
        ({"jsonpath": "$.current.condition.text"}, {"current": {"condition": {"text": "Sunny"}}}, "Sunny"),
        ({"jsonpath": "$.items[*].id"}, {"items": [{"id": 1}, {"id": 2}]}, [1, 2]),
        ({"jsonpath": "$.items[*].nope"}, {"items": [{"id": 1}]}, []),
        ({"jsonpath": "$.items[?match(@.n, 'a.*')].n"}, {"items": [{"n": "ab"}, {"n": "b"}]}, ["ab"]),
        ({"jsonpath": "$.items[?search(@.n, 'b')].n"}, {"items": [{"n": "ab"}, {"n": 5}]}, ["ab"]),
        ({"jsonpath": "$..id", "fields": (FieldMap("x", "x"),)}, {"id": {"x": 1}}, [{"x": 1}]),
        ({"regex": '"id": (\\d+)'}, {"id": 42}, "42"),
        ({"regex": "id"}, {"id": 42}, "id"),
    ],
)
async def test_what_is_taken_from_an_answer(
    http_server: Server, config: dict[str, Any], body: Any, value: Any
) -> None:
    http_server.json(body)
    assert (await http_server.run(a_tool(http_server.port, **config))).value == value


@pytest.mark.parametrize(
    ("config", "body", "message"),
    [
        ({"json_path": "web.results"}, {"web": {"other": 1, "x": 2}}, "`web` is an object with other, x"),
        ({"json_path": "web.results"}, {}, "the answer is an empty object"),
        ({"json_path": "a[3]"}, {"a": [1]}, "`a` is a list of 1"),
        ({"json_path": "a.b"}, {"a": "text"}, "`a` is text"),
        ({"json_path": "a"}, None, "the answer is null"),
        ({"jsonpath": "$.a.b"}, {"a": 1}, r"nothing at `\$.a.b`"),
        ({"regex": "x(y)z"}, {"id": 42}, "does not match"),
        ({"regex": "id(x)?"}, {"id": 42}, "does not match"),
        ({"fields": (FieldMap("x", "x"),)}, "text", "an object or a list, and the answer is"),
        ({}, '{"half": ', "not valid JSON"),
        ({}, "", "not valid JSON"),
        ({}, "NaN", "not valid JSON"),
        ({}, "[" * 100_000, "not valid JSON"),
    ],
)
async def test_an_answer_without_what_is_asked_for_is_an_error(
    http_server: Server, config: dict[str, Any], body: Any, message: str
) -> None:
    http_server.json(json.dumps(body) if config and isinstance(body, str) else body)
    with pytest.raises(HttpFailed, match=message) as caught:
        await http_server.run(a_tool(http_server.port, **config))
    error = caught.value
    assert (error.details["status"], error.retryable) == (200, False)
    assert (error.details["method"], error.details["url"]) == ("GET", f"http://127.0.0.1:{http_server.port}/")


async def test_expensive_expressions_from_a_manifest_run_in_linear_time(http_server: Server) -> None:
    http_server.json({"items": [{"n": "a" * 30_000 + "!"}]})
    tool = a_tool(http_server.port, jsonpath="$.items[?match(@.n, '(a+)+')].n")
    assert (await asyncio.wait_for(http_server.run(tool), 100)).value == []
    with pytest.raises(HttpFailed):
        await asyncio.wait_for(http_server.run(a_tool(http_server.port, regex="(a+)+$")), 100)


@pytest.mark.parametrize(
    ("answer", "output", "value"),
    [
        (web.Response(text="<p>hi</p>", content_type="text/html"), "json", "<p>hi</p>"),
        (web.Response(text='{"a": 1}', content_type="text/plain"), "json", {"a": 1}),
        (web.Response(body=b'\xef\xbb\xbf{"a": 1}', content_type="application/json"), "json", {"a": 1}),
        (
            web.Response(
                body='{"a": "é"}'.encode("latin-1"),
                headers={"Content-Type": "application/json; charset=latin-1"},
            ),
            "json",
            {"a": "é"},
        ),
        (web.Response(body=b"", headers={"Content-Type": ""}), "json", None),
        (web.Response(status=204), "json", None),
        (web.Response(text='{"a": 1}', content_type="application/json"), "text", '{"a": 1}'),
        (
            web.Response(body="é".encode("latin-1"), headers={"Content-Type": "text/plain; charset=latin-1"}),
            "text",
            "é",
        ),
        (
            web.Response(
                body="é".encode("cp1252"), headers={"Content-Type": "application/x-ofx; charset=windows-1252"}
            ),
            "json",
            "é",
        ),
        (
            web.Response(
                body="é".encode("latin-1"), headers={"Content-Type": "text/csv;charset=latin-1,text/csv"}
            ),
            "text",
            "é",
        ),
        (web.Response(body=b"\xfd\xfe!", headers={"Content-Type": "text/plain"}), "text", "\ufffd\ufffd!"),
        (
            web.Response(body=b"\xfd\xfe!", headers={"Content-Type": "message/rfc822"}),
            "text",
            "\ufffd\ufffd!",
        ),
        (web.Response(body=b"x", headers={"Content-Type": "text/plain; charset=nope"}), "text", "x"),
    ],
)
async def test_bodies_are_read_by_type_and_format(
    http_server: Server, answer: web.Response, output: Any, value: Any
) -> None:
    http_server.answer = lambda _: answer
    outcome = await http_server.run(a_tool(http_server.port, output=Output(output)))
    assert outcome.value == value
    assert bool(outcome.warnings) is (
        value in ("\ufffd\ufffd!",) or "nope" in answer.headers.get("Content-Type", "")
    )


@pytest.mark.parametrize(
    ("charset", "body"),
    # Punycode takes the square of the length: minutes for the most that an answer may have.
    [("punycode", b"bcher-kva"), ("idna", b"xn--bcher-kva"), ("utf-7", b"+2AA-"), ("\xff", b"x")],
)
async def test_codecs_of_python_are_no_character_sets(http_server: Server, charset: str, body: bytes) -> None:
    head = f"HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset={charset}\r\n"
    answer = f"{head}Content-Length: {len(body)}\r\n\r\n".encode("latin-1") + body
    async with raw(answer) as port:
        tool = a_tool(port, output=Output("text"))
        outcome = await HttpExecutor(tool, http_server.egress).run(Call("t", {}), Attempt())
    assert (outcome.value, len(outcome.warnings)) == (body.decode(), 1)


class Name(str):
    """A name that counts its comparisons."""

    __slots__ = ()
    compared: ClassVar[list[object]] = []

    def __eq__(self, other: object) -> bool:
        Name.compared.append(other)
        return str.__eq__(self, other)

    __hash__ = str.__hash__


async def test_many_fields_take_linear_time(http_server: Server) -> None:
    fields = tuple(FieldMap(Name(f"f{number}"), "a") for number in range(1_000))
    HttpExecutor(a_tool(http_server.port, fields=fields), http_server.egress)
    assert len(Name.compared) < 10_000


async def test_a_text_tool_gets_extracted_values_as_text(http_server: Server) -> None:
    http_server.json({"a": {"b": [1]}, "s": "x"})
    text = Output("text")
    assert (await http_server.run(a_tool(http_server.port, output=text, json_path="a"))).value == '{"b":[1]}'
    assert (await http_server.run(a_tool(http_server.port, output=text, json_path="s"))).value == "x"


async def test_html_where_json_is_needed_is_an_error(http_server: Server) -> None:
    http_server.answer = lambda _: web.Response(text="<p>login</p>", content_type="text/html")
    with pytest.raises(HttpFailed, match=r"not valid JSON \(text/html\)") as caught:
        await http_server.run(a_tool(http_server.port, json_path="a"))
    assert caught.value.details["body"] == "<p>login</p>"


@pytest.mark.parametrize(
    ("codes", "status", "ok"),
    [
        ((), 200, True),
        ((), 299, True),
        ((), 404, False),
        ((201,), 201, True),
        ((201,), 200, False),
        ((404,), 404, True),
    ],
)
async def test_success_is_2xx_or_exactly_what_is_listed(
    http_server: Server, codes: tuple[int, ...], status: int, ok: bool
) -> None:
    http_server.json({"x": 1}, status)
    tool = a_tool(http_server.port, success_codes=codes)
    if ok:
        outcome = await http_server.run(tool)
        assert (outcome.value, outcome.details) == ({"x": 1}, {"status": status})
    else:
        with pytest.raises(HttpFailed, match=f"answered {status}"):
            await http_server.run(tool)


async def test_a_listed_redirect_status_is_the_answer(http_server: Server) -> None:
    http_server.json({"moved": True}, 302, Location="/elsewhere")
    outcome = await http_server.run(a_tool(http_server.port, success_codes=(302,)))
    assert (outcome.value, len(http_server.got)) == ({"moved": True}, 1)


async def test_head_has_no_value(http_server: Server) -> None:
    outcome = await http_server.run(a_tool(http_server.port, method="HEAD", json_path="a"))
    assert (outcome.value, outcome.details) == (None, {"status": 200})


async def test_a_long_answer_is_refused_by_default_and_by_limit(http_server: Server) -> None:
    http_server.json([0] * 1_000_000)
    with pytest.raises(HttpFailed, match="larger than 2097152 bytes"):
        await http_server.call()
    with pytest.raises(HttpFailed, match="larger than 10 bytes") as caught:
        await http_server.run(a_tool(http_server.port, max_response_bytes=10))
    assert (caught.value.details["reason"], caught.value.retryable) == ("too_large", False)
    assert (
        len((await http_server.run(a_tool(http_server.port, max_response_bytes=5_000_000))).value)
        == 1_000_000
    )


# Failures


@pytest.mark.parametrize(
    ("status", "retryable"),
    [
        (400, False),
        (401, False),
        (404, False),
        (408, True),
        (409, False),
        (429, True),
        (500, True),
        (503, True),
        (599, True),
    ],
)
async def test_an_error_status_says_what_came_and_whether_to_try_again(
    http_server: Server, status: int, retryable: bool
) -> None:
    http_server.json({"error": "no"}, status)
    with pytest.raises(HttpFailed) as caught:
        await http_server.call("/x?q=${a}", a="v")
    error = caught.value
    assert error.retryable is retryable
    assert error.message.startswith(f"GET http://127.0.0.1:{http_server.port}/x?q=v: answered {status}")
    assert {name: error.details[name] for name in ("status", "method", "body")} == {
        "status": status,
        "method": "GET",
        "body": '{"error": "no"}',
    }


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("7", 7),
        ("0", 0),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 0),
        ("Wed, 21 Oct 99999999999 07:28:00 GMT", None),
        ("soon", None),
        ("-5", None),
        ("", None),
    ],
)
async def test_retry_after_is_reported(http_server: Server, header: str, seconds: float | None) -> None:
    http_server.json({}, 429, **{"Retry-After": header})
    with pytest.raises(HttpFailed) as caught:
        await http_server.call()
    assert caught.value.details.get("retryAfterS") == seconds


async def test_the_body_in_an_error_is_short(http_server: Server) -> None:
    http_server.answer = lambda _: web.Response(status=500, text="x" * 100_000)
    with pytest.raises(HttpFailed) as caught:
        await http_server.call()
    assert len(caught.value.details["body"]) == 1001
    assert len(caught.value.message) < 400


@pytest.mark.parametrize("mode", ["fail", "empty"])
@pytest.mark.parametrize("status", [200, 500])
async def test_no_error_shows_a_secret(http_server: Server, status: int, mode: Any) -> None:
    http_server.answer = lambda request: web.Response(
        status=status, text=f"{request.query['k']} and {request.raw_path}", content_type="application/json"
    )
    tool = a_tool(http_server.port, "/${KEY}/x?k=${KEY}", headers={"X": "${KEY}"}, error_mode=mode)
    try:
        shown = repr(await http_server.run(tool))
    except ToolcribError as error:
        shown = json.dumps(error.as_dict()) + str(error)
    assert "***" in shown
    assert SECRET not in shown
    assert "s3cr3t%2F" not in shown


@pytest.mark.parametrize("size", [195, 995, 3_995])
async def test_an_excerpt_shows_no_part_of_a_secret(http_server: Server, size: int) -> None:
    http_server.answer = lambda _: web.Response(status=500, text="ä" * size + SECRET + "x" * 5_000)
    with pytest.raises(HttpFailed) as caught:
        await http_server.run(a_tool(http_server.port))
    shown = json.dumps(caught.value.as_dict(), ensure_ascii=False)
    assert SECRET[:3] not in shown
    assert "ä" * 190 in shown


async def test_error_mode_empty_turns_failure_into_null(http_server: Server) -> None:
    http_server.json({"e": 1}, 404)
    outcome = await http_server.run(a_tool(http_server.port, error_mode="empty"))
    assert outcome.value is None
    assert outcome.details is not None
    assert outcome.details["status"] == 404
    assert "answered 404" in outcome.warnings[0]


async def test_error_mode_empty_is_for_the_last_attempt_and_not_for_refusals(http_server: Server) -> None:
    http_server.json({}, 503)
    tool = a_tool(http_server.port, error_mode="empty", retry=Retry(2), path="/${a}")
    with pytest.raises(HttpFailed):
        await http_server.run(tool, Attempt(attempt=1), a=1)
    assert (await http_server.run(tool, Attempt(attempt=2), a=1)).value is None
    with pytest.raises(InvalidInput):
        await http_server.run(tool, Attempt(attempt=2))


@pytest.mark.parametrize(
    ("sent", "message"),
    [
        (b"", "closed the connection without an answer"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{", "in the middle of its answer"),
        (b"garbage\r\n\r\n", "is not HTTP"),
    ],
)
@pytest.mark.parametrize("mode", ["fail", "empty"])
async def test_a_server_that_breaks_is_a_clear_error(
    http_server: Server, sent: bytes, message: str, mode: Any
) -> None:
    async with raw(sent) as port:
        tool = a_tool(port, error_mode=mode)
        if mode == "empty":
            outcome = await http_server.run(tool)
            assert (outcome.value, message in outcome.warnings[0]) == (None, True)
        else:
            with pytest.raises(HttpFailed, match=f"GET http://127.0.0.1:{port}/: .*{message}"):
                await http_server.run(tool)


async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()


Hang: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]] = hang


async def test_a_server_that_never_answers_is_left_after_the_tools_own_limit(http_server: Server) -> None:
    async with raw(Hang) as port:
        with pytest.raises(TimedOut, match="within 100 ms") as caught:
            await http_server.run(a_tool(port, timeout_ms=100))
        assert caught.value.details["limit"] == "exec.http.timeout_ms"
        assert caught.value.retryable
        outcome = await http_server.run(a_tool(port, error_mode="empty"), Attempt(remaining=0.1))
        assert outcome.value is None


async def test_a_redirect_to_a_private_address_is_refused(http_server: Server) -> None:
    http_server.answer = lambda _: web.Response(
        status=302, headers={"Location": "http://169.254.169.254/latest"}
    )
    with pytest.raises(HostNotAllowed, match=r"169\.254\.169\.254"):
        await http_server.run(a_tool(http_server.port, error_mode="empty"))


async def test_an_empty_answer_is_given_only_after_the_last_attempt(http_server: Server) -> None:
    http_server.answer = lambda _: web.Response(status=503)
    tool = a_tool(http_server.port, error_mode="empty")
    call = Call(tool.name, {})
    async with Egress() as egress:
        twice = HttpExecutor(tool, egress, retry=Retry(2))
        with pytest.raises(HttpFailed):
            await twice.run(call, Attempt(attempt=1))
        assert (await twice.run(call, Attempt(attempt=2))).value is None
        assert (await HttpExecutor(tool, egress).run(call, Attempt(attempt=1))).value is None
