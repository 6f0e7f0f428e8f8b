"""`secrets` in a project's settings: the sources that are asked for a secret, one after the other."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolcrib.guard import ChainedSecrets, EnvFileSecrets, EnvironmentSecrets, FolderSecrets
from toolcrib.project.config.reader import KeyPath, Read, Reader, number, permissions, texts, truth
from toolcrib.project.config.started import CommandLine, code_named
from toolcrib.spec import Permissions, SecretSource
from toolcrib.spec.record import record

if TYPE_CHECKING:
    from toolcrib.guard.secrets.command_sources import StartHelper

_READS = Permissions(read=(".",))


@record
class SourceSetting:
    """One entry of `secrets.sources`; what its kind does not have stays empty."""

    kind: str
    path: str = ""
    service: str = ""
    argv: tuple[str, ...] = ()
    timeout_ms: int = 10_000
    cache_s: float = 60.0
    permissions: Permissions = _READS
    """The permissions of a confined helper command."""
    confined: bool = True
    """False: a helper command runs with all rights of its user; only one outside of the project may."""


ENVIRONMENT = (SourceSetting("env"),)
"""The sources of a project that sets none."""


def _text(reader: Reader, value: Any, at: KeyPath) -> str:
    if not isinstance(value, str) or "\0" in value:
        raise reader.misfit(at, f"needs `{at[-1]}`, a text")
    return value


_granted = permissions(("network", "fs", "env"), read_default=(".",))


def _permissions(reader: Reader, value: Any, at: KeyPath) -> Permissions:
    granted: Permissions = _granted(reader, value, at)
    if granted.write:
        raise reader.misfit((*at, "fs", "write"), "cannot be granted: a helper command only reads")
    return granted


_KINDS: Mapping[str, Mapping[str, Read]] = {
    "command": {
        "argv": texts,
        "timeout_ms": number(1, 60_000),
        "cache_s": number(0, 86_400, whole=False),
        "permissions": _permissions,
        "confined": truth,
    },
    "env": {},
    "env_file": {"path": _text},
    "folder": {"path": _text},
    "keyring": {"service": _text, "cache_s": number(0, 86_400, whole=False)},
}
"""Kinds of sources and their options; those in `_NEEDED` are required."""
_NEEDED = {"argv": "the program and its arguments", "path": "a text", "service": "a text"}
_CONFINED = (
    "It runs confined: state what it reaches under `permissions`, or `confined: false` for a program outside"
    " of the project."
)
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


def open_sources(
    settings: Sequence[SourceSetting],
    root: Path,
    start: Callable[[str, SourceSetting], StartHelper],
    own: SecretSource,
) -> ChainedSecrets:
    """The sources of a project at `root`, from which relative paths start. Nothing is read or run yet.

    `start` returns what runs a helper command; its first argument is the name of the setting. `own` is asked
    first: what the user has set.
    """
    sources = [own]
    for n, one in enumerate(settings):
        if one.kind == "command":
            from toolcrib.guard.secrets.command_sources import CommandSecrets

            advice, limit_s = _CONFINED if one.confined else "", one.timeout_ms / 1000
            helper = start(_name(n), one)
            sources.append(CommandSecrets(one.argv, limit_s, keep=one.cache_s, start=helper, advice=advice))
        else:
            sources.append(_OPEN[one.kind](one, root))
    return ChainedSecrets(sources)


def helper_lines(settings: Sequence[SourceSetting]) -> dict[str, CommandLine]:
    """Return the command line of each helper, by the name of its setting."""
    return {_name(n): CommandLine(one.argv) for n, one in enumerate(settings) if one.kind == "command"}


def _name(position: int) -> str:
    return f"secrets.sources[{position}]"


def _keyring(setting: SourceSetting, _: Path) -> SecretSource:
    from toolcrib.guard.secrets.command_sources import KeyringSecrets

    return KeyringSecrets(setting.service, keep=setting.cache_s)


_OPEN: Mapping[str, Callable[[SourceSetting, Path], SecretSource]] = {
    "env": lambda _, __: EnvironmentSecrets(),
    "env_file": lambda setting, root: EnvFileSecrets(root / setting.path),
    "folder": lambda setting, root: FolderSecrets(root / setting.path),
    "keyring": _keyring,
}


def hidden_paths(settings: Sequence[SourceSetting], root: Path) -> tuple[str, ...]:
    """Files and folders with secrets: no tool may see them, whatever it is granted.

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
            # The program is found by PATH where it is a bare name; a file of that name here is another one.
            if ("/" in word or n > 0) and os.path.isfile(path):
                found[str(path)] = None
    return tuple(found)


def helper_folders(settings: Sequence[SourceSetting], root: Path) -> dict[str, str]:
    """Folders of the project, as real paths, that helper commands load code from; each with what is run.

    What a script imports is beside it, and whatever is put there is found first.
    """
    found: dict[str, str] = {}
    for argv in (setting.argv for setting in settings if setting.argv):
        start = " ".join(argv[:3])
        named = code_named(CommandLine(argv), root)
        words = [path for kind, path, _ in named if kind in ("script", "module")]
        # The packages of a virtual environment can be anywhere below it.
        found |= {path: start for kind, path, _ in named if kind == "venv"}
        found |= {os.path.realpath(folder): start for folder in map(os.path.dirname, words)}
        if _searches_root(argv, words):
            # It looks for modules in its working folder, the root, before anywhere else.
            package = argv[argv.index("-m") + 1].partition(".")[0] if "-m" in argv[:-1] else ""
            found |= {os.path.realpath(folder): start for folder in (root, root / package) if folder.is_dir()}
    return {folder: start for folder, start in found.items() if Path(folder).is_relative_to(root)}


def _searches_root(argv: Sequence[str], code: Sequence[str]) -> bool:
    """Return True for a Python that looks for modules in its working folder before anywhere else."""
    # For a script it is the folder of the script; -I and -P leave both out (docs.python.org, sys.path).
    is_python = os.path.basename(argv[0]).startswith("python")
    return is_python and (not code or "-m" in argv) and not {"-I", "-P"} & set(argv)
