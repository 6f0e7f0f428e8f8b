"""What a call tells of the hosts that its program was refused."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from tests.unit.manifest.native.samples import COMMAND, tool
from toolcrib.egress import Destination, HostPolicy, HostRefusal, Proxy
from toolcrib.errors import (
    CommandFailed,
    HostNotAllowed,
    ManifestError,
    PermissionDenied,
    RetryableError,
    TimedOut,
)
from toolcrib.executors.workspace.workspace import CallNetwork
from toolcrib.spec import Network, Tool


def a_tool(network: str) -> Tool:
    return tool(f"{COMMAND}permissions:\n  network: {network}\n")


def after(network: CallNetwork, *refusals: HostRefusal) -> CallNetwork:
    """The same, once its proxy has refused these."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        proxy: Proxy = network.job["outlet"](listener)
        for refusal in refusals:
            proxy._dialer.denied(refusal)
    return network


def refusal(url: str) -> HostRefusal:
    destination = Destination.parse(url)
    with pytest.raises(HostNotAllowed) as caught:
        HostPolicy.of(Network("hosts", ())).check(destination)
    return HostRefusal.of(caught.value, destination)


@pytest.mark.parametrize(("network", "kind"), [("false", None), ("true", "proxy"), ("host", "host")])
def test_the_sandbox_gets_the_network(network: str, kind: str | None) -> None:
    assert CallNetwork(a_tool(network)).job.get("network") == kind


def test_what_cannot_be_enforced_is_refused() -> None:
    with pytest.raises(PermissionDenied, match="allows only some hosts"):
        CallNetwork(a_tool("host"), allowed_hosts=("example.com",))
    assert CallNetwork(a_tool("false"), allowed_hosts=("example.com",)).job == {}
    with pytest.raises(ManifestError, match=r"permissions\.network of scan"):
        CallNetwork(a_tool("true"), allowed_hosts=("https://example.com",))


def test_without_a_refusal_a_failure_stays_what_it_is() -> None:
    network = CallNetwork(a_tool("true"))
    error = CommandFailed("it failed")
    with pytest.raises(CommandFailed) as caught, network.explained():
        raise error
    assert caught.value is error
    assert network.warnings == ()


def test_the_line_to_write_holds_what_was_granted_and_what_was_refused() -> None:
    network = after(
        CallNetwork(a_tool("{allow: ['*.example.net']}")),
        refusal("https://example.com/"),
        refusal("http://example.com:8080/"),
        refusal("http://[::1]/"),
        refusal("http://example.com/"),
    )
    with pytest.raises(HostNotAllowed) as caught, network.explained():
        raise CommandFailed("it failed", details={"exitCode": 7})
    error = caught.value
    assert (error.hint or "").endswith(
        ':17: permissions.network: {allow: ["*.example.net", example.com, example.com:8080, "[::1]"]}'
    )
    assert error.message.endswith("is not a host this tool may reach: it failed")
    assert error.details["exitCode"] == 7
    assert (error.details["host"], error.details["port"]) == ("example.com", 443)
    assert [(one["host"], one["port"]) for one in error.details["refused"]] == [
        ("example.com", 443), ("example.com", 8080), ("::1", 80), ("example.com", 80),
    ]  # fmt: skip


def test_what_no_permission_allows_is_reported() -> None:
    network = after(
        CallNetwork(a_tool("true")), HostRefusal("a.test", 443, "TLS asks for b.test in a tunnel to a.test")
    )
    with pytest.raises(HostNotAllowed) as caught, network.explained():
        raise CommandFailed("it failed")
    assert caught.value.hint == "no permission of the tool can allow that"


def test_many_refusals_are_reported_shortly_and_without_what_moves_the_cursor() -> None:
    refusals = [HostRefusal(f"h{n}\x1b[2J", 80, f"h{n}\x1b[2J\u202e is not known") for n in range(30)]
    network = after(CallNetwork(a_tool("true")), *refusals)
    assert len(network.warnings) == 11
    assert network.warnings[0] == "not reached: h0\ufffd[2J\ufffd is not known"
    assert network.warnings[-1] == "not reached: 20 more refusals"
    with pytest.raises(HostNotAllowed) as caught, network.explained():
        raise CommandFailed("it failed")
    assert "\x1b" not in str(caught.value.as_dict())


@pytest.mark.parametrize("failure", [TimedOut("too late"), RetryableError("not yet")])
def test_other_ends_keep_their_kind_and_tell_it(failure: Any) -> None:
    network = after(CallNetwork(a_tool("true")), refusal("https://example.com/"))
    with pytest.raises(type(failure)) as caught, network.explained():
        raise failure
    error: Any = caught.value
    expected = error.hint if isinstance(error, TimedOut) else error.reason
    assert "example.com is not a host this tool may reach" in str(expected)
