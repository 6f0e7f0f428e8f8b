"""A document imported from a server by the command line, and its tools called against that very server."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tests.crib import Crib
from tests.e2e.cli.test_cli import cli

STRINGS = {"type": "array", "items": {"type": "string"}}
DOCUMENT: dict[str, Any] = {
    "openapi": "3.1.0",
    "info": {"title": "Shop", "version": "1"},
    "components": {
        "securitySchemes": {
            "key": {"type": "apiKey", "in": "header", "name": "X-Key"},
            "login": {"type": "http", "scheme": "basic"},
        },
        "schemas": {
            "Item": {
                "type": "object",
                "required": ["name"],
                "properties": {
                    "id": {"type": "integer", "readOnly": True},
                    "name": {"type": "string"},
                    "parts": {"type": "array", "items": {"$ref": "#/components/schemas/Item"}},
                    "stock": {"type": "integer", "default": 5},
                },
            }
        },
    },
    "paths": {
        "/items/{ids}": {
            "get": {
                "operationId": "find",
                "security": [{"key": []}],
                "parameters": [
                    {"name": "ids", "in": "path", "required": True, "style": "label", "schema": STRINGS},
                    {"name": "tag", "in": "query", "schema": STRINGS},
                    {"name": "size", "in": "query", "style": "deepObject", "schema": {"type": "object"}},
                    {"name": "X-Trace", "in": "header", "schema": {"type": "string"}},
                    {"name": "lang", "in": "cookie", "schema": {"type": "string"}},
                ],
            }
        },
        "/items": {
            "post": {
                "operationId": "add",
                "security": [{"login": []}],
                "requestBody": {
                    "required": True,
                    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Item"}}},
                },
            }
        },
        "/files": {
            "post": {
                "operationId": "upload",
                "requestBody": {
                    "required": True,
                    "content": {
                        "multipart/form-data": {
                            "schema": {
                                "type": "object",
                                "required": ["file"],
                                "properties": {
                                    "file": {"type": "string", "format": "binary"},
                                    "note": {"type": "string"},
                                },
                            }
                        }
                    },
                },
            }
        },
        "/bad": {"get": {"parameters": [{"$ref": "#/nowhere"}]}},
    },
}


class Shop:
    """A server that gives the document and repeats what it is asked."""

    def __init__(self) -> None:
        shop = self
        self.asked: list[tuple[str, str, dict[str, str], bytes]] = []

        class Handler(BaseHTTPRequestHandler):
            def answer(self) -> None:
                size = int(self.headers.get("Content-Length") or 0)
                headers = {name.lower(): value for name, value in self.headers.items()}
                shop.asked.append((self.command, self.path, headers, self.rfile.read(size)))
                document = {**DOCUMENT, "servers": [{"url": "/api"}]}
                body = json.dumps(document if self.path == "/openapi.json" else {"ok": True}).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_POST = answer  # noqa: N815 - the names that http.server asks for

            def log_message(self, *_: Any) -> None:
                """Quiet."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever)


@pytest.fixture
def shop() -> Iterator[Shop]:
    made = Shop()
    made.thread.start()
    yield made
    made.server.shutdown()
    made.thread.join()
    made.server.server_close()


def call(crib: Crib, name: str, arguments: dict[str, Any], **env: str) -> Any:
    done = cli(crib, "run", name, "-", "--json", stdin=json.dumps(arguments).encode(), env=env)
    assert done.code == 0, done.out + done.err
    return done.document


def test_from_a_url_to_bytes_on_the_wire(crib: Crib, shop: Shop) -> None:
    done = cli(crib, "import", "openapi", f"{shop.url}/openapi.json", "--prefix", "s_", "--json")
    assert done.code == 0, done.out + done.err
    report = done.document
    assert (report["tools"], report["skipped"]) == (3, 1)
    assert {one.get("tool"): one.get("reason", "")[:30] for one in report["operations"]} == {
        "s_find": "",
        "s_add": "",
        "s_upload": "",
        None: "a parameter cannot be read: '#",
    }
    assert cli(crib, "lint").code == 0

    arguments = {"ids": ["a", "b/c"], "tag": ["x", "y&z"], "size": {"h": 1}, "X-Trace": "t", "lang": "d;e"}
    call(crib, "s_find", arguments, SHOP_KEY="k")
    method, path, headers, _ = shop.asked[-1]
    assert (method, path) == ("GET", "/api/items/.a,b%2Fc?tag=x&tag=y%26z&size%5Bh%5D=1")
    assert (headers["x-key"], headers["x-trace"], headers["cookie"]) == ("k", "t", "lang=d%3Be")

    call(
        crib, "s_add", {"name": "n", "parts": [{"name": "p"}]}, SHOP_LOGIN_USER="me", SHOP_LOGIN_PASSWORD="pw"
    )
    method, path, headers, body = shop.asked[-1]
    assert (method, path, json.loads(body)) == ("POST", "/api/items", {"name": "n", "parts": [{"name": "p"}]})
    assert headers["authorization"] == "Basic " + base64.b64encode(b"me:pw").decode()

    call(crib, "s_upload", {"file": base64.b64encode(b"\0\r\n--x\xff").decode(), "file_filename": "a.png"})
    _, path, headers, body = shop.asked[-1]
    assert path == "/api/files"
    assert headers["content-type"].startswith("multipart/form-data; boundary=")
    assert (
        b'name="file"; filename="a.png"\r\nContent-Type: application/octet-stream\r\n\r\n\0\r\n--x\xff\r\n'
        in body
    )
    assert b'name="note"' not in body

    sent = len(shop.asked)
    refused = cli(crib, "run", "s_add", "-", stdin=b'{"name": 1, "id": 7}')
    assert refused.code == 4
    missing = cli(crib, "run", "s_find", "-", stdin=b'{"ids": ["a"]}')
    assert "SHOP_KEY" in missing.err
    assert len(shop.asked) == sent, "a refused call sends nothing"


def test_the_tools_are_not_written_twice_or_when_only_listed(crib: Crib, shop: Shop) -> None:
    path = crib.write("api.json", json.dumps({**DOCUMENT, "servers": [{"url": shop.url}]}))
    listed = cli(crib, "import", "openapi", str(path), "--list")
    assert listed.code == 0
    assert [line.split()[0] for line in listed.out.splitlines()] == ["find", "add", "upload"]
    assert "skipped 1: a parameter cannot be read" in listed.err
    assert "4 operations would become 3 tools, 1 skipped" in listed.err
    assert list((crib.home / "tools").iterdir()) == []
    only = cli(
        crib,
        "import",
        "openapi",
        str(path),
        "--only",
        "f*",
        "--secret",
        "key=MINE",
        "--server",
        f"{shop.url}/v9",
    )
    assert only.code == 0
    assert "secrets: MINE" in only.err
    call(crib, "find", {"ids": ["1"]}, MINE="m")
    assert shop.asked[-1][1] == "/v9/items/.1"
    again = cli(crib, "import", "openapi", str(path))
    assert again.code == 7
    assert [path.name for path in (crib.home / "tools").iterdir()] == ["find"]
    assert cli(crib, "import", "openapi", str(path), "--replace").code == 0
    assert len(list((crib.home / "tools").iterdir())) == 3


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["nothing.json"], 3, "there is no file nothing.json"),
        (["bad.json"], 4, "not an OpenAPI document"),
        (["bare.json"], 4, "--server URL"),
        (["bare.json", "--server", "ftp://x"], 4, "neither http nor https"),
        (["bare.json", "--only", "zzz"], 3, "--list in place of --only"),
        (["bare.json", "--secret", "x"], 2, "SCHEME=NAME"),
        (["bare.json", "--slim", "1"], 2, "--slim"),
        (["http://127.0.0.1:1/x"], 1, "http_failed"),
    ],
)
def test_what_cannot_be_imported_says_why(crib: Crib, words: list[str], code: int, said: str) -> None:
    crib.write("bad.json", "[]")
    crib.write("bare.json", json.dumps(DOCUMENT))
    done = cli(crib, "import", "openapi", *words)
    assert done.code == code, done.err
    assert said in done.err
    assert list((crib.home / "tools").iterdir()) == []


def test_a_document_without_operations_gives_no_tool(crib: Crib) -> None:
    crib.write("empty.json", '{"openapi": "3.1.0", "info": {"title": "T", "version": "1"}, "paths": {}}')
    done = cli(crib, "import", "openapi", "empty.json")
    assert (done.code, "0 operations became 0 tools" in done.err) == (4, True)
