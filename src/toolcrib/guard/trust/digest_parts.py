"""The files outside its own folder that decide what a tool runs, by parts of its digest."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator

from toolcrib.errors import ToolUnavailable
from toolcrib.manifest.kinds import CodeFile, kind_of
from toolcrib.sandbox.files.paths import Paths
from toolcrib.spec import Tool


def code_of(tool: Tool, root: str, paths: Paths) -> Iterator[tuple[str, str]]:
    """Yield part and real path of each file outside its own folder that decides what a tool runs."""
    return code_parts(kind_of(tool).code(tool, root, paths), root, paths)


def code_parts(files: Iterable[CodeFile], root: str, paths: Paths) -> Iterator[tuple[str, str]]:
    """Yield part and real path of each of these files; of a virtual environment those that define it."""
    for part, path, _ in files:
        real = paths.real(os.path.join(root, path))
        if stat.S_ISREG(paths.leads_to(real)):
            yield part, real
        elif part == "venv":
            yield from ((part, one) for one in _environment(path, real, paths))
        # Any other file is missing: adding it changes the digest.


def _environment(written: str, folder: str, paths: Paths) -> Iterator[str]:
    """Yield the files that define the packages of a virtual environment.

    They are its settings, each package's list of files with their digests (RECORD), and the files that Python
    runs when it starts (`.pth`).
    """
    settings = f"{folder}/pyvenv.cfg"
    if not stat.S_ISREG(paths.leads_to(settings)):
        raise ToolUnavailable(
            f"the virtual environment {written!r} does not exist ({folder})",
            hint=f"Create it: python3 -m venv {written}",
            details={"path": folder},
        )
    yield settings
    yield paths.real(f"{folder}/bin/python")
    for site in sorted(_sites(folder, paths)):
        for name in paths.names(site):
            path = f"{site}/{name}"
            if name.endswith(".dist-info"):
                lists = (f"{path}/{one}" for one in ("RECORD", "METADATA"))
                yield next((one for one in lists if paths.exists(one)), path)
            elif name.endswith((".pth", ".py", ".egg-link")):
                yield path


def _sites(folder: str, paths: Paths) -> set[str]:
    """Return the real folders of installed packages."""
    libraries = [f"{folder}/{name}" for name in paths.names(folder) if name.startswith("lib")]
    versions = [
        f"{lib}/{name}" for lib in libraries for name in paths.names(lib) if name.startswith("python")
    ]
    sites = (f"{version}/site-packages" for version in versions)
    return {paths.real(site) for site in sites if paths.is_folder(site)}
