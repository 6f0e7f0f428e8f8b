"""Downloads of the packages that launchers of MCP servers lack, such as those of `uvx` and `npx`."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from toolcrib.cli.confirm import decide
from toolcrib.cli.output import print_note
from toolcrib.cli.progress import waiting
from toolcrib.errors import NotTrusted, ToolUnavailable

if TYPE_CHECKING:
    from toolcrib.manifest.dialects.mcp_servers import ServerSpec

_MOST_WHY = 400
"""Characters of a failed download's standard error that are shown, the last ones."""
_LIMIT_S = 600


def download(specs: Sequence[ServerSpec], root: Path, *, yes: bool) -> bool:
    """Ask once, then download the packages that these servers lack, without running any of their code.

    Returns False if nothing was downloaded. Raises ToolUnavailable if the download for a single server fails.
    """
    from toolcrib.executors.mcp.process.local import missing_package

    errors = [(spec, missing_package(spec, str(root))) for spec in specs]
    lines = [
        (spec, one, one.details["download"]) for spec, one in errors if one and "download" in one.details
    ]
    for _, error, line in lines:
        print_note(f"{error.message}. No code of it runs meanwhile:\n  {shlex.join(line)}")
    question = "Download it?" if len(lines) == 1 else f"Download these {len(lines)} packages?"
    if not lines or decide(question, "servers", yes=yes, refuse=NotTrusted) is None:
        return False
    with waiting("downloading") as say:
        for spec, error, line in lines:
            say(f"for {spec.name}")
            why = _run(line)
            if why is not None or missing_package(spec, str(root)) is not None:
                failure = ToolUnavailable(
                    f"the download failed: {why or 'it did not say why'}", hint=error.hint
                )
                if len(specs) == 1:
                    raise failure
                print_note(f"{spec.name}: {failure}")
    return True


def _run(line: Sequence[str]) -> str | None:
    """Run a download; return why it failed."""
    try:
        done = subprocess.run(line, cwd=Path.home(), capture_output=True, text=True, timeout=_LIMIT_S)  # noqa: PLW1510
    except (OSError, subprocess.TimeoutExpired) as failure:
        return str(failure)
    why = " ".join(done.stderr.split())
    return None if done.returncode == 0 else why if len(why) <= _MOST_WHY else f"…{why[-_MOST_WHY:]}"
