"""Golden snapshots of names: commands and options, errors, Python's public names, settings, manifests."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import toolcrib
from tests.commands import shared_server
from tests.golden.crib import ROOT, GoldenCrib
from tests.golden.names import MISSING, public_paths, sheet
from tests.golden.store import golden, kept, writing
from toolcrib import errors

# Each test makes many calls one after the other, also on a machine that is busy.
pytestmark = pytest.mark.timeout(300)
OPTION = re.compile(r"^  (-\S.*?)(?:  +|$)", re.MULTILINE)
REQUIRED = re.compile(r"^  (--[\w-]+)(?:(?!\n  -).)*?\[required\]", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^  ([\w-]+)(?:  +\S|$)", re.MULTILINE)
SETTING = re.compile(r"^\| `([\w.]+)` \|", re.MULTILINE)
CODE = re.compile(r"^\| `([\w-]+)` \| (error|warning) \|", re.MULTILINE)
ERRORS = sorted(
    name for name, one in vars(errors).items() if isinstance(one, type) and one.__module__ == errors.__name__
)
VARIABLE = re.compile(r"^\| ((?:`[A-Z_]+`(?:, )?)+) \|", re.MULTILINE)
EVENT = re.compile(r"`((?:AGENT|APPROVAL|AUDIT|MCP_SERVER|SANDBOX|TOOL)_[A-Z]+)`")


@pytest.fixture
def crib(tmp_path: Path) -> GoldenCrib:
    return GoldenCrib(tmp_path, shared_server())


def helps(crib: GoldenCrib, words: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Give the names in the help of a command and of those below it."""
    code, out, _ = crib.raw(*words, "--help", COLUMNS="300")
    assert code == 0, words
    usage, _, below = out.partition("\nOptions:\n")
    options, *groups = re.split(r"\n\n(?=\S[^\n]*:\n)", below)
    commands = "\n".join(groups)
    found = {
        "usage": next(line for line in usage.splitlines() if line.startswith("Usage: ")),
        "options": sorted(OPTION.findall(options)),
        "required": sorted(REQUIRED.findall(options)),
    }
    yield " ".join(words), found
    # The help of the program names its commands group by group.
    rows = re.findall(r"^  [a-z]+ing  +(.+)$", usage, re.MULTILINE)
    for name in [name for row in rows for name in row.split(", ")] or COMMAND.findall(commands):
        yield from helps(crib, [*words, name])


def test_commands_and_options(crib: GoldenCrib) -> None:
    golden("help", dict(helps(crib, [])))


def test_errors() -> None:
    """Every class: code, statuses, and the object that every door gives."""
    found: dict[str, Any] = {}
    for name in ERRORS:
        kind = getattr(errors, name)
        if not issubclass(kind, errors.ToolcribError):
            found[name] = {
                "bases": [one.__name__ for one in kind.__mro__[1:-1]],
                "sheet": sheet(f"toolcrib.errors:{name}"),
            }
            continue
        violations = [errors.Violation("$.a", "is wrong")]
        error = kind("It failed", hint="Mend it", violations=violations, details={"at": 1})
        assert error.as_dict() == {
            "code": kind.code,
            "message": "It failed",
            "retryable": kind.retryable,
            "hint": "Mend it",
            "violations": [{"path": "$.a", "message": "is wrong"}],
            "details": {"at": 1},
        }
        again = errors.ToolcribError.from_dict(error.as_dict())
        assert (type(again), again.as_dict()) == (kind, error.as_dict())
        plain = kind().as_dict()
        found[name] = {
            "code": kind.code,
            "exit": kind.exit_code,
            "status": kind.status,
            "retryable": kind.retryable,
            "bases": [one.__name__ for one in kind.__mro__[1:-1]],
            "plain": plain | {"message": bool(plain["message"])},
        }
    golden("errors", {"all": ERRORS, "classes": found})


def test_public_names() -> None:
    """Every path of the snapshot still leads to the same, whatever the pages use by now.

    A new snapshot has the paths that are shown now besides; it leaves out only what is not there any more.
    """
    found = {path: sheet(path) for path in kept("names")["paths"]}
    if writing():
        there = {path: one for path, one in found.items() if one != MISSING}
        found = there | {path: sheet(path) for path in public_paths()}
    golden("names", {"all": toolcrib.__all__, "paths": dict(sorted(found.items()))})


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


def test_words_that_pages_promise() -> None:
    """The tables that other tests hold to the code: settings, rules of lint, variables, events."""
    golden(
        "words",
        {
            "settings": sorted(set(SETTING.findall(page("project.md")))),
            "rules": sorted(CODE.findall(page("manifest.md"))),
            "variables": sorted(set(re.findall(r"[A-Z_]{3,}", " ".join(VARIABLE.findall(page("cli.md")))))),
            "events": sorted(set(EVENT.findall(page("audit.md")))),
        },
    )


VALUES: dict[str, list[Any]] = {
    "approvals.channels": [["cli"], ["page", "elicitation"]],
    "approvals.people": [{"ada": ["telegram:12345"]}],
    "approvals.ttl_hours": [24, 0.5],
    "audit.max_bytes": [65536],
    "builtins": [["read_file", "web_search"], {"fetch_url": None}],
    "database": ["sqlite", "postgresql://ada@db.example.com/crib"],
    "inputs.lenient": [True],
    "limits.calls_per_minute": [60],
    "limits.concurrency": [4],
    "limits.created_tools": [50],
    "limits.timeout_ms": [60000],
    "mcp.max_listed": [40],
    "mcp.pinned": [["a"]],
    "middleware": [["logging", {"use": "rate_limit", "tools": ["a*"], "options": {"per_minute": 9}}]],
    "mcp_servers": [
        {"a": {"command": "a", "args": ["b"], "env": {"A": "b"}, "cwd": "."}},
        {"a": {"url": "https://example.com/mcp", "headers": {"A": "b"}}},
    ],
    "models.providers": [{"local": {"api": "openai", "base_url": "http://127.0.0.1:11434/v1"}}],
    "policy.default": ["allow", "ask", "deny"],
    "policy.rules": [
        [
            {"name": "a", "effect": "ask", "tools": ["a*"], "bundles": ["b"], "tags": ["c"], "reason": "d"},
            {"effect": "deny", "annotations": {"destructive": True}, "callers": ["mcp:*"]},
            {"effect": "allow", "when": {"required": ["a"]}},
        ]
    ],
    "policy.self_approval": [True],
    "retention.calls_days": [1, 365],
    "retention.failed_days": [180],
    "retention.runs_days": [90],
    "retry.jitter": [0.1],
    "retry.max_attempts": [3],
    "roots": [{"docs": "docs", "out": {"path": "out", "write": True}}],
    "sandbox.minimum": ["full", "landlock", "none"],
    "secrets.sources": [
        [{"env": {}}, {"env_file": {"path": ".env"}}, {"folder": {"path": "s"}}],
        [{"command": {"argv": ["pass", "${NAME}"]}}, {"keyring": {"service": "a"}}],
    ],
    "security.allowed_hosts": [["api.example.com", "*.example.org"]],
    "security.max_permissions": [
        {"network": False, "fs": {"read": ["."], "write": []}, "secrets": [], "env": []}
    ],
    "sources": [[{"dir": ".", "dialect": "vega", "permissions": {"network": False, "fs": {"read": ["."]}}}]],
    "workers.lease_s": [5, 60.5],
}
"""Values that each setting takes."""


def test_settings_that_are_taken(crib: GoldenCrib) -> None:
    """Every setting with the values it takes, with one it does not, and misspelt."""
    assert sorted(VALUES) == kept("words")["settings"]
    most = max(map(len, VALUES.values()))
    takes = [{key: values[min(at, len(values) - 1)] for key, values in VALUES.items()} for at in range(most)]
    wrong: dict[str, Any] = {key: {"?": 0} for key in VALUES}
    misspelt = {f"{key}x": values[0] for key, values in VALUES.items()}
    golden("settings", [taken(crib, settings) for settings in (*takes, wrong, misspelt)])


def taken(crib: GoldenCrib, settings: dict[str, Any]) -> dict[str, Any]:
    """Tell how settings are taken that are given by their dotted names."""
    document: dict[str, Any] = {}
    for key, value in settings.items():
        block, _, below = key.partition(".")
        if below:
            document.setdefault(block, {})[below] = value
        else:
            document[block] = value
    crib.write({".toolcrib/config.yml": json.dumps(document)})
    found = crib.json("lint")["diagnostics"]
    told = sorted(f"{one['severity']}[{one['rule']}] {one['where']}" for one in found)
    return {"settings": document, "found": told}


def test_the_manifest_schema(crib: GoldenCrib) -> None:
    golden(
        "schema",
        [crib.case("lint", "--schema", "manifest", *more) for more in (["--json"], [])],
    )
