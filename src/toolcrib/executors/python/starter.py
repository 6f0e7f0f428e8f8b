"""The first manifest of a Python tool, and the file with its function."""

from __future__ import annotations

import keyword
import re
import sys

from toolcrib.errors import UsageError
from toolcrib.manifest.starter import Answers, Made

_TYPES = {
    "string": "str", "integer": "int", "number": "float", "boolean": "bool", "array": "list",
    "object": "dict",
}  # fmt: skip
"""JSON type to that of Python."""


def make(answers: Answers) -> Made:
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
