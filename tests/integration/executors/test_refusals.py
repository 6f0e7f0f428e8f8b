"""What a program says that it was refused, at every kind: the same words, code and advice."""

from __future__ import annotations

import json
import os
import sys

import pytest

from tests.crib import Crib, failed
from tests.mcp_servers import RAW, mount
from toolcrib.spec import Result

pytestmark = pytest.mark.usefixtures("kernel")

READ = {"fs": {"read": ["data"]}}
RUN = """
import subprocess

def run(script: str) -> str:
    exec(script)
    return "done"
"""

HOME_FILE = "/srv/private/notes.txt"


def advice(result: Result) -> tuple[str, str]:
    """The message and the hint of a call that a permission would have let through."""
    message = failed(result, "permission_denied")
    assert result.error is not None
    return message, result.error.hint or ""


@pytest.fixture
def place(crib: Crib) -> Crib:
    for path in ("data/in.txt", "notes.txt", "conf/app.ini", "with space/a b.txt"):
        crib.write(path, "content\n")
    crib.shell(permissions=READ)
    crib.python(
        RUN, properties={"script": {"type": "string"}}, config={"args": ["${script}"]}, permissions=READ
    )
    return crib


@pytest.mark.parametrize(
    ("script", "access", "grant"),
    [
        ("cat notes.txt", "read", "notes.txt"),
        ("cat conf/app.ini", "read", "conf/app.ini"),
        ("cat 'with space/a b.txt'", "read", "with space/a b.txt"),
        ("ls conf", "read", "conf"),
        (". ./conf/app.ini", "read", "conf/app.ini"),
        ("echo x >data/in.txt", "write", "data/in.txt"),
        ("touch data/new.txt", "write", "data"),
        ("touch new.txt", "write", "."),
        ("echo x >new.txt", "write", "."),
        ("mkdir data/sub", "write", "data"),
        ("cp data/in.txt data/copy.txt", "write", "data"),
        ("rm data/in.txt", "write", "data/in.txt"),
        (f"cat {HOME_FILE}", "read", HOME_FILE),
        ("echo x >/etc/motd", "write", "/etc/motd"),
        ("python3 -c 'open(\"notes.txt\")'", "read", "notes.txt"),
        ('perl -e \'open(F, "<", "notes.txt") or die "notes.txt: $!\\n"\'', "read", "notes.txt"),
        ("echo starting >&2; cat notes.txt; echo 'giving up' >&2; exit 7", "read", "notes.txt"),
    ],
)
def test_a_command_that_was_refused_a_path_says_so(place: Crib, script: str, access: str, grant: str) -> None:
    result = place.call("sh", {"c": script})
    message, hint = advice(result)
    named = os.path.normpath(place.root / grant)
    assert f"sh may not {access} {named}, which its permissions do not grant: sh ended" in message
    assert f'add "{grant}" to permissions.fs.{access} in .toolcrib/tools/sh/tool.yml:1' in hint
    assert result.error is not None
    assert result.error.details["exitCode"] > 0
    assert result.error.details["stderr"]
    # It ran: the log has no refusal before the start.
    assert place.last().event == "TOOL_EXECUTED"


@pytest.mark.parametrize("path", ["notes.txt", "data/in.txt", HOME_FILE, ".env"])
def test_a_command_gets_the_words_of_a_python_tool(place: Crib, path: str) -> None:
    place.write(".env", "")
    write = path == "data/in.txt"
    by_command = advice(place.call("sh", {"c": f"echo x >>{path}" if write else f"cat {path}"}))
    by_python = advice(place.call("py", {"script": f"open({path!r}, {'a' if write else 'r'!r})"}))
    assert by_command[0].partition(": ")[0].replace("sh ", "py ", 1) == by_python[0].partition(": ")[0]
    assert by_command[1].replace("/sh/", "/py/").replace("trace sh", "trace py") == by_python[1]


@pytest.mark.parametrize(
    "script",
    [
        "cat gone.txt",
        "cat data/gone.txt",
        "ls /usr/gone",
        "echo 'notes.txt: bad content' >&2; exit 1",
        "echo 'No such file or directory' >&2; exit 1",
        "grep nothing data/in.txt",
        "cat /tmp/gone",
    ],
)
def test_other_failures_stay_what_they_are(place: Crib, script: str) -> None:
    result = place.call("sh", {"c": script})
    failed(result, "command_failed")


OFFLINE = [
    "curl -sS https://api.example.com/v1",
    "wget -O /tmp/x https://api.example.com/v1",
    "python3 -c 'import urllib.request as u; u.urlopen(\"https://api.example.com/v1\")'",
    "python3 -c 'import socket; socket.create_connection((\"10.1.2.3\", 80))'",
    "echo 'Error: getaddrinfo EAI_AGAIN api.example.com' >&2; exit 1",
]


@pytest.mark.parametrize("script", OFFLINE)
def test_without_network_a_command_is_refused_it(place: Crib, script: str) -> None:
    message, hint = advice(place.call("sh", {"c": script}))
    assert message.startswith("sh may not use the network, which its permissions do not grant: sh ended")
    assert "in .toolcrib/tools/sh/tool.yml:1: permissions.network" in hint
    if "api.example.com" in script and "python" not in script:
        assert "{allow: [api.example.com]}" in hint


@pytest.mark.parametrize(
    "script",
    [
        "import urllib.request as u; u.urlopen('https://api.example.com')",
        "import socket; socket.create_connection(('10.1.2.3', 80))",
        "import socket; socket.getaddrinfo('api.example.com', 80)",
    ],
)
def test_without_network_a_python_tool_is_refused_it(place: Crib, script: str) -> None:
    message, hint = advice(place.call("py", {"script": script}))
    assert message.startswith("py may not use the network, which its permissions do not grant: ")
    assert ".toolcrib/tools/py/tool.yml:1: permissions.network" in hint


def test_a_host_that_was_refused_comes_first(place: Crib) -> None:
    place.shell("net", permissions={"network": {"allow": ["a.example.com"]}})
    result = place.call("net", {"c": "curl -sS https://b.example.com || cat notes.txt"})
    failed(result, "host_not_allowed")


def test_a_shell_of_a_caller_gets_it_as_a_warning(place: Crib) -> None:
    place.write(".toolcrib/config.yml", json.dumps({"builtins": ["exec"], "roots": {"w": {"path": "data"}}}))
    place.trust()
    for command, said, how in (
        (f"cat {HOME_FILE}", f"exec may not read {HOME_FILE}, which", f'add "{HOME_FILE}" to `roots`'),
        (
            "touch new.txt in.txt",
            f"exec may not write {place.root}/data/in.txt, which",
            "to `roots` in config.yml",
        ),
        ("curl -sS https://api.example.com", "exec may not use the network", "builtins.exec in config.yml"),
    ):
        result = place.call("exec", {"command": command})
        assert result.error is None, result.error
        assert "exit code" in str(result.value)
        (warning,) = result.warnings
        assert said in warning
        assert how in warning
    assert place.call("exec", {"command": "cat gone"}).warnings == ()


SERVER = (
    RAW
    + """
import urllib.request

def called(message):
    try:
        exec(message["params"]["arguments"]["script"])
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        return {"content": [{"type": "text", "text": text}], "isError": True}
    return {"content": [{"type": "text", "text": "done"}]}

main()
"""
)


OUTSIDE = os.path.realpath(os.path.join(sys.prefix, "../elsewhere"))


async def test_a_server_that_was_refused_says_so(crib: Crib) -> None:
    mount(crib, "srv", SERVER, out="out")
    async with crib.open() as project:
        assert project.servers is not None
        await project.servers.ready(60)
        for script, said, how in (
            ("open('../notes.txt', 'w')", f"srv may not write {crib.root}/notes.txt", "mcp_servers.srv"),
            (f"open({OUTSIDE!r})", f"srv may not read {OUTSIDE}", "mcp_servers.srv"),
            (
                "urllib.request.urlopen('https://api.example.com')",
                "srv may not reach api.example.com",
                "--allow",
            ),
        ):
            crib.write("notes.txt", "")
            message, hint = advice(await project.call("srv__hello", {"script": script}))
            assert f"{said}, which its permissions do not grant: " in message
            assert how in hint
            assert crib.last().event == "TOOL_EXECUTED"
        failed(await project.call("srv__hello", {"script": "open('gone')"}), "tool_failed")
