"""The command that adds an extra to the installation that runs."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit


def install_hint(extra: str) -> str:
    """Return the advice to install an extra, for an error."""
    return f"Install it: {install_command(extra)}"


def install_command(extra: str) -> str:
    """Return the command that adds an extra to this installation."""
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        origin = json.loads(distribution("toolcrib").read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, OSError, ValueError):
        origin = {}
    return command_for(extra, Path(sys.prefix), origin, sys.executable, has_pip=find_spec("pip") is not None)


def command_for(extra: str, prefix: Path, origin: Mapping[str, Any], python: str, *, has_pip: bool) -> str:
    """Return the command that adds an extra to the environment at `prefix`.

    That is one of `uv tool`, pipx, uvx or a virtual environment. `origin` says where the package is from
    (`direct_url.json` of the Python packaging specifications); it is empty for one from an index.
    """
    receipt, metadata = prefix / "uv-receipt.toml", prefix / "pipx_metadata.json"
    if receipt.exists():  # These two install anew, so what is there already is named too.
        return f"uv tool install {_requirement({extra, *_of_receipt(receipt)}, origin)}"
    if metadata.exists():
        return f"pipx install --force {_requirement({extra, *_of_metadata(metadata)}, origin)}"
    if prefix.parent.name.startswith("archive-v"):  # uvx keeps its environments in uv's cache.
        return f"uvx --from {_requirement({extra}, origin)} toolcrib"
    what = _requirement({extra}, origin)
    if has_pip:
        return f"{shlex.quote(python)} -m pip install {what}"
    return f"uv pip install --python {shlex.quote(python)} {what}"


def _requirement(extras: set[str], origin: Mapping[str, Any]) -> str:
    """Return the package with these extras, from where it was installed."""
    names, url = ",".join(sorted(extras)), origin.get("url", "")
    if "dir_info" in origin:
        from urllib.request import url2pathname

        place = shlex.quote(f"{url2pathname(urlsplit(url).path)}[{names}]")
        return f"-e {place}" if origin["dir_info"].get("editable") else place
    if url:
        vcs = origin.get("vcs_info", {}).get("vcs")
        return shlex.quote(f"toolcrib[{names}] @ {f'{vcs}+' if vcs else ''}{url}")
    return shlex.quote(f"toolcrib[{names}]")


def _of_receipt(path: Path) -> list[str]:
    import tomllib

    try:
        wanted = tomllib.loads(path.read_text())["tool"]["requirements"]
        return [extra for one in wanted if one["name"] == "toolcrib" for extra in one.get("extras", ())]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def _of_metadata(path: Path) -> list[str]:
    try:
        spec = str(json.loads(path.read_text())["main_package"]["package_or_url"])
    except (OSError, ValueError, KeyError, TypeError):
        return []
    extras = spec.partition("[")[2].partition("]")[0]
    return [extra.strip() for extra in extras.split(",")] if extras else []
