"""Everything that the server says on the web page is there in German, too."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import toolcrib
from tests.german import GERMAN, has_german
from toolcrib import errors
from toolcrib.manifest.yaml.diagnostics import RULES
from toolcrib.sandbox import probe
from toolcrib.sandbox.host.failures import ANY_NAMESPACE, HINTS
from toolcrib.sandbox.levels.probe import ESCAPES

SHOWN = {
    "executors/mcp/process/local.py": {"grants_of"},
    "executors/trace/block.py": {
        "_files", "_reads", "_unused", "_why", "_network", "_variables", "_variable",
    },
    "guard/approvals/records.py": {"doubts_about", "_found"},
    "guard/policy/policy.py": {"_misses_annotations", "_none_fits", "_by_rule", "_own_approval", "_check"},
    "guard/secrets/command_sources.py": None,
    "guard/secrets/sources.py": {
        "value_of", "require_length", "_parse", "_values", "parse_env_file", "_value", "FolderSecrets",
        "UserSecrets", "resolve",
    },
    "manifest/curl.py": {"entries", "secret", "headers", "body"},
    "project/config/weakening.py": None,
    "project/tools/mounted.py": {"_ALL_OF_IT", "suspicious", "_described", "_wait"},
    "project/trust/reasons.py": None,
    "project/trust/trust.py": {"why_not_here"},
    "sandbox/kernel/cgroup.py": {"open_pool"},
    "sandbox/levels/trial.py": {"confined_files", "filtered_calls"},
    "sandbox/levels/probe.py": {
        "NO_SANDBOX", "LOWER", "UNLIMITED_MEMORY", "UNLIMITED", "BY_NUMBER", "NO_PROXY", "PROXY_WORKS",
        "NO_LEVEL", "LOWER_LEVEL", "probe", "kernel_trials", "lower_trial", "level_trial",
    },
}  # fmt: skip
"""The functions and constants whose sentences the page shows; None for all of a module."""
INSIDE = {
    "this tool", "its calls may", "and x more", "but addresses: x", "outside of the project", "x is xx",
    "because it is not stated", "toolcrib secrets set x",
}  # fmt: skip
"""Parts of sentences."""


def sentences(module: str, names: set[str] | None) -> Iterator[str]:
    """Yield the texts of two words or more in a module, or in these functions and constants of it."""
    tree = ast.parse((Path(toolcrib.__file__).parent / module).read_text())
    nodes: list[ast.AST] = [tree] if names is None else [one for one in ast.walk(tree) if _name(one) in names]
    for node in (text for one in nodes for text in _texts(one)):
        parts = node.values if isinstance(node, ast.JoinedStr) else [node]
        text = "".join(str(one.value) if isinstance(one, ast.Constant) else "x" for one in parts).strip(" ;,")
        if len(re.findall(r"(?:^| )[\w']{2,}", text)) > 1:
            yield text


def _name(node: ast.AST) -> str:
    targets = node.targets if isinstance(node, ast.Assign) else []
    return getattr(node, "name", "") or next((one.id for one in targets if isinstance(one, ast.Name)), "")


def _texts(node: ast.AST) -> Iterator[ast.JoinedStr | ast.Constant]:
    if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str)):
        yield node
    elif not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):  # A docstring.
        for child in ast.iter_child_nodes(node):
            yield from _texts(child)


def test_every_error_and_every_rule_has_its_german() -> None:
    kinds = (one for one in vars(errors).values() if isinstance(one, type))
    codes = {one.code for one in kinds if issubclass(one, errors.ToolcribError)}
    assert (set(GERMAN["errors"]), set(GERMAN["rules"])) == (codes, set(RULES))


@pytest.mark.parametrize("module", SHOWN)
def test_every_sentence_has_its_german(module: str) -> None:
    found = set(sentences(module, SHOWN[module])) - INSIDE
    assert found
    assert [one for one in found if not has_german(one)] == []


def test_what_the_machine_lacks_has_its_german() -> None:
    tried = [
        line
        for one in probe()
        for line in (one.detail, one.cost)
        if " " in line and not line.startswith("cgroup v")
    ]
    said = [*HINTS.values(), ANY_NAMESPACE, *re.findall(r'echo "(.*?)"', ESCAPES), *tried]
    assert [one for one in said if not has_german(one)] == []


def test_german_has_the_same_values() -> None:
    pairs = GERMAN["phrases"].items()
    assert [one for one, german in pairs if one.count("{}") != german.count("{}")] == []
    assert all(text.strip() for texts in GERMAN.values() for text in texts.values())
