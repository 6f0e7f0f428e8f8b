"""Kinds and formats of installed packages: the example package, and packages that are broken or clash."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.crib import Crib
from tests.e2e.terminal import terminal

ROOT = Path(__file__).parents[3]
PACKAGE = ROOT / "examples" / "kind_package"
TOOLCRIB = (sys.executable, "-m", "toolcrib")
NAME = {"name": {"type": "string", "description": "Whom to greet"}}


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example package, built and installed into a folder without a network."""
    folder = tmp_path_factory.mktemp("plugins")
    source = shutil.copytree(PACKAGE, folder / "source")
    command = [
        sys.executable,
        "-m",
        "uv",
        "pip",
        "install",
        "--quiet",
        "--offline",
        "--no-deps",
        "--no-index",
    ]
    target = ["--no-build-isolation", "--python", sys.executable, "--target", str(folder / "site")]
    subprocess.run([*command, *target, str(source)], check=True, cwd=folder)
    return folder / "site"


def toolcrib(crib: Crib, site: Path, *arguments: str) -> tuple[int, str, str]:
    environ = {**os.environ, "PYTHONPATH": str(site), "NO_COLOR": "1"}
    command = [*TOOLCRIB, *arguments]
    ran = subprocess.run(command, cwd=crib.root, env=environ, capture_output=True, text=True, check=False)
    return ran.returncode, ran.stdout, ran.stderr


def python(crib: Crib, site: Path, *arguments: str) -> str:
    environ = {**os.environ, "PYTHONPATH": str(site)}
    command = [sys.executable, *arguments]
    ran = subprocess.run(command, cwd=crib.root, env=environ, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def plugin(folder: Path, point: str, code: str, group: str = "toolcrib.kinds") -> Path:
    """A package as it lies on disk once it is installed."""
    facts = folder / "other-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text(f"[{group}]\n{point}\n")
    (folder / "other.py").write_text(code)
    return folder


def test_a_tool_of_an_installed_kind_runs_and_is_checked(crib: Crib, installed: Path) -> None:
    crib.tool("greet", "greeting", {"text": "Hello, ${name}!"}, NAME)
    assert toolcrib(crib, installed, "run", "greet", "name=Ada")[:2] == (0, "Hello, Ada!\n")
    assert toolcrib(crib, installed, "lint")[0] == 0

    crib.tool("wrong", "greeting", {"text": "${nobody}"}, NAME)
    crib.tool("worse", "greeting", {"txt": "a"}, NAME)
    code, out, _ = toolcrib(crib, installed, "lint", "--format", "json")
    found = {one["rule"]: one for one in json.loads(out)["diagnostics"]}
    assert code == 4
    assert found["placeholder"]["where"] == "$.exec.greeting.text"
    assert found["unknown-key"]["hint"] == "did you mean `text`?"


def test_its_record_asks_for_a_new_tool(crib: Crib, installed: Path) -> None:
    new = ("new", "hail", "--kind", "greeting")
    code, _, err = toolcrib(crib, installed, *new)
    assert code == 2
    assert "--run 'Hello, ${name}!'" in err
    assert toolcrib(crib, installed, *new, "--run", "Hail, ${name}!")[0] == 0
    assert toolcrib(crib, installed, "run", "hail", "name=Ada")[:2] == (0, "Hail, Ada!\n")
    assert "|greeting]" in toolcrib(crib, installed, "new", "--help")[1]
    environ = {**os.environ, "PYTHONPATH": str(installed)}
    with terminal([*TOOLCRIB, "new", "bow", "--kind", "greting"], crib.root, environ) as screen:
        screen.end()
        assert "did you mean `greeting`?" in screen.text
    with terminal([*TOOLCRIB, "new", "bow", "--kind", "greeting"], crib.root, environ) as screen:
        for question, answer in (
            ("for?", ""), ("What does it say?", "Good day."), ("arguments?", ""), ("[y/N]", "n"),
        ):  # fmt: skip
            screen.read_until(question)
            screen.type(f"{answer}\n")
        assert screen.end() == 0, screen.text
    assert toolcrib(crib, installed, "run", "bow")[:2] == (0, "Good day.\n")


def test_its_record_says_what_needs_trust_and_what_an_approver_reads(crib: Crib, installed: Path) -> None:
    """What it does beyond its permissions waits for trust, and is shown with each approval."""
    loud = {"text": "Hello, ${name}!", "loud": True}
    folder = crib.tool("shout", "greeting", loud, NAME, approval={"required": True, "reason": "It is late"})
    code, _, err = toolcrib(crib, installed, "run", "shout", "name=Ada")
    assert code == 5
    assert "wake the neighbours" in err
    environ = {**os.environ, "PYTHONPATH": str(installed)}
    with terminal([*TOOLCRIB, "trust"], crib.root, environ, 120, accepted=False) as screen:
        screen.read_until("N]")
        screen.type("y\n")
        assert screen.end() == 0, screen.text
        assert "1 greeting tool may wake the neighbours: shout" in screen.text
    waits = toolcrib(crib, installed, "run", "shout", "name=Ada", "--wait", "pending", "--json")[1]
    approval = json.loads(waits)["meta"]["details"]["approval"]
    shown = toolcrib(crib, installed, "approvals", "show", approval)[1]
    assert "may touch: wake the neighbours" in shown
    with terminal([*TOOLCRIB, "run", "shout", "name=Ada"], crib.root, environ, 120, accepted=False) as screen:
        screen.read_until("may touch: wake the neighbours")
        screen.read_until("N]")
        screen.type("y\n")
        assert screen.end() == 0, screen.text
        assert "HELLO, ADA!" in screen.text
    manifest = folder / "tool.yml"
    manifest.write_text(manifest.read_text().replace("Hello", "Hail"))
    assert json.loads(toolcrib(crib, installed, "list", "--json")[1])["tools"][0]["trust"] == "changed"


def test_code_of_a_package_that_says_nothing_of_itself_needs_trust(crib: Crib, tmp_path: Path) -> None:
    (site := tmp_path / "site").mkdir()
    quiet = (PACKAGE / "toolcrib_greeting" / "kind.py").read_text().replace("    touches=_touches,\n", "")
    (site / "schema.json").write_bytes((PACKAGE / "toolcrib_greeting" / "schema.json").read_bytes())
    plugin(site, "greeting = other:KIND", quiet)
    crib.tool("greet", "greeting", {"text": "Hello"})
    code, _, err = toolcrib(crib, site, "run", "greet")
    assert code == 5
    assert "run the code of kind greeting, not confined" in err


def test_its_record_adds_to_the_span_of_a_call(crib: Crib, installed: Path) -> None:
    crib.tool("greet", "greeting", {"text": "Hello"})
    program = crib.write(
        "traced.py",
        "import asyncio\n"
        "from opentelemetry.sdk.trace import TracerProvider\n"
        "from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor\n"
        "from toolcrib import Project\n"
        "from toolcrib.middleware import tracing_middleware\n"
        "provider = TracerProvider()\n"
        "provider.add_span_processor(SimpleSpanProcessor(ConsoleSpanExporter()))\n"
        "project = Project.open('.')\n"
        "project.toolset.use(tracing_middleware(provider.get_tracer('t')))\n"
        "print(asyncio.run(project.call('greet')).unwrap())\n",
    )
    done = python(crib, installed, str(program))
    assert '"gen_ai.tool.type": "extension"' in done
    assert '"greeting.volume": "normal"' in done


def test_its_record_writes_its_part_of_the_documentation(crib: Crib, installed: Path) -> None:
    printed = python(crib, installed, str(ROOT / "scripts" / "make_docs.py"), "--kind", "greeting")
    assert "| `greeting` | in the process of Toolcrib | its own code: it only writes a text |" in printed
    assert "### greeting" in printed
    assert "| `exec.greeting.loud` | true or false | `false` | In capital letters. |" in printed
    python(crib, installed, str(ROOT / "scripts" / "make_docs.py"), "--check")  # Toolcrib's pages lack it.


def test_without_the_package_the_kind_is_an_error(crib: Crib, tmp_path: Path) -> None:
    crib.tool("greet", "greeting", {"text": "Hello"})
    code, out, err = toolcrib(crib, tmp_path, "lint")
    assert code == 4
    assert "greeting" in out + err


def test_a_file_of_an_installed_format_is_read(crib: Crib, installed: Path) -> None:
    file = crib.write("more/greetings.yaml", "greetings:\n  hail: Hail, ${name}!\n  bow: Good day.\n")
    code, out, _ = toolcrib(
        crib, installed, "import", "convert", "--to", "native", "--only", "hail", str(file)
    )
    assert code == 0
    assert "text: Hail, ${name}!" in out

    crib.write(".toolcrib/config.yml", "sources: [{dir: more, dialect: greetings}]\n")
    toolcrib(crib, installed, "trust", "--yes")
    assert toolcrib(crib, installed, "run", "hail", "name=Ada")[:2] == (0, "Hail, Ada!\n")
    assert toolcrib(crib, installed, "run", "bow")[:2] == (0, "Good day.\n")


@pytest.mark.parametrize(
    ("point", "code", "expected"),
    [
        ("greeting = other:KIND", "raise RuntimeError('half installed')", "half installed"),
        ("greeting = other:KIND", "KIND = 'a text'", "not a Kind named 'greeting'"),
        ("http = other:KIND", "KIND = 1", "Toolcrib itself both define 'http'"),
    ],
)
def test_a_broken_or_clashing_package_is_a_finding(
    crib: Crib, tmp_path: Path, point: str, code: str, expected: str
) -> None:
    crib.tool("greet", "greeting", {"text": "Hello"})
    crib.shell()
    site = tmp_path / "site"
    site.mkdir()
    status, out, err = toolcrib(crib, plugin(site, point, code), "lint")
    assert status == 4
    assert expected in out + err
    assert "package other" in out + err
