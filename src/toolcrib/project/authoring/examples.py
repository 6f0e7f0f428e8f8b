"""The examples of manifests as tests: each is called, and its result is compared with the expected one.

Calls take the one path, so they are checked, confined and recorded like any other.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from typing import Any, Literal

from toolcrib.errors import ToolcribError
from toolcrib.guard import resolve
from toolcrib.manifest import kind_of
from toolcrib.project.project import Project
from toolcrib.spec import Call, Caller, Example, SecretSource, Tool
from toolcrib.spec.record import record

_WILDCARD = "..."
_ANY = "\x00any\x00"
Outcome = Literal["passed", "failed", "skipped"]
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|\.\.\.', re.DOTALL)


@record
class Tried:
    """One example and its outcome."""

    tool: str
    number: int
    """From 0, in the order of the manifest."""
    description: str
    outcome: Outcome
    problem: str = ""
    """The reason why it failed or was skipped."""

    def as_dict(self) -> dict[str, Any]:
        """JSON form."""
        return asdict(self)


@record
class ReplayedSecrets:
    """Secrets of tools that a cassette answers: one that is not set has a value all the same."""

    source: SecretSource

    def get(self, name: str) -> str | None:
        """Return the value, or one that is masked as the value was in the recording."""
        return self.source.get(name) or f"replayed-{name}"


async def try_examples(
    project: Project,
    names: Sequence[str],
    *,
    live: bool,
    replayed: bool,
    caller: str,
    identity: Caller | None,
) -> AsyncIterator[Tried]:
    """Try every example of these tools, or of all.

    With `live` also those of tools that reach the network, with `replayed` only those of HTTP tools among
    these: a cassette answers them.
    Raises ToolNotFound, and ManifestError for a manifest that does not load.
    """
    tools = [project.get(name) for name in names] if names else list(project.tools(caller, identity))
    for tool in tools:
        for number, example in enumerate(tool.examples):
            call = Call(tool.name, dict(example.params), caller, identity=identity)
            live_here = live or (replayed and _sends(tool))
            outcome: Outcome = "skipped"
            problem = _skipped(project, tool, replace(call), live=live_here)
            if problem is None:
                problem = await _tried(project, call, example)
                outcome = "failed" if problem else "passed"
            yield Tried(tool.name, number, example.description, outcome, problem)


def _sends(tool: Tool) -> bool:
    """Return True for a tool whose requests a cassette can answer."""
    return bool(kind_of(tool).url(tool.config))


def _skipped(project: Project, tool: Tool, call: Call, *, live: bool) -> str | None:
    if tool.is_builtin:
        return "it is built in; its examples name files and hosts that are not here"
    if not live and tool.permissions.network.mode != "none":
        return "it reaches the network; --live runs it, and --record keeps the answers of HTTP tools"
    secrets = project.secrets
    if isinstance(secrets, ReplayedSecrets) and not _sends(tool):
        secrets = secrets.source
    try:
        resolve(tool.permissions, secrets)
        reason = project.asks(call)
    except ToolcribError as error:
        return None if error.code == "invalid_input" else f"it cannot be called: {error.message}"
    return None if reason is None else f"it needs approval: {reason}"


async def _tried(project: Project, call: Call, example: Example) -> str:
    """Return an empty text if the result is as expected, else what was expected and what came."""
    result = await project.invoke(call)
    if result.error is not None:
        return f"{result.error.code}: {result.error.message}"
    if example.expected_output is None or matches(result.value, example.expected_output):
        return ""
    came = result.value if isinstance(result.value, str) else json.dumps(result.value, ensure_ascii=False)
    return f"expected: {_short(example.expected_output)}\ngot:      {_short(came)}"


def matches(value: Any, expected: str) -> bool:
    """Return True if a value is the expected one. `...` means any text, any value, any further items.

    JSON is compared as JSON, without regard to spaces and the order of keys. Anything else is compared as
    text, without regard to line ends and white space at the end.
    """
    with suppress(ValueError):
        wanted = json.loads(_TOKEN.sub(_placed, expected))
        if not isinstance(value, str) or isinstance(wanted, str):
            return _fits(value, wanted)
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return _text_fits(text.replace("\r\n", "\n").rstrip(), expected.replace("\r\n", "\n").rstrip())


def _placed(found: re.Match[str]) -> str:
    return found[0] if found[0] != _WILDCARD else json.dumps(_ANY)


def _fits(value: Any, wanted: Any) -> bool:
    if wanted == _ANY:
        return True
    if isinstance(wanted, str):
        return isinstance(value, str) and _text_fits(value, wanted)
    if isinstance(wanted, list) and isinstance(value, list):
        more = bool(wanted) and wanted[-1] == _ANY
        fixed = wanted[:-1] if more else wanted
        enough = len(value) >= len(fixed) if more else len(value) == len(fixed)
        return enough and all(_fits(one, other) for one, other in zip(value, fixed, strict=False))
    if isinstance(wanted, dict) and isinstance(value, dict):
        return set(value) == set(wanted) and all(_fits(value[key], wanted[key]) for key in wanted)
    return isinstance(value, bool) is isinstance(wanted, bool) and bool(value == wanted)


def _text_fits(text: str, wanted: str) -> bool:
    """Return True if a text is the wanted one, with any text for each `...`.

    In linear time, which a regular expression would not take.
    """
    first, *rest = wanted.split(_WILDCARD)
    if not rest:
        return text == wanted
    last = rest.pop()
    at, end = len(first), len(text) - len(last)
    if not text.startswith(first) or not text.endswith(last) or end < at:
        return False
    for part in rest:
        found = text.find(part, at, end)
        if found < 0:
            return False
        at = found + len(part)
    return True


def _short(text: str) -> str:
    plain = " ".join(text.split())
    return plain if len(plain) <= 300 else plain[:300] + "…"
