"""Confined programs on the network: what they reach by permission, and what a refusal tells."""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tests.certificates import certificate_for
from tests.conftest import need
from tests.crib import Crib, failed
from tests.descriptors import descriptors
from tests.integration.egress.servers import Names
from tests.integration.sandbox.ground import eventually
from tests.patience import GROWING_MS, patient
from toolcrib.executors.workspace.workspace import HostLimits, Workspace
from toolcrib.project import Project
from toolcrib.sandbox.host.pool import shared
from toolcrib.spec import Result

pytestmark = pytest.mark.usefixtures("kernel")

FETCH = """
import sys, urllib.request
for url in sys.argv[1:]:
    print(urllib.request.urlopen(url, timeout=30).read().decode())
"""


class Handler(BaseHTTPRequestHandler):
    """Answers with its path."""

    seen: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.seen.append(self.path)
        body = f"welcome to {self.path}".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        pass


@contextmanager
def serving(certificate: Path | None = None) -> Iterator[int]:
    """A web server of the machine on 127.0.0.1, with TLS where there is a certificate; its port."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield int(server.server_address[1])
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def port() -> Iterator[int]:
    Handler.seen.clear()
    with serving() as port:
        yield port


def fetcher(crib: Crib, network: Any, **more: Any) -> None:
    """A tool that fetches the URLs it is reported by Python's own client."""
    crib.write("fetch.py", FETCH)
    permissions = {"network": network, "fs": {"read": ["."]}, **more.pop("permissions", {})}
    crib.shell("fetch", permissions=permissions, **more)


def fetch(crib: Crib, *urls: str, then: str = "", **options: Any) -> Result:
    return crib.call("fetch", {"c": f"python3 fetch.py {' '.join(urls)}{then}"}, **options)


def details(result: Result) -> dict[str, Any]:
    found = result.details if result.error is None else result.error.details
    assert found is not None
    return found


# --- what is reached


def test_a_listed_host_is_reached_by_http_and_https(crib: Crib, port: int) -> None:
    certificate = certificate_for(crib.root, "localhost")
    with serving(certificate) as secure:
        fetcher(
            crib,
            {"allow": [f"localhost:{port}", f"localhost:{secure}"]},
            config={"env": {"SSL_CERT_FILE": str(certificate)}},
        )
        result = fetch(crib, f"http://localhost:{port}/a", f"https://localhost:{secure}/b")
    assert result.unwrap() == "welcome to /a\nwelcome to /b\n"
    assert details(result)["enforcement"]["net"] == "netns+proxy"
    assert result.warnings == ()


@pytest.mark.parametrize("program", ["curl -sS", "wget -qO-", "git ls-remote", "npm ping"])
def test_common_programs_find_the_way(crib: Crib, port: int, program: str) -> None:
    need(program.split(maxsplit=1)[0], shutil.which(program.split(maxsplit=1)[0]) is not None)
    Handler.seen.clear()
    crib.shell(permissions={"network": {"allow": [f"127.0.0.1:{port}"]}})
    if program.startswith("npm"):
        script = f"npm ping --registry http://127.0.0.1:{port}/npm"
    else:
        script = f"{program} http://127.0.0.1:{port}/{program.split(maxsplit=1)[0]}"
    crib.call("sh", {"c": f"HOME=/tmp {script}"})
    assert any(path.startswith(f"/{program.split(maxsplit=1)[0]}") for path in Handler.seen)


def test_curl_by_socks(crib: Crib, port: int) -> None:
    need("curl", shutil.which("curl") is not None)
    crib.shell(permissions={"network": {"allow": [f"localhost:{port}"]}})
    url = f"http://localhost:{port}/socks"
    assert crib.sh(f'curl -sS --proxy "$SOCKS_PROXY" {url}') == "welcome to /socks"


def test_a_python_tool_reaches_it_too_and_its_spare_as_well(crib: Crib, port: int) -> None:
    fetched = "urllib.request.urlopen(url, timeout=30).read().decode()"
    source = f"import urllib.request\ndef run(url):\n    return {fetched}\n"
    properties = {"url": {"type": "string", "description": "What to fetch"}}
    crib.python(
        source,
        properties=properties,
        config={"kwargs": {"url": "${url}"}},
        permissions={"network": {"allow": [f"127.0.0.1:{port}"]}},
    )

    async def several() -> list[Any]:
        found = []
        async with crib.open() as project:
            for number in range(4):
                result = await project.call("py", {"url": f"http://127.0.0.1:{port}/{number}"})
                found.append(result.unwrap())
                await asyncio.to_thread(eventually, lambda: not number or shared().waiting())  # noqa: B023
        return found

    assert asyncio.run(several()) == [f"welcome to /{number}" for number in range(4)]


def test_the_variables_lead_to_the_proxy_whatever_is_declared(
    crib: Crib, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.setenv("HTTP_PROXY", "http://192.0.2.1:1")
    fetcher(
        crib,
        {"allow": [f"127.0.0.1:{port}"]},
        permissions={"env": ["NO_PROXY", "HTTP_PROXY"]},
        config={"env": {"no_proxy": "127.0.0.1", "https_proxy": "http://192.0.2.1:1"}},
    )
    assert fetch(crib, f"http://127.0.0.1:{port}/x").unwrap() == "welcome to /x\n"
    expected = crib.sh("env | grep -i prox", "fetch")
    assert "no_proxy" not in expected.lower()
    assert "192.0.2.1" not in expected
    values = dict(line.split("=", 1) for line in expected.split())
    assert set(values) == {
        name
        for base in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "SOCKS_PROXY")
        for name in (base, base.lower())
    } | {"NODE_USE_ENV_PROXY"}


# --- what is refused


def test_a_refused_host_is_the_error_with_the_line_to_write(crib: Crib) -> None:
    fetcher(crib, {"allow": ["a.example.com"]})
    result = fetch(crib, "https://example.org/")
    message = failed(result, "host_not_allowed")
    assert message.startswith("example.org is not a host this tool may reach: fetch ended with exit code 1: ")
    assert result.error is not None
    manifest = crib.home / "tools/fetch/tool.yml"
    assert result.error.hint == (
        f"to allow it, write in {manifest}:1: permissions.network: {{allow: [a.example.com, example.org]}}"
    )
    assert result.error.details["exitCode"] == 1
    assert result.error.details["refused"] == [
        {"host": "example.org", "port": 443, "reason": "example.org is not a host this tool may reach"}
    ]
    assert (crib.last().event, crib.last().fields["code"]) == ("TOOL_EXECUTED", "host_not_allowed")


def test_the_line_of_the_permission_is_reported(crib: Crib) -> None:
    manifest = crib.write(
        ".toolcrib/tools/get/tool.yml",
        "name: get\ndescription: Gets\nkind: command\nversion: 1\noutputs: {format: text}\n"
        "exec:\n  command: {entrypoint: curl, args: [-sSf, 'http://example.org/']}\n"
        "permissions:\n  fs: {read: []}\n  network:\n    allow: [example.com]\n",
    )
    need("curl", shutil.which("curl") is not None)
    result = crib.call("get")
    failed(result, "host_not_allowed")
    assert result.error is not None
    assert f"{manifest}:10: " in (result.error.hint or "")


def test_a_success_without_a_host_is_a_warning(crib: Crib) -> None:
    fetcher(crib, {"allow": ["example.com"]})
    result = fetch(crib, "http://example.org/", then=" 2>/dev/null; echo done")
    assert result.unwrap() == "done\n"
    assert result.warnings == ("not reached: example.org is not a host this tool may reach",)


def test_a_python_tools_exception_becomes_the_refusal_and_its_signals_tell_it(crib: Crib) -> None:
    source = """
import urllib.request
class ToolCancel(Exception): pass
def run(how):
    try:
        urllib.request.urlopen("http://example.org/", timeout=30)
    except OSError as error:
        if how == "raise":
            raise
        if how == "signal":
            raise ToolCancel("no way") from None
        return "fallback"
"""
    properties = {"how": {"type": "string", "description": "What to do"}}
    crib.python(
        source, properties=properties, config={"kwargs": {"how": "${how}"}}, permissions={"network": True}
    )
    crib.python(
        source,
        "listed",
        properties=properties,
        config={"kwargs": {"how": "${how}"}},
        permissions={"network": {"allow": ["a.example.com"]}},
    )
    assert "HTTPError" in failed(crib.call("listed", {"how": "raise"}), "host_not_allowed")
    assert "no way (example.org is not" in failed(crib.call("listed", {"how": "signal"}), "tool_cancelled")
    result = crib.call("listed", {"how": "return"})
    assert (result.value, len(result.warnings)) == ("fallback", 1)


def test_a_program_that_knows_no_proxy_gets_a_hint_of_what_it_needs(crib: Crib, port: int) -> None:
    crib.shell(permissions={"network": {"allow": [f"127.0.0.1:{port}"]}})
    direct = f"import socket; socket.create_connection(('127.0.0.1', {port}))"
    for script in (direct, "import socket; socket.getaddrinfo('example.com', 80)"):
        result = crib.call("sh", {"c": f'python3 -c "{script}"'})
        failed(result, "command_failed")
        assert result.error is not None
        assert "`permissions.network: host`" in (result.error.hint or "")
    crib.shell("local")
    other = crib.call("local", {"c": "echo no such option >&2; exit 2"})
    assert other.error is not None
    assert "network" not in (other.error.hint or "")


def test_time_that_runs_out_tells_what_was_refused(crib: Crib) -> None:
    for limit_ms in GROWING_MS:
        fetcher(crib, {"allow": ["example.com"]}, limits={"timeout_ms": limit_ms})
        result = fetch(crib, "http://example.org/", then=" 2>/dev/null; sleep 60")
        if "refused" in details(result):
            break
    else:
        raise AssertionError("no limit is long enough")
    failed(result, "timed_out")
    assert details(result)["refused"][0]["host"] == "example.org"


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "169.254.169.254", "10.0.0.1", "[::1]"])
def test_any_public_host_is_no_private_one(crib: Crib, port: int, host: str) -> None:
    fetcher(crib, True)
    failed(fetch(crib, f"http://{host}:{port}/"), "host_not_allowed")
    assert Handler.seen == []


def test_the_projects_list_binds_programs_too(crib: Crib, port: int) -> None:
    crib.write(".toolcrib/config.yml", "security: {allowed_hosts: [example.com]}\n")
    fetcher(crib, {"allow": [f"127.0.0.1:{port}"]})
    message = failed(fetch(crib, f"http://127.0.0.1:{port}/"), "host_not_allowed")
    assert "not among the hosts the project allows" in message
    crib.shell("host", permissions={"network": "host"})
    result = crib.call("host", {"c": "true"}, approved_by="me")
    assert "allows only some hosts" in failed(result, "permission_denied")
    assert Handler.seen == []


def test_a_name_is_resolved_once_and_only_named_hosts_may_be_private(crib: Crib, port: int) -> None:
    crib.write("fetch.py", FETCH)
    for name, allow in (("named", f"svc.test:{port}"), ("wild", f"*.test:{port}")):
        crib.shell(name, permissions={"network": {"allow": [allow]}, "fs": {"read": ["."]}})

    async def both() -> tuple[Result, Result, list[str]]:
        names = Names({"svc.test": [["127.0.0.1"], ["192.0.2.1"]], "a.test": [["127.0.0.1"]]})
        async with crib.open() as project:
            use_names(project, crib, names)
            named = await project.call("named", {"c": f"python3 fetch.py http://svc.test:{port}/"})
            wild = await project.call("wild", {"c": f"curl -sS --proxytunnel https://a.test:{port}/"})
        return named, wild, names.asked

    named, wild, asked = asyncio.run(both())
    assert named.unwrap() == "welcome to /\n"
    failed(wild, "host_not_allowed")
    assert asked == ["svc.test", "a.test"]


def use_names(project: Project, crib: Crib, names: Names) -> None:
    project.catalog.binder._workspace = Workspace(
        str(crib.root), str(crib.home), hosts=HostLimits(resolver=names)
    )


def test_nothing_else_leads_out_of_a_list(crib: Crib, port: int) -> None:
    crib.shell(permissions={"network": {"allow": [f"127.0.0.1:{port}"]}, "fs": {"write": ["."]}})
    with socket.socket(socket.AF_UNIX) as by_path, socket.socket(socket.AF_UNIX) as abstract:
        by_path.bind(str(crib.root / "s"))
        by_path.listen()
        abstract.bind(f"\0{crib.root}")
        abstract.listen()
        code = f"""
import socket
def refused(family, kind, address, protocol=0):
    try:
        sock = socket.socket(family, kind, protocol)
        sock.settimeout(1)
        sock.connect(address)
        sock.send(b"x")
    except OSError:
        return True
    return False
U, I, S, D = socket.AF_UNIX, socket.AF_INET, socket.SOCK_STREAM, socket.SOCK_DGRAM
here, elsewhere = ("127.0.0.1", {port}), ("192.0.2.1", 53)
attempts = [(U, S, "s"), (U, S, chr(0) + {str(crib.root)!r}), (I, S, here), (I, S, elsewhere),
            (I, D, elsewhere), (I, socket.SOCK_RAW, here, 1), (I, S, here, 262)]
print([refused(*attempt) for attempt in attempts])
"""
        crib.write("try.py", code)
        assert crib.sh("python3 try.py") == f"{[True] * 7}\n"
    assert Handler.seen == []


# --- the machine's network


def test_the_machines_network_asks_a_person(crib: Crib, port: int) -> None:
    fetcher(crib, "host")
    message = failed(fetch(crib, f"http://127.0.0.1:{port}/"), "approval_required")
    assert "network: host" in message
    assert Handler.seen == []
    result = fetch(crib, f"http://127.0.0.1:{port}/", approved_by="ada")
    assert result.unwrap() == "welcome to /\n"
    assert details(result)["enforcement"]["net"] == "host (not confined)"


def test_on_the_machines_network_names_and_interfaces_work_and_the_rest_holds(crib: Crib) -> None:
    crib.shell(permissions={"network": "host"})
    code = """
import errno, json, os, socket, sys
found = {"name": bool(socket.getaddrinfo("localhost", 80, flags=socket.AI_ADDRCONFIG)),
         "interfaces": len(socket.if_nameindex())}
def number(*args):
    try:
        socket.socket(*args).close()
    except OSError as error:
        return errno.errorcode[error.errno]
    return "ok"
found["raw"] = number(socket.AF_INET, socket.SOCK_RAW, 1)
found["packet"] = number(socket.AF_PACKET, socket.SOCK_RAW, 0)
found["netfilter"] = number(socket.AF_NETLINK, socket.SOCK_RAW, 12)
sock = socket.socket(socket.AF_UNIX)
try:
    sock.connect(chr(0) + sys.argv[1])
    found["abstract"] = "ok"
except OSError as error:
    found["abstract"] = errno.errorcode[error.errno]
found["net"] = os.readlink("/proc/self/ns/net")
found["proxy"] = [name for name in os.environ if "proxy" in name.lower()]
print(json.dumps(found))
"""
    crib.write("try.py", code)
    crib.shell(permissions={"network": "host", "fs": {"read": ["."]}})
    with socket.socket(socket.AF_UNIX) as abstract:
        abstract.bind(f"\0{crib.root}")
        abstract.listen()
        result = crib.call("sh", {"c": f"python3 try.py {crib.root}"}, approved_by="ada")
    found = json.loads(result.unwrap())
    assert found == {
        "name": True,
        "interfaces": len(socket.if_nameindex()),
        "raw": "EPERM",
        "packet": "EAFNOSUPPORT",
        "netfilter": "EPROTONOSUPPORT",
        "abstract": "EPERM",
        "net": str(Path("/proc/self/ns/net").readlink()),
        "proxy": [],
    }


# --- many at once, and what is left


def open_now() -> int:
    """Open descriptors, but for what is kept, or being made ready, for the next calls."""
    shared().drop_spares()
    return descriptors()


def test_ten_at_once_each_with_its_own_and_nothing_left(crib: Crib, port: int) -> None:
    fetcher(crib, {"allow": [f"127.0.0.1:{port}"]})

    async def many() -> tuple[list[Any], int, int, set[str]]:
        async with crib.open() as project:

            async def round_of_calls() -> list[Result]:
                calls = ({"c": f"python3 fetch.py http://127.0.0.1:{port}/{n}"} for n in range(10))
                return await asyncio.gather(*(project.call("fetch", call) for call in calls))

            await round_of_calls()  # control groups stay open, for the next to use
            tasks, before = asyncio.all_tasks(), open_now()
            results = await round_of_calls()
            shared().drop_spares()
            # In a thread: what was given back is closed on the event loop.
            settled = await asyncio.to_thread(eventually, lambda: open_now() <= before)
            left = {repr(task) for task in asyncio.all_tasks() - tasks}
            return [result.unwrap() for result in results], before, before if settled else open_now(), left

    values, before, after, left = asyncio.run(many())
    assert values == [f"welcome to /{number}\n" for number in range(10)]
    assert after <= before
    assert left == set()


def test_threads_with_loops_of_their_own(crib: Crib, port: int) -> None:
    fetcher(crib, {"allow": [f"127.0.0.1:{port}"]})
    values: list[str] = []

    def loop(number: int) -> None:
        urls = [f"http://127.0.0.1:{port}/{number}.{turn}" for turn in range(3)]
        values.extend(fetch(crib, url).unwrap() for url in urls)

    threads = [threading.Thread(target=loop, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(values) == sorted(f"welcome to /{n}.{turn}\n" for n in range(4) for turn in range(3))


@pytest.mark.parametrize("how", ["cancel", "time"])
def test_a_call_that_is_ended_leaves_no_connection(crib: Crib, how: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        crib.shell(permissions={"network": {"allow": [address]}})
        silent.setblocking(False)

        async def ended() -> tuple[int, int, bytes]:
            loop = asyncio.get_running_loop()
            async with crib.open() as project:
                shared().drop_spares()
                await project.call("sh", {"c": "true"})
                await asyncio.to_thread(project.bundles.usage.flush)  # Its file stays open from now on.
                before = open_now()
                code = "import socket, os; there = os.environ['HTTP_PROXY'][7:].split(':')"
                code += "; s = socket.create_connection(there)"
                code += (
                    f"; s.sendall(b'CONNECT {address} HTTP/1.1\\r\\n\\r\\n'); print(s.recv(99)); s.recv(99)"
                )
                arguments = {"c": f'python3 -c "{code}"'}
                for limit_ms in GROWING_MS if how == "time" else (100_000,):
                    task = asyncio.ensure_future(project.call("sh", arguments, timeout_ms=limit_ms))
                    reached = asyncio.ensure_future(loop.sock_accept(silent))
                    await asyncio.wait((task, reached), return_when=asyncio.FIRST_COMPLETED)
                    if reached.done():
                        break
                    reached.cancel()
                else:
                    raise AssertionError("no limit is long enough")
                peer, _ = await reached
                if how == "cancel":
                    task.cancel()
                    with pytest.raises(asyncio.CancelledError):
                        await task
                else:
                    failed(await task, "timed_out")
                rest = await asyncio.wait_for(loop.sock_recv(peer, 99), patient(30))
                peer.close()
                shared().drop_spares()
                settled = await asyncio.to_thread(eventually, lambda: open_now() <= before)
                return before, before if settled else open_now(), rest

        before, after, rest = asyncio.run(ended())
    assert rest == b""
    assert after <= before
