"""`secrets` in a project's settings: the sources that are asked for a secret, one after the other."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toolcrib.guard import (
    ChainedSecrets,
    CommandSecrets,
    EnvFileSecrets,
    EnvironmentSecrets,
    FolderSecrets,
    KeyringSecrets,
)
from toolcrib.project.config.reader import KeyPath, Read, Reader, number, texts
from toolcrib.spec import SecretSource

__all__ = [
    "ENVIRONMENT",
    "SourceSetting",
    "helper_code",
    "helper_folders",
    "helper_programs",
    "hidden_paths",
    "open_sources",
    "read_secret_sources",
]


@dataclass(frozen=True, slots=True)
class SourceSetting:
    """One entry of `secrets.sources`; what its kind does not have stays empty."""

    kind: str
    path: str = ""
    service: str = ""
    argv: tuple[str, ...] = ()
    timeout_ms: int = 10_000
    cache_s: float = 60.0


ENVIRONMENT = (SourceSetting("env"),)
"""The sources of a project that sets none."""


def _text(reader: Reader, value: Any, at: KeyPath) -> str:
    if not isinstance(value, str) or "\0" in value:
        raise reader.misfit(at, f"needs `{at[-1]}`, a text")
    return value


_KINDS: Mapping[str, Mapping[str, Read]] = {
    "command": {"argv": texts, "timeout_ms": number(1, 60_000), "cache_s": number(0, 86_400, whole=False)},
    "env": {},
    "env_file": {"path": _text},
    "folder": {"path": _text},
    "keyring": {"service": _text, "cache_s": number(0, 86_400, whole=False)},
}
"""Kinds of sources and their options; those in `_NEEDED` are required."""
_NEEDED = {"argv": "the program and its arguments", "path": "a text", "service": "a text"}
_EXAMPLE = "for example `- env: {}` or `- env_file: {path: .env}`"


def read_secret_sources(reader: Reader, value: Any, at: KeyPath) -> tuple[SourceSetting, ...]:
    """Read `secrets.sources`."""
    if not isinstance(value, list) or not value:
        raise reader.misfit(at, "must be a list with at least one source", _EXAMPLE, "wrong-type")
    return tuple(_source(reader, item, (*at, n)) for n, item in enumerate(value))


def _source(reader: Reader, value: Any, at: KeyPath) -> SourceSetting:
    entry = reader.mapping(value, at, tuple(_KINDS))
    if len(entry) != 1:
        raise reader.misfit(at, f"must name one source: {', '.join(_KINDS)}", _EXAMPLE)
    ((kind, options),) = entry.items()
    at, known = (*at, kind), _KINDS[kind]
    block = reader.mapping(options, at, tuple(known))
    for key in _NEEDED.keys() & known.keys():
        if not block.get(key):
            raise reader.misfit((*at, key) if key in block else at, f"needs `{key}`, {_NEEDED[key]}")
    return SourceSetting(kind, **{key: known[key](reader, block[key], (*at, key)) for key in block})


def open_sources(settings: Sequence[SourceSetting], root: Path) -> SecretSource:
    """The sources of a project at `root`, from which relative paths start. Nothing is read or run yet."""
    sources = [_OPEN[setting.kind](setting, root) for setting in settings]
    return sources[0] if len(sources) == 1 else ChainedSecrets(sources)


def _command(setting: SourceSetting, root: Path) -> SecretSource:
    program, *arguments = setting.argv
    if "/" in program:
        program = str(root / program)
    return CommandSecrets([program, *arguments], setting.timeout_ms / 1000, keep=setting.cache_s, cwd=root)


_OPEN: Mapping[str, Callable[[SourceSetting, Path], SecretSource]] = {
    "command": _command,
    "env": lambda _, __: EnvironmentSecrets(),
    "env_file": lambda setting, root: EnvFileSecrets(root / setting.path),
    "folder": lambda setting, root: FolderSecrets(root / setting.path),
    "keyring": lambda setting, _: KeyringSecrets(setting.service, keep=setting.cache_s),
}


def hidden_paths(settings: Sequence[SourceSetting], root: Path) -> tuple[str, ...]:
    """Files and folders that hold secrets: no tool may see them, whatever it is granted.

    Each as it is written and as it really is, absolute: one of them may be a link to the other.
    """
    written = [os.path.normpath(root / s.path) for s in settings if s.kind in ("env_file", "folder")]
    return tuple(dict.fromkeys(form for path in written for form in (path, os.path.realpath(path))))


def helper_programs(settings: Sequence[SourceSetting], root: Path) -> tuple[str, ...]:
    """Helper commands and the files among their arguments, links not followed: no tool may write them."""
    found: dict[str, None] = {}
    for setting in settings:
        for n, word in enumerate(setting.argv):
            path = root / word
            if ("/" in word or n > 0) and os.path.isfile(path):  # noqa: PTH113 - a Path fails for what is no name
                found[str(path)] = None
    return tuple(found)


def helper_folders(settings: Sequence[SourceSetting], root: Path) -> dict[str, str]:
    """Folders of the project, as real paths, that helper commands load code from; each with what is run.

    What a script imports lies beside it, and whatever is put there is found first.
    """
    found: dict[str, str] = {}
    for argv in (setting.argv for setting in settings if setting.argv):
        told = " ".join(argv[:3])
        words = [path for part, path in helper_code(argv, root) if part != "venv"]
        for path in (root / word for word in words):
            folders = [path.parent, Path(os.path.realpath(path)).parent]
            if (path.parent.parent / "pyvenv.cfg").is_file():
                folders.append(path.parent.parent)
            found |= {os.path.realpath(folder): told for folder in folders}
        if _searches_root(argv, words):
            # It looks for modules in its working folder, the root, before anywhere else.
            package = argv[argv.index("-m") + 1].partition(".")[0] if "-m" in argv[:-1] else ""
            found |= {os.path.realpath(folder): told for folder in (root, root / package) if folder.is_dir()}
    return {folder: told for folder, told in found.items() if Path(folder).is_relative_to(root)}


def _searches_root(argv: Sequence[str], code: Sequence[str]) -> bool:
    """Return True for a Python that looks for modules in its working folder before anywhere else."""
    is_python = os.path.basename(argv[0]).startswith("python")  # noqa: PTH119
    return is_python and (not code or "-m" in argv) and not {"-I", "-P"} & set(argv)


def helper_code(argv: Sequence[str], root: Path) -> list[tuple[str, str]]:
    """Return the files of code inside the project that a command line starts: kind, and path as written."""
    from toolcrib.executors.command.code_files import code_files
    from toolcrib.sandbox.files.paths import Paths

    paths = Paths()
    found = code_files(argv, str(root), ".", paths)
    return [
        (part, path)
        for part, path, _ in found
        if paths.exists(str(root / path)) and _is_ours(root / path, root)
    ]


def _is_ours(path: Path, root: Path) -> bool:
    """Return True for a path in the project, or one that a link in the project leads to."""
    return any(Path(one).is_relative_to(root) for one in (os.path.normpath(path), os.path.realpath(path)))
