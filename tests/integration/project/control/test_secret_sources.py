"""Secrets from a project's own sources, through the whole call path and the real sandbox."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.crib import Crib
from toolcrib import Project, Result

pytestmark = pytest.mark.usefixtures("kernel")

VALUE = "s3cr3t-value"
SOURCES = """
secrets:
  sources:
    - env_file: {path: conf/keys.env}
    - folder: {path: mounted}
    - command: {argv: [bin/helper]}
"""


@pytest.fixture
def kept(crib: Crib) -> Crib:
    """A project with three sources inside of it, and a shell that may read and write all of it."""
    crib.write(".toolcrib/config.yml", SOURCES)
    crib.trust()
    crib.write("conf/keys.env", f"FROM_FILE={VALUE}-1\n")
    crib.write("mounted/FROM_FOLDER", f"{VALUE}-2\n")
    crib.write("bin/helper", f'#!/bin/sh\n[ "$1" = FROM_COMMAND ] && echo {VALUE}-3; true\n', 0o755)
    fs = {"read": ["."], "write": ["."]}
    crib.shell(permissions={"fs": fs})
    names: dict[str, Any] = {name: {} for name in ("FROM_FILE", "FROM_FOLDER", "FROM_COMMAND")}
    crib.shell("keyed", permissions={"fs": fs, "secrets": names})
    return crib


def call(crib: Crib, tool: str, script: str) -> Result:
    async def once() -> Result:
        async with Project.open(crib.root, accept="all") as project:
            return await project.call(tool, {"c": f"{{ {script}\n}} 2>&1; true"})

    return asyncio.run(once())


def test_a_tool_gets_what_it_declares_and_no_other_gets_any(kept: Crib) -> None:
    told = 'printf "%s|" "$FROM_FILE" "$FROM_FOLDER" "$FROM_COMMAND" | rev'
    assert call(kept, "keyed", told).unwrap() == "|3-eulav-t3rc3s|2-eulav-t3rc3s|1-eulav-t3rc3s"
    assert call(kept, "sh", told).unwrap() == "|||"
    masked = call(kept, "keyed", "echo $FROM_FILE $FROM_FOLDER $FROM_COMMAND | tee /proc/self/fd/2")
    assert VALUE not in str(masked.as_dict())
    assert "***FROM_COMMAND***" in str(masked.value)
    assert VALUE not in (kept.home / "audit/tools.log").read_text()


@pytest.mark.parametrize("tool", ["sh", "keyed"])
def test_no_tool_sees_the_files_or_changes_the_helper(kept: Crib, tool: str) -> None:
    seen = call(
        kept, tool, "rev conf/keys.env; rev mounted/*; cat mounted/FROM_FOLDER; ls mounted; echo end"
    ).unwrap()
    assert "t3rc3s" not in seen
    assert VALUE not in seen
    assert "FROM_FOLDER\n" not in seen
    assert seen.endswith("end\n")
    call(kept, tool, "echo evil >bin/helper; rm -f bin/helper; mv bin/helper bin/other; mv bin other")
    assert "evil" not in (kept.root / "bin/helper").read_text()
    call(kept, tool, "echo FROM_FILE=evil >conf/keys.env; mv conf/keys.env x; rm -rf mounted")
    assert VALUE in (kept.root / "conf/keys.env").read_text()
    assert VALUE in (kept.root / "mounted/FROM_FOLDER").read_text()


def test_a_file_tool_does_not_read_them_either(kept: Crib) -> None:
    for path in ("conf/keys.env", "mounted/FROM_FOLDER"):
        name = path.partition("/")[0]
        kept.tool(name, "file", {"action": "read", "path": path}, permissions={"fs": {"read": ["."]}})
        result = asyncio.run(read(kept, name))
        assert result.error is not None
        assert VALUE not in str(result.as_dict())


async def read(crib: Crib, name: str) -> Result:
    async with Project.open(crib.root, accept="all") as project:
        return await project.call(name)


def test_an_unreadable_source_stops_the_call_and_no_other_tool(kept: Crib) -> None:
    kept.write("conf/keys.env", "no line of a file\n")
    result = call(kept, "keyed", "echo ran >ran")
    assert result.error is not None
    assert result.error.code == "secret_missing"
    assert "line 1 is not NAME=value" in result.error.message
    assert not (kept.root / "ran").exists()
    assert call(kept, "sh", "echo fine").unwrap() == "fine\n"


@pytest.fixture
def keyring(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A home folder of a person with a key of GnuPG; short, because its agent listens on a socket there."""
    if shutil.which("gpg") is None:
        pytest.skip("GnuPG is not installed")
    with tempfile.TemporaryDirectory(prefix="h", ignore_cleanup_errors=True) as folder:
        monkeypatch.setenv("HOME", folder)
        monkeypatch.setenv("GNUPGHOME", f"{folder}/g")
        Path(folder, "g").mkdir(mode=0o700)
        gpg("--pinentry-mode", "loopback", "--passphrase", "", "--quick-gen-key", "ann", "default", "default")
        yield Path(folder)
        subprocess.run(["gpgconf", "--kill", "all"], check=True)


def gpg(*words: str, said: str = "") -> str:
    return subprocess.run(
        ["gpg", "--batch", "--quiet", *words], input=said, capture_output=True, text=True, check=True
    ).stdout


@pytest.mark.parametrize("helper", ["gpg", "pass"])
def test_a_real_password_store_gives_secrets_that_no_tool_sees(
    crib: Crib, keyring: Path, helper: str
) -> None:
    if shutil.which(helper) is None:
        pytest.skip(f"{helper} is not installed")
    store = {"gpg": crib.root / "API_TOKEN", "pass": keyring / ".password-store/API_TOKEN.gpg"}[helper]
    store.parent.mkdir(exist_ok=True)
    (store.parent / ".gpg-id").write_text("ann\n")
    gpg("--trust-model", "always", "-r", "ann", "-o", os.fspath(store), "-e", said=f"{VALUE}-4\n")
    argv = {"gpg": ["gpg", "--batch", "--quiet", "-d"], "pass": ["pass", "show"]}[helper]
    command = {"argv": argv, "confined": False, "timeout_ms": 60_000}
    crib.write(".toolcrib/config.yml", json.dumps({"secrets": {"sources": [{"command": command}]}}))
    crib.shell("keyed", permissions={"secrets": {"API_TOKEN": {}}})
    script = f"echo $API_TOKEN $API_TOKEN | rev; echo $API_TOKEN; ls {keyring}; ls {keyring}/g"
    seen = str(call(crib, "keyed", script).unwrap())
    assert seen.startswith("4-eulav-t3rc3s 4-eulav-t3rc3s\n***API_TOKEN***\n")
    assert seen.count("No such file") == 2
    assert VALUE not in (crib.home / "audit/tools.log").read_text()
