"""MCP servers as settings name them."""

from __future__ import annotations

from typing import Any

import pytest

from toolcrib.errors import ToolUnavailable
from toolcrib.manifest.dialects.mcp_servers import ServerSpec, expand, read_server, read_servers
from toolcrib.spec import Permissions, SecretSpec


def test_a_program_reads_the_project_and_nothing_else_unless_it_says_so() -> None:
    spec = read_server("a", {"command": "srv", "args": ["-x"]})
    assert (spec.transport, spec.is_local, spec.where) == ("stdio", True, "srv -x")
    assert spec.permissions == Permissions(read=(".",))
    assert spec.start_timeout_s == 30
    wide = {"network": {"allow": ["a.example"]}, "fs": {"write": ["out"]}, "secrets": ["K"], "env": ["E"]}
    stated = read_server("a", {"command": "srv", "permissions": wide}).permissions
    assert stated.as_json() == {
        "network": {"allow": ["a.example"]}, "fs": {"read": [], "write": ["out"]}, "secrets": ["K"],
        "env": ["E"],
    }  # fmt: skip


def test_variables_in_texts_are_secrets_unless_they_are_none() -> None:
    spec = read_server(
        "a",
        {
            "command": "srv",
            "args": ["--home", "${HOME}", "${PLAIN}"],
            "env": {"A": "x${KEY}y", "B": "${PLAIN}", "C": "${REGION:-eu}"},
            "permissions": {"env": ["PLAIN"]},
        },
    )
    assert spec.permissions.secrets == (SecretSpec("KEY"), SecretSpec("REGION", required=False))
    assert spec.permissions.env == ("PLAIN", "HOME")
    assert expand("x${KEY}${REGION:-eu}${KEY:-no}$KEY", {"KEY": "k"}) == "xkeuk$KEY"
    with pytest.raises(ToolUnavailable, match="GONE"):
        expand("${GONE}", {})


@pytest.mark.parametrize(
    ("kind", "transport"), [("http", "http"), ("streamable-http", "http"), (None, "http"), ("sse", "sse")]
)
def test_a_server_elsewhere(kind: str | None, transport: str) -> None:
    entry = {"type": kind, "url": "https://a.example/mcp", "headers": {"Authorization": "Bearer ${T}"}}
    spec = read_server("a", {key: value for key, value in entry.items() if value is not None})
    assert (spec.transport, spec.is_local, spec.where) == (transport, False, "https://a.example/mcp")
    assert spec.permissions == Permissions(secrets=(SecretSpec("T"),))
    assert read_server("a", {"url": "${HOST}/mcp"}).url == "${HOST}/mcp"


@pytest.mark.parametrize(
    ("name", "entry", "expected"),
    [
        ("a b", {"command": "x"}, "a server's name"),
        ("a__b", {"command": "x"}, "a server's name"),
        ("x" * 33, {"command": "x"}, "a server's name"),
        ("", {"command": "x"}, "a server's name"),
        (5, {"command": "x"}, "a server's name"),
        ("a", "x", "must be a mapping"),
        ("a", {}, "has `command` or `url`"),
        ("a", {"comand": "x"}, "did you mean `command`"),
        ("a", {"command": ""}, "has `command` and no `url`"),
        ("a", {"command": "x", "url": "y"}, "has `command` and no `url`"),
        ("a", {"type": "http", "command": "x"}, "has `url` and no `command`"),
        ("a", {"type": "pigeon", "command": "x"}, "stdio, http or sse"),
        ("a", {"type": ["http"], "url": "x"}, "stdio, http or sse"),
        ("a", {"url": "a.example/mcp"}, "`url` is 'a.example/mcp': only http:// and https://"),
        ("a", {"url": "https://a.example/a b"}, "a URL cannot contain spaces"),
        ("a", {"command": "x", "arg": []}, "`arg` is not a key"),
        ("a", {"command": "x", "args": "y"}, "`args` must be a list of texts"),
        ("a", {"command": "x", "args": [1]}, "`args` must be a list of texts"),
        ("a", {"command": "x\0y"}, "`command` must be a text"),
        ("a", {"command": ["x"]}, "`command` must be a text"),
        ("a", {"command": "x", "env": {"A": 1}}, "`env` must be a mapping"),
        ("a", {"command": "x", "permissions": {"net": True}}, "`permissions` may have"),
        ("a", {"command": "x", "permissions": {"network": "all"}}, "network must be false"),
        ("a", {"command": "x", "permissions": {"fs": {"exec": []}}}, "`permissions.fs` may have"),
        ("a", {"command": "x", "args": ["--token=${K}"]}, "secret K cannot be used in `args`: any user"),
        ("a", {"command": "x", "args": ["${K:-none}"]}, "set it in `env`, or name it in `permissions.env`"),
        ("a", {"command": "${K}"}, "secret K cannot be used in `command`"),
        ("a", {"command": "x", "args": ["${K}"], "permissions": {"secrets": ["K"]}}, "secret K cannot"),
        ("a", {"command": "x", "start_timeout_s": 0}, "from 0.1 to 600"),
        ("a", {"command": "x", "start_timeout_s": True}, "from 0.1 to 600"),
    ],
)
def test_what_is_wrong_is_reported(name: Any, entry: Any, expected: str) -> None:
    with pytest.raises(ValueError, match=expected):
        read_server(name, entry)


def test_one_bad_entry_of_a_shared_file_takes_no_other_with_it() -> None:
    found, wrong, notes = read_servers(
        {
            "mcpServers": {
                "good": {"command": "x", "alwaysAllow": ["a"], "disabled": False},
                "off": {"command": "x", "disabled": True},
                "bad": {"command": 5},
                "worse": None,
                "wrong": {"serverURL": "https://a.example/mcp", "type": "http"},
                "unclear": {"command": "x", "disabled": "yes"},
                "twice": {"command": "x", "tools": ["a"], "includeTools": ["b"]},
                "strange": {"command": "x", "args": ["${command:pick}"]},
                "env": {"A": "b"},
            },
            "other": 1,
        }
    )
    assert [spec.name for spec in found] == ["good"]
    assert sorted(wrong) == ["bad", "env", "strange", "twice", "unclear", "worse", "wrong"]
    assert wrong["unclear"] == "`disabled` must be true or false"
    assert wrong["twice"] == "`includeTools` says again what another key says; write one of them"
    assert wrong["strange"].startswith("'${command:pick}' has a variable that only other hosts know")
    assert notes == {
        "good": "`alwaysAllow`: of other hosts, without effect here",
        "off": "it is disabled by `disabled: true`, so it is not started",
    }
    assert wrong["env"] == "is not a server; write `env` inside of one, beside its `command`"
    assert "`serverURL` is not a key of a server; known: type, command" in wrong["wrong"]
    assert read_servers([]) == (
        [],
        {"": "must have an object `mcpServers`: name, then command and args, or url"},
        {},
    )
    assert read_servers({})[0] == []
    many = {f"s{n}": {"command": "x"} for n in range(103)}
    found, wrong, _ = read_servers({"mcpServers": many})
    assert (len(found), len(wrong)) == (100, 3)


def test_a_file_of_another_host_means_here_what_it_means_there() -> None:
    code = {
        "inputs": [{"type": "promptString", "id": "api-key", "password": True}],
        "servers": {
            "near": {
                "command": "srv",
                "args": ["${workspaceFolder}/data", "${env:REGION}"],
                "env": {"TOKEN": "${input:api-key}", "AT": "${userHome}/x"},
                "permissions": {"env": ["REGION"]},
            },
            "far": {"httpUrl": "https://a.example/mcp", "headers": {"Authorization": "Bearer ${env:T}"}},
        },
    }
    (near, far), wrong, notes = read_servers(code, "/srv/p")
    assert (wrong, notes) == ({}, {})
    assert near.args == ("/srv/p/data", "${REGION}")
    assert near.env == {"TOKEN": "${API_KEY}", "AT": "${HOME}/x"}
    assert near.permissions.secrets == (SecretSpec("API_KEY"),)
    assert (far.transport, far.url) == ("http", "https://a.example/mcp")
    assert far.headers == {"Authorization": "Bearer ${T}"}
    both = {"mcpServers": {"a": {"command": "x"}}, "servers": {}}
    assert read_servers(both)[1] == {
        "": "has both `mcpServers` and `servers`; write all servers under `mcpServers`"
    }


@pytest.mark.parametrize(
    ("entry", "tools", "disabled"),
    [
        ({}, ("*",), ()),
        ({"disabledTools": ["a"], "timeout": 60}, ("*",), ("a",)),
        ({"excludeTools": ["a"], "includeTools": ["b"]}, ("b",), ("a",)),
        ({"tools": ["*"]}, ("*",), ()),
        ({"allowedTools": []}, (), ()),
        ({"enabled_tools": ["b"], "disabled_tools": ["a"], "enabled": True}, ("b",), ("a",)),
    ],
)
def test_tools_are_left_out_as_other_hosts_leave_them_out(
    entry: dict[str, Any], tools: tuple[str, ...], disabled: tuple[str, ...]
) -> None:
    (spec,), wrong, _ = read_servers({"mcpServers": {"a": {"command": "x", **entry}}})
    assert (spec.tools, spec.disabled_tools, wrong) == (tools, disabled, {})


def test_another_program_or_address_is_another_server() -> None:
    def identity(**entry: Any) -> str:
        spec: ServerSpec = read_server("a", entry)
        return spec.identity

    same = identity(command="x", args=["y"])
    assert identity(command="x", args=["y"], env={"A": "b"}, start_timeout_s=5) == same
    others = {
        identity(command="x"),
        identity(command="x y"),
        identity(command="x", args=["y"], cwd="z"),
        identity(url="http://x"),
        identity(url="http://x", type="sse"),
    }
    assert len({same, *others}) == 6
