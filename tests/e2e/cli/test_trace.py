"""`toolcrib trace` from the outside: the block it prints is the one with which the same call works."""

from __future__ import annotations

import http.server
import io
import json
import os
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from ruamel.yaml import YAML

from tests.conftest import need
from tests.crib import Crib
from tests.e2e.cli.test_cli import ASKS, cli, on_terminal
from tests.patience import GROWING_MS

pytestmark = pytest.mark.usefixtures("kernel")

STATIC = """
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>
int main(int count, char **words) {
    char text[64];
    int in = open(words[1], O_RDONLY), out = open(words[2], O_WRONLY | O_CREAT | O_TRUNC, 0644);
    int got = read(in, text, sizeof text);
    if (in < 0 || out < 0 || got < 0) { perror(words[1]); return 1; }
    return write(out, text, got) == got && puts("copied") > 0 ? 0 : 1;
}
"""


@pytest.fixture
def stocked(crib: Crib) -> Crib:
    for name in ("data/a", "data/b", "conf/x", ".env"):
        crib.write(name, f"{name}\n")
    (crib.root / "out").mkdir()
    return crib


def block(text: str) -> dict[str, Any]:
    data = YAML(typ="safe", pure=True).load(io.StringIO(text))
    assert list(data) == ["permissions"]
    found: dict[str, Any] = data["permissions"]
    return found


def test_the_block_is_enough_and_no_more(stocked: Crib) -> None:
    wide: Any = {"fs": {"read": ["data", "conf"], "write": ["out"]}}
    script = "cat data/a > out/copy && cat out/copy"
    stocked.shell(permissions=wide)
    manifest = stocked.home / "tools/sh/tool.yml"
    before = manifest.read_bytes()
    done = cli(stocked, "trace", "sh", f"c={script}")
    assert done.code == 0, done.err
    assert block(done.out) == {"network": False, "fs": {"read": ["data/a"], "write": ["out"]}}
    assert '# left out: fs.read: "conf"' in done.out
    assert manifest.read_bytes() == before, "nothing is changed by itself"
    stocked.shell(permissions=block(done.out))
    assert cli(stocked, "run", "sh", f"c={script}").out == "data/a\n"
    for access in ("read", "write"):
        less = block(done.out)
        less["fs"][access] = []
        stocked.shell(permissions=less)
        assert cli(stocked, "run", "sh", f"c={script}").code == 5


def test_what_is_missing_is_told_and_may_be_allowed_for_one_run(stocked: Crib) -> None:
    stocked.shell()
    words = ("sh", "c=cat data/a")
    first = cli(stocked, "trace", *words)
    assert first.code == 0
    assert block(first.out) == {"network": False}
    assert '# not granted in this run: fs.read: "data/a"' in first.out
    assert "--allow-read data/a" in first.err
    assert "permission_denied" in first.err
    trusted = cli(stocked, "trust", "--json").document["tools"]
    second = cli(stocked, "trace", *words, "--allow-read", "data/a", "--approve")
    assert block(second.out)["fs"] == {"read": ["data/a"]}
    assert cli(stocked, "trust", "--json").document["tools"] == trusted, "nothing is trusted from now on"
    assert cli(stocked, "run", *words).code == 5, "it was for that run only"


def test_a_static_program(stocked: Crib) -> None:
    compiler = shutil.which("gcc")
    need("gcc", compiler is not None)
    assert compiler is not None
    program = stocked.root / "bin/copy"
    program.parent.mkdir()
    subprocess.run([compiler, "-static", "-x", "c", "-", "-o", program], input=STATIC.encode(), check=True)
    text = {"type": "string"}
    config = {"entrypoint": "./bin/copy", "args": ["${from}", "${to}"]}
    stocked.tool("copy", "command", config, {"from": text, "to": text}, outputs={"format": "text"})
    words = ("copy", "from=data/a", "to=out/new")
    allowed = ("--allow-read", "data/a", "--allow-write", "out", "--approve")
    assert "# not granted" in cli(stocked, "trace", *words).out
    done = cli(stocked, "trace", *words, *allowed)
    assert block(done.out) == {"network": False, "fs": {"read": ["data/a"], "write": ["out"]}}, done.err


def test_a_python_tool_with_a_thread_and_a_child(stocked: Crib) -> None:
    source = """
import os, subprocess, threading, socket
def run():
    thread = threading.Thread(target=lambda: open("data/b").read())
    thread.start()
    thread.join()
    key = os.environ["KEY"]
    try: socket.create_connection(("api.example.com", 8443))
    except OSError: pass
    return open("data/a").read()
"""
    stocked.secrets["KEY"] = "hidden-value"
    permissions = {
        "fs": {"read": ["data", "conf"]},
        "secrets": {"KEY": {"type": "string"}, "OTHER": {"type": "string", "required": False}},
        "env": ["TERM"],
    }
    stocked.python(source, permissions=permissions)
    done = cli(stocked, "trace", "py", env={"KEY": "hidden-value"})
    found = block(done.out)
    assert found["fs"] == {"read": ["data/a", "data/b"]}
    assert found["secrets"]["OTHER"] == {"type": "string", "required": False}
    assert "KEY: " in done.out
    assert "# read through os.environ" in done.out
    assert 'network.allow: "api.example.com:8443"' in done.out
    assert "hidden-value" not in done.out + done.err
    stocked.python(source + "\n    subprocess.run(['true'])", permissions=permissions)
    stocked.python(
        source.replace("    return", "    subprocess.run(['true'])\n    return"), permissions=permissions
    )
    assert "cannot be observed" in cli(stocked, "trace", "py", env={"KEY": "x"}).out


def test_folders_that_a_person_would_grant(stocked: Crib) -> None:
    """Not one object of a repository, its settings hidden; packages whole; time zones without a grant."""
    need("git", shutil.which("git") is not None)
    git = ("git", "-c", "user.name=a", "-c", "user.email=a@example.com", "-C", str(stocked.root))
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "one"], check=True)
    stocked.write("lib/site-packages/pack/data.txt", "x")
    script = "git log --oneline; cat lib/site-packages/pack/data.txt; TZ=Europe/Rome date >/dev/null"
    stocked.tool("log", "command", {"entrypoint": "sh", "args": ["-c", script]}, outputs={"format": "text"})
    manifest = stocked.home / "tools/log/tool.yml"
    comment = "# counted by hand\n"
    text = "".join(f"{key}: {json.dumps(value)}\n" for key, value in json.loads(manifest.read_text()).items())
    text = text.replace("exec:", f"permissions: {{network: false}}\n\n{comment}exec:")
    manifest.write_text(text, newline="\r\n")
    config = {"entrypoint": "git", "args": ["log"]}
    stocked.tool("plain", "command", config, outputs={"format": "text"})
    failed = cli(stocked, "run", "plain").err
    assert "not a git repository" in failed
    assert "hint: If a permission is missing, `toolcrib trace plain` shows which." in failed
    assert "hint:" not in cli(stocked, "trace", "plain").err
    with on_terminal(stocked, "trace", "plain", "--apply", columns=200) as screen:
        assert screen.end() == 0, screen.text
    assert screen.text.endswith("Nothing was written: with this block the tool would fail again.\n")

    words = ("trace", "log", "--allow-read", ".git", "--allow-read", "lib", "--approve")
    done = cli(stocked, *words)
    smallest = block(done.out)["fs"]["read"]
    assert {".git/config", "lib/site-packages/pack/data.txt"} <= {*smallest}
    assert any(path.startswith(".git/objects/") for path in smallest)
    assert "# by folders: fs.read: [.git/HEAD, .git/objects, .git/refs, lib/site-packages]\n" in done.out
    assert "zoneinfo" not in done.out
    assert cli(stocked, *words, "--apply").code == 5, "only a person at a terminal writes"

    for answer in ("n", "y"):
        with on_terminal(stocked, *words, "--apply", columns=200) as screen:
            screen.read_until("Write it? [y/N]")
            screen.type(f"{answer}\n")
            assert screen.end() == 0, screen.text
        assert "+      - lib/site-packages" in screen.text
        assert ("changed " in screen.text) is (answer == "y")
    assert not re.search(rb"(?<!\r)\n", manifest.read_bytes()), "the file's line ends stay"
    written = manifest.read_text()
    assert comment + "exec:" in written
    assert block("permissions:" + written.partition("permissions:")[2].partition("\n\n")[0])["fs"] == {
        "read": [".git/HEAD", ".git/objects", ".git/refs", "lib/site-packages"]
    }
    assert " one\nx" in cli(stocked, "run", "log").out


def test_json_says_the_same(stocked: Crib) -> None:
    stocked.shell(permissions={"fs": {"read": ["data"]}})
    done = cli(stocked, "trace", "sh", "c=cat data/a conf/x .env", "--json")
    assert done.code == 0
    document = done.document
    assert document["tool"] == "sh"
    assert document["permissions"] == {"network": False, "fs": {"read": ["data/a"]}}
    assert [line["value"] for line in document["missing"]] == ["conf/x"]
    assert document["result"]["error"]["code"] == "permission_denied"
    assert document["calls"] > 0


def test_it_is_a_call_like_any_other(stocked: Crib) -> None:
    asks: Any = ASKS
    stocked.shell(**asks)
    refused = cli(stocked, "trace", "sh", "c=true")
    assert (refused.code, refused.out) == (5, "")
    assert stocked.last().event == "TOOL_REFUSED"
    assert cli(stocked, "trace", "sh", "c=true", "--approve").code == 0
    assert [entry.event for entry in stocked.audit()][-2:] == ["TOOL_APPROVED", "TOOL_EXECUTED"]
    wide = cli(stocked, "trace", "sh", "c=true", "--allow-read", "/", "--approve")
    assert (wide.code, wide.out) == (5, "")


def test_a_wide_grant_for_one_run_needs_approval_too(stocked: Crib) -> None:
    stocked.shell()
    done = cli(stocked, "trace", "sh", "c=true", "--allow-read", "..")
    assert (done.code, done.out) == (5, "")
    assert "approval_required" in done.err


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("trace", "nosuch"), 3),
        (("trace", "sh", "d=1"), 4),
        (("trace", "sh", "c=true", "--allow-read", "gone", "--approve"), 1),
        (("trace", "sh", "c=true", "--allow-host", "example.com", "--allow-env"), 2),
        (("trace", "sh", "c=true", "--allow-read", ".env", "--approve"), 5),
        (("trace", "sh", "c=true", "--allow-read", "/proc", "--approve"), 5),
    ],
)
def test_where_nothing_ran_there_is_no_block(stocked: Crib, words: tuple[str, ...], code: int) -> None:
    stocked.shell()
    done = cli(stocked, *words)
    assert (done.code, done.out) == (code, ""), done.err
    assert done.err
    if code != 2:
        assert stocked.last().event == "TOOL_REFUSED"


def test_a_tool_that_is_stopped_at_its_limit_gives_what_was_seen(stocked: Crib) -> None:
    stocked.shell(permissions={"fs": {"read": ["data"]}})
    for limit_ms in GROWING_MS:
        done = cli(stocked, "trace", "sh", "c=cat data/a; sleep 60", "--timeout-ms", str(limit_ms))
        if "data/a" in done.out:
            break
    else:
        raise AssertionError("no limit is long enough")
    assert done.code == 0
    assert "timed_out" in done.err
    assert "until then" in done.err
    assert block(done.out)["fs"] == {"read": ["data/a"]}


def test_a_file_tool(stocked: Crib) -> None:
    path = {"path": {"type": "string"}}
    stocked.tool(
        "reader",
        "file",
        {"action": "read", "path": "${path}"},
        path,
        permissions={"fs": {"read": ["data", "conf"]}},
    )
    found = block(cli(stocked, "trace", "reader", "path=data/a").out)
    assert found == {"network": False, "fs": {"read": ["data/a"]}}
    stocked.tool(
        "writer", "file", {"action": "write", "path": "${path}", "content": "x"}, path,
        permissions={"fs": {"write": ["."]}},
    )  # fmt: skip
    assert block(cli(stocked, "trace", "writer", "path=out/new").out)["fs"] == {"write": ["out"]}
    stocked.tool(
        "maker", "file", {"action": "write", "path": "a/b/new", "content": "x", "mkdir": True}, {},
        permissions={"fs": {"write": ["."]}},
    )  # fmt: skip
    assert block(cli(stocked, "trace", "maker").out)["fs"] == {"write": ["."]}
    refused = cli(stocked, "trace", "reader", "path=out/new")
    assert block(refused.out) == {"network": False}
    assert '"out/new"' in refused.out


@contextmanager
def server() -> Iterator[int]:
    class Answer(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer) as serving:
        thread = threading.Thread(target=serving.serve_forever)
        thread.start()
        try:
            yield serving.server_port
        finally:
            serving.shutdown()
            thread.join()


def test_an_http_tool(stocked: Crib) -> None:
    with server() as port:
        allow = {"allow": [f"127.0.0.1:{port}", "unused.example"]}
        stocked.tool(
            "web",
            "http",
            {"method": "GET", "url": f"http://127.0.0.1:{port}/"},
            permissions={"network": allow},
        )
        done = cli(stocked, "trace", "web")
        assert block(done.out) == {"network": {"allow": [f"127.0.0.1:{port}"]}}, done.err
        assert "unused.example" in done.out


def test_hosts_that_a_process_reaches_by_its_proxy(stocked: Crib) -> None:
    source = """
import urllib.request
def run(url):
    try: urllib.request.urlopen("http://refused.example/")
    except OSError: pass
    return urllib.request.urlopen(url).read().decode()
"""
    text = {"type": "string"}
    stocked.python(source, properties={"url": text}, config={"args": ["${url}"]})
    with server() as port:
        words = ("trace", "py", f"url=http://127.0.0.1:{port}/")
        first = cli(stocked, *words)
        assert block(first.out) == {"network": False}
        assert '"refused.example:80"' in first.out
        host = f"127.0.0.1:{port}"
        done = cli(stocked, *words, "--allow-host", host, "--allow-host", "unused.example", "--approve")
        assert block(done.out) == {"network": {"allow": [host]}}, done.err
        assert 'not granted in this run: network.allow: "refused.example:80"' in done.out
        assert 'left out: network.allow: "unused.example"' in done.out


def test_two_traces_at_once_do_not_mix(stocked: Crib) -> None:
    stocked.shell(permissions={"fs": {"read": ["data", "conf"]}})
    found: dict[str, Any] = {}

    def trace(name: str) -> None:
        found[name] = cli(stocked, "trace", "sh", f"c=cat {name}", "--json").document["permissions"]["fs"]

    threads = [threading.Thread(target=trace, args=(name,)) for name in ("data/a", "conf/x")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {name: {"read": [name]} for name in ("data/a", "conf/x")}


def test_a_hostile_name_does_not_leave_its_comment(stocked: Crib) -> None:
    name = "x\npermissions: {network: host}\n"
    stocked.write(name, "x")
    stocked.tool(
        "cat",
        "command",
        {"entrypoint": "cat", "args": ["${p}"]},
        {"p": {"type": "string"}},
        outputs={"format": "text"},
    )
    done = cli(stocked, "trace", "cat", f"p:={json.dumps(name)}")
    assert block(done.out) == {"network": False}
    assert os.fsencode(name).strip() not in done.out.encode()
    granted = cli(stocked, "trace", "cat", f"p:={json.dumps(name)}", "--allow-read", name, "--approve")
    assert block(granted.out)["fs"] == {"read": [name]}
