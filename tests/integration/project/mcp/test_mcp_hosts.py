"""The hosts that a person lets a local MCP server reach."""

from __future__ import annotations

import asyncio
import json

import pytest

from tests.crib import Crib, failed
from tests.mcp_servers import RAW, mount, write
from toolcrib.errors import UsageError
from toolcrib.project import Project
from toolcrib.project.tools.mounted import Mounted
from toolcrib.spec import Network

pytestmark = pytest.mark.timeout(120)
FETCH = f"""{RAW}
import urllib.request

schema = {{"type": "object", "properties": {{"url": {{"type": "string", "format": "uri"}}}}}}
DEFINITIONS = [{{"name": "get", "description": "Get a page.", "inputSchema": schema}}]

def called(message):
    try:
        # No exception for loopback, which the proxy's variables have.
        proxy = urllib.request.ProxyHandler({{"http": os.environ.get("HTTP_PROXY", "http://0.0.0.0:1")}})
        page = urllib.request.build_opener(proxy).open(message["params"]["arguments"]["url"], timeout=20)
        return {{"content": [{{"type": "text", "text": page.read().decode()}}]}}
    except OSError as error:
        return {{"content": [{{"type": "text", "text": f"cannot connect: {{error}}"}}], "isError": True}}

main()
"""


async def there(project: Project) -> Mounted:
    assert project.servers is not None
    await project.servers.ready(60)
    mounted = project.servers.get("web")
    assert mounted.server.error is None, mounted.server.error
    return mounted


def allows(project: Project, network: Network) -> None:
    """A person lets the server reach these hosts, by `toolcrib trust web --allow`."""
    assert project.servers is not None
    project.trust.accept("ann", more=[project.servers.get("web").row(network=network)])


async def test_an_open_project_takes_up_what_a_person_allows(crib: Crib, site: str) -> None:
    mount(crib, "web", FETCH)
    call = ("web__get", {"url": f"http://{site}/"})
    async with crib.open() as project:
        mounted = await there(project)
        assert mounted.waits_for_hosts
        refused = failed(await project.call(*call), "permission_denied")
        result = await project.call(*call)
        assert result.error is not None, refused
        assert result.error.hint == f"To allow it: toolcrib trust web --allow {site}"
        async with crib.open() as other:  # as the command does
            there_too = await there(other)
            allows(other, Network.parse({"allow": [site]}))
            assert not there_too.waits_for_hosts
            assert "the page" in (await other.call(*call)).unwrap()
        assert "the page" in (await project.call(*call)).unwrap()
        assert f"network: {site}" in mounted.grants()
        assert project.get("web__get").permissions.network.allow == (site,)
        allows(project, Network())
        failed(await project.call(*call), "permission_denied")


async def test_hosts_that_are_taken_back_elsewhere_are_closed_in_a_running_server(
    crib: Crib, site: str
) -> None:
    mount(crib, "web", FETCH)
    call = ("web__get", {"url": f"http://{site}/"})
    async with crib.open() as project, crib.open() as other:
        await there(project)
        await there(other)
        allows(other, Network.parse({"allow": [site]}))
        assert "the page" in (await project.call(*call)).unwrap()
        assert project.servers is not None
        trusted = project.servers.get("web").row(network=Network())
        other.trust.revoke("ann", servers=["web"])
        other.trust.accept("ann", more=[trusted])
        failed(await project.call(*call), "permission_denied")


async def test_a_running_call_ends_before_the_server_starts_again(crib: Crib, site: str) -> None:
    asked, release = asyncio.Event(), asyncio.Event()

    async def late(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.set()
        await release.wait()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nConnection: close\r\n\r\nlate")
        writer.close()

    mount(crib, "web", FETCH)
    async with await asyncio.start_server(late, "127.0.0.1") as slow, crib.open() as project:
        host = f"127.0.0.1:{slow.sockets[0].getsockname()[1]}"
        await there(project)
        allows(project, Network.parse({"allow": [host]}))
        running = asyncio.create_task(project.call("web__get", {"url": f"http://{host}/"}))
        await asyncio.wait_for(asked.wait(), 100)
        allows(project, Network.parse({"allow": [host, site]}))
        following = asyncio.create_task(project.call("web__get", {"url": f"http://{site}/"}))
        release.set()
        assert (await running).unwrap() == "late"
        assert "the page" in (await following).unwrap()


async def test_any_public_host_is_not_this_machine(crib: Crib, site: str) -> None:
    mount(crib, "web", FETCH)
    async with crib.open() as project:
        await there(project)
        allows(project, Network("any"))
        result = await project.call("web__get", {"url": f"http://{site}/"})
        failed(result, "host_not_allowed")
        assert result.error is not None
        assert site in result.error.details["hosts"]


async def test_a_server_that_uses_no_proxy_gets_an_error_that_says_so(crib: Crib, site: str) -> None:
    mount(
        crib, "web", FETCH.replace('os.environ.get("HTTP_PROXY", "http://0.0.0.0:1")', '"http://0.0.0.0:1"')
    )
    async with crib.open() as project:
        await there(project)
        allows(project, Network.parse({"allow": [site]}))
        result = await project.call("web__get", {"url": f"http://{site}/"})
        failed(result, "tool_failed")
        assert result.error is not None
        assert "in HTTP_PROXY and HTTPS_PROXY, which it has not used" in str(result.error.hint)


async def test_another_command_line_may_reach_nothing(crib: Crib, site: str) -> None:
    mount(crib, "web", FETCH)
    async with crib.open() as project:
        await there(project)
        allows(project, Network.parse({"allow": [site]}))
    config = json.loads((crib.home / "config.yml").read_text())
    config["mcp_servers"]["web"]["args"].append("--more")
    write(crib, config["mcp_servers"])
    async with crib.open() as project:
        mounted = await there(project)
        assert mounted.spec.permissions.network == Network()
        assert mounted.waits_for_hosts


async def test_an_entry_that_states_its_network_decides(crib: Crib, site: str) -> None:
    mount(crib, "web", FETCH)
    config = json.loads((crib.home / "config.yml").read_text())
    async with crib.open() as project:
        await there(project)
        allows(project, Network.parse({"allow": [site]}))
    config["mcp_servers"]["web"]["permissions"]["network"] = False
    write(crib, config["mcp_servers"])
    async with crib.open() as project:
        mounted = await there(project)
        assert mounted.spec.permissions.network == Network()
        assert not mounted.waits_for_hosts
        with pytest.raises(UsageError, match="the entry of web decides"):
            allows(project, Network.parse({"allow": [site]}))


async def test_an_error_about_a_missing_module_asks_for_no_host(crib: Crib) -> None:
    said = "No module named 'sums'. See https://example.com/migration"
    mount(crib, "web", f'raise ModuleNotFoundError("{said}")')
    async with crib.open() as project:
        assert project.servers is not None
        await project.servers.ready(60)
        error = project.servers.get("web").server.error
        assert error is not None
        assert said in error.message
        assert "example.com" not in (error.hint or "")
