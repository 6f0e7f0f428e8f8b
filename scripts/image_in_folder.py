"""Run the steps of deploy/Containerfile on a copy of this machine's files, then a command as the image would.

    scripts/image_in_folder.py FOLDER doctor

For machines where no base image can be had. It needs root. The files of this machine stand for those of the
base image; what the steps change is in FOLDER, and remains there.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CONTEXT = ("deploy", "examples", "frontend", "scripts", "src")
"""The folders that the build needs, besides the files beside them."""


def steps(text: str) -> Iterator[tuple[str, str]]:
    """Yield the instructions of a Containerfile with their arguments."""
    lines = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    for line in re.sub(r"\\\n\s*", "", lines).splitlines():
        if line.strip():
            name, _, rest = line.partition(" ")
            yield name, rest.strip()


class Stage:
    """The files of one stage: this machine's, and what its steps have changed."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "root"
        for name in ("root", "changed", "work"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        layers = f"lowerdir=/,upperdir={folder / 'changed'},workdir={folder / 'work'}"
        _run("mount", "-t", "overlay", "overlay", "-o", layers, str(self.root))
        for name in ("dev", "proc", "sys"):
            _run("mount", "--rbind", f"/{name}", str(self.root / name))
        # The interpreter of this machine may be in a folder of root's.
        (self.root / "root").chmod(0o711)
        self.workdir, self.user = "/", "0:0"
        self.environment: dict[str, str] = {}
        self.entrypoint: list[str] = []

    def run(self, *argv: str) -> None:
        """Run a command in the stage, as its user."""
        given = {**os.environ, **self.environment}
        inside = 'cd "$0" && exec "$@"'
        words = ["chroot", f"--userspec={self.user}", "--groups=", str(self.root), "sh", "-c", inside]
        _run(*words, self.workdir, *argv, env=given)

    def copy(self, source: Path, target: str) -> None:
        """Copy a folder, or the files of this project, to a path in the stage."""
        to = self.root / target.lstrip("/")
        if source != ROOT:
            shutil.copytree(source, to, symlinks=True)
            return
        for one in ROOT.iterdir():
            if one.is_file():
                shutil.copy2(one, to)
            elif one.name in CONTEXT:
                ignored = shutil.ignore_patterns("node_modules", "__pycache__")
                shutil.copytree(one, to / one.name, ignore=ignored)


def build(folder: Path) -> Stage:
    """Run all steps and return the last stage."""
    stages: dict[str, Stage] = {}
    stage: Stage | None = None
    for name, rest in steps((ROOT / "deploy" / "Containerfile").read_text()):
        print(f"{name} {rest}", file=sys.stderr)
        words = shlex.split(rest)
        if name == "FROM":
            key = words[2] if "AS" in words else "image"
            stage = stages[key] = Stage(folder / key)
            continue
        assert stage is not None
        if name == "RUN":
            stage.run("sh", "-c", rest)
        elif name == "WORKDIR":
            stage.workdir = rest
            (stage.root / rest.lstrip("/")).mkdir(parents=True, exist_ok=True)
        elif name == "COPY" and words[0].startswith("--from="):
            source = stages[words[0].removeprefix("--from=")].root / words[1].lstrip("/")
            stage.copy(source, words[2])
        elif name == "COPY":
            stage.copy(ROOT, stage.workdir)
        elif name == "ENV":
            stage.environment |= _variables(words, {**os.environ, **stage.environment})
        elif name == "USER":
            stage.user = rest
        elif name == "ENTRYPOINT":
            stage.entrypoint = json.loads(rest)
        elif name != "CMD":
            raise SystemExit(f"unknown instruction {name}")
    assert stage is not None
    return stage


def _variables(words: list[str], known: Mapping[str, str]) -> dict[str, str]:
    pairs = (word.split("=", 1) for word in words)
    return {name: re.sub(r"\$(\w+)", lambda found: known.get(found[1], ""), text) for name, text in pairs}


def _run(*argv: str, env: Mapping[str, str] | None = None) -> None:
    subprocess.run(argv, env=env, check=True)


def main() -> None:
    """Build in a mount namespace of its own, which takes the mounts away at the end."""
    if "--inside" not in sys.argv:
        argv = ["unshare", "--mount", sys.executable, __file__, "--inside", *sys.argv[1:]]
        sys.exit(subprocess.run(argv, check=False).returncode)
    _, _, folder, *words = sys.argv
    stage = build(Path(folder).resolve())
    try:
        stage.run(*stage.entrypoint, *words)
    except subprocess.CalledProcessError as error:
        sys.exit(error.returncode)


if __name__ == "__main__":
    main()
