"""The hosts that a confined program may reach, and the text of a refusal."""

from __future__ import annotations

from typing import Any

import pytest

from toolcrib.egress import Destination, HostPolicy, HostRefusal, program_policy
from toolcrib.errors import HostNotAllowed
from toolcrib.spec import Network


def policy(permission: Any, **more: Any) -> HostPolicy:
    return program_policy(Network.parse(permission), **more)


def refusal(it: HostPolicy, url: str) -> HostRefusal | None:
    destination = Destination.parse(url)
    try:
        it.check(destination)
    except HostNotAllowed as error:
        return HostRefusal.of(error, destination)
    return None


@pytest.mark.parametrize(
    ("permission", "url", "allowed"),
    [
        (False, "https://example.org/", False),
        (True, "https://example.org/", True),
        (True, "http://example.org/", True),
        (True, "https://example.org:9418/", True),
        (True, "https://8.8.8.8/", True),
        (True, "http://127.0.0.1/", False),
        (True, "http://10.0.0.1/", False),
        (True, "http://169.254.169.254/", False),
        (True, "http://168.63.129.16/", False),
        (True, "http://100.64.0.1/", False),
        (True, "http://[::1]/", False),
        (True, "http://[::ffff:8.8.8.8]/", False),
        (True, "http://[64:ff9b::7f00:1]/", False),
        ({"allow": ["example.org"]}, "http://example.org/", True),
        ({"allow": ["example.org"]}, "http://example.org:81/", False),
        ({"allow": ["*.example.org"]}, "https://a.example.org/", True),
        ({"allow": ["*.example.org"]}, "http://a.example.org/", False),
    ],
)
def test_a_permission_decides_what_may_be_reached(permission: Any, url: str, allowed: bool) -> None:
    assert (refusal(policy(permission), url) is None) is allowed


def test_any_public_host_is_never_named_outright() -> None:
    assert policy(True).check(Destination.parse("https://example.org/")) is False


def test_the_projects_list_applies_too() -> None:
    it = policy(True, allowed_hosts=["*.example.org"])
    assert refusal(it, "https://a.example.org/") is None
    refused = refusal(it, "https://other.org/")
    assert refused == HostRefusal("other.org", 443, "other.org is not among the hosts the project allows")


def test_the_machines_network_has_no_proxy() -> None:
    with pytest.raises(ValueError, match="network: host"):
        policy("host")


@pytest.mark.parametrize(
    ("url", "grant"),
    [
        ("https://api.test/", "permissions.network: {allow: [api.test]}"),
        ("http://api.test:8080/", "permissions.network: {allow: [api.test:8080]}"),
        ("http://[::1]:8080/", 'permissions.network: {allow: ["[::1]:8080"]}'),
    ],
)
def test_a_refusal_names_the_manifest_line_that_would_allow_it(url: str, grant: str) -> None:
    refused = refusal(policy(False), url)
    assert refused is not None
    assert refused.grant == grant
    assert refused.host in url
    assert grant in refused.text
