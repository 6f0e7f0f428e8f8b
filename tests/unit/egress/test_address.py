"""Public addresses and all others."""

from __future__ import annotations

import pytest

from toolcrib.egress import address_kind


@pytest.mark.parametrize(
    ("address", "kind"),
    [
        ("93.184.216.34", "public"),
        ("8.8.8.8", "public"),
        ("172.15.255.255", "public"),
        ("172.32.0.1", "public"),
        ("100.63.255.255", "public"),
        ("2606:2800:220:1:248:1893:25c8:1946", "public"),
        ("127.0.0.1", "loopback"),
        ("127.255.255.254", "loopback"),
        ("::1", "loopback"),
        ("10.1.2.3", "private"),
        ("172.16.0.1", "private"),
        ("172.31.255.255", "private"),
        ("192.168.1.1", "private"),
        ("fc00::1", "private"),
        ("fd12:3456::1", "private"),
        ("fec0::1", "private"),
        ("100.64.0.1", "shared"),
        ("100.127.255.255", "shared"),
        ("169.254.1.1", "link-local"),
        ("fe80::1", "link-local"),
        ("fe80::1%eth0", "link-local"),
        ("2606:2800::1%eth0", "link-local"),
        ("169.254.169.254", "metadata"),
        ("168.63.129.16", "metadata"),
        ("100.100.100.200", "metadata"),
        ("192.0.0.192", "metadata"),
        ("fd00:ec2::254", "metadata"),
        ("224.0.0.1", "multicast"),
        ("ff02::1", "multicast"),
        ("0.0.0.0", "unspecified"),
        ("0.1.2.3", "unspecified"),
        ("::", "unspecified"),
        ("192.0.2.1", "reserved"),
        ("198.18.0.1", "reserved"),
        ("198.51.100.1", "reserved"),
        ("203.0.113.1", "reserved"),
        ("240.0.0.1", "reserved"),
        ("255.255.255.255", "reserved"),
        ("2001:db8::1", "reserved"),
        ("2001:2::1", "reserved"),
        ("3fff::1", "reserved"),
        ("5f00::1", "reserved"),
        ("100::1", "reserved"),
        ("4000::1", "reserved"),
        ("::ffff:127.0.0.1", "translated"),
        ("::ffff:8.8.8.8", "translated"),
        ("::127.0.0.1", "translated"),
        ("64:ff9b::7f00:1", "translated"),
        ("64:ff9b:1::a00:1", "translated"),
        ("2002:7f00:1::1", "translated"),
        ("2001::1", "translated"),
        ("192.88.99.1", "translated"),
    ],
)
def test_each_address_has_one_kind(address: str, kind: str) -> None:
    assert address_kind(address) == kind


@pytest.mark.parametrize("text", ["", "localhost", "127.1", "0x7f.0.0.1", "2130706433", "010.0.0.1"])
def test_what_is_no_address_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="address"):
        address_kind(text)
