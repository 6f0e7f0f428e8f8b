"""Kind `file`: read or write one file beneath the granted folders."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from toolcrib.manifest.kinds import Effect, Kind, block_of, in_workspace, plain_effect
from toolcrib.manifest.starter import Answers, Made, Starter
from toolcrib.manifest.yaml.form import Misfit
from toolcrib.spec import FileExec, Tool
from toolcrib.template import Namespaces


def _make(answers: Answers) -> Made:
    """Return a tool that reads any file of one folder, or of those that it may read."""
    folders = [*answers.read] or [answers.runs or "."]
    about = f"The file, from the project root; it is below {' or '.join(folders)}"
    return Made(
        {"action": "read", "path": "${path}"},
        {"fs": {"read": folders, "write": []}},
        properties={"path": {"type": "string", "description": about}},
        sample={"path": f"{folders[0]}/…".removeprefix("./")},
    )


def _parse(block: dict[str, Any]) -> FileExec:
    return FileExec(**{**block, "mode": int(block.get("mode", "0644").replace("o", ""), 8)})


def _write(config: FileExec) -> dict[str, Any]:
    block = block_of(config)
    return {**block, "mode": f"{config.mode:04o}"} if "mode" in block else block


def _effect(tool: Tool, names: Namespaces) -> Effect:
    """Compare without what only writing uses."""
    assert isinstance(tool.config, FileExec)
    if tool.config.action == "read":
        config = replace(tool.config, content=None, mode=0o644, mkdir=False)
        tool = replace(tool, config=config)
    return plain_effect(tool, names)


KIND = Kind(
    name="file",
    config=FileExec,
    executor=in_workspace("toolcrib.executors.file.executor:FileExecutor"),
    starter=Starter(
        _make,
        runs="Which folder does it read?",
        arguments=False,
        format="text",
    ),
    schema=Path(__file__).with_name("schema.json"),
    docs=(
        "Toolcrib opens the file",
        "the kernel: openat2 opens paths beneath a granted folder; no `..`, link or race leads out of it",
    ),
    parse=_parse,
    write=_write,
    misfits=(Misfit(("mode",), "type", hint='write the octal digits as text: "0644"'),),
    templated=("path", "content"),
    effect=_effect,
    touches=lambda _: (),
    takes_format=False,
    for_agents=True,
    untraceable=None,
)
