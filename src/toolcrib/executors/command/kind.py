"""Kind `command`: a program and its arguments, or one shell line."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolcrib.executors.host import Host
from toolcrib.manifest.kinds import CodeFile, Effect, Kind, Misfit, block_of, duration
from toolcrib.manifest.yaml.diagnostics import Diagnostic
from toolcrib.manifest.yaml.source import Document
from toolcrib.spec import CommandExec, Executor, Permissions, Tool

if TYPE_CHECKING:
    from toolcrib.sandbox.files.paths import Paths
    from toolcrib.template import Namespaces

__all__ = ["KIND"]


def _parse(block: dict[str, Any]) -> CommandExec:
    get = block.get
    return CommandExec(
        entrypoint=block["entrypoint"],
        args=tuple(get("args", ())),
        cwd=get("cwd", "."),
        env=get("env") or {},
        stdin=get("stdin"),
        stdout_format=get("stdout", {}).get("format"),
        exit_codes_ok=tuple(map(int, get("exit_codes_ok", (0,)))),
        timeout_ms=duration(get("timeout_ms")),
        allow_code=get("allow_code", False),
    )


def _write(config: CommandExec) -> dict[str, Any]:
    block = block_of(config)
    return {
        "stdout" if key == "stdout_format" else key: {"format": value} if key == "stdout_format" else value
        for key, value in block.items()
    }


def _effect(tool: Tool, names: Namespaces) -> Effect:
    from toolcrib.template import literal_text, parse

    config = tool.config
    assert isinstance(config, CommandExec)
    env = {
        name: parse(literal_text(value) if isinstance(value, bool | int | float) else value, names)
        for name, value in config.env.items()
    }
    what = (
        config.entrypoint,
        parse(list(config.args), names),
        parse(config.shell, names),
        config.allow_dash,
        env,
        config.cwd,
        parse(config.stdin, names),
        config.stdout_format or tool.output.format,
        config.exit_codes_ok,
    )
    return {("exec", "auth", "outputs.format"): what}


def _lint(tool: Tool, document: Document) -> Iterator[Diagnostic]:
    from toolcrib.executors.command.lint import code_words, direct_programs, secret_arguments, shell_line

    checks = (shell_line, code_words, secret_arguments, direct_programs)
    return chain.from_iterable(check(tool, document) for check in checks)


def _granted(tool: Tool, granted: Permissions) -> Permissions:
    return replace(granted, secrets=tool.permissions.secrets)


def _code(tool: Tool, root: str, paths: Paths) -> Iterator[CodeFile]:
    from toolcrib.executors.command.code_files import code_files

    config = tool.config
    assert isinstance(config, CommandExec)
    words = config.args if config.shell is None else ("-c", config.shell)
    return code_files((config.entrypoint, *words), root, config.cwd, paths, config.env)


def _executor(tool: Tool, host: Host) -> Executor:
    from toolcrib.executors.command.executor import CommandExecutor

    return CommandExecutor(tool, host.workspace())


KIND = Kind(
    name="command",
    config=CommandExec,
    executor=_executor,
    schema=Path(__file__).with_name("schema.json"),
    parse=_parse,
    write=_write,
    misfits=(Misfit(("exit_codes_ok",), "minItems", rule="exit-codes", hint="write `exit_codes_ok: [0]`"),),
    templated=("args", "env", "stdin", "shell"),
    fixed=("entrypoint", "cwd"),
    lint=_lint,
    code=_code,
    effect=_effect,
    granted=_granted,
    confined=True,
    for_agents=True,
    untraceable=None,
)
