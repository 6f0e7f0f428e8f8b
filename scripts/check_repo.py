"""Refuse files that only make sense on one machine: registry addresses, private paths, build products."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MAX_BYTES = 1_000_000

ALLOW = "check_repo: allow"
"""A line with this comment is allowed. The reason follows the comment."""

# Each pattern has one letter in brackets, so that this file does not match itself.
FORBIDDEN_TEXT = {
    "package registry address": re.compile(
        r"py[p]i\.(?:org|python)|pythonhoste[d]\.org|npm[j]s\.(?:org|com)|yarnpk[g]\.com"
        r"|crate[s]\.io|proxy\.golan[g]\.org|(?:deb|security|ftp)\.debia[n]\.org"
    ),
    "path of one machine": re.compile(r"(?<![\w.}-])/(?:hom[e]/[a-z]|roo[t]/|wor[k]/|User[s]/[a-z])"),
    "conflict marker": re.compile(r"^(?:<{7}|>{7}) "),
}
LOCK_ADDRESS = re.compile(r"https?:|file:|find-links|index-url")
FORBIDDEN_FILES = re.compile(
    r"(?:^|/)(?:\.venv|node_modules|__pycache__|dist|build)/|(?:^|/)uv\.lock$|\.(?:whl|pyc)$|\.egg-info/"
)
EXECUTABLE = (".ci/run",)


def repository_files() -> list[Path]:
    """List the files that git tracks or would add. Without git, list all files outside hidden folders."""
    git = shutil.which("git")
    if git and (ROOT / ".git").exists():
        command = [git, "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        listing = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
        names = [name for name in listing.split("\0") if name]
    else:
        paths = (path.relative_to(ROOT) for path in ROOT.rglob("*"))
        hidden = re.compile(r"(?:^|/)(?:\.(?!ci/)[^/]+|__pycache__)/|^uv\.lock$")
        names = [str(path) for path in paths if not hidden.search(str(path))]
    return sorted(path for path in map(ROOT.joinpath, names) if path.is_file() and not path.is_symlink())


def findings(path: Path) -> Iterator[str]:
    """Yield one line for each thing that must not be in the repository."""
    name = str(path.relative_to(ROOT))
    if FORBIDDEN_FILES.search(name):
        yield f"{name}: build product or environment"
    data = path.read_bytes()
    if len(data) > MAX_BYTES:
        yield f"{name}: {len(data):,} bytes, at most {MAX_BYTES:,} are allowed"
    if name in EXECUTABLE and not path.stat().st_mode & 0o100:
        yield f"{name}: not executable"
    if b"\0" in data:
        return
    for number, line in enumerate(data.decode("utf-8", "replace").splitlines(), 1):
        if ALLOW in line:
            continue
        for what, pattern in FORBIDDEN_TEXT.items():
            if pattern.search(line):
                yield f"{name}:{number}: {what}: {line.strip()[:100]}"
        if name.endswith(".lock") and LOCK_ADDRESS.search(line):
            yield f"{name}:{number}: address in a lock file: {line.strip()[:100]}"


def main() -> int:
    """Print every finding, and return 1 if there are any."""
    files = repository_files()
    found = [line for path in files for line in findings(path)]
    for line in found:
        print(line)
    print(f"check_repo: {len(files)} files, {len(found)} findings")
    return 1 if found or not files else 0


if __name__ == "__main__":
    sys.exit(main())
