"""Files of `/etc` that a sandbox has in place of the machine's: programs need them, and they report nothing.

Accounts (passwd(5), group(5)) are never the machine's. The settings of name lookups (hosts(5),
resolv.conf(5), nsswitch.conf(5)) are the machine's only for a tool on the machine's own network.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache

from toolcrib.sandbox.job import NetworkAccess

ACCOUNTS = ("/etc/group", "/etc/passwd")
LOOKUPS = ("/etc/hosts", "/etc/nsswitch.conf", "/etc/resolv.conf")
NOBODY = 65_534
"""The user and group that own nothing, on every distribution."""
HOSTS = "127.0.0.1 localhost sandbox\n::1 localhost ip6-localhost ip6-loopback\n"
SERVICES = "passwd: files\ngroup: files\nhosts: files dns\n"


@cache
def synthetic_files(network: NetworkAccess) -> Mapping[str, str]:
    """Return the synthetic files of a tool with this network, each path with its text."""
    uid, gid = os.geteuid(), os.getegid()
    users, groups = {0: "root", NOBODY: "nobody"}, {0: "root", NOBODY: "nogroup"}
    users.setdefault(uid, "tool")
    groups.setdefault(gid, "tool")
    primary = {0: 0, NOBODY: NOBODY, uid: gid}
    passwd = (f"{name}:x:{number}:{primary[number]}::/tmp:/bin/sh\n" for number, name in users.items())
    group = (f"{name}:x:{number}:\n" for number, name in groups.items())
    found = {"/etc/passwd": "".join(passwd), "/etc/group": "".join(group)}
    if network != "host":
        found |= {"/etc/hosts": HOSTS, "/etc/nsswitch.conf": SERVICES, "/etc/resolv.conf": ""}
    return found
