"""Launchers: uvx, npx, uv run and pyenv's shims, each replaced by the program that it would start.

So a server needs no network, no writable cache and no second process. A package of uvx or npx is the one that
was downloaded when the server was trusted, or that is in the project's own `node_modules`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from getopt import GetoptError, getopt

from toolcrib.errors import ToolUnavailable
from toolcrib.executors.mcp.launch import packages
from toolcrib.executors.mcp.launch.line import Launch, MachineView

_DEEPEST = 5
_NETWORK = ("--offline", "--refresh", "--native-tls", "--system-certs")
"""Options of uvx that count for a download."""
_CLIENTS = frozenset(("docker", "docker-compose", "podman", "nerdctl", "lima", "limactl", "ctr", "kubectl"))


def _read_options(
    launcher: str, words: Iterable[str], short: str, long: str
) -> tuple[dict[str, list[str]], list[str]]:
    """Return the options before the first other word with their values, and the rest.

    Raises ToolUnavailable for any other option: it may take the next word, and a wrong guess would start
    another program.
    """
    try:
        given, rest = getopt(list(words), short, long.split())
    except GetoptError as error:
        option = f"{'-' if len(error.opt) == 1 else '--'}{error.opt}"
        raise ToolUnavailable(
            f"the option {option} of {launcher} is not supported for a server",
            hint="Name the program itself as `command`, for example the one in a virtual environment.",
            details={"option": option},
        ) from None
    options: dict[str, list[str]] = {}
    for name, value in given:
        # Only getopt counts the sign in `-p=VALUE` as part of the value.
        options.setdefault(name, []).append(value if name.startswith("--") else value.removeprefix("="))
    return options, rest


def _last(options: Mapping[str, list[str]], *names: str) -> str | None:
    """Return the last value of an option, which may have several names."""
    return next((options[name][-1] for name in names if name in options), None)


def is_daemon_client(program: str) -> bool:
    """Return True for a program that controls this machine through a daemon's socket, such as docker."""
    return os.path.basename(program) in _CLIENTS


def is_launcher(program: str) -> bool:
    """Return True for a launcher. A command line has one only while its package is not resolved."""
    return os.path.basename(program) in _LAUNCHERS


def launched(launch: Launch, machine: MachineView) -> Launch:
    """Return the command line that is really run, its program with an absolute path if there is one.

    Raises Unresolved, and ToolUnavailable for options that are not supported.
    """
    # A launcher may start another one, as in `uv run npx …`.
    for _ in range(_DEEPEST):
        program = launch.argv[0]
        found = machine.absolute(program) if "/" in program else machine.which(program)
        # A launcher may be gone: what it was resolved to does not need it.
        if found is None and not is_launcher(program):
            return launch
        path = found or program
        if (real := _of_pyenv(path, machine)) is not None:
            launch = replace(launch, argv=(real, *launch.argv[1:]))
            continue
        read = _LAUNCHERS.get(os.path.basename(path))
        inner = None if read is None else read(launch, path, launch.argv[1:], machine)
        if inner is None:
            return replace(launch, argv=(path, *launch.argv[1:]))
        launch = inner
    return launch


def _of_pyenv(path: str, machine: MachineView) -> str | None:
    """Return the program behind one of pyenv's shims: that of the version chosen for the user."""
    base = os.path.dirname(os.path.dirname(path))
    if os.path.dirname(path) != f"{base}/shims" or not os.path.isdir(f"{base}/versions"):
        return None
    text = machine.env.get("PYENV_VERSION") or packages.text_of(f"{base}/version")
    # A name with a slash could lead out of the folder of versions.
    names = [name for name in text.replace(":", " ").split() if "/" not in name]
    if not names or names == ["system"]:
        return None
    for name in names:
        found = f"{base}/versions/{name.removeprefix('python-')}/bin/{os.path.basename(path)}"
        if os.access(found, os.X_OK):
            return found
    raise ToolUnavailable(
        f"pyenv has no {os.path.basename(path)} in {', '.join(names)}",
        hint="Choose an installed version: pyenv global VERSION",
        details={"path": path},
    )


def _uv(launch: Launch, path: str, given: Sequence[str], machine: MachineView) -> Launch | None:
    common = "quiet offline no-progress no-config directory= project="
    options, words = _read_options("uv", given, "q", common)
    if words[:2] == ["tool", "run"]:
        return _uvx(launch, path, words[2:], machine)
    if words[:1] != ["run"]:
        return None
    more = " no-sync frozen locked active script python= module="
    own, words = _read_options("uv run", words[1:], "qsp:m:", common + more)
    options |= own
    start = _last(options, "--directory")
    cwd = os.path.join(launch.cwd, start) if start else launch.cwd
    env = machine.absolute(f"{_last(options, '--project') or '.'}/.venv", cwd)
    if not os.path.isfile(f"{env}/pyvenv.cfg"):
        raise ToolUnavailable(
            f"`uv run` starts the server from {env}, which does not exist",
            hint=f"Create it: uv sync --directory {os.path.dirname(env)}",
            details={"path": env},
        )
    launch = replace(launch, cwd=cwd, project=os.path.dirname(env))
    if (module := _last(own, "-m", "--module")) is not None:
        return replace(launch, argv=(f"{env}/bin/python", "-m", module, *words))
    if not words:
        return None
    name, *rest = words
    is_script = name.endswith(".py") or ("/" in name and not os.access(machine.absolute(name, cwd), os.X_OK))
    program = (f"{env}/bin/python", name) if is_script else (_in_bin(env, name, machine, cwd),)
    return replace(launch, argv=(*program, *rest))


def _in_bin(env: str, name: str, machine: MachineView, cwd: str) -> str:
    """Return the program of a name in an environment, else the machine's."""
    if "/" in name:
        return machine.absolute(name, cwd)
    return own if os.access(own := f"{env}/bin/{name}", os.X_OK) else name


def _uvx(launch: Launch, path: str, given: Sequence[str], machine: MachineView) -> Launch:
    flags = "quiet offline no-progress isolated refresh upgrade no-config native-tls system-certs"
    options, words = _read_options("uvx", given, "qUp:", f"{flags} from= with= python=")
    if not words:
        raise ToolUnavailable("the command line of uvx names no program", hint="Name a package after `uvx`.")
    source, version = _last(options, "--from"), _last(options, "-p", "--python")
    if version is not None and not re.fullmatch(r"\d+(\.\d+)*", version):
        raise packages.unsupported("uvx --python", version)
    specs = [packages.python_spec(one) for one in (source or words[0], *options.get("--with", []))]
    # No code may run: `--no-build` refuses packages of source code.
    uv, plain = _beside(path, "uv", machine), ("--quiet", "--no-config")
    install = (uv, "pip", "install", *plain, "--no-build", *(one for one in _NETWORK if one in options))
    steps = (
        (uv, "venv", *plain, "--no-project", *(("--python", version) if version else ()), "."),
        (*install, "--python", "bin/python", "--", *(wanted for _, wanted in specs)),
    )
    line, names = ("uvx", *given[: len(given) - len(words) + 1]), tuple(name for name, _ in specs)
    package = packages.Package(line, names, words[0] if source else names[0], steps)
    return packages.program_of(launch, package, words[1:], path)


def _npm(launch: Launch, path: str, given: Sequence[str], machine: MachineView) -> Launch | None:
    return _npx(launch, path, given[1:], machine) if given[:1] in (("exec",), ("x",)) else None


def _npx(launch: Launch, path: str, given: Sequence[str], machine: MachineView) -> Launch:
    flags = "yes quiet silent no prefer-offline prefer-online offline"
    options, words = _read_options("npx", given, "yqsp:", f"{flags} package=")
    if not words:
        raise ToolUnavailable("the command line of npx names no program", hint="Name a package after `npx`.")
    named = [*options.get("-p", ()), *options.get("--package", ())]
    specs, node = [packages.node_spec(one) for one in named or words[:1]], _beside(path, "node", machine)
    # A package from git would be prepared, with settings of npm that are its own.
    install = (_beside(path, "npm", machine), "install", "--ignore-scripts", "--allow-git=none")
    wanted = (f"{name}@{version}".rstrip("@") for name, version in specs)
    line, names = ("npx", *given[: len(given) - len(words) + 1]), tuple(name for name, _ in specs)
    steps = ((*install, "--workspaces=false", "--no-audit", "--no-fund", "--", *wanted),)
    package = packages.Package(line, names, words[0] if named else "", steps, node)
    # npx prefers what the project has. A version that the line names must be the very one there.
    modules = machine.absolute("node_modules", launch.cwd)
    fits = all(version in ("", packages.about(modules, name).get("version")) for name, version in specs)
    if fits and (own := package.of_node(modules)) is not None:
        return replace(launch, argv=(*own, *words[1:]))
    return packages.program_of(launch, package, words[1:], path)


def _beside(path: str, name: str, machine: MachineView) -> str:
    """Return the program beside another one, else the machine's."""
    own = os.path.join(os.path.dirname(path), name)
    return own if os.access(own, os.X_OK) else machine.which(name) or name


_LAUNCHERS: Mapping[str, Callable[[Launch, str, Sequence[str], MachineView], Launch | None]] = {
    "uvx": _uvx,
    "uv": _uv,
    "npx": _npx,
    "npm": _npm,
}
