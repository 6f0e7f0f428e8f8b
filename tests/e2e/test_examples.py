"""Every file of `examples/` runs by itself and shows what it is there to show."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import need
from toolcrib.sandbox import level

EXAMPLES = Path(__file__).parents[2] / "examples"
CONFINED = {"mcp_client", "project_from_python"}

SHOWN: dict[str, list[str]] = {
    "agent_runs": [
        "func tool: noon in UTC\n",
        "struct tool with a database: User: Ada\n",
        "schema: Invalid input: $.priority urgent is not one of: low, high",
        "side by side: noon in Oslo | noon in Rome | noon in Lima\n",
        "errors: got through | in the end | free again | Cancelled: authentication failed | ",
        "three levels: story-7 in tenant-1\n",
        'tree: [["boss", 0, "done"], ["editor", 1, "done"], ["writer", 2, "done"]]\n',
    ],
    "backoff": [
        "after attempt 1: ",
        "within 10 % of 1\n",
        "after attempt 5: ",
        "within 10 % of 625\n",
        "attempts: 6\n",
        "fixed: [0.5, 0.5]\n",
    ],
    "class_tool": [
        "opened\n",
        "{'location': 'Oslo'} → 4 °C\n",
        "{'location': 'Oslo', 'unit': 'fahrenheit'} → 39 °F\n",
        "closed\nrequests to the service: 2\n",
    ],
    "filter_and_views": [
        "by name: ['add', 'read_page']\n",
        "by tag: ['read_page', 'search.pages']\n",
        "cannot be called: error\n",
        "Did you mean read_page?\n",
        '"annotations": {"readOnlyHint": true}',
        '"name": "search_pages", "title": "search.pages"',
        '"input_schema": {"type": "object", "properties": {"query"',
    ],
    "mcp_client": [
        "tools: ['repo_scan', 'repo_stats', 'web_search', 'tool_call', 'tool_create', ",
        'repo_stats: {"files": 1, "loc": ',
        "wrong argument: {'path': '$.folder', 'message': 'is not known; known: path'}\n",
        "not approved: True approval_required\n",
    ],
    "middleware": [
        "log: call greet started by local\nworking_hours before greet {'name': 'Ada'}\n",
        "working_hours after greet\nlog: call greet done",
        "greet → Hello, Ada!\n",
        "forge → denied\n",
        "dawdle → timed_out\n",
    ],
    "parallel_execution": ["oak: found, ", "yew: ground\n", "10 calls of 0.2 s", "at once: True\n"],
    "process_isolation": [
        "add: 5\n",
        "crash: tool_failed: the tool's process was ended by ",
        "quit: tool_failed: the tool's process ended with exit code 3 before it answered\n",
        "hang: timed_out: hang took longer than 500 ms",
        "still here, and adding: 42\n",
    ],
    "progress_and_cancel": [
        "1 of 2 planks sawn\n2 of 2 planks sawn\n2 planks\n",
        "the saw stops\nthe call was cancelled\n",
    ],
    "project_from_python": [
        "tools: ['count_lines', 'shout']\n",
        "granted: 2 notes/todo.txt\n",
        "not granted: command_failed | wc: private.txt: No such file or directory\n",
        "own function: DONE\n",
        "audit: TOOL_EXECUTED name=count_lines",
        "log intact: True\n",
    ],
    "quick_start": [
        '"enum": [\n',
        '"description": "The unit of the answer."',
        "212 °F in °C: 100.0\n",
        "a bad call runs nothing: invalid_input\n",
        '  $.degrees "hot" is not of type "number"\n',
        "  $.to kelvin is not one of: celsius, fahrenheit\n",
    ],
    "retry_and_error_types": [
        "flaky: ok, attempts 2, snoozes 0 | got through\n",
        "broken: tool_failed, attempts 2, snoozes 0 | Tool call failed: ConnectionError: the line was cut",
        "patient: ok, attempts 4, snoozes 0 | fourth time lucky\n",
        "locked: tool_cancelled, attempts 1, snoozes 0 | Cancelled: authentication failed\n",
        "picky: invalid_input, attempts 1, snoozes 0 | Invalid input: there is no user u-404\n",
        "limited: ok, attempts 1, snoozes 3 | worked in run r-1\n",
    ],
    "run_variables": [
        "arguments the model may give: ['words']\n",
        "50 words for story-123 of tenant-1, at most 10 chapters, ['story_id', 'tenant_id']\n",
        "'run': 'run-7', 'session': 'session-1', 'same': True, 'attempt': 1",
        "without variables: LookupError: the run variable 'tenant_id' is not set\n",
    ],
    "schema_validation": [
        "good: SHOP-7 'Oil the lathe': medium, ['assignee', 'score', 'tags']\n",
        *(
            f"{rule}: $."
            for rule in ("required", "type", "minLength", "maxLength", "pattern", "enum", "minimum")
        ),
        *(f"{rule}: $." for rule in ("maximum", "items", "minItems", "maxItems", "nested required")),
        "unknown name: $.asignee is not known; did you mean assignee?\n",
    ],
    "typed_parameters": [
        "'Oil the lathe' by Ada until 01.03.2026, HIGH, tags []\n",
        '  $.title "No" is shorter than 3 characters\n',
        "  $.priority urgent is not one of: low, high\n",
        "  $.assignee.nam is not known; did you mean name?\n",
    ],
}


def test_every_example_is_here() -> None:
    there = {path.stem for path in EXAMPLES.glob("*.py") if not path.stem.startswith("demo")}

    assert there == set(SHOWN)


@pytest.mark.parametrize("name", SHOWN)
def test_an_example_shows_what_it_promises(name: str, tmp_path: Path) -> None:
    if name in CONFINED:
        need("a kernel that confines tools", level()["level"] != "none")

    done = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLES / f"{name}.py")],
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    at = 0
    for text in SHOWN[name]:  # all of it, in this order
        at = done.stdout.find(text, at)
        assert at >= 0, f"{text!r} is not in\n{done.stdout}"
    assert done.stderr == ""
    assert list(tmp_path.iterdir()) == []  # nothing is left behind
