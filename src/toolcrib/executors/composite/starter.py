"""The first manifest of a composite tool."""

from __future__ import annotations

from toolcrib.errors import UsageError
from toolcrib.manifest.starter import Answers, Made


def make(answers: Answers) -> Made:
    """Return one step, which passes the arguments on. The permissions are those of the steps' tools."""
    if not answers.runs:
        raise UsageError("a composite tool needs a tool for its first step", hint="--run TOOL")
    args = {name: f"${{{name}}}" for name in answers.arguments}
    steps = [{"id": "first", "tool": answers.runs, "args": args}]
    return Made({"steps": steps, "output": "${steps.first.value}"}, None)
