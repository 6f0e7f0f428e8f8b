"""The ceiling: what agents may give to the tools that they make, and what goes beyond it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from toolcrib.guard import excess
from toolcrib.spec import (
    CommandExec,
    ExecConfig,
    FileExec,
    HttpExec,
    Network,
    Permissions,
    PythonExec,
    SecretSpec,
    Tool,
)

FILE = FileExec("read", "x")


def tool(config: ExecConfig = FILE, **permissions: Any) -> Tool:
    kind = {HttpExec: "http", CommandExec: "command", PythonExec: "python"}.get(type(config), "file")
    return Tool("t", "D.", kind, {"type": "object"}, config, permissions=Permissions(**permissions))


def names(*secrets: str) -> tuple[SecretSpec, ...]:
    return tuple(SecretSpec(name) for name in secrets)


def places(made: Tool, ceiling: Permissions | None, root: Path) -> list[str]:
    return [violation.path for violation in excess(made, ceiling, root)]


def test_without_a_ceiling_nothing_may_be_asked_for(tmp_path: Path) -> None:
    assert places(tool(), None, tmp_path) == []
    all_of_it = tool(network=Network("any"), read=("a",), write=("b",), secrets=names("S"), env=("E",))
    assert places(all_of_it, None, tmp_path) == [
        "$.permissions.network",
        "$.permissions.fs.read",
        "$.permissions.fs.write",
        "$.permissions.secrets.S",
        "$.permissions.env",
    ]
    assert places(all_of_it, Permissions(), tmp_path) == places(all_of_it, None, tmp_path)


def test_each_excess_is_named_and_what_is_allowed_is_not(tmp_path: Path) -> None:
    ceiling = Permissions(Network("any"), (".",), ("out",), names("A"), ("LANG",))
    within = tool(
        network=Network("any"), read=("src", "."), write=("out/x",), secrets=names("A"), env=("LANG",)
    )
    assert excess(within, ceiling, tmp_path) == []
    beyond = tool(
        read=("src", "/etc", ".."), write=("outer", "out"), secrets=names("A", "B", "C"), env=("PWD",)
    )
    told = [violation.message for violation in excess(beyond, ceiling, tmp_path)]
    assert len(told) == 6
    for part in ("'/etc'", "'..'", "'outer'", "secret B", "secret C", "variable PWD"):
        assert any(part in message for message in told), part


@pytest.mark.parametrize("path", ["../x", "a/../..", "/", "~/../..", "link", "link/deeper", "a\0b"])
def test_paths_count_by_where_they_lead(tmp_path: Path, path: str) -> None:
    root = tmp_path / "project"
    root.mkdir()
    (root / "link").symlink_to(tmp_path)
    assert places(tool(read=(path,)), Permissions(read=(".",)), root) == ["$.permissions.fs.read"]


def test_a_path_that_only_begins_like_an_allowed_one_is_beyond_it(tmp_path: Path) -> None:
    assert places(tool(write=("out-of-it",)), Permissions(write=("out",)), tmp_path) == [
        "$.permissions.fs.write"
    ]


def test_what_may_be_written_may_be_read_but_not_the_other_way_round(tmp_path: Path) -> None:
    assert places(tool(read=("out",)), Permissions(write=("out",)), tmp_path) == []
    assert places(tool(write=("src",)), Permissions(read=("src",)), tmp_path) == ["$.permissions.fs.write"]


HOSTS = Network("hosts", ("api.example.com", "*.example.org", "odd.example.net:8443"))


@pytest.mark.parametrize(
    ("asked", "ceiling", "held"),
    [
        (Network(), Network(), True),
        (Network("any"), Network("any"), True),
        (Network("any"), HOSTS, False),
        (Network("host"), Network("any"), False),
        (Network("host"), Network("host"), True),
        (HOSTS, Network("host"), True),
        (HOSTS, HOSTS, True),
        (Network("hosts", ("api.example.com",)), HOSTS, True),
        (Network("hosts", ("API.example.com:443",)), HOSTS, True),
        (Network("hosts", ("api.example.com:8443",)), HOSTS, False),
        (Network("hosts", ("*.deep.example.org",)), HOSTS, True),
        (Network("hosts", ("*.example.com",)), HOSTS, False),
        (Network("hosts", ("evilexample.org",)), HOSTS, False),
        (Network("hosts", ("*.evilexample.org",)), HOSTS, False),
        # Named outright, a host may have a private address, which `*.` and `true` never allow.
        (Network("hosts", ("x.example.org",)), HOSTS, False),
        (Network("hosts", ("169.254.169.254",)), Network("any"), False),
        (Network("hosts", ("*.example.com",)), Network("any"), True),
        (Network("hosts", ("not a host",)), Network("any"), False),
    ],
)
def test_the_network_is_no_wider(tmp_path: Path, asked: Network, ceiling: Network, held: bool) -> None:
    assert (places(tool(network=asked), Permissions(ceiling), tmp_path) == []) is held


def test_the_port_of_the_tools_own_address_counts(tmp_path: Path) -> None:
    network, ceiling = Network("hosts", ("api.example.com",)), Permissions(HOSTS)
    assert (
        places(tool(HttpExec("GET", "https://api.example.com/x"), network=network), ceiling, tmp_path) == []
    )
    odd = tool(HttpExec("GET", "https://api.example.com:8080/x"), network=network)
    assert places(odd, ceiling, tmp_path) == ["$.permissions.network.allow[0]"]


def test_what_exec_opens_by_itself_counts_as_read(tmp_path: Path) -> None:
    inside = Permissions(read=("scripts",))
    for path, place in (("scripts/a.sh", []), ("other/a.sh", ["$.exec.command.entrypoint"])):
        assert places(tool(CommandExec(path)), inside, tmp_path) == place
    assert places(tool(CommandExec("sh")), None, tmp_path) == []
    assert places(tool(CommandExec("/usr/bin/env")), None, tmp_path) == []
    assert places(tool(CommandExec("/usr/../etc/shadow")), None, tmp_path) == ["$.exec.command.entrypoint"]
    assert places(tool(PythonExec("m", "f", venv="/opt/theirs/.venv")), inside, tmp_path) == [
        "$.exec.python.venv"
    ]
