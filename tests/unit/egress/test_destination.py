"""One strict reading of URLs; the checked parts are the ones that are called."""

from __future__ import annotations

import pytest

from toolcrib.egress import Destination


@pytest.mark.parametrize(
    ("url", "normal"),
    [
        ("https://example.com", "https://example.com/"),
        ("HTTPS://EXAMPLE.com.:443/A?b", "https://example.com/A?b"),
        ("http://example.com:8080?x=1", "http://example.com:8080/?x=1"),
        ("https://bücher.example/", "https://xn--bcher-kva.example/"),
        ("https://[2001:DB8:0::1]:8443/", "https://[2001:db8::1]:8443/"),
        ("https://127.0.0.1/", "https://127.0.0.1/"),
        ("https://x.org/a/../b%2F?q=%20", "https://x.org/a/../b%2F?q=%20"),
        ("https://x.org/ü", "https://x.org/%C3%BC"),
        ("https://a_b.x-y.org/", "https://a_b.x-y.org/"),
    ],
)
def test_urls_have_one_normal_form(url: str, normal: str) -> None:
    assert Destination.parse(url).url == normal


@pytest.mark.parametrize(
    "url",
    [
        "",
        "example.com",
        "ftp://example.com/",
        "file:///etc/passwd",
        "//example.com/",
        "https://",
        "https:///path",
        "https://user@example.com/",
        "https://user:pass@example.com/",
        "https://example.com@evil.org/",
        "https://example.com\\@evil.org/",
        "https://example.com /",
        "https://exa\tmple.com/",
        "https://example.com/\r\nX: 1",
        "https://example.com/#frag",
        "https://example.com:0/",
        "https://example.com:65536/",
        "https://example.com:8a/",
        "https://example.com:/",
        "https://example..com/",
        "https://-example.com/",
        "https://exam%70le.com/",
        "https://127.1/",
        "https://2130706433/",
        "https://0x7f.0.0.1/",
        "https://0x7f000001/",
        "https://0177.0.0.1/",
        "https://1.2.3.4.5/",
        "https://a.1/",
        "https://[::1/",
        "https://[::1]x/",
        "https://[127.0.0.1]/",
        "https://[fe80::1%25eth0]/",
        "https://" + "a." * 130 + "org/",
    ],
)
def test_anything_else_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        Destination.parse(url)


@pytest.mark.parametrize(
    ("location", "there"),
    [
        ("/x", "https://a.org/x"),
        ("y?z=1", "https://a.org/p/y?z=1"),
        ("//b.org/x", "https://b.org/x"),
        ("http://b.org:81/x#frag", "http://b.org:81/x"),
        ("?q", "https://a.org/p/q?q"),
        ("/with space", "https://a.org/with%20space"),
    ],
)
def test_redirects_are_joined(location: str, there: str) -> None:
    assert Destination.parse("https://a.org/p/q").join(location).url == there


@pytest.mark.parametrize(
    "location", ["file:///etc/passwd", "https://u@b.org/", "javascript:alert(1)", "https://b.org:0/"]
)
def test_redirects_to_what_cannot_be_called_are_refused(location: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        Destination.parse("https://a.org/").join(location)


def test_an_origin_is_scheme_host_and_port() -> None:
    assert Destination.parse("https://a.org/x").origin == Destination.parse("https://A.org:443/y").origin
    assert Destination.parse("https://a.org/").origin != Destination.parse("http://a.org/").origin


def test_a_missing_host_is_said_to_be_missing() -> None:
    with pytest.raises(ValueError, match="no host name"):
        Destination.parse("https:///a")
