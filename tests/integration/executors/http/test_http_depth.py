"""HTTP tools as a program sees them: files in and out, streams, and servers that break in every way."""

from __future__ import annotations

import asyncio
import gzip
import json
import zlib
from base64 import b64encode
from typing import Any

import pytest
from aiohttp import web

from tests.crib import Crib, failed
from tests.integration.egress.servers import Answer, raw, serving
from toolcrib.spec import CallEvent, Result

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256))


def tool(crib: Crib, port: int, path: str = "/", name: str = "t", **config: Any) -> None:
    more = {key: config.pop(key) for key in ("limits", "retry", "outputs") if key in config}
    permissions = {"network": {"allow": [f"127.0.0.1:{port}"]}, **config.pop("permissions", {})}
    block = {"method": "GET", "url": f"http://127.0.0.1:{port}{path}", **config}
    crib.tool(name, "http", block, {"path": {}, "paths": {}}, permissions=permissions, **more)


async def called(crib: Crib, **arguments: Any) -> Result:
    async with crib.open() as project:
        return await project.call("t", arguments)


@pytest.mark.parametrize(
    ("media", "body", "kind"),
    [
        ("image/png", PNG, "image"),
        ("audio/wav", b"RIFF\0\xff", "audio"),
        ("application/pdf", b"%PDF-1.7\n", "resource"),
        ("application/vnd.openxmlformats-officedocument.wordprocessingml.document", b"PK\3\4\0", "resource"),
        ("application/octet-stream", b"\0\1\2", "resource"),
        ("application/octet-stream", b"a,b\n1,2\n", None),
        ("application/octet-stream", b"#!/bin/sh\n" * 1_000 + b"\0", "resource"),
        ("application/octet-stream", b"#!/bin/sh\n" * 1_000 + b"\xff", "resource"),
        ("text/csv", b"a,b\n", None),
    ],
)
async def test_images_and_files_are_content(crib: Crib, media: str, body: bytes, kind: str | None) -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(body=body, content_type=media)

    async with serving(answer) as port:
        tool(crib, port, "/x.bin?token=1")
        result = await called(crib)
    if kind is None:
        assert (result.value, result.blocks) == (body.decode(), ())
        return
    (block,) = result.blocks
    inner = block.get("resource", block)
    assert (block["type"], inner["mimeType"]) == (kind, media)
    assert inner.get("data", inner.get("blob")) == b64encode(body).decode()
    assert "token" not in json.dumps(block)


async def test_files_are_sent_from_granted_folders_only(crib: Crib) -> None:
    got: list[Any] = []

    async def answer(request: web.Request) -> web.Response:
        if request.content_type.startswith("multipart/"):
            reader = await request.multipart()
            while (part := await reader.next()) is not None:
                got.append((part.name, part.filename, part.headers.get("Content-Type"), await part.read()))  # type: ignore[union-attr]
        else:
            got.append((request.content_type, await request.read()))
        return web.json_response({})

    crib.write("up/a.png", PNG)
    crib.write("up/b.txt", "b")
    crib.write("secret.txt", "no")
    (crib.root / "up/link").symlink_to(crib.root / "secret.txt")
    grant: dict[str, Any] = {"permissions": {"fs": {"read": ["up"]}}, "method": "POST"}
    async with serving(answer) as port:
        parts = {"f": {"encoding": "file"}, "g": {"encoding": "file", "filename": "x", "content_type": "a/b"}}
        grant["permissions"]["network"] = {"allow": [f"127.0.0.1:{port}"]}
        tool(
            crib, port, body_format="multipart", body={"f": "${path}", "g": "${paths}"}, parts=parts, **grant
        )
        assert (await called(crib, path="up/a.png", paths=["up/b.txt", "up/b.txt"])).ok
        assert got == [("f", "a.png", "image/png", PNG), *[("g", "x", "a/b", b"b")] * 2]
        for path in ("secret.txt", "up/../secret.txt", "up/link", "/etc/passwd", "up/none"):
            got.clear()
            result = await called(crib, path=path)
            assert result.error is not None, path
            assert got == []
        tool(crib, port, body_format="file", body="${path}", **grant)
        assert (await called(crib, path="up/a.png")).ok
        assert got == [("image/png", PNG)]
        for name, size in (("half", 32 << 20), ("big", (64 << 20) + 1)):
            with (crib.root / "up" / name).open("wb") as big:
                big.truncate(size)
        got.clear()
        assert "up/big is larger than 67,108,864 bytes" in str((await called(crib, path="up/big")).error)
        tool(crib, port, body_format="multipart", body={"g": "${paths}"}, parts={"g": parts["g"]}, **grant)
        refused = (await called(crib, paths=["up/half", "up/half", "up/a.png"])).error
        assert (str(refused), got) == (
            "the request is larger than 67,108,864 bytes, the most that is sent",
            [],
        )


@pytest.mark.parametrize("media", ["text/event-stream", "text/plain"])
async def test_a_stream_is_heard_while_it_runs_and_recorded_whole(crib: Crib, media: str) -> None:
    heard, go = list[str](), asyncio.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": media})
        await response.prepare(request)
        await response.write("data: é".encode()[:-1])
        await go.wait()
        await response.write("é".encode()[-1:] + b"\n\ndata: s3cr3t-")
        await response.write(b"value-9\n\n")
        return response

    def listen(event: CallEvent) -> None:
        if event.kind == "chunk":
            heard.append(event.text)
            go.set()

    crib.secrets["KEY"] = "s3cr3t-value-9"
    async with serving(answer) as port:
        tool(crib, port, permissions={"network": {"allow": [f"127.0.0.1:{port}"]}, "secrets": {"KEY": {}}})
        async with crib.open() as project, asyncio.timeout(100):
            result = await project.call("t", {}, on_event=listen)
    whole = result.unwrap()
    assert whole.startswith("data: é\n\ndata: ")
    assert "".join(heard).startswith("data: é")
    assert "s3cr3t-value-9" not in "".join(heard) + whole


def dripping(head: bytes, piece: bytes) -> Answer:
    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(head)
        while True:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0.05)

    return answer


OK = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n"
BOMB = zlib.compressobj(9, zlib.DEFLATED, 31)
BOMBED = BOMB.compress(bytes(50 * 2**20)) + BOMB.flush()
CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"
GZIP = b"Content-Encoding: gzip\r\n"
LOOP = b"HTTP/1.1 302 Found\r\nLocation: /\r\nContent-Length: 0\r\n\r\n"
CUT = gzip.compress(b"x" * 9999)[:20]
FAULTS: dict[str, tuple[Answer | bytes, str, str]] = {
    "slow headers": (dripping(b"HTTP/1.1 200 OK\r\n", b"X-A: 1\r\n"), "timed_out", "1500 ms"),
    "slow body": (dripping(OK + b"Content-Length: 1000000\r\n\r\n", b"x"), "timed_out", "1500 ms"),
    "endless chunks": (dripping(OK + CHUNKED, b"1\r\nx\r\n"), "timed_out", "1500 ms"),
    "reset after 9 bytes": (OK + b"Content-Length: 20\r\n\r\n123456789", "http_failed", "in the middle"),
    "no answer": (b"", "http_failed", "without an answer"),
    "bad chunk": (OK + CHUNKED + b"zz\r\n", "http_failed", "127.0.0.1"),
    "bad gzip": (OK + GZIP + b"Content-Length: 4\r\n\r\nnope", "http_failed", "cannot be decoded"),
    "cut gzip": (OK + GZIP + b"Content-Length: 99\r\n\r\n" + CUT, "http_failed", "in the middle"),
    "gzip cut before its length was counted": (
        OK + GZIP + b"Content-Length: 20\r\n\r\n" + CUT,
        "http_failed",
        "cannot be decoded",
    ),
    "gzip bomb": (OK + GZIP + b"\r\n" + BOMBED, "http_failed", "larger than 2097152 bytes"),
    "not HTTP": (b"SSH-2.0-x\r\n\r\n", "http_failed", "is not HTTP"),
    "redirect loop": (LOOP, "http_failed", "more than 5 times"),
}


@pytest.mark.parametrize(("answer", "code", "what"), list(FAULTS.values()), ids=list(FAULTS))
async def test_a_broken_server_is_a_clear_error_in_time(
    crib: Crib, answer: Any, code: str, what: str
) -> None:
    async with raw(answer) as port:
        limit_ms = 1_500 if code == "timed_out" else 100_000
        tool(crib, port, limits={"timeout_ms": limit_ms}, retry={"max_attempts": 1})
        result = await called(crib)
    assert what in failed(result, code)
