"""Public names of Python: the import paths that pages and examples use, and what stands behind them."""

from __future__ import annotations

import ast
import enum
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import toolcrib

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
MISSING = "is not there"
INLINE = re.compile(r"`(toolcrib(?:\.\w+)+)")


def sources() -> Iterator[str]:
    """Give every piece of Python that a reader is shown, and in which nothing of ours is private."""
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        yield from BLOCK.findall(page.read_text(encoding="utf-8"))
    for path in sorted((ROOT / "examples").rglob("*.py")):
        yield path.read_text(encoding="utf-8")


def imported(source: str) -> Iterator[str]:
    """Give what a piece of Python imports from the package, as `module` or `module:name`."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (one.name for one in node.names if one.name.partition(".")[0] == "toolcrib")
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "toolcrib":
            yield from (f"{node.module}:{one.name}" for one in node.names)


def named() -> Iterator[str]:
    """Give the dotted names that the text of the pages speaks of, where they are modules or in one."""
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        for name in INLINE.findall(page.read_text(encoding="utf-8")):
            module, _, last = name.rpartition(".")
            for path in (name, f"{module}:{last}"):
                if found(path) is not None:
                    yield path


def found(path: str) -> Any:
    """Give what an import path leads to, or None."""
    module, _, name = path.partition(":")
    try:
        here = importlib.import_module(module)
    except ImportError:
        return None
    return getattr(here, name, None) if name else here


def public_paths() -> set[str]:
    """Give every import path that is told or used."""
    used = {path for source in sources() for path in imported(source)}
    return used | set(named()) | {f"toolcrib:{name}" for name in toolcrib.__all__}


def sheet(path: str) -> Any:
    """Tell what a caller can rely on of what an import path leads to."""
    value = found(path)
    if value is None:
        return MISSING
    if inspect.ismodule(value):
        return "module"
    if inspect.isclass(value):
        return members(value)
    if callable(value):
        return parameters(value)
    return type(value).__name__


def members(kind: type) -> dict[str, Any]:
    """Tell a class by its bases, its call and its public members that are defined in the package."""
    told: dict[str, Any] = {"bases": [one.__name__ for one in kind.__mro__[1:] if one is not object]}
    told["call"] = parameters(kind)
    if issubclass(kind, enum.Enum):
        return told | {"values": {one.name: one.value for one in kind}}
    for owner in reversed(kind.__mro__):
        if owner.__module__.partition(".")[0] != "toolcrib":
            continue
        for name in [*vars(owner), *inspect.get_annotations(owner)]:
            if not name.startswith("_"):
                member = inspect.getattr_static(kind, name, None)
                told[name] = parameters(getattr(kind, name)) if inspect.isroutine(member) else "field"
    return told


def parameters(call: Any) -> str:
    """Tell a signature: names, order, and which parameters may be left out; not the annotations."""
    try:
        signature = inspect.signature(call)
    except (TypeError, ValueError):
        return "callable"
    shown = []
    for one in signature.parameters.values():
        default = one.default if one.default is inspect.Parameter.empty else "…"
        shown.append(one.replace(annotation=inspect.Parameter.empty, default=default))
    plain = signature.replace(parameters=shown, return_annotation=inspect.Signature.empty)
    return f"{'async ' if inspect.iscoroutinefunction(call) else ''}{plain}".replace("'…'", "…")
