"""Execution kinds: everything that the other parts need to know of one, as one record.

To add a kind, write a folder with a `Kind` and add a line to the table below, or name the record in the entry
point group `toolcrib.kinds` of an installed package.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import KW_ONLY, MISSING, asdict, fields
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from toolcrib.manifest.plugins import Registry, on_call
from toolcrib.manifest.starter import Starter
from toolcrib.manifest.yaml.diagnostics import Diagnostic
from toolcrib.manifest.yaml.form import Misfit
from toolcrib.manifest.yaml.source import Document
from toolcrib.spec import Annotations, ExecConfig, Executor, Permissions, Tool
from toolcrib.spec.record import record
from toolcrib.template import Missing, Namespaces, Values, parse, render_value

T = TypeVar("T")
Effect = dict[tuple[str, ...], Any]
"""Places of a manifest (`exec.http.url`) to a value that is equal for two tools whose calls do the same."""
LIMITS = ("timeout_ms", "max_response_bytes", "max_bytes")
"""Keys of a configuration or an `exec` block that only limit a call."""

IN_PROCESS = "run inside this process, not confined"


@record
class Start:
    """The command line, or the module, that a call starts. Paths are as written, from the project's root."""

    words: tuple[str, ...] = ()
    """The program, its arguments, and lines for a shell."""
    cwd: str = "."
    module: str = ""
    venv: str = ""
    """The folder of the virtual environment that it runs in."""


def block_of(config: Any) -> dict[str, Any]:
    """Return the fields of a dataclass that do not have their default; tuples become lists."""
    block: dict[str, Any] = {}
    for one in fields(config):
        value = getattr(config, one.name)
        default = one.default if one.default_factory is MISSING else one.default_factory()
        if value != default:
            block[one.name] = list(value) if isinstance(value, tuple) else value
    return block


def made_of(config: Callable[..., T], block: dict[str, Any]) -> T:
    """Make a dataclass of a block whose keys are its fields; null stands for the default.

    Lists become tuples, and 2.0 becomes 2, where the fields say so. A timeout of 0 leaves the project's limit
    in force.
    """
    convert = _converters(config)
    return config(**{key: convert[key](value) for key, value in block.items() if value is not None})


@cache
def _converters(config: Any) -> dict[str, Callable[[Any], Any]]:
    return {one.name: _converter(one.name, str(one.type)) for one in fields(config)}


def _converter(name: str, kind: str) -> Callable[[Any], Any]:
    if name == "timeout_ms":
        # 0 means no limit of its own, which is None in a configuration.
        return lambda value: int(value) or None
    if kind.startswith("tuple"):
        return (lambda value: tuple(map(int, value))) if kind.startswith("tuple[int") else tuple
    return int if kind.startswith("int") else lambda value: value


def plain_effect(tool: Tool, names: Namespaces) -> Effect:  # noqa: ARG001 - called as `Kind.effect`
    """Return the whole configuration, limits aside."""
    config: Any = tool.config
    block = {key: value for key, value in asdict(config).items() if key not in LIMITS}
    form = tool.output.format if kind_of(tool).takes_format else None
    return {("exec", "auth", "outputs.format"): (tool.kind, block, form)}


def unconfined(tool: Tool) -> Iterator[str]:
    """Yield that code of the kind runs in this process, unless it is confined or comes with Toolcrib."""
    if not kind_of(tool).confined and not tool.is_builtin:
        yield f"run the code of kind {tool.kind}, not confined"


def in_process(tool: Tool) -> Iterator[str]:
    """Yield that a function of the program runs, which whoever started the program trusts."""
    if not tool.is_builtin:
        yield IN_PROCESS


def shown_secret(name: str) -> str:
    """Return what replaces a secret's value in the plan of a call."""
    return f"<secret {name}>"


def filled_in(tool: Tool, block: dict[str, Any], values: Values) -> dict[str, Any]:
    """Return the `exec` block with its arguments filled in, as the plan of a call."""
    names, would = Namespaces.of(tool), dict(block)
    for key in kind_of(tool).templated:
        if key in would:
            filled = render_value(parse(would[key], names), values)
            would[key] = None if isinstance(filled, Missing) else filled
    return {"would": would}


def in_workspace(target: str) -> Callable[[Tool, Any], Executor]:
    """Return the `Kind.executor` of a class (`module:attribute`) that takes a tool and its workspace."""
    make = on_call(target)
    return lambda tool, host: make(tool, host.workspace())


@record
class Kind:
    """One execution kind. Its functions import what is heavy inside: reading manifests loads the record."""

    _: KW_ONLY
    name: str
    """The value of `kind`, and the key of the block."""
    config: type[ExecConfig]
    """A frozen dataclass."""
    executor: Callable[[Tool, Any], Executor] | None = None
    """Make the executor of a tool, from the tool and its `toolcrib.executors.Host`.

    None: tools of this kind come with their own.
    """
    schema: Path | None = None
    """A JSON file: the JSON Schema of `exec.<name>`, with its own `$defs`. It may refer to `#/$defs/text`,
    `timeout`, `paths`, `variable` and `scalars` of the manifest format.

    None: a native manifest cannot be of this kind.
    """
    starter: Starter | None = None
    """The questions of `toolcrib new`, and the tool that it makes; None: it makes no tool of this kind."""
    parse: Callable[[dict[str, Any]], Any] | None = None
    """Make the configuration from a block of that schema; None: the keys are its fields (`made_of`)."""
    write: Callable[[Any], dict[str, Any]] = block_of
    """Make the block from a configuration."""
    docs: tuple[str, str] = ("in this process", "its own code")
    """The place where it runs, and what enforces its permissions, for the documentation.

    Its schema describes it and its fields.
    """
    misfits: tuple[Misfit, ...] = ()
    """Rules and hints for blocks that do not match the schema."""
    templated: tuple[str, ...] = ()
    """Keys of the block, and fields of the configuration, that contain templates."""
    fixed: tuple[str, ...] = ()
    """Keys of the block in which no placeholder is allowed, because they decide what is run."""
    lint: Callable[[Tool, Document], Iterable[Diagnostic]] = lambda *_: ()
    """Yield what is wrong with a tool, beside the checks for every kind."""
    absent: Callable[[Tool, Document, str], Iterable[Diagnostic]] = lambda *_: ()
    """Yield what this machine lacks for a tool of the project at this root. Only `toolcrib lint` asks: a call
    reports it by itself."""
    effect: Callable[[Tool, Namespaces], Effect] = plain_effect
    """Describe what a call does, so that a conversion shows where it would do something else."""
    plan: Callable[[Tool, dict[str, Any], Values], dict[str, Any]] = filled_in
    """Describe what a call would do, from its tool, its block and the values of its templates."""
    calls: Callable[[Any], Iterable[tuple[str, str]]] = lambda _: ()
    """Yield the tools that a call of this configuration leads to: pairs of step id and tool name."""
    starts: Callable[[Any], Start] = lambda _: Start()
    """Return what a call of this configuration starts: its files are part of the tool."""
    url: Callable[[Any], str] = lambda _: ""
    """Return the address that a call sends its request to, by the client for HTTP; empty if it sends none."""
    annotations: Callable[[Any], Annotations] = lambda _: Annotations()
    """Return what a configuration says by itself about the effect of a call."""
    touches: Callable[[Tool], Iterable[str]] = unconfined
    """Yield what a call may do beyond the permissions of its tool, one line each: it needs trust for them.

    A kind whose executor keeps to the permissions yields nothing.
    """
    granted: Callable[[Tool, Permissions], Permissions] = lambda tool, _: tool.permissions
    """Return the permissions of a tool whose format has none, from a folder that was granted these."""
    traced: Callable[[Any], Mapping[str, str]] = lambda _: {}
    """Return attributes of the span of a call, by OpenTelemetry's names."""
    confined: bool = False
    """It runs in a process of the sandbox, which has the network that the permission grants."""
    of_program: bool = False
    """It is a function of the program: it may wait as long as it likes, and agents' runs try it again."""
    takes_auth: bool = False
    """The block `auth` has a meaning for it."""
    takes_format: bool = True
    """`outputs.format` decides how its output is read."""
    for_agents: bool = False
    """Agents may create tools of this kind."""
    untraceable: tuple[str, str] | None = (
        "is of a kind whose calls cannot be observed",
        "Write its permissions by hand.",
    )
    """The reason why `toolcrib trace` cannot observe a call, and what to do; None if it can."""

    def configure(self, block: dict[str, Any]) -> ExecConfig:
        """Return the configuration that a block of the right form says."""
        config: ExecConfig = made_of(self.config, block) if self.parse is None else self.parse(block)
        return config


_FOLDER = "toolcrib.executors"
KINDS: Registry[Kind] = Registry(
    "toolcrib.kinds",
    Kind,
    {
        "http": f"{_FOLDER}.http.kind:KIND",
        "command": f"{_FOLDER}.command.kind:KIND",
        "python": f"{_FOLDER}.python.kind:KIND",
        "file": f"{_FOLDER}.file.kind:KIND",
        "composite": f"{_FOLDER}.composite.kind:KIND",
        "function": f"{_FOLDER}.function.kind:KIND",
        "sql": f"{_FOLDER}.sql.kind:KIND",
        "builtin": f"{_FOLDER}.builtin.kind:KIND",
        "mcp": f"{_FOLDER}.mcp.kind:KIND",
    },
)
"""Every kind by its name, in the order of the documentation."""


def kind_of(tool: Tool) -> Kind:
    """Return the record of a tool's kind."""
    return KINDS[tool.kind]


def is_served(tool: Tool) -> bool:
    """Return True for a tool of an MCP server: it has no file, and comes with its executor."""
    return tool.source is None and kind_of(tool).executor is None


def is_function(tool: Tool) -> bool:
    """Return True for a function that the program itself has registered."""
    return tool.source is None and kind_of(tool).executor is not None


def manifest_kinds() -> Iterator[Kind]:
    """Yield the kinds of native manifests: the built-in ones, and those of installed packages in use."""
    return (kind for kind in KINDS.used if kind.schema is not None)


def startable() -> list[str]:
    """Return the names of the kinds that `toolcrib new` makes, and of those that installed packages have."""
    return [name for name in KINDS.names() if not KINDS.is_builtin(name) or KINDS[name].starter is not None]
