"""The first manifest of a command."""

from __future__ import annotations

import shlex

from toolcrib.errors import UsageError
from toolcrib.manifest.starter import Answers, Made, placeholders

_FOR_SHELL = ("|", "||", "&&", ">", ">>", "<", "2>&1")


def make(answers: Answers) -> Made:
    """Return the words of the command line; arguments without a placeholder follow them."""
    try:
        words = shlex.split(answers.runs)
        quoted = shlex.split(answers.runs, posix=False)
    except ValueError as error:
        raise UsageError(f"the command line cannot be read: {error}") from None
    if not words:
        raise UsageError("a command needs the command line that it runs", hint="--run 'wc -l ${path}'")
    if for_shell := next((word for word in quoted if word in _FOR_SHELL), None):
        raise UsageError(
            f"`{for_shell}` is for a shell, and a command runs without one",
            hint="Write the line into a script, and its path here; or put `sh -c '…'` around it.",
        )
    used = set(placeholders(answers.runs))
    words += [f"${{{name}}}" for name in answers.arguments if name not in used]
    return Made({"entrypoint": words[0], "args": words[1:], "stdout": {"format": "text"}})
