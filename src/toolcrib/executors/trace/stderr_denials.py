"""What a program's own words say that it was kept from: paths and hosts, as it wrote them to standard error.

Nothing is claimed here; who reads this holds it against what is so. Programs word their failures as they
like, so a name is taken only from where C, Go, Node, Perl, Python and the shells put it.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

__all__ = ["Complaint", "Wish", "changes_folder", "host_of", "paths_of"]

Wish = Literal["read", "write", "make", "entry", "run"]
"""`make`: an entry of a folder that was not there; `entry`: to rename or remove one."""

_MOST = 20
_FAILURES = {
    "no such file or directory": errno.ENOENT,
    "no such file": errno.ENOENT,
    "directory nonexistent": errno.ENOENT,
    "cannot find module": errno.ENOENT,
    "permission denied": errno.EACCES,
    "read-only file system": errno.EROFS,
    "operation not permitted": errno.EPERM,
    "not found": errno.ENOENT,
}
_LINE = re.compile(rf"^(.*?):? ?\(?({'|'.join(_FAILURES)})\b.*$", re.MULTILINE | re.IGNORECASE)
_QUOTED = re.compile("(?<!\\w)(?:'([^']+)'|\"([^\"]+)\"|`([^'`]+)['`]|\u2018([^\u2019]+)\u2019)")
_BY_VERB = re.compile(
    r"(?:^|.*\b)(?:(?:cannot|can't|could not|couldn't|unable to|failed to)(?: \w+)+"
    r"|open|l?stat|mkdir|unlink|unlinkat|rename|chdir|readlink|remove|fork/exec) (\S+)",
    re.IGNORECASE,
)
"""`cannot create regular file NAME`, and Go's `open NAME`."""
_BARE_VERB = re.compile(r"(?:cannot|can't|could not|unable to) \w+", re.IGNORECASE)
"""What tar puts behind the name."""
_MAKES = re.compile(r"\b(creat|mkdir|mkfifo|mknod|touch|overwrit|writ|(hard|symbolic) link)", re.IGNORECASE)
_MOVES = re.compile(
    r"\b(remov|mov|unlink|renam|rmdir|rmtree|replac)(e|es|ed|ing|at|dir|tree)?\b", re.IGNORECASE
)
_EXCEPTION = re.compile(r"\w*Error: ")
_INLINE = re.compile(r'"<string>"| at -e line ')
_HOST = r"['\u2018\"]?([A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?)"
_NO_HOST = re.compile(
    rf"(?:[Cc]ould not resolve host(?:name)?|[Uu]nable to resolve host(?: address)?)[: \t]+{_HOST}"
    rf"|getaddrinfo (?:EAI_AGAIN|ENOTFOUND) {_HOST}(?::(\d{{1,5}}))?"
    rf"|\b[Cc]onnect to (?:host )?{_HOST} port (\d{{1,5}})"
    rf"|\bconnect E[A-Z]+ {_HOST}:(\d{{1,5}})"
)
_FOLDER = re.compile(
    r"(^|[\s;&|({'\"])(cd|pushd)\s|\bchdir\b"
    r"|\b(tar|make|git|ninja|npm|env|cargo)\b.*\s(-C|--directory|--prefix)"
)


class Complaint(NamedTuple):
    """One path that a program failed with."""

    path: str
    number: int
    """The errno that its words stand for."""
    wish: Wish
    sure: bool = True
    """Whether this must be a path; else it may be any word of a message."""
    folder: bool = True
    """Whether, if that is a read-only folder, it was to be renamed or removed."""


def paths_of(text: str, command: str = "") -> Iterator[Complaint]:
    """What lines of standard error say of paths.

    The end first: what a program says last is most often why it failed.

    Arguments:
        command: the command line, which may hold the program.
    """
    for match in [*_LINE.finditer(text)][: -_MOST - 1 : -1]:
        line, failure = match.group(0), match.group(2).lower()
        number = _FAILURES[failure]
        for path, sure in _names(line, match.group(1)):
            if not path or len(path) >= 4096:
                continue
            said = line.replace(path, "")
            if _EXCEPTION.match(line):  # The lines of source above say what it was about to do.
                said += "\n".join(text[: match.start()].splitlines()[-2:])
            if _INLINE.search(said):
                said += command
            settings = re.search(r"\b(chmod|chown|utime|touch|permissions|attributes|times)\b", said)
            yield Complaint(path, number, _wish(failure, number, said), sure, not settings)


def _names(line: str, before: str) -> Iterator[tuple[str, bool]]:
    """The names of one line, and whether each is surely a path."""
    quoted = [next(filter(None, groups)) for groups in _QUOTED.findall(line)]
    if quoted:
        yield from ((name, True) for name in dict.fromkeys(quoted[::-1]))
        return
    words = [word.strip() for word in before.split(": ")]
    if len(words) > 2 and _BARE_VERB.fullmatch(words[-1]):
        words.pop()
    last = words[-1]
    named = _BY_VERB.fullmatch(last)
    if named is not None:
        yield named.group(1), True
    elif "/" in last or len(words) > 1:
        yield last, "/" in last or " " not in last


def _wish(failure: str, number: int, said: str) -> Wish:
    """What was to be done with the name."""
    if failure == "not found":
        return "run"
    if _MOVES.search(said):
        return "entry"
    if _MAKES.search(said):
        return "make"
    return "write" if number == errno.EROFS else "read"


def host_of(text: str) -> tuple[str, int | None] | None:
    """The host that a program could not reach, and the port where it names one."""
    found = _NO_HOST.search(text)
    if found is None:
        return None
    groups = [group for group in found.groups() if group]
    return groups[0], int(groups[1]) if len(groups) > 1 else None


def changes_folder(text: str) -> bool:
    """Whether a command line or a script goes to another folder: a relative name may start from there."""
    return _FOLDER.search(text) is not None
