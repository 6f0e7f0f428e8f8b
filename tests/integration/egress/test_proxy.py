"""The proxy and real clients: allowed hosts are reached, others are refused with the reason."""

from __future__ import annotations

import asyncio
import http.client
import io
import json
import os
import resource
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from tests.conftest import need
from tests.integration.egress.proxies import Proxied, listening, proxied, until
from tests.integration.egress.servers import Names, named, serving
from tests.patience import patient
from toolcrib.egress import HostPolicy, HostRefusal, Proxy, ProxyLimits, program_policy
from toolcrib.spec import Network

LOCAL = {"svc.test": [["127.0.0.1"]]}
ANY = program_policy(Network("any"))


async def echo(request: web.Request) -> web.Response:
    body = await request.read()
    return web.json_response(
        {
            "method": request.method,
            "target": request.raw_path,
            "headers": [[name, value] for name, value in request.headers.items()],
            "size": len(body),
            "body": body[:100].decode(),
        }
    )


def opened(proxy: Proxied, url: str, data: bytes | None = None) -> bytes:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({"http": proxy.url, "https": proxy.url}))
    with opener.open(urllib.request.Request(url, data), timeout=patient(10)) as answer:
        return bytes(answer.read())


async def test_urllib_reaches_named_hosts_and_gets_the_reason_for_others() -> None:
    async with serving(echo) as port, proxied(named(f"svc.test:{port}"), LOCAL) as proxy:
        got = json.loads(await asyncio.to_thread(opened, proxy, f"http://svc.test:{port}/a?b=c", b"x=1"))
        assert (got["method"], got["target"], got["body"]) == ("POST", "/a?b=c", "x=1")
        headers = {name.lower(): value for name, value in got["headers"]}
        assert (headers["host"], headers["connection"]) == (f"svc.test:{port}", "close")

        with pytest.raises(urllib.error.HTTPError) as caught:
            await asyncio.to_thread(opened, proxy, "http://other.test/")
        with caught.value as answer:
            assert answer.code == 403
            text = answer.read().decode()
        assert text == (
            "toolcrib: other.test is not a host this tool may reach; "
            "to allow it, write in the tool's manifest: `permissions.network: {allow: [other.test]}`\n"
        )
        with pytest.raises(OSError, match="403"):
            await asyncio.to_thread(opened, proxy, "https://other.test/")
    assert [(it.host, it.port) for it in proxy.refused] == [("other.test", 80), ("other.test", 443)]


async def test_http_client_may_use_any_method() -> None:
    def ask(method: str) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=patient(10))
        connection.request(method, f"http://svc.test:{port}/", body=b"0" * 10 if method == "PUT" else None)
        answer = connection.getresponse()
        try:
            return answer.status, answer.read()
        finally:
            connection.close()

    async with serving(echo) as port, proxied(named(f"svc.test:{port}"), LOCAL) as proxy:
        for method in ("GET", "HEAD", "PUT", "DELETE", "PATCH", "OPTIONS", "PROPFIND"):
            status, body = await asyncio.to_thread(ask, method)
            assert status == 200
            assert method == "HEAD" or json.loads(body)["method"] == method


async def test_aiohttp_sends_and_reads_large_bodies_of_known_and_unknown_length() -> None:
    async def mirror(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse()
        if "length" in request.query:
            answer.content_length = request.content_length
        await answer.prepare(request)
        async for piece in request.content.iter_any():
            await answer.write(piece)
        return answer

    async def pieces() -> object:  # an async iterator; aiohttp sends it in chunks
        for number in range(200):
            yield bytes([number]) * 10_000

    whole = b"".join(bytes([number]) * 10_000 for number in range(200))
    async with (
        serving(mirror) as port,
        proxied(named(f"svc.test:{port}"), LOCAL) as proxy,
        aiohttp.ClientSession() as session,
    ):
        for query, data in (("?length", io.BytesIO(whole)), ("", pieces())):
            async with session.post(f"http://svc.test:{port}/{query}", data=data, proxy=proxy.url) as answer:
                assert await answer.read() == whole


async def test_curl_by_every_protocol() -> None:
    need("curl", shutil.which("curl") is not None)

    async def curl(*args: str) -> tuple[int | None, str]:
        environment = {"PATH": os.environ["PATH"]}
        process = await asyncio.create_subprocess_exec(
            "curl", "-sS", "--max-time", "10", *args, stdout=-1, stderr=-2, env=environment
        )
        output, _ = await process.communicate()
        return process.returncode, output.decode()

    async with serving(echo) as port, proxied(named(f"svc.test:{port}"), LOCAL) as proxy:
        url = f"http://svc.test:{port}/x"
        socks = f"socks5h://127.0.0.1:{proxy.port}"
        for how in (["-x", proxy.url], ["-x", proxy.url, "-p"], ["-x", socks]):
            code, output = await curl(*how, "-d", "a=b", url)
            assert (code, json.loads(output)["body"]) == (0, "a=b")
        code, output = await curl("-x", proxy.url, "-H", "Expect: 100-continue", "-d", "x" * 5000, url)
        assert (code, json.loads(output)["size"]) == (0, 5000)
        code, output = await curl("-x", proxy.url, "http://other.test/")
        assert (code, "permissions.network" in output) == (0, True)
        assert (await curl("-x", proxy.url, "https://other.test/"))[0] == 56  # CONNECT refused
        assert (await curl("-x", socks, "http://other.test/"))[0] == 97  # SOCKS refused
    assert {it.host for it in proxy.refused} == {"other.test"}


async def test_a_stream_of_events_arrives_as_it_is_sent() -> None:
    go = asyncio.Event()

    async def events(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse()
        await answer.prepare(request)
        await answer.write(b"one\n")
        await go.wait()
        await answer.write(b"two\n")
        return answer

    async with (
        serving(events) as port,
        proxied(named(f"svc.test:{port}"), LOCAL) as proxy,
        aiohttp.ClientSession() as session,
        session.get(f"http://svc.test:{port}/", proxy=proxy.url) as answer,
    ):
        assert await answer.content.readline() == b"one\n"
        go.set()
        assert await answer.read() == b"two\n"


@pytest.mark.parametrize(
    ("policy", "names", "url", "reason"),
    [
        (
            ANY,
            {"in.test": [["10.0.0.1"]]},
            "http://in.test/",
            "in.test resolves to 10.0.0.1, a private address",
        ),
        (ANY, {"lo.test": [["::1", "127.0.0.1"]]}, "http://lo.test/", "lo.test resolves to ::1, a loopback"),
        (ANY, {"m.test": [["169.254.169.254"]]}, "http://m.test/", "a metadata address"),
        (ANY, {"n.test": [["64:ff9b::a00:1"]]}, "http://n.test/", "a translated address"),
        (ANY, {}, "http://127.0.0.1/", "127.0.0.1 is a loopback address"),
        (ANY, {}, "http://169.254.169.254/latest/", "169.254.169.254 is a metadata address"),
        (ANY, {}, "http://[::ffff:127.0.0.1]/", "is a translated address"),
        (ANY, {}, "http://[fe80::1]/", "is a link-local address"),
        (ANY, {}, "http://localhost./", "localhost resolves to 127.0.0.1"),
        (named("svc.test"), {"svc.test": [["169.254.169.254"]]}, "http://svc.test/", "a metadata address"),
        (named("*.test"), {"svc.test": [["127.0.0.1"]]}, "http://svc.test/", "without encryption"),
        (named("svc.test"), {}, "http://svc.test:81/", "svc.test:81 is not a host"),
        (HostPolicy(), {}, "http://svc.test/", "is not a host"),
    ],
)
async def test_a_destination_that_is_not_allowed_is_refused_with_the_reason(
    policy: HostPolicy, names: dict[str, list[list[str]]], url: str, reason: str
) -> None:
    names = {"localhost": [["127.0.0.1"]], **names}
    async with proxied(policy, names) as proxy:
        answer = await proxy.talk(f"GET {url} HTTP/1.1\r\nHost: svc.test\r\n\r\n".encode())
    assert answer.startswith(b"HTTP/1.1 403 Forbidden\r\n")
    assert reason in answer.decode()
    assert len(proxy.refused) == 1
    assert reason in proxy.refused[0].reason


ODD_HOSTS = (
    ["2130706433", "0x7f000001", "0177.0.0.1", "127.1", "127.0.0.1.", "1.2.3.4.5", "0", "[::1",
     "[fe80::1%25lo]", "[::ffff:7f00:1]", "user@svc.test", "svc.test@evil.test", "svc.test\\@evil.test",
     "svc..test", "svc.test:", "svc.test:0", "svc.test:99999", "svc.test:+80", ".svc.test", "-",
     "svc_test!", "%73vc.test"]
)  # fmt: skip


async def test_odd_spellings_of_a_host_lead_nowhere() -> None:
    refused = (b"HTTP/1.1 400 ", b"HTTP/1.1 403 ")
    async with proxied(named("svc.test", "evil.test"), {"svc.test": [["127.0.0.1"]]}) as proxy:
        for host in ODD_HOSTS:
            answer = await proxy.talk(f"GET http://{host}/ HTTP/1.1\r\n\r\n".encode())
            assert answer.startswith(refused), host
            answer = await proxy.talk(f"CONNECT {host}:443 HTTP/1.1\r\n\r\n".encode())
            assert answer.startswith(refused), host
            name = host.strip("[]").encode()
            request = b"\x05\x01\x00\x03" + bytes([len(name)]) + name + b"\x01\xbb"
            answer = await proxy.talk(b"\x05\x01\x00", request)
            assert answer[2:4] == b"\x05\x02", host


@pytest.mark.parametrize("spelling", ["SVC.Test", "svc.test.", "\uff33\uff36\uff23.test", "svc\u3002test"])
async def test_other_spellings_of_a_granted_name_are_that_name(spelling: str) -> None:
    async with serving(echo) as port, proxied(named(f"svc.test:{port}"), LOCAL) as proxy:
        answer = await proxy.talk(f"GET http://{spelling}:{port}/ HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    assert f'["Host", "svc.test:{port}"]'.encode() in answer


async def test_a_name_is_resolved_once_and_what_was_checked_is_connected_to() -> None:
    names = Names({"svc.test": [["127.0.0.1"], ["169.254.169.254"]]})
    listener = listening()
    async with (
        serving(echo) as port,
        Proxy(listener, named(f"svc.test:{port}"), on_refusal=lambda _: None, resolver=names) as proxy,
    ):
        seen = Proxied(proxy, int(listener.getsockname()[1]))
        request = f"GET http://svc.test:{port}/ HTTP/1.1\r\n\r\n".encode()
        assert b" 200 OK" in await seen.talk(request)
        assert names.asked == ["svc.test"]
        assert b" 403 " in await seen.talk(request)
        assert names.asked == ["svc.test"] * 2


async def test_of_several_addresses_only_the_allowed_are_tried() -> None:
    names = {"svc.test": [["169.254.169.254", "127.0.0.2", "127.0.0.1"]]}
    async with serving(echo) as port, proxied(named(f"svc.test:{port}"), names) as proxy:
        assert b" 200 OK" in await proxy.talk(f"GET http://svc.test:{port}/ HTTP/1.1\r\n\r\n".encode())


@pytest.mark.parametrize(
    ("names", "text"),
    [({}, "svc.test does not resolve"), (LOCAL, "no connection to svc.test:1: Connection refused")],
)
async def test_a_host_that_is_not_there_is_not_a_refusal(
    names: dict[str, list[list[str]]], text: str
) -> None:
    async with proxied(named("svc.test:1"), names) as proxy:
        for request in (b"GET http://svc.test:1/ HTTP/1.1\r\n\r\n", b"CONNECT svc.test:1 HTTP/1.1\r\n\r\n"):
            answer = await proxy.talk(request)
            assert answer.startswith(b"HTTP/1.1 502 ")
            assert text in answer.decode()
        reply = await proxy.talk(b"\x05\x01\x00", b"\x05\x01\x00\x03\x08svc.test\x00\x01")
        assert reply == b"\x05\x00\x05" + (b"\x05" if names else b"\x04") + b"\x00\x01" + bytes(6)
    assert proxy.refused == []


async def test_a_name_that_takes_too_long_ends_with_504() -> None:
    class Slow:
        async def resolve(self, host: str, port: int) -> list[str]:
            await asyncio.sleep(60)
            return []

    listener = listening()
    limits = ProxyLimits(dial_s=0.1)
    async with Proxy(
        listener, named("svc.test"), on_refusal=lambda _: None, resolver=Slow(), limits=limits
    ) as proxy:
        answer = await Proxied(proxy, int(listener.getsockname()[1])).talk(
            b"GET http://svc.test/ HTTP/1.1\r\n\r\n"
        )
    assert answer.startswith(b"HTTP/1.1 504 ")


async def test_one_program_has_a_few_names_looked_up_at_a_time() -> None:
    asked = []

    class Silent:
        async def resolve(self, host: str, port: int) -> list[str]:
            asked.append(host)
            await asyncio.sleep(60)
            return []

    listener = listening()
    async with Proxy(listener, named("svc.test"), on_refusal=lambda _: None, resolver=Silent()):
        port = int(listener.getsockname()[1])
        clients = [await asyncio.open_connection("127.0.0.1", port) for _ in range(12)]
        for _, writer in clients:
            writer.write(b"GET http://svc.test/ HTTP/1.1\r\n\r\n")
        await until(lambda: len(asked) >= 8)
        for _ in range(100):
            await asyncio.sleep(0)  # It asks for more as long as it can.
        assert len(asked) == 8
        for _, writer in clients:
            writer.close()


async def test_more_connections_than_the_limit_wait_for_their_turn() -> None:
    limits = ProxyLimits(connections=2)
    async with serving(echo) as port, proxied(named(f"svc.test:{port}"), LOCAL, limits) as proxy:
        holders = [await asyncio.open_connection("127.0.0.1", proxy.port) for _ in range(2)]
        await until(lambda: proxy.proxy.connections == 2)
        request = f"GET http://svc.test:{port}/ HTTP/1.1\r\n\r\n".encode()
        waiting = [asyncio.create_task(proxy.talk(request)) for _ in range(10)]
        await asyncio.sleep(0.05)
        assert proxy.proxy.connections == 2
        assert not any(task.done() for task in waiting)
        for _, writer in holders:
            writer.close()
        assert all(b" 200 OK" in answer for answer in await asyncio.gather(*waiting))


async def test_refusals_are_recorded_once_each_and_not_without_end() -> None:
    async with proxied(HostPolicy()) as proxy:
        for number in (*range(105), 0, 1):
            await proxy.talk(f"GET http://h{number}.test/ HTTP/1.1\r\n\r\n".encode())
    assert len(proxy.refused) == 100
    assert len(set(proxy.refused)) == 100


async def test_a_refusal_that_cannot_be_recorded_is_still_a_refusal(caplog: pytest.LogCaptureFixture) -> None:
    def fails(refusal: HostRefusal) -> None:
        raise RuntimeError("disk full")

    listener = listening()
    async with Proxy(listener, HostPolicy(), on_refusal=fails) as proxy:
        answer = await Proxied(proxy, int(listener.getsockname()[1])).talk(
            b"GET http://a.test/ HTTP/1.1\r\n\r\n"
        )
    assert answer.startswith(b"HTTP/1.1 403 ")
    assert "disk full" in caplog.text


async def test_five_hundred_proxies_leave_nothing_behind() -> None:
    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))

    async with serving(echo) as port:
        request = f"GET http://svc.test:{port}/ HTTP/1.1\r\n\r\n".encode()
        before, tasks = descriptors(), len(asyncio.all_tasks())
        for number in range(500):
            async with proxied(named(f"svc.test:{port}"), LOCAL) as proxy:
                if number % 5 == 0:
                    assert b" 200 OK" in await proxy.talk(request)
                elif number % 5 == 1:
                    _, writer = await proxy.connected("svc.test", port)
                    writer.close()  # aclose meets an open tunnel, or one that is ending
                elif number % 5 == 2:
                    _, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
                    writer.close()
        await until(lambda: descriptors() <= before and len(asyncio.all_tasks()) <= tasks)


def test_all_proxies_together_leave_descriptors_for_other_things() -> None:
    code = "import asyncio; from tests.integration.egress.test_proxy import crowd; asyncio.run(crowd())"
    # In a process of its own: other tests of this one hold files.
    subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[3], check=True)


async def crowd() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (300, hard))
    patient = ProxyLimits(header_s=90)
    async with proxied(named("svc.test"), limits=patient) as one, proxied(named("svc.test")) as two:
        held = [await asyncio.open_connection("127.0.0.1", it.port) for it in (one, two) for _ in range(12)]
        await until(lambda: one.proxy.connections + two.proxy.connections == 16)
        await asyncio.sleep(0.3)  # longer than the pause after which it is tried again
        assert one.proxy.connections + two.proxy.connections == 16
        for _, writer in held:
            writer.close()
        await until(lambda: one.proxy.connections + two.proxy.connections == 0)
        refused = b"GET http://other.test/ HTTP/1.1\r\nHost: x\r\n\r\n"
        assert b" 403 " in await two.talk(refused)
        # One that takes all it can get leaves some to the other.
        held = [await asyncio.open_connection("127.0.0.1", one.port) for _ in range(20)]
        await until(lambda: one.proxy.connections >= 8)
        for _ in range(100):
            await asyncio.sleep(0)  # It takes more as long as it can.
        assert b" 403 " in await two.talk(refused)
        for _, writer in held:
            writer.close()
        await until(lambda: one.proxy.connections == 0)
