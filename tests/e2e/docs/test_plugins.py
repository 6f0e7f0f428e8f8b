"""Kinds and formats of installed packages: the example package, and packages that are broken or clash."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.crib import Crib

PACKAGE = Path(__file__).parents[3] / "examples" / "kind_package"
NAME = {"name": {"type": "string", "description": "Whom to greet"}}


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example package, built and installed into a folder without a network."""
    folder = tmp_path_factory.mktemp("plugins")
    source = shutil.copytree(PACKAGE, folder / "source")
    command = [
        sys.executable,
        "-m",
        "uv",
        "pip",
        "install",
        "--quiet",
        "--offline",
        "--no-deps",
        "--no-index",
    ]
    target = ["--no-build-isolation", "--python", sys.executable, "--target", str(folder / "site")]
    subprocess.run([*command, *target, str(source)], check=True, cwd=folder)
    return folder / "site"


def toolcrib(crib: Crib, site: Path, *arguments: str) -> tuple[int, str, str]:
    environ = {**os.environ, "PYTHONPATH": str(site), "NO_COLOR": "1"}
    command = [sys.executable, "-m", "toolcrib", *arguments]
    ran = subprocess.run(command, cwd=crib.root, env=environ, capture_output=True, text=True, check=False)
    return ran.returncode, ran.stdout, ran.stderr


def plugin(folder: Path, point: str, code: str, group: str = "toolcrib.kinds") -> Path:
    """A package as it lies on disk once it is installed."""
    facts = folder / "other-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text(f"[{group}]\n{point}\n")
    (folder / "other.py").write_text(code)
    return folder


def test_a_tool_of_an_installed_kind_runs_and_is_checked(crib: Crib, installed: Path) -> None:
    crib.tool("greet", "greeting", {"text": "Hello, ${name}!", "loud": True}, NAME)
    assert toolcrib(crib, installed, "run", "greet", "name=Ada")[:2] == (0, "HELLO, ADA!\n")
    assert toolcrib(crib, installed, "lint")[0] == 0

    crib.tool("wrong", "greeting", {"text": "${nobody}"}, NAME)
    crib.tool("worse", "greeting", {"txt": "a"}, NAME)
    code, out, _ = toolcrib(crib, installed, "lint", "--format", "json")
    found = {one["rule"]: one for one in json.loads(out)["diagnostics"]}
    assert code == 4
    assert found["placeholder"]["where"] == "$.exec.greeting.text"
    assert found["unknown-key"]["hint"] == "did you mean `text`?"


def test_without_the_package_the_kind_is_an_error(crib: Crib, tmp_path: Path) -> None:
    crib.tool("greet", "greeting", {"text": "Hello"})
    code, out, err = toolcrib(crib, tmp_path, "lint")
    assert code == 4
    assert "greeting" in out + err


def test_a_file_of_an_installed_format_is_read(crib: Crib, installed: Path) -> None:
    file = crib.write("more/greetings.yaml", "greetings:\n  hail: Hail, ${name}!\n  bow: Good day.\n")
    code, out, _ = toolcrib(crib, installed, "convert", "--to", "native", "--only", "hail", str(file))
    assert code == 0
    assert "text: Hail, ${name}!" in out

    crib.write(".toolcrib/config.yml", "sources: [{dir: more, dialect: greetings}]\n")
    toolcrib(crib, installed, "trust", "--yes")
    assert toolcrib(crib, installed, "run", "hail", "name=Ada")[:2] == (0, "Hail, Ada!\n")
    assert toolcrib(crib, installed, "run", "bow")[:2] == (0, "Good day.\n")


@pytest.mark.parametrize(
    ("point", "code", "expected"),
    [
        ("greeting = other:KIND", "raise RuntimeError('half installed')", "half installed"),
        ("greeting = other:KIND", "KIND = 'a text'", "not a Kind named 'greeting'"),
        ("http = other:KIND", "KIND = 1", "Toolcrib itself both define 'http'"),
    ],
)
def test_a_broken_or_clashing_package_is_a_finding(
    crib: Crib, tmp_path: Path, point: str, code: str, expected: str
) -> None:
    crib.tool("greet", "greeting", {"text": "Hello"})
    crib.shell()
    site = tmp_path / "site"
    site.mkdir()
    status, out, err = toolcrib(crib, plugin(site, point, code), "lint")
    assert status == 4
    assert expected in out + err
    assert "package other" in out + err
