"""Servers that uvx and npx would start: packages that are downloaded once, at trust, without running them."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sysconfig
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.commands import decides, run, text
from tests.crib import Crib
from tests.mcp_servers import RAW
from toolcrib.state import Vault

pytestmark = pytest.mark.timeout(300)

NODE_SERVER = """#!/usr/bin/env node
const lines = require('readline').createInterface({input: process.stdin})
const tool = {name: 'hello', description: 'Say hello.', inputSchema: {type: 'object'}}
lines.on('line', line => {
  const {id, method, params} = JSON.parse(line)
  if (id === undefined) return
  const about = {capabilities: {tools: {}}, serverInfo: {name: 'n', version: '1'}}
  const result = method === 'initialize' ? {protocolVersion: params.protocolVersion, ...about}
    : method === 'tools/list' ? {tools: [tool]}
    : method === 'tools/call' ? {content: [{type: 'text', text: 'VERSION'}]} : undefined
  const answer = result ? {result} : {error: {code: -32601, message: 'Method not found'}}
  console.log(JSON.stringify({jsonrpc: '2.0', id, ...answer}))
})
"""


@pytest.fixture
def crib(tmp_path: Path) -> Crib:
    (tmp_path / "p").mkdir()
    return Crib(tmp_path / "p")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder, with uv on the path and a folder of wheels that is all that it installs from."""
    (tmp_path / "home").mkdir()
    (tmp_path / "wheels").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", f"{sysconfig.get_path('scripts')}:{os.environ['PATH']}")
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv"))
    monkeypatch.setenv("UV_FIND_LINKS", str(tmp_path / "wheels"))
    monkeypatch.setenv("UV_NO_INDEX", "1")
    monkeypatch.setenv("UV_COMPILE_BYTECODE", "1")  # With it uv itself runs files of a package.
    return tmp_path / "home"


@pytest.fixture
def registry(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, bytes]]:
    """A registry of npm on this machine: by path what it answers."""
    answers: dict[str, bytes] = {}

    class Registry(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = answers.get(self.path)
            self.send_response(404 if found is None else 200)
            self.end_headers()
            self.wfile.write(found or b"{}")

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Registry)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    answers["address"] = f"http://127.0.0.1:{server.server_port}".encode()
    monkeypatch.setenv("npm_config_registry", f"http://127.0.0.1:{server.server_port}/")
    monkeypatch.setenv("npm_config_cache", str(home / "npm"))
    yield answers
    server.shutdown()
    server.server_close()


def toolcrib(crib: Crib, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    return text(run([*words, "--root", str(crib.root)], crib.root, env={**os.environ, **env}))


def named(crib: Crib, command: str, *args: str) -> None:
    crib.write(".mcp.json", json.dumps({"mcpServers": {"tiny": {"command": command, "args": args}}}))


def trust(crib: Crib, *words: str) -> str:
    done = toolcrib(crib, "trust", *words, "--yes")
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def hello(crib: Crib, **env: str) -> str:
    done = toolcrib(crib, "run", "tiny__hello", **env)
    return done.stdout.strip() or done.stderr


def programs(crib: Crib) -> list[Path]:
    """The folders of what was downloaded for the project's servers."""
    return [one for one in Vault(crib.root).programs.iterdir() if one.is_dir()]


def wheel(folder: Path, version: str = "1.0", **more: str) -> None:
    """Write a Python package `tiny-server` whose command is an MCP server; `more` are files of it."""
    info = f"tiny_server-{version}.dist-info"
    files = {
        "tiny_server.py": RAW.replace('"hello"}]', f'"{version}"}}]'),
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: tiny-server\nVersion: {version}\nAuthor: J\xe9\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": "[console_scripts]\ntiny-server = tiny_server:main\n",
        **{name.replace("INFO", f"tiny_server-{version}"): content for name, content in more.items()},
    }
    with zipfile.ZipFile(folder / f"tiny_server-{version}-py3-none-any.whl", "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
        archive.writestr(f"{info}/RECORD", "".join(f"{name},,\n" for name in (*files, f"{info}/RECORD")))


def published(registry: dict[str, bytes], version: str = "1.0.0", **more: Any) -> None:
    """Put a Node package `tiny-npm` into the registry, whose command is an MCP server."""
    about = {"name": "tiny-npm", "version": version, "bin": {"tiny-npm": "index.js"}, **more}
    files = {"package.json": json.dumps(about), "index.js": NODE_SERVER.replace("VERSION", version)}
    files["evil.sh"] = f"#!/bin/sh\necho ran > {more.get('marker')}\n"
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(f"package/{name}")
            entry.size, entry.mode = len(content), 0o755
            archive.addfile(entry, io.BytesIO(content.encode()))
    path = f"/tiny-npm/-/tiny-npm-{version}.tgz"
    registry[path] = packed.getvalue()
    known = json.loads(registry.get("/tiny-npm", b'{"versions": {}}'))["versions"]
    known[version] = {**about, "dist": {"tarball": f"{registry['address'].decode()}{path}"}}
    document = {"name": "tiny-npm", "dist-tags": {"latest": version}, "versions": known}
    registry["/tiny-npm"] = json.dumps(document).encode()


def test_uvx_is_resolved_at_trust_and_runs_nothing_of_the_package(crib: Crib, tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    evil = f"import contextlib\nwith contextlib.suppress(OSError): open({str(marker)!r}, 'a').write('x')\n"
    script = f"#!/bin/sh\necho ran > {marker}\n"
    more = dict.fromkeys(("INFO.data/scripts/sh", "INFO.data/scripts/env"), script)
    more |= {"a.pth": f"import os; exec({evil!r})\n", "sitecustomize.py": evil}
    wheel(tmp_path / "wheels", **more)
    named(crib, "uvx", "tiny-server")
    shown = toolcrib(crib, "trust", "--show").stdout
    assert "your answer starts server tiny (uvx tiny-server)" in shown
    assert not (tmp_path / "uv").exists()
    assert "server tiny: trusted 1 tool: tiny__hello" in trust(crib)
    assert hello(crib) == "1.0"
    assert not marker.exists()
    [folder] = programs(crib)
    listed = json.loads(toolcrib(crib, "servers", "list", "--json").stdout)["servers"][0]
    assert f"read {folder} (its program)" in listed["grants"]
    # The package is not looked up again: neither its versions nor the launcher are needed.
    wheel(tmp_path / "wheels", "2.0")
    shutil.rmtree(tmp_path / "uv")
    assert hello(crib, PATH="/usr/bin:/bin") == "1.0"
    assert "Nothing waits for trust." in trust(crib)
    assert (hello(crib), programs(crib)) == ("1.0", [folder])


def test_npx_is_resolved_at_trust_and_runs_nothing_of_the_package(
    crib: Crib, tmp_path: Path, registry: dict[str, bytes]
) -> None:
    marker, programs_of_it = str(tmp_path / "ran"), ("sh", "node", "env", "npm")
    scripts = dict.fromkeys(("preinstall", "install", "postinstall", "prepare"), f"echo ran > {marker}")
    bins = {"tiny-npm": "index.js", **dict.fromkeys(programs_of_it, "evil.sh")}
    published(registry, marker=marker, scripts=scripts, bin=bins)
    named(crib, "npx", "-y", "tiny-npm")
    assert "server tiny: trusted 1 tool: tiny__hello" in trust(crib)
    assert hello(crib) == "1.0.0"
    assert not Path(marker).exists()
    published(registry, "2.0.0")
    assert hello(crib) == "1.0.0"
    trust(crib)
    assert hello(crib) == "1.0.0"
    # Taken back and given again, it is downloaded anew; what was there before goes.
    before = programs(crib)
    assert toolcrib(crib, "trust", "--revoke", "server:tiny").returncode == 0
    assert "toolcrib trust tiny" in hello(crib)
    trust(crib, "tiny")
    assert hello(crib) == "2.0.0"
    assert len(programs(crib)) == 1
    assert programs(crib) != before


def test_a_folder_that_is_gone_and_a_changed_line_need_trust_again(crib: Crib, tmp_path: Path) -> None:
    wheel(tmp_path / "wheels")
    wheel(tmp_path / "wheels", "2.0")
    named(crib, "uvx", "tiny-server@1.0")
    trust(crib)
    assert hello(crib) == "1.0"
    [folder] = programs(crib)
    shutil.rmtree(folder)
    refused = toolcrib(crib, "run", "tiny__hello").stderr
    assert f"the package tiny-server is gone from {folder}" in refused
    assert "To download it, without running any of its code: toolcrib trust tiny" in refused
    assert programs(crib) == []
    trust(crib, "tiny")
    assert hello(crib) == "1.0"
    named(crib, "uvx", "--with", "tiny-server<3", "--from", "tiny-server>1", "tiny-server", "x.db")
    assert toolcrib(crib, "run", "tiny__hello").returncode == 5
    assert len(programs(crib)) == 1
    trust(crib)
    assert hello(crib) == "2.0"
    assert len(programs(crib)) == 1


def test_a_package_in_the_projects_own_node_modules_comes_first(
    crib: Crib, registry: dict[str, bytes]
) -> None:
    published(registry, "2.0.0")
    about = {"name": "tiny-npm", "version": "1.5.0", "bin": "index.js"}
    crib.write("node_modules/tiny-npm/package.json", json.dumps(about))
    script = crib.write("node_modules/tiny-npm/index.js", NODE_SERVER.replace("VERSION", "ours"))
    named(crib, "npx", "tiny-npm")
    trust(crib)
    assert (hello(crib), programs(crib)) == ("ours", [])
    script.write_text(NODE_SERVER.replace("VERSION", "theirs"))
    assert "node_modules/tiny-npm/index.js" in toolcrib(crib, "trust", "--show").stdout
    assert toolcrib(crib, "run", "tiny__hello").returncode == 5
    trust(crib)
    assert hello(crib) == "theirs"
    shutil.rmtree(crib.root / "node_modules")  # The settings start something else then.
    assert toolcrib(crib, "run", "tiny__hello").returncode == 5
    trust(crib)
    assert hello(crib) == "2.0.0"
    # A line that names another version does not mean that one.
    crib.write("node_modules/tiny-npm/package.json", json.dumps(about))
    crib.write("node_modules/tiny-npm/index.js", NODE_SERVER.replace("VERSION", "ours"))
    named(crib, "npx", "-y", "tiny-npm@2.0.0")
    trust(crib)
    assert hello(crib) == "2.0.0"


def test_a_lock_is_accepted_where_its_packages_are_downloaded(crib: Crib, tmp_path: Path) -> None:
    wheel(tmp_path / "wheels")
    named(crib, "uvx", "tiny-server")
    trust(crib)
    digest = json.loads(toolcrib(crib, "trust", "--lock", "--json").stdout)["sha256"]
    (tmp_path / "ci.yml").write_text(decides(crib.root, "trust"))
    ci = {"TOOLCRIB_DATA": str(tmp_path / "ci"), "TOOLCRIB_CONFIG": str(tmp_path / "ci.yml")}
    offline = toolcrib(crib, "trust", "--locked", digest, **ci, UV_FIND_LINKS=str(tmp_path))
    assert offline.returncode == 1
    assert "server tiny cannot start: its package could not be downloaded:" in offline.stderr
    assert "toolcrib trust tiny" in hello(crib, **ci)
    done = toolcrib(crib, "trust", "--locked", digest, **ci)
    assert done.returncode == 0, done.stderr
    assert hello(crib, **ci) == "1.0"


def test_what_cannot_be_downloaded_is_told_and_does_not_start(crib: Crib, tmp_path: Path) -> None:
    wheel(tmp_path / "wheels")
    named(crib, "uvx", "not-there")
    failed = toolcrib(crib, "trust", "--yes")
    assert failed.returncode == 1
    assert "its package could not be downloaded:" in failed.stderr
    assert "not-there was not found" in failed.stderr
    named(crib, "uvx", "--from", "tiny-server", "other")
    failed = toolcrib(crib, "trust", "--yes")
    assert "the package tiny-server has no program other" in failed.stderr
    assert programs(crib) == []
    added = toolcrib(crib, "servers", "add", "more", "--yes", "--", "uvx", "--index", "https://x.test", "x")
    assert (added.returncode, "--index of uvx is not supported" in added.stderr) == (1, True), added.stderr
    assert "more" not in (crib.root / ".mcp.json").read_text()
    added = toolcrib(crib, "servers", "add", "more", "--yes", "--", "uvx", "tiny-server")
    assert added.returncode == 0, added.stderr
    assert "server more: trusted 1 tool: more__hello" in added.stderr
    assert len(programs(crib)) == 1
    assert toolcrib(crib, "servers", "remove", "more", "--yes").returncode == 0
    assert programs(crib) == []


def test_what_would_have_to_be_built_is_refused(
    crib: Crib, tmp_path: Path, registry: dict[str, bytes]
) -> None:
    marker = tmp_path / "ran"
    setup = f"open({str(marker)!r}, 'w')\nfrom setuptools import setup\nsetup(name='tiny-source')\n"
    with tarfile.open(tmp_path / "wheels/tiny_source-1.0.tar.gz", "w:gz") as archive:
        for name, content in (("setup.py", setup), ("PKG-INFO", "Name: tiny-source\nVersion: 1.0\n")):
            entry = tarfile.TarInfo(f"tiny_source-1.0/{name}")
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content.encode()))
    named(crib, "uvx", "tiny-source")
    assert "has no usable wheels" in toolcrib(crib, "trust", "--yes").stderr
    depends = tmp_path / "depends"
    depends.mkdir()
    about = {"name": "depends", "version": "1.0.0", "scripts": {"prepare": f"echo ran > {marker}"}}
    (depends / "package.json").write_text(json.dumps(about))
    subprocess.run(["git", "init", "-q", depends], check=True)
    subprocess.run(["git", "-C", depends, "add", "."], check=True)
    who = ("-c", "user.name=ann", "-c", "user.email=ann@example.com")
    subprocess.run(["git", "-C", depends, *who, "commit", "-qm", "first"], check=True)
    published(registry, dependencies={"depends": f"git+file://{depends}"})
    named(crib, "npx", "tiny-npm")
    toolcrib(crib, "trust", "--yes")  # An old npm downloads it, and does not prepare it.
    assert not marker.exists()


def test_nobody_but_a_person_has_a_package_downloaded(crib: Crib, tmp_path: Path) -> None:
    wheel(tmp_path / "wheels")
    named(crib, "uvx", "tiny-server")
    trust(crib)
    shutil.rmtree(programs(crib)[0])
    (tmp_path / "none.yml").write_text("")
    refused = toolcrib(crib, "trust", "--yes", TOOLCRIB_CONFIG=str(tmp_path / "none.yml"))
    assert refused.returncode == 5
    assert programs(crib) == []
