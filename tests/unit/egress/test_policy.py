"""The hosts that a tool may reach, by its permission."""

from __future__ import annotations

from typing import Any

import pytest

from toolcrib.egress import Destination, HostPolicy, HostRule
from toolcrib.errors import HostNotAllowed
from toolcrib.spec import Network


def policy(permission: Any, host: str | None = "own.org", port: int = 443, **more: Any) -> HostPolicy:
    return HostPolicy.of(Network.parse(permission), host, port, **more)


def allows(it: HostPolicy, url: str) -> bool:
    try:
        it.check(Destination.parse(url))
    except HostNotAllowed:
        return False
    return True


@pytest.mark.parametrize(
    ("permission", "url", "allowed"),
    [
        (False, "https://own.org/", False),
        (True, "https://own.org/x", True),
        (True, "https://OWN.org./x", True),
        (True, "https://own.org:8443/", False),
        (True, "https://www.own.org/", False),
        (True, "https://other.org/", False),
        (True, "http://own.org/", False),
        (True, "https://127.0.0.1/", False),
        ("host", "https://own.org/", True),
        ("host", "https://other.org/", False),
        ({"allow": []}, "https://own.org/", False),
        ({"allow": ["own.org"]}, "http://own.org/", True),
        ({"allow": ["own.org"]}, "https://own.org:444/", False),
        ({"allow": ["own.org:444"]}, "https://own.org:444/", True),
        ({"allow": ["own.org:444"]}, "https://own.org/", False),
        ({"allow": ["*.own.org"]}, "https://a.b.own.org/", True),
        ({"allow": ["*.own.org"]}, "https://own.org/", False),
        ({"allow": ["*.own.org"]}, "https://notown.org/", False),
        ({"allow": ["*.own.org"]}, "http://a.own.org/", False),
        ({"allow": ["127.0.0.1:8080"]}, "http://127.0.0.1:8080/", True),
        ({"allow": ["127.0.0.1:8080"]}, "http://127.0.0.1:8081/", False),
        ({"allow": ["127.0.0.1:8080"]}, "http://localhost:8080/", False),
        ({"allow": ["[::1]:8080"]}, "http://[::1]:8080/", True),
        ({"allow": ["::1"]}, "http://[::1]/", True),
        ({"allow": ["169.254.169.254"]}, "http://169.254.169.254/latest", True),
        ({"allow": ["*.0.0.1.nip.io"]}, "https://127.0.0.1/", False),
    ],
)
def test_a_permission_allows_what_it_names(permission: Any, url: str, allowed: bool) -> None:
    assert allows(policy(permission), url) is allowed


def test_an_entry_without_a_port_covers_the_port_of_the_tools_own_url() -> None:
    it = policy({"allow": ["own.org"]}, port=8443)
    assert [allows(it, f"https://own.org:{port}/") for port in (8443, 443, 9000)] == [True, True, False]


def test_only_an_exact_entry_names_a_host_outright() -> None:
    assert policy({"allow": ["own.org"]}).check(Destination.parse("https://own.org/")) is True
    assert policy({"allow": ["*.org"]}).check(Destination.parse("https://own.org/")) is False
    assert policy(True).check(Destination.parse("https://own.org/")) is False


def test_the_projects_list_applies_too_and_names_no_host_outright() -> None:
    it = policy(True, allowed_hosts=["*.org", "127.0.0.1"])
    assert allows(it, "https://own.org/")
    assert not allows(it, "https://127.0.0.1/")
    assert not allows(policy({"allow": ["own.org"]}, allowed_hosts=["other.org"]), "https://own.org/")


def test_a_refusal_has_host_reason_and_hint() -> None:
    with pytest.raises(HostNotAllowed) as caught:
        policy(True, "10.0.0.1").check(Destination.parse("https://10.0.0.1/secret?token=1"))
    error = caught.value
    assert error.message == "10.0.0.1 is a private address"
    assert "permissions.network.allow" in (error.hint or "")
    assert error.details == {"host": "10.0.0.1", "port": 443, "kind": "private", "allowed": ["10.0.0.1:443"]}


@pytest.mark.parametrize(
    "entry",
    ["", "*", "*.", "a b", "http://x.org", "x.org/path", "x.org:0", "x.org:x", "[::1", "1.2.3", "a@b"],
)
def test_an_entry_that_is_not_a_host_is_refused(entry: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        HostRule.parse(entry)


@pytest.mark.parametrize("entry", ["x.org:8080", "*.x.org:443", "[::1]:80"])
def test_a_rule_is_printed_as_it_was_written(entry: str) -> None:
    assert str(HostRule.parse(entry)) == entry
