"""Launchers: uvx, uv run, npx, conda run and pyenv's shims, each replaced by the program that it would start.

So a server needs no network, no writable cache and no second process. Launchers are not run to find out:
their folders are read. What is not on this machine is never downloaded here.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from toolcrib.errors import ToolUnavailable
from toolcrib.executors.mcp.launch import packages
from toolcrib.executors.mcp.launch.line import Launch, MachineView
from toolcrib.spec.record import record

_DEEPEST = 5
_CLIENTS = frozenset(("docker", "docker-compose", "podman", "nerdctl", "lima", "limactl", "ctr", "kubectl"))


@record
class _Words:
    """The words of a launcher: its options by their long names, and what follows them."""

    options: Mapping[str, list[str]]
    rest: tuple[str, ...]

    @classmethod
    def of(
        cls, launcher: str, words: Iterable[str], taking: Mapping[str, str], flags: Iterable[str]
    ) -> _Words:
        """Read options up to the first other word. `taking`: short or long name to the long one."""
        options: dict[str, list[str]] = {}
        left, known = list(words), frozenset(flags)
        while left and left[0].startswith("-") and len(left[0]) > 1:
            word = left.pop(0)
            if word == "--":
                break
            name, equals, value = word.partition("=")
            if name in taking and (equals or left):
                options.setdefault(taking[name], []).append(value if equals else left.pop(0))
            # An unknown option may take the next word; a wrong guess would start another program.
            elif word not in known:
                raise _unreadable(launcher, word)
        return cls(options, tuple(left))

    def one(self, name: str) -> str | None:
        """Return the last value of an option."""
        return self.options.get(name, [None])[-1]


def is_daemon_client(program: str) -> bool:
    """Return True for a program that controls this machine through a daemon's socket, such as docker."""
    return os.path.basename(program) in _CLIENTS


def is_launcher(program: str) -> bool:
    """Return True for a launcher. Its command line has one only while its package is not on this machine."""
    return os.path.basename(program) in _LAUNCHERS


def launched(launch: Launch, machine: MachineView) -> Launch:
    """Return the command line that is really run, its program with an absolute path if there is one.

    Raises ToolUnavailable if a launcher's package is not on this machine, or its options are not supported.
    """
    # A launcher may start another one, as in `uv run npx …`.
    for _ in range(_DEEPEST):
        program = launch.argv[0]
        path = machine.absolute(program) if "/" in program else machine.which(program)
        if path is None:
            return launch
        if (real := _of_pyenv(path, machine)) is not None:
            launch = replace(launch, argv=(real, *launch.argv[1:]))
            continue
        read = _LAUNCHERS.get(os.path.basename(path))
        inner = None if read is None else read(launch, path, machine)
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


def _uvx(launch: Launch, path: str, machine: MachineView) -> Launch | None:
    return _uv_tool(launch, path, launch.argv[1:], machine)


def _uv(launch: Launch, path: str, machine: MachineView) -> Launch | None:
    flags = ("-q", "--quiet", "--offline", "--no-progress", "--no-config")
    folders = {"--directory": "--directory", "--project": "--project"}
    words = _Words.of("uv", launch.argv[1:], folders, flags)
    if words.rest[:2] == ("tool", "run"):
        return _uv_tool(launch, path, words.rest[2:], machine)
    if words.rest[:1] != ("run",):
        return None
    own = _Words.of(
        "uv run",
        words.rest[1:],
        {**folders, "-p": "--python", "--python": "--python", "-m": "-m", "--module": "-m"},
        (*flags, "--no-sync", "--frozen", "--locked", "--active", "--script", "-s"),
    )
    start = own.one("--directory") or words.one("--directory")
    cwd = os.path.join(launch.cwd, start) if start else launch.cwd
    project = own.one("--project") or words.one("--project") or "."
    env = machine.absolute(f"{project}/.venv", cwd)
    if not os.path.isfile(f"{env}/pyvenv.cfg"):
        raise ToolUnavailable(
            f"`uv run` starts the server from {env}, which does not exist",
            hint=f"Create it: uv sync --directory {os.path.dirname(env)}",
            details={"path": env},
        )
    launch = replace(launch, cwd=cwd, project=os.path.dirname(env))
    if (module := own.one("-m")) is not None:
        return replace(launch, argv=(f"{env}/bin/python", "-m", module, *own.rest))
    if not own.rest:
        return None
    name, *rest = own.rest
    is_script = name.endswith(".py") or ("/" in name and not os.access(machine.absolute(name, cwd), os.X_OK))
    program = (f"{env}/bin/python", name) if is_script else (_in_bin(env, name, machine, cwd),)
    return replace(launch, argv=(*program, *rest))


def _in_bin(env: str, name: str, machine: MachineView, cwd: str) -> str:
    """Return the program of a name in an environment, else the machine's."""
    if "/" in name:
        return machine.absolute(name, cwd)
    return own if os.access(own := f"{env}/bin/{name}", os.X_OK) else name


def _uv_tool(launch: Launch, path: str, given: Iterable[str], machine: MachineView) -> Launch:
    taking = {"--from": "--from", "--with": "--with", "-p": "--python", "--python": "--python"}
    flags = ("-q", "--quiet", "--offline", "--no-progress", "--isolated", "--refresh", "-U", "--upgrade")
    words = _Words.of("uvx", given, taking, (*flags, "--no-config", "--native-tls", "--system-certs"))
    if not words.rest:
        raise ToolUnavailable("the command line of uvx names no program", hint="Name a package after `uvx`.")
    name, *rest = words.rest
    wanted = [
        packages.Requirement.of(one)
        for one in (words.one("--from") or name, *words.options.get("--with", ()))
    ]
    command = packages.Requirement.of(name).name if words.one("--from") is None else name
    python_version = words.one("--python")
    env = packages.uv_environment(wanted, command, python_version, machine)
    if env is None:
        spec = [word for one in words.options.get("--with", ()) for word in ("--with", one)]
        # No code of the package may run while it is downloaded: `--no-build` refuses source packages, and
        # Python with `-S` runs no .pth files.
        line = ["tool", "run", "--no-config", "--no-build", "--compile-bytecode", *spec]
        line += ["--from", words.one("--from") or name]
        python = ["--python", python_version] if python_version else []
        uv = os.path.join(os.path.dirname(path), "uv")
        raise packages.missing("uvx", wanted[0].name, [uv, *line, *python, "python", "-I", "-S", "-c", ""])
    return replace(launch, argv=(f"{env}/bin/{command}", *rest))


def _npx(launch: Launch, path: str, machine: MachineView) -> Launch:
    return _npm_package(launch, path, launch.argv[1:], machine)


def _npm(launch: Launch, path: str, machine: MachineView) -> Launch | None:
    words = launch.argv[1:]
    return _npm_package(launch, path, words[1:], machine) if words[:1] in (("exec",), ("x",)) else None


def _npm_package(launch: Launch, path: str, given: Iterable[str], machine: MachineView) -> Launch:
    taking = {"-p": "--package", "--package": "--package"}
    flags = ("-y", "--yes", "-q", "--quiet", "-s", "--silent", "--no", "--prefer-offline", "--offline")
    words = _Words.of("npx", given, taking, (*flags, "--prefer-online"))
    rest = words.rest[1:] if words.rest[:1] == ("--",) else words.rest
    if not rest:
        raise ToolUnavailable("the command line of npx names no program", hint="Name a package after `npx`.")
    wanted = [packages.NpmSpec.of(one) for one in words.options.get("--package", (rest[0],))]
    command = rest[0] if "--package" in words.options else None
    node = _beside(path, "node", machine)
    script = packages.npm_script(wanted, command, node, machine.absolute(".", launch.cwd), machine)
    if script is None:
        specs = [f"--package={one.written}" for one in wanted]
        npm = _beside(path, "npm", machine)
        # No code of the package may run: install scripts are off, and Node runs `0` in its place.
        line = [npm, "exec", "--yes", "--ignore-scripts", *specs, "--", node, "-e", "0"]
        raise packages.missing("npx", wanted[0].name, line)
    interpreter = (node,) if packages.is_for_node(script) else ()
    return replace(launch, argv=(*interpreter, script, *rest[1:]))


def _beside(path: str, name: str, machine: MachineView) -> str:
    """Return the program beside another one, else the machine's."""
    own = os.path.join(os.path.dirname(path), name)
    return own if os.access(own, os.X_OK) else machine.which(name) or name


def _conda(launch: Launch, path: str, machine: MachineView) -> Launch | None:
    if launch.argv[1:2] != ("run",):
        return None
    words = _Words.of(
        "conda run",
        launch.argv[2:],
        {"-n": "--name", "--name": "--name", "-p": "--prefix", "--prefix": "--prefix"},
        ("--no-capture-output", "--live-stream", "-v", "--verbose"),
    )
    base = os.path.dirname(os.path.dirname(os.path.realpath(path)))
    name, prefix = words.one("--name"), words.one("--prefix")
    places = [machine.absolute(prefix)] if prefix else [base] if name in (None, "base") else []
    if name and "/" not in name:
        places += [f"{base}/envs/{name}", f"{machine.home}/.conda/envs/{name}"]
    for place in places:
        if os.path.isdir(f"{place}/conda-meta") and words.rest:
            program = _in_bin(place, words.rest[0], machine, launch.cwd)
            return replace(launch, argv=(program, *words.rest[1:])).beside(path=(f"{place}/bin",))
    raise ToolUnavailable(
        f"there is no conda environment {name or prefix!r}",
        hint=f"Create it: conda create -n {name or 'NAME'}",
        details={"path": places[0] if places else base},
    )


def _unreadable(launcher: str, word: str) -> ToolUnavailable:
    return ToolUnavailable(
        f"the option {word} of {launcher} is not supported for a server",
        hint="Name the program itself as `command`, for example the one in a virtual environment.",
        details={"option": word},
    )


_LAUNCHERS: Mapping[str, Callable[[Launch, str, MachineView], Launch | None]] = {
    "uvx": _uvx,
    "uv": _uv,
    "npx": _npx,
    "npm": _npm,
    "conda": _conda,
    "mamba": _conda,
    "micromamba": _conda,
}
