"""The files by which a daemon's client decides what it starts: compose files, its settings and plugins."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence

from toolcrib.errors import ManifestError
from toolcrib.manifest import load
from toolcrib.sandbox.files.paths import Paths

_COMPOSE = tuple(
    f"{name}{more}.{end}"
    for name in ("compose", "docker-compose")
    for more in ("", ".override")
    for end in ("yaml", "yml")
)
_NAMING = re.compile(rb"COMPOSE_(?:FILE|ENV_FILES)[ \t]*[=:](.*)")
_NAMED = re.compile(rb"[^\s:;,\"'\0]+")
"""Files that `.env` names."""
_FILES = ("-f", "--file")
_FOLDERS = ("--project-directory",)
_SETTINGS = ("--config", "DOCKER_CONFIG")
_KEYS = ("extends", "env_file")


def daemon_files(argv: Sequence[str], cwd: str, env: Mapping[str, str], paths: Paths) -> Iterator[str]:
    """Yield the files that a command line like `docker compose run x` reads, whether they exist or not.

    `cwd` is its real working folder, and `env` the variables beside the user's own.
    """
    known: dict[str, None] = {}
    folders = [cwd, *(os.path.join(cwd, path) for name, path in _options(argv) if path and name in _FOLDERS)]
    waiting = list(_of_line(argv, cwd, env, folders, paths))
    while waiting:
        path = waiting.pop(0)
        if path not in known:
            known[path] = None
            waiting += _named_in(path, folders, paths) if path.endswith((".yml", ".yaml")) else ()
    yield from known


def _named_in(path: str, folders: Sequence[str], paths: Paths) -> Iterator[str]:
    """Yield the files that a compose file includes, extends, or takes variables from."""
    raw = paths.text(path, 1 << 20)
    if b"$" in raw:
        yield from (f"{folder}/.env" for folder in (os.path.dirname(path), *folders))
    try:
        data = load(raw, path).data
        services = data.get("services") or {}
        named = [data.get("include"), *(part for one in services.values() for part in map(one.get, _KEYS))]
    except (ManifestError, AttributeError, TypeError):  # The client refuses another form as well.
        return
    texts = (text for one in named for text in _texts(one))
    yield from (os.path.normpath(os.path.join(os.path.dirname(path), text)) for text in texts)


def _texts(value: object) -> Iterator[str]:
    """Yield each path in a value: a text, a list, or a mapping with `file`, `path` or `env_file`."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        yield from (text for one in value for text in _texts(one))
    elif isinstance(value, dict):
        yield from (text for key in ("file", "path", "env_file") for text in _texts(value.get(key)))


def _of_line(
    argv: Sequence[str], cwd: str, env: Mapping[str, str], folders: Sequence[str], paths: Paths
) -> Iterator[str]:
    given = [*_options(argv), ("DOCKER_CONFIG", os.environ.get("DOCKER_CONFIG", "")), *env.items()]
    given += [("-f", file) for file in env.get("COMPOSE_FILE", "").split(":")]
    given += [("-f", file) for file in env.get("COMPOSE_ENV_FILES", "").split(",")]
    named = [(name, os.path.join(cwd, value)) for name, value in given if value]
    composes = "compose" in argv or os.path.basename(argv[0]).endswith("-compose")
    yield from (path for name, path in named if name in _FILES or (composes and name == "--env-file"))
    for folder in folders if composes else ():
        yield from (f"{folder}/{name}" for name in _COMPOSE)
        if b"COMPOSE_" in (text := paths.text(f"{folder}/.env", 1 << 20)):
            yield f"{folder}/.env"
            files = (os.fsdecode(file) for line in _NAMING.findall(text) for file in _NAMED.findall(line))
            yield from (os.path.normpath(os.path.join(folder, file)) for file in files)
    for folder in (path for name, path in named if name in _SETTINGS):
        yield f"{folder}/config.json"
        # The client runs these programs itself.
        yield from (f"{folder}/cli-plugins/{name}" for name in paths.names(f"{folder}/cli-plugins"))


def _options(argv: Sequence[str]) -> Iterator[tuple[str, str]]:
    for word, following in zip(argv, (*argv[1:], ""), strict=True):
        name, equals, value = word.partition("=")
        if word.startswith("-f") and len(word) > 2:
            yield "-f", word[2:].removeprefix("=")
        yield name, value if equals else following
