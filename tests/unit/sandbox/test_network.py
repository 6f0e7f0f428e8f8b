"""What a sandbox's network is made of, by the access it is given."""

from __future__ import annotations

from toolcrib.sandbox.kernel import network


def test_each_access_gets_what_it_says_and_no_more() -> None:
    for access, ports in ("none", ((), ())), ("proxy", ((4711,), ())), ("host", (None, None)):
        assert network.ports({"network": access, "port": 4711}) == ports


def test_the_variables_take_the_place_of_what_is_there() -> None:
    env = {"A": "b", "NO_PROXY": "*", "no_proxy": "*", "http_proxy": "http://elsewhere", "ALL_PROXY": "x"}
    found = network.proxy_variables(env, 4711)
    assert found["A"] == "b"
    assert not {"NO_PROXY", "no_proxy"} & set(found)
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        assert found[name] == found[name.lower()] == "http://127.0.0.1:4711"
    assert found["SOCKS_PROXY"] == found["socks_proxy"] == "socks5h://127.0.0.1:4711"
    assert env["NO_PROXY"] == "*"


def test_without_a_proxy_no_listener_is_made() -> None:
    for access in ("none", "host"):
        job = {"network": access}
        network.open_listener(job, -1)
        assert job == {"network": access}
