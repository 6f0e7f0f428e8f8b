"""The public names of every package, and what `import toolcrib` costs."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import subprocess
import sys
from pathlib import Path

import toolcrib

HEAVY = {
    "aiohttp",
    "asyncio",
    "click",
    "filelock",
    "griffe",
    "jsonpath",
    "jsonschema_rs",
    "mcp",
    "orjson",
    "pydantic",
    "rapidfuzz",
    "re2",
    "rich",
    "ruamel",
    "ryaml",
}

PACKAGES = ["toolcrib", *(m.name for m in pkgutil.walk_packages(toolcrib.__path__, "toolcrib.") if m.ispkg)]


def imported_here(package: str) -> set[str]:
    """Collect the public names that a package's `__init__` takes from its modules or defines itself."""
    source = importlib.import_module(package).__file__
    assert source is not None
    names: set[str] = set()
    for node in ast.walk(ast.parse(Path(source).read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "toolcrib":
            names.update(alias.asname or alias.name for alias in node.names)
        elif isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
    return {name for name in names if not name.startswith("_")}


def by_kind(name: str) -> tuple[int, str]:
    """Order constants before classes before the rest, as the linter does."""
    if len(name) > 1 and name.isupper():
        return (0, name)
    return (1, name) if name[0].isupper() else (2, name)


def test_all_is_complete_and_sorted_and_every_listed_name_is_there() -> None:
    for package in PACKAGES:
        module = importlib.import_module(package)
        listed = getattr(module, "__all__", None)
        if listed is None:  # It is for our own use.
            continue
        assert list(listed) == sorted(set(listed), key=by_kind), package
        assert imported_here(package) - set(listed) == set(), package
        assert [name for name in listed if not hasattr(module, name)] == [], package


def test_import_pulls_in_nothing_heavy() -> None:
    code = "import sys, toolcrib; print(*sys.modules)"
    output = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout

    assert "toolcrib" in output.split()
    assert {name.split(".")[0] for name in output.split()} & HEAVY == set()


def test_the_state_of_commands_needs_no_event_loop() -> None:
    code = "import sys, toolcrib.state; print('asyncio' in sys.modules, 'psycopg' in sys.modules)"
    output = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout

    assert output.split() == ["False", "False"]
