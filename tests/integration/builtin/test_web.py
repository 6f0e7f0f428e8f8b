"""`fetch_url`, `http_request` and `web_search` against real servers on loopback."""

from __future__ import annotations

import os
import sys
from base64 import b64encode
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from aiohttp import web

from toolcrib import Toolset
from toolcrib.errors import UnavailableError
from toolcrib.middleware import tracing_middleware
from toolcrib.state.installation import install_hint

FEED = "<rss><item><link>https://a.example/</link><title><![CDATA[New]]></title></item></rss>"
PAGE = '<head><title>T</title></head><body><h1>Hi</h1><p>See <a href="/next">next</a>.</p></body>'

FIXED = {
    "/page": (PAGE, "text/html"),
    "/json": ('{"a":  1}', "application/json"),
    "/feed": (FEED, "application/rss+xml"),
}


class Site:
    """A server that remembers its requests."""

    def __init__(self) -> None:
        self.seen: list[web.Request] = []
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def asked_for(self, request: web.Request) -> web.Response | None:
        """An answer that the test wrote, or put into the query."""
        if request.path in FIXED:
            text, media_type = FIXED[request.path]
            return web.Response(text=text, content_type=media_type)
        if "body" in request.query:
            media = {"Content-Type": request.query["type"]}
            return web.Response(body=bytes.fromhex(request.query["body"]), headers=media)
        if (given := request.query.get("q", "")).startswith("shape "):
            return web.Response(text=given.removeprefix("shape "), content_type="application/json")
        return None

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.seen.append(request)
        body = await request.text()
        if (asked := self.asked_for(request)) is not None:
            return asked
        match request.path:
            case "/latin" | "/named" as path:
                charset, media = ("latin-1", "") if path == "/latin" else ("utf-8", "; charset=utf-8")
                page = '<meta charset="iso-8859-1"><p>café</p>'.encode(charset)
                return web.Response(body=page, headers={"Content-Type": f"text/html{media}"})
            case "/punycode":
                return web.Response(
                    body=b"bcher-kva", headers={"Content-Type": "text/plain; charset=punycode"}
                )
            case "/image":
                return web.Response(body=b"\x89PNG\xff", content_type="image/png")
            case "/busy":
                return web.Response(status=429, headers={"Retry-After": "7"})
            case "/missing":
                return web.Response(status=404, text="no such page")
            case "/redirect":
                return web.Response(status=302, headers={"Location": request.query["to"]})
            case "/long":
                return web.Response(text="é" * 80_000)
            case "/echo":
                headers = {k: v for k, v in request.headers.items() if k.startswith(("X-", "Content-Type"))}
                seen = {"query": list(request.query.items()), "headers": headers, "body": body}
                return web.json_response({"method": request.method, **seen}, status=201)
            case "/res/v1/web/search":
                found = {
                    "title": "A <b>t</b>",
                    "url": "https://a.example/",
                    "description": "1 < 2 &amp; 3 > 2",
                }
                return web.json_response({"web": {"results": [found] * int(request.query["count"])}})
            case "/search":
                found = {"title": "S", "url": "https://s.example/", "content": "text", "engine": "x"}
                return web.json_response({"results": [found] * 30})
        return web.Response(status=500)


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    made = Site()
    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", made.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await (listener := web.TCPSite(runner, "127.0.0.1", 0)).start()
    made.port = listener._server.sockets[0].getsockname()[1]  # type: ignore[union-attr]
    yield made
    await runner.cleanup()


def toolset(site: Site, folder: Path, **options: Any) -> Toolset:
    tools = Toolset()
    network = {"network": {"allow": [f"127.0.0.1:{site.port}"]}}
    tools.register_builtins(
        "fetch_url",
        "http_request",
        "web_search",
        roots=folder,
        options={"fetch_url": network, "http_request": network, **options},
    )
    return tools


async def test_a_page_is_readable_text_and_json_stays_as_it_is(site: Site, tmp_path: Path) -> None:
    tools = toolset(site, tmp_path)
    page = await tools.execute("fetch_url", {"url": f"{site.url}/page"})
    assert page == f"# Hi\n\nSee next ({site.url}/next)."
    assert await tools.execute("fetch_url", {"url": f"{site.url}/json"}) == '{"a":  1}'
    assert await tools.execute("fetch_url", {"url": f"{site.url}/latin"}) == "café"
    assert await tools.execute("fetch_url", {"url": f"{site.url}/named"}) == "café"
    # No character set of the web, and it takes the square of the length.
    assert await tools.execute("fetch_url", {"url": f"{site.url}/punycode"}) == "bcher-kva"
    assert await tools.execute("fetch_url", {"url": f"{site.url}/feed"}) == FEED
    headers = {"X-Mine": "1"}
    await tools.execute("fetch_url", {"url": f"{site.url}/page", "headers": headers})
    assert site.seen[-1].headers["X-Mine"] == "1"
    assert "text/html" in site.seen[-1].headers["Accept"]


async def test_long_text_is_cut_at_max_chars_and_says_so(site: Site, tmp_path: Path) -> None:
    tools = toolset(site, tmp_path)
    text = await tools.execute("fetch_url", {"url": f"{site.url}/long"})
    assert text.startswith("é" * 50_000 + "\n[cut: the first 50,000 of 80,000 characters.")
    short = await tools.execute("fetch_url", {"url": f"{site.url}/long", "maxChars": 10})
    assert short.partition("\n")[0] == "é" * 10
    assert await tools.execute("fetch_url", {"url": f"{site.url}/long", "maxChars": 100_000}) == "é" * 80_000
    refused = await tools.call("fetch_url", {"url": f"{site.url}/long", "maxChars": 100_001})
    assert refused.error is not None
    assert refused.error.code == "invalid_input"


async def test_an_error_status_fails_with_the_beginning_of_the_answer(site: Site, tmp_path: Path) -> None:
    result = await toolset(site, tmp_path).call("fetch_url", {"url": f"{site.url}/missing"})
    assert result.error is not None
    assert result.error.code == "http_failed"
    assert result.error.message == "HTTP 404 Not Found\nno such page"
    busy = (await toolset(site, tmp_path).call("fetch_url", {"url": f"{site.url}/busy"})).error
    assert busy is not None
    assert (busy.retryable, busy.details) == (True, {"status": 429, "retryAfterS": 7.0})


@pytest.mark.parametrize(
    "to", ["http://127.0.0.1:1/", "http://169.254.169.254/latest/", "file:///etc/passwd"]
)
async def test_redirects_are_checked_again(site: Site, tmp_path: Path, to: str) -> None:
    tools = toolset(site, tmp_path)
    result = await tools.call("fetch_url", {"url": f"{site.url}/redirect?to={to}"})
    assert result.error is not None
    assert result.error.code in ("host_not_allowed", "http_failed")
    assert len(site.seen) == 1


async def test_without_a_grant_no_private_address_is_reached(site: Site, tmp_path: Path) -> None:
    tools = Toolset()
    tools.register_builtins("fetch_url", "http_request", roots=tmp_path)
    for name, more in (("fetch_url", {}), ("http_request", {"method": "GET"})):
        result = await tools.call(name, {"url": f"{site.url}/page", **more})
        assert result.error is not None
        assert result.error.code == "host_not_allowed"
        assert f"of the built-in: {name}: {{network: {{allow: [HOST]}}}}" in (result.error.hint or "")
    assert not site.seen


@pytest.mark.parametrize("header", [{"X-A": "1\r\nX-B: 2"}, {"Host": "other.example"}, {"a b": "1"}])
async def test_headers_cannot_split_the_request_or_change_its_host(
    site: Site, tmp_path: Path, header: dict[str, str]
) -> None:
    result = await toolset(site, tmp_path).call("fetch_url", {"url": f"{site.url}/page", "headers": header})
    assert result.error is not None
    assert result.error.code == "invalid_input"
    assert not site.seen


async def test_a_request_of_any_method_returns_its_answer(site: Site, tmp_path: Path) -> None:
    tools = toolset(site, tmp_path)
    arguments = {
        "method": "PUT",
        "url": f"{site.url}/echo?a=1#part",
        "query": {"b": "x&c=2", "d": [1, True]},
        "headers": {"X-Mine": "yes"},
        "body": {"n": 1},
    }
    answer = await tools.execute("http_request", arguments)
    assert answer["status"] == 201
    assert answer["body"] == {
        "method": "PUT",
        "query": [["a", "1"], ["b", "x&c=2"], ["d", "1"], ["d", "true"]],
        "headers": {"X-Mine": "yes", "Content-Type": "application/json"},
        "body": '{"n":1}',
    }
    missing = await tools.execute("http_request", {"method": "GET", "url": f"{site.url}/missing"})
    assert (missing["status"], missing["body"]) == (404, "no such page")
    about, image = (await tools.call("http_request", {"method": "GET", "url": f"{site.url}/image"})).blocks
    assert '"status":200' in about["text"]
    assert (image["type"], image["mimeType"], image["data"]) == (
        "image",
        "image/png",
        b64encode(b"\x89PNG\xff").decode(),
    )


async def test_brave_and_searxng_have_one_shape(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BRAVE_API_KEY", "brave-key-12345")
    brave = toolset(site, tmp_path, web_search={"url": site.url})
    asked = {"query": "a b", "count": 3, "freshness": "week"}
    found = await brave.execute("web_search", asked)
    assert found == [{"title": "A t", "url": "https://a.example/", "description": "1 < 2 & 3 > 2"}] * 3
    assert site.seen[-1].headers["X-Subscription-Token"] == "brave-key-12345"
    assert dict(site.seen[-1].query) == {
        "q": "a b",
        "count": "3",
        "freshness": "pw",
        "text_decorations": "false",
    }
    searxng = toolset(site, tmp_path, web_search={"provider": "searxng", "url": site.url})
    assert (
        await searxng.execute("web_search", {"query": "q", "freshness": "pd"})
        == [{"title": "S", "url": "https://s.example/", "description": "text"}] * 10
    )
    assert site.seen[-1].query["time_range"] == "day"


async def test_brave_needs_its_key(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BRAVE_API_KEY", raising=False)
    result = await toolset(site, tmp_path, web_search={"url": site.url}).call("web_search", {"query": "q"})
    assert result.error is not None
    assert result.error.code == "secret_missing"
    assert not site.seen


def test_a_login_in_the_address_of_a_search_is_no_part_of_its_host(site: Site, tmp_path: Path) -> None:
    address = site.url.replace("http://", "http://user:word@")
    tool = toolset(site, tmp_path, web_search={"provider": "searxng", "url": address}).get("web_search")
    assert tool.permissions.network.allow == (site.url.removeprefix("http://"),)


async def test_a_local_index_finds_text_markdown_and_html(site: Site, tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    (docs / "deep").mkdir(parents=True)
    (docs / "a.md").write_text("# Apples\n\nAn apple is a fruit that grows on trees.")
    (docs / "deep" / "b.html").write_text("<title>Pears</title><script>apple</script><p>A pear.</p>")
    (docs / "c.txt").write_text("Nothing here.")
    (docs / "binary.bin").write_text("apple")
    (docs / ".hidden.md").write_text("An apple of mine.")
    os.utime(docs / "a.md", (0, 0))
    tools = toolset(site, tmp_path, web_search={"provider": "index", "folder": str(docs)})

    async def search(query: str, **more: Any) -> list[str]:
        return [one["url"] for one in await tools.execute("web_search", {"query": query, **more})]

    found = await tools.execute("web_search", {"query": "apples"})
    assert [one["url"] for one in found] == ["a.md"]
    assert found[0]["title"] == "Apples"
    assert "apple is a fruit" in found[0]["description"]
    assert await search("pear") == ["deep/b.html"]
    assert await search("apples", freshness="day") == []
    (docs / "new.md").write_text("Another apple.")
    assert await search("apples", freshness="pd") == ["new.md"]
    assert await search('"unbalanced AND (') == []


async def test_what_is_not_installed_is_named_with_the_line_that_installs_it(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("selectolax", "selectolax.lexbor", "aiosmtplib", "opentelemetry"):
        monkeypatch.setitem(sys.modules, name, None)
    for variable, value in (("HOST", "127.0.0.1"), ("USER", "me@b.example"), ("PASS", "x")):
        monkeypatch.setenv(f"SMTP_{variable}", value)
    tools = toolset(site, tmp_path)
    tools.register_builtins("send_email")
    mail = {"to": "a@b.example", "subject": "s", "body": "b"}
    page = {"url": f"{site.url}/page"}
    for name, arguments, extra in (("fetch_url", page, "web"), ("send_email", mail, "mail")):
        result = await tools.call(name, arguments)
        assert result.error is not None
        assert (result.error.code, result.error.hint) == ("tool_unavailable", install_hint(extra))
    with pytest.raises(UnavailableError) as tracing:
        tracing_middleware()
    assert tracing.value.hint == install_hint("otel")


def meta(label: str, text: str, codec: str) -> bytes:
    return f'<!doctype html><head><meta charset="{label}"></head><p>{text}</p>'.encode(codec)


@pytest.mark.parametrize(
    ("media", "body", "text"),
    [
        ("text/html; charset=iso-8859-1", b"<p>\x80 \x93q\x94 caf\xe9", "\u20ac \u201cq\u201d café"),
        ("text/plain; charset=latin1", b"\x80", "\u20ac"),
        ("text/plain; charset=us-ascii", b"\x96", "\u2013"),
        ("text/html", meta("iso-8859-1", "\u20ac", "cp1252"), "\u20ac"),
        ("text/html", meta("windows-1251", "Привет", "cp1251"), "Привет"),
        ("text/html", meta("shift_jis", "日本①", "cp932"), "日本①"),
        ("text/html", meta("gb2312", "你好", "gb18030"), "你好"),
        ("text/html", meta("utf-16", "é", "utf-8"), "é"),
        (
            "text/html",
            b'<meta http-equiv="Content-Type" content="text/html; charset=koi8-r"><p>'
            + "Привет".encode("koi8-r"),
            "Привет",
        ),
        ("text/html", b"<!-- <meta charset=koi8-r> --><p>\xc3\xa9", "é"),
        ("text/html; charset=utf-8", meta("windows-1251", "é", "utf-8"), "é"),
        ("text/html; charset=windows-1251", b"\xef\xbb\xbf<p>\xc3\xa9", "é"),
        ("text/html; charset=utf-8", b"\xff\xfe" + "<p>é 日本".encode("utf-16-le"), "é 日本"),
        ("text/plain", b"\xfe\xff" + "é 日本".encode("utf-16-be"), "é 日本"),
        ("text/plain; charset=utf-16le", "é 日本".encode("utf-16-le"), "é 日本"),
        ("text/html; charset=no-such-thing", "<p>é".encode(), "é"),
    ],
)
async def test_a_page_is_decoded_as_browsers_do(
    site: Site, tmp_path: Path, media: str, body: bytes, text: str
) -> None:
    tools = toolset(site, tmp_path)
    asked = f"{site.url}/encoded?{urlencode({'type': media, 'body': body.hex()})}"
    assert await tools.execute("fetch_url", {"url": asked}) == text


@pytest.mark.parametrize(
    ("provider", "answer"),
    [
        ("brave", "[]"),
        ("brave", "{}"),
        ("brave", '{"error": "no"}'),
        ("brave", '{"query": {}, "web": []}'),
        ("brave", '{"query": {}, "web": {"results": "none"}}'),
        ("brave", '{"query": {}, "web": {"results": ["https://a.example"]}}'),
        ("brave", '{"query": {}, "web": {"results": [{"title": "no address"}]}}'),
        ("searxng", "{}"),
        ("searxng", '{"results": {"url": "https://a.example"}}'),
        ("searxng", '{"results": [1]}'),
        ("searxng", '"text"'),
    ],
)
async def test_an_answer_of_a_search_provider_in_another_shape_is_an_error(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, provider: str, answer: str
) -> None:
    monkeypatch.setenv("BRAVE_API_KEY", "k")
    tools = toolset(site, tmp_path, web_search={"provider": provider, "url": site.url})
    result = await tools.call("web_search", {"query": f"shape {answer}"})
    assert result.error is not None, result.value
    assert "answered in another shape: it" in result.error.message
    assert "`provider` and `url`" in (result.error.hint or "")


async def test_a_search_without_results_is_none(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BRAVE_API_KEY", "k")
    for provider, answer in (("brave", '{"query": {"original": "x"}}'), ("searxng", '{"results": []}')):
        tools = toolset(site, tmp_path, web_search={"provider": provider, "url": site.url})
        assert await tools.execute("web_search", {"query": f"shape {answer}"}) == []
