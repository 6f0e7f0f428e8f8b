"""Refusals in the words of a program's error: the paths and hosts that a text names, and why it failed.

The kernel does not report what it refuses. So what a text names is only a candidate: the caller compares it
with the tool's permissions, and reports nothing that they allow.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from urllib.parse import urlsplit

READ_ONLY = re.compile(r"EROFS|read-only file ?system|unable to open database", re.IGNORECASE)
_NOT_MADE = re.compile(
    r"cannot create .*: directory nonexistent|cannot (?:create|touch) .*: permission denied", re.IGNORECASE
)
"""The words for a file that is not made: in a folder that is hidden or missing, or at level landlock."""
_ABSENT = re.compile(r"EACCES|EPERM|ENOENT|permission denied|not permitted|no such file", re.IGNORECASE)
_OFFLINE = re.compile(
    r"resolve host|name resolution|name or service not known|bad hostname|getaddrinfo|EAI_AGAIN|\bENOTFOUND"
    r"|ENETUNREACH|network is unreachable|connection: \[Errno (?:1|13)\]|urlopen error \[Errno (?:1|13)\]"
    r"|socket\b.*(?:permission denied|not permitted)|PermissionError: \[Errno 13\] Permission denied$",
    re.IGNORECASE,
)
_QUOTED = re.compile(r"""['"`\u2018\u201c]([^'"`\u2018\u2019\u201c\u201d\n]+)['"`\u2019\u201d]""")
_PLAIN = re.compile(r"(?<![\w.:/])(/[^\s'\"`:,;()<>\[\]]+)")
_URL = re.compile(r"https?://[^\s'\"<>]+")
_HOST = re.compile(
    r"(?:resolve host\w*(?: address)?:?|getaddrinfo \w+|bad hostname) ['\"\u2018]?([\w.-]+\.[\w-]+)",
    re.IGNORECASE,
)
MOST = 50
"""Lines, paths or URLs read from one text, which a program can make as long as it likes."""


def refused_paths(text: str) -> Iterator[tuple[str, int]]:
    """Yield each path that a text may name as refused, and the number of the error; the last line first."""
    for line in reversed(text.splitlines()[-MOST:]):
        is_written = READ_ONLY.search(line) or _NOT_MADE.search(line)
        number = errno.EROFS if is_written else errno.EACCES
        if is_written or _ABSENT.search(line):
            yield from ((path, number) for path in dict.fromkeys(_candidates(line)))


def _candidates(line: str) -> Iterator[str]:
    found = [*_QUOTED.findall(line)[:MOST], *(path.rstrip(".") for path in _PLAIN.findall(line)[:MOST])]
    if found:
        yield from found
        return
    # `cat: notes.txt: No such file or directory`: the program comes first, the reason last.
    parts = [part.strip() for part in line.split(": ")]
    for part in reversed(parts[1:-1] if len(parts) > 2 else parts[:-1]):
        yield part.rpartition(" ")[2]
        yield part


def is_offline(text: str) -> bool:
    """Return True if a text says that a name was not resolved, or a socket not made."""
    return any(_OFFLINE.search(line) for line in text.splitlines()[-MOST:])


def named_hosts(text: str) -> list[str]:
    """Return the hosts that a text names, in URLs or as not resolved."""
    hosts = [host for url in _URL.findall(text)[:MOST] if (host := _host(url))]
    return list(dict.fromkeys((*hosts, *_HOST.findall(text)[:MOST])))


def _host(url: str) -> str | None:
    try:
        parts = urlsplit(url)
        return None if parts.hostname is None else parts.netloc.rpartition("@")[2]
    except ValueError:
        return None
