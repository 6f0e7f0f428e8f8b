from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from toolcrib.state.installation import command_for, install_hint

INDEX: dict[str, Any] = {}
FOLDER = {"url": "file:///src/my%20tool", "dir_info": {}}
CHECKOUT = {"url": "file:///src/toolcrib", "dir_info": {"editable": True}}
GIT = {"url": "https://example.com/toolcrib.git", "vcs_info": {"vcs": "git", "commit_id": "0"}}


@pytest.mark.parametrize(
    ("origin", "what"),
    [
        (INDEX, "'toolcrib[web]'"),
        (FOLDER, "'/src/my tool[web]'"),
        (CHECKOUT, "-e '/src/toolcrib[web]'"),
        (GIT, "'toolcrib[web] @ git+https://example.com/toolcrib.git'"),
    ],
)
def test_an_environment_with_and_without_pip(tmp_path: Path, origin: dict[str, Any], what: str) -> None:
    assert (
        command_for("web", tmp_path, origin, "/v/bin/python", has_pip=True)
        == f"/v/bin/python -m pip install {what}"
    )
    found = command_for("web", tmp_path, origin, "/v x/bin/python", has_pip=False)
    assert found == f"uv pip install --python '/v x/bin/python' {what}"


def test_a_tool_of_uv_keeps_its_extras(tmp_path: Path) -> None:
    receipt = tmp_path / "uv-receipt.toml"
    receipt.write_text('[tool]\nrequirements = [{ name = "toolcrib", extras = ["mcp", "http"] }]\n')
    assert (
        command_for("web", tmp_path, INDEX, "p", has_pip=False) == "uv tool install 'toolcrib[http,mcp,web]'"
    )
    for broken in ("", "[", "[tool]\nrequirements = 1\n", '[tool]\nrequirements = [{ name = "other" }]\n'):
        receipt.write_text(broken)
        assert (
            command_for("web", tmp_path, CHECKOUT, "p", has_pip=False)
            == "uv tool install -e '/src/toolcrib[web]'"
        )


def test_a_tool_of_pipx_keeps_its_extras(tmp_path: Path) -> None:
    for spec, extras in (
        ("toolcrib", "web"),
        ("toolcrib[http, mcp]", "http,mcp,web"),
        ("/src[http]", "http,web"),
    ):
        (tmp_path / "pipx_metadata.json").write_text(json.dumps({"main_package": {"package_or_url": spec}}))
        assert (
            command_for("web", tmp_path, INDEX, "p", has_pip=True)
            == f"pipx install --force 'toolcrib[{extras}]'"
        )


def test_an_environment_of_uvx_is_named_at_the_next_start(tmp_path: Path) -> None:
    prefix = tmp_path / "uv/archive-v0/x8f2"
    assert command_for("web", prefix, INDEX, "p", has_pip=False) == "uvx --from 'toolcrib[web]' toolcrib"


def test_the_command_is_for_the_installation_that_runs() -> None:
    assert sys.executable in install_hint("web")
    assert "[web]" in install_hint("web")
