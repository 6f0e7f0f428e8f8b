"""Kind `python`: a function of a module, called in a confined interpreter of its own."""

from __future__ import annotations

import keyword
import os
import re
import sys
from collections.abc import Iterator
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from toolcrib.errors import UsageError
from toolcrib.manifest.kinds import Kind, Start, block_of, filled_in, in_workspace, made_of
from toolcrib.manifest.starter import Answers, Made, Starter
from toolcrib.manifest.yaml.diagnostics import Diagnostic
from toolcrib.manifest.yaml.source import Document
from toolcrib.spec import PythonExec, Tool
from toolcrib.template import Values

_TYPES = {
    "string": "str", "integer": "int", "number": "float", "boolean": "bool", "array": "list",
    "object": "dict",
}  # fmt: skip
"""JSON type to that of Python."""


def _make(answers: Answers) -> Made:
    """Return a call of a function `run` with all arguments, and the module beside the manifest."""
    if answers.runs:
        raise UsageError("a Python tool runs a file of its own", hint="Leave out --run.")
    arguments = answers.arguments
    if word := next(filter(keyword.iskeyword, arguments), None):
        raise UsageError(f"`{word}` is a keyword of Python", hint="Give the argument another name.")
    module = re.sub(r"\W", "_", answers.name, flags=re.ASCII)
    # A module of the standard library would be found first.
    if module in sys.stdlib_module_names or not module.isidentifier() or keyword.iskeyword(module):
        module = f"tool_{module}"
    missing = {name: " | None = None" if name in answers.optional else "" for name in arguments}
    parameters = ", ".join(f"{name}: {_TYPES[of]}{missing[name]}" for name, of in arguments.items())
    shown = ", ".join(f'"{name}": {name}' for name in arguments)
    about = answers.description.replace("\\", r"\\").replace('"', r"\"")
    code = (
        f'"""{about}."""\n\n\ndef run({parameters}) -> dict:\n'
        f'    """Return what the tool answers, as JSON."""\n    return {{{shown}}}\n'
    )
    block = {"module": module, "function": "run", "args": [f"${{{name}}}" for name in arguments]}
    return Made({**block, "return": "json"}, files={f"{module}.py": code})


def _parse(block: dict[str, Any]) -> PythonExec:
    return made_of(PythonExec, {"returns" if key == "return" else key: value for key, value in block.items()})


def _write(config: PythonExec) -> dict[str, Any]:
    return {"return" if key == "returns" else key: value for key, value in block_of(config).items()}


def _plan(tool: Tool, block: dict[str, Any], values: Values) -> dict[str, Any]:
    plan = filled_in(tool, block, values)
    if tool.config.by_name:
        plan["would"]["kwargs"] = dict(values.arguments)
    return plan


def _absent(tool: Tool, document: Document, root: str) -> Iterator[Diagnostic]:
    """Report a module that no folder has where it is searched: neither the project's nor installed ones."""
    config = tool.config
    assert isinstance(config, PythonExec)
    first = config.module.partition(".")[0]
    installed = [] if config.venv is None else Path(root, config.venv).glob("lib/python3*/site-packages")
    if first in sys.stdlib_module_names or PathFinder.find_spec(first, [*map(str, installed)]):
        return
    own = Path(document.path).absolute().parent
    file = config.module.replace(".", "/")
    folders = (own, own.parent.parent, Path(root, config.cwd))
    # `Path.exists` raises for a name that no file can have.
    if not any(
        os.path.exists(folder / f"{file}{end}") for folder in folders for end in (".py", "/__init__.py")
    ):
        message = f"the module `{config.module}` is not here"
        hint = f"write {os.path.relpath(own, root)}/{file}.py, or fix the name"
        yield document.diagnostic("module", message, ("exec", "python", "module"), hint=hint)


KIND = Kind(
    name="python",
    config=PythonExec,
    executor=in_workspace("toolcrib.executors.python.executor:PythonExecutor"),
    starter=Starter(
        _make,
        reads="Which folders may it read? (such as: src docs)",
        writes="Which folders may it write?",
    ),
    schema=Path(__file__).with_name("schema.json"),
    docs=("a confined interpreter of its own", "the kernel"),
    parse=_parse,
    write=_write,
    templated=("args", "kwargs"),
    fixed=("cwd", "venv", "module", "function"),
    absent=_absent,
    plan=_plan,
    starts=lambda config: Start(cwd=config.cwd, module=config.module, venv=config.venv or ""),
    traced=lambda _: {"gen_ai.tool.type": "function"},
    confined=True,
    for_agents=True,
    untraceable=None,
)
