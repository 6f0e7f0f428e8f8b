"""What importing the manifests' package costs."""

from __future__ import annotations

import subprocess
import sys

HEAVY = ("ruamel", "jsonschema_rs", "ryaml", "jsonpath", "re2", "difflib", "orjson")


def test_importing_manifests_loads_nothing_heavy() -> None:
    program = f"import sys, toolcrib.manifest; print([name for name in {HEAVY!r} if name in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def test_loading_good_manifests_never_starts_the_slow_parser() -> None:
    program = (
        "import sys; from pathlib import Path; from toolcrib.manifest import load_tools;"
        "load_tools(Path('tests/data/glee')); print('ruamel.yaml' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "False"
