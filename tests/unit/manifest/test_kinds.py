"""What a kind's record says of its tools, and that nothing outside its folder knows it by name."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import toolcrib
from tests.german import has_german
from toolcrib.manifest import KINDS
from toolcrib.manifest.kinds import is_function, is_served
from toolcrib.manifest.touches import effects, hosts, may_touch
from toolcrib.spec import (
    CommandExec,
    CompositeExec,
    ExecConfig,
    FileExec,
    FunctionExec,
    HttpExec,
    McpExec,
    Network,
    Permissions,
    PythonExec,
    SecretSpec,
    SqlExec,
    Step,
    Tool,
)

SOURCE = Path(toolcrib.__file__).parent
NAMES = {kind.name for kind in KINDS.builtin}
OWN_WORDS = {
    # Kinds of other things, some of which have the name of a kind of tools.
    "builtin/web/web_search.py": "entries of a folder",
    "guard/trust/digest.py": "files of code",
    "project/config/secrets.py": "sources of secrets",
    "sandbox/host/handle.py": "launchers",
    "sandbox/host/runner.py": "launchers",
}


def tool_of(kind: str, config: ExecConfig, permissions: Permissions | None = None) -> Tool:
    return Tool("t", "About.", kind, {}, config, permissions=permissions or Permissions())


def literals(node: ast.expr) -> set[object]:
    """The values in a literal, or in a literal list of them."""
    if isinstance(node, ast.Tuple | ast.Set | ast.List):
        return set().union(*map(literals, node.elts))
    return {node.value} if isinstance(node, ast.Constant) else set()


def comparisons(tree: ast.AST) -> Iterator[ast.Compare]:
    """Comparisons of an attribute `kind` with the name of a kind."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            of_kind = any(isinstance(side, ast.Attribute) and side.attr == "kind" for side in sides)
            if of_kind and any(literals(side) & NAMES for side in sides):
                yield node


def test_no_name_of_a_kind_is_compared_outside_of_its_folder() -> None:
    places = []
    for path in sorted(SOURCE.rglob("*.py")):
        name = path.relative_to(SOURCE).as_posix()
        if name not in OWN_WORDS:
            places += [f"{name}:{node.lineno}" for node in comparisons(ast.parse(path.read_text()))]
    assert places == []


def test_such_a_comparison_is_found() -> None:
    for text in ("tool.kind == 'http'", "one.tool.kind not in ('sql', 'mcp')", "'file' != self.kind"):
        assert list(comparisons(ast.parse(text))), text
    assert not list(comparisons(ast.parse("event.kind == 'chunk'")))


@pytest.mark.parametrize(
    ("tool", "lines", "acts"),
    [
        (tool_of("command", CommandExec("ls")), ["nothing of this machine"], []),
        (
            tool_of("command", CommandExec("sh", allow_code=True), Permissions(read=("a",), write=("b",))),
            ["read a", "write b", "code: values of a call may be run as code"],
            ["write b", "code: values of a call may be run as code"],
        ),
        (
            tool_of("http", HttpExec("GET", "https://a.example/x"), Permissions(Network("any"))),
            ["network: the host of https://a.example/x"],
            ["network: the host of https://a.example/x"],
        ),
        (
            tool_of("sql", SqlExec("sqlite", "SELECT 1"), Permissions(Network("any"))),
            ["network: any public host"],
            ["network: any public host"],
        ),
        (
            tool_of("composite", CompositeExec((Step("a", "one"), Step("b", "two"), Step("c", "one")))),
            ["everything that the tools it calls may touch: one, two"],
            [],
        ),
        (
            tool_of("python", PythonExec("m", "f"), Permissions(Network("host"), env=("LANG",))),
            ["network: this machine's whole network", "environment variable LANG"],
            ["network: this machine's whole network", "environment variable LANG"],
        ),
        (
            tool_of(
                "python",
                PythonExec("m", "f"),
                Permissions(Network("hosts", ("a.example",)), secrets=(SecretSpec("KEY"),)),
            ),
            ["network: a.example", "secret KEY"],
            ["network: a.example", "secret KEY"],
        ),
        (tool_of("function", FunctionExec("m:f")), ["run inside this process, not confined"], []),
        (tool_of("python", PythonExec("m", "f")), ["nothing of this machine"], []),
        (tool_of("file", FileExec("read", "a")), ["nothing of this machine"], []),
        (tool_of("mcp", McpExec("s", "t")), ["nothing of this machine"], []),
    ],
    ids=lambda value: value.kind if isinstance(value, Tool) else "",
)
def test_what_a_call_may_touch_in_words(tool: Tool, lines: list[str], acts: list[str]) -> None:
    assert (may_touch(tool), effects(tool)) == (lines, acts)
    assert all(map(has_german, lines))


def test_the_hosts_of_requests() -> None:
    tool = tool_of("http", HttpExec("GET", "https://u@a.example:8443/x"))
    assert hosts(tool) == ["a.example:8443"]
    assert hosts(replace(tool, permissions=Permissions(Network("hosts", ("b", "c"))))) == ["b", "c"]
    assert hosts(tool_of("command", CommandExec("curl"), Permissions(Network("hosts", ("b",))))) == []


def test_tools_of_servers_and_functions_of_the_program_have_no_file() -> None:
    served, function = tool_of("mcp", McpExec("s", "t")), tool_of("function", FunctionExec("m:f"))
    assert [(is_served(one), is_function(one)) for one in (served, function)] == [
        (True, False),
        (False, True),
    ]


def test_what_requests_say_of_themselves() -> None:
    of = KINDS["http"].annotations
    found = {method: of(HttpExec(method, "")) for method in ("get", "PUT", "POST")}
    assert {method: (one.read_only, one.idempotent) for method, one in found.items()} == {
        "get": (True, True),
        "PUT": (False, True),
        "POST": (False, False),
    }


def test_attributes_of_spans() -> None:
    assert KINDS["sql"].traced(SqlExec("postgres", "")) == {
        "gen_ai.tool.type": "datastore",
        "db.system.name": "postgresql",
    }
    assert KINDS["http"].traced(HttpExec("get", "")) == {"http.request.method": "GET"}
    assert KINDS["python"].traced(PythonExec("m", "f")) == {"gen_ai.tool.type": "function"}
