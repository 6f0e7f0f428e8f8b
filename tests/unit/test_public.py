"""The public names of every package, and what `import toolcrib` costs."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import toolcrib
from tests.golden.names import found, public_paths

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
    "pydantic_core",
    "rapidfuzz",
    "re2",
    "rich",
    "ruamel",
    "ryaml",
}

PACKAGES = ["toolcrib", *(m.name for m in pkgutil.walk_packages(toolcrib.__path__, "toolcrib.") if m.ispkg)]


def exported(package: str) -> set[str]:
    """Collect what a package offers to users' type checkers: `__all__`, and what is imported as itself."""
    module = importlib.import_module(package)
    source = Path(str(module.__file__)).read_text(encoding="utf-8")
    aliases = [one for node in ast.walk(ast.parse(source)) for one in getattr(node, "names", ())]
    own = {one.name for one in aliases if isinstance(one, ast.alias) and one.asname == one.name}
    return own | set(getattr(module, "__all__", ()))


@pytest.mark.timeout(120)  # It imports every optional library.
def test_packages_export_all_that_the_docs_name_and_every_name_is_there() -> None:
    documented: dict[str, set[str]] = {}
    for path in public_paths():
        package, _, name = path.partition(":")
        if (value := found(path)) is not None and not inspect.ismodule(value):
            documented.setdefault(package, set()).add(name)
    for package in PACKAGES:
        module, names = importlib.import_module(package), exported(package)
        assert documented.get(package, set()) - names == set(), package
        assert [name for name in names if not hasattr(module, name)] == [], package


def test_what_is_imported_on_first_use_is_what_type_checkers_and_the_layers_see() -> None:
    seen: dict[str, set[tuple[str, str]]] = {}
    for package in PACKAGES:
        tree = ast.parse(Path(str(importlib.import_module(package).__file__)).read_text(encoding="utf-8"))
        homes = next(
            (one for one in ast.walk(tree) if ast.unparse(one).startswith("imported_on_use(__n")), None
        )
        if not isinstance(homes, ast.Call):
            continue
        blocks = (node for node in tree.body if isinstance(node, ast.If))
        imports = [node for block in blocks for node in block.body if isinstance(node, ast.ImportFrom)]
        seen[package] = {(str(node.module), one.name) for node in imports for one in node.names}
        table = ast.literal_eval(homes.args[1]).items()
        assert {(f"{package}.{home}", name) for home, names in table for name in names.split()} == seen[
            package
        ]
        for home, name in seen[package]:
            assert getattr(importlib.import_module(package), name) is getattr(
                importlib.import_module(home), name
            )
    assert len(seen) > 2


def test_import_pulls_in_nothing_heavy() -> None:
    code = "import sys, toolcrib; print(*sys.modules)"
    output = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout

    assert "toolcrib" in output.split()
    assert {name.split(".")[0] for name in output.split()} & HEAVY == set()


def test_plain_functions_need_no_pydantic() -> None:
    code = """
import sys
from typing import Annotated, Literal
from toolcrib import Toolset
tools = Toolset()
@tools.tool
def plain(
    a: int, b: list[float] | None, c: Annotated[dict[str, bool], "C"] = {}, d: Literal["x", "y"] = "x", e=1
) -> dict[str, float]:
    return {"b": b[0]}
result = tools.call_sync("plain", {"a": 1, "b": [2]})
print(len(tools.schema()), result.value, *{"pydantic", "pydantic_core"} & sys.modules.keys())
"""
    output = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout

    assert output.strip() == "1 {'b': 2.0}"


def test_the_state_of_commands_needs_no_event_loop() -> None:
    code = "import sys, toolcrib.state; print('asyncio' in sys.modules, 'psycopg' in sys.modules)"
    output = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout

    assert output.split() == ["False", "False"]


def test_the_help_of_no_command_loads_what_runs_tools() -> None:
    code = (
        "import sys, click\n"
        "from toolcrib.cli.group import toolcrib\n"
        "waiting = [toolcrib]\n"
        "for one in waiting:\n"
        "    if isinstance(one, click.Group):\n"
        "        waiting += [one.get_command(click.Context(one), name) for name in one.list_commands(None)]\n"
        "print(len(waiting), *sys.modules)"
    )
    output = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    count, *modules = output.split()

    assert int(count) > 60
    slow = {"toolcrib.project", "toolcrib.core.toolset", "toolcrib.serve"}
    assert slow & set(modules) == set()
