"""Every file of `examples/` runs by itself and shows what it is there to show."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.commands import complete
from tests.conftest import need
from toolcrib.sandbox import level

EXAMPLES = Path(__file__).parents[3] / "examples"
CONFINED = {"mcp_client", "project_from_python"}

SHOWN: dict[str, list[str]] = {
    "filter_and_views": [
        "by name: ['add', 'read_page']\n",
        "by tag: ['read_page', 'search.pages']\n",
        "cannot be called: error\n",
        "Did you mean read_page?\n",
        '"annotations": {"readOnlyHint": true}',
        '"name": "search_pages", "title": "search.pages"',
        '"input_schema": {"properties": {"query"',
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
        "not granted: permission_denied | wc: private.txt: No such file or directory\n",
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
    "typed_parameters": [
        "'Oil the lathe' by Ada until 01.03.2026, HIGH, tags []\n",
        '  $.title "No" is shorter than 3 characters\n',
        "  $.priority urgent is not one of: low, high\n",
        "  $.assignee.nam is not known; did you mean name?\n",
    ],
    "testing_tools": [
        "read_file: path escapes sandbox: ../../etc/passwd\n",
        "web_search: mock results\nweb_search: more results\nsend_email: the server is down\n",
    ],
}

RUNS: dict[str, list[str]] = {
    "database_tool": [
        "tenant-1: User: Ada <ada@example.com>, User not found\n",
        "tenant-2: User not found, User: Ben <ben@example.com>\n",
    ],
    "distributed": ["oak cut by ", "ash turned by ", "workers: 2\n"],
    "error_types": [
        "free again\nCancelled: authentication failed\nInvalid input: there is no user u-404\nin the end\n",
        "limited: done, attempts 1, snoozes 3\n",
        "locked: cancelled, attempts 1, snoozes 0\n",
        "picky: discarded, attempts 1, snoozes 0\n",
        "transient: done, attempts 2, snoozes 0\n",
    ],
    "exponential_backoff": [
        "the service is up; waited for 0.9 s or more: True\n",
        *(f"after attempt {n}: within 10 % of {n**4} s: True\n" for n in (1, 2, 3, 4, 5)),
    ],
    "func_tool": [
        "It was 1969-07-20T20:17:00+00:00.\n",
        "2 Invalid input: there is no timezone Mars/Olympus",
    ],
    "instant_retry": [
        "got through\nfourth time lucky\nTool call failed: ConnectionError: the line was cut\n",
        "broken ['retry', 'failed']\nflaky ['retry', 'done']\n",
        "patient ['retry', 'retry', 'retry', 'done']\n",
    ],
    "nested_agents": [
        "The writer wrote what was found notes on lathes of proj-123.\n",
        "manager: done after 2 steps\n  writer: done after 2 steps\n    researcher: done after 2 steps\n",
    ],
    "parallel_execution": ["oak: found, ", "yew: ground\n", "8 calls of 0.3 s", "at once: True\n"],
    "run_variables": [
        "50 words for story-123 of tenant-1, at most 10 chapters, ['story_id', 'tenant_id']\ntrue\n",
        "at most 3 chapters, ['max_chapters', 'story_id', 'tenant_id']\ntrue\n",
        "LookupError: the run variable 'tenant_id' is not set\ntrue\n",
    ],
    "schema_validation": [
        '"No" is shorter than 3',
        "does not match",
        "urgent is not one of",
        "less than the minimum of 0",
        "has less than 1 item\n",
        "$.key is required; ",
        'is not of type "string"; ',
        "greater than the maximum of 100; ",
        "has more than 5 items; ",
        "$.assignee.name is required\n",
        "is longer than 20 characters; ",
        '$.tags[1] 5 is not of type "string"; ',
        "did you mean assignee?\n",
        "SHOP-7 'Oil the lathe': medium, ['assignee']\n",
    ],
    "struct_tool": ["opened\nIn Oslo it is 39 °F.\nclosed\nrequests to the service: 1\n"],
}
"""Runs of agents: one process runs them one after the other, as their libraries take seconds to import."""
_ONE_BY_ONE = """
import runpy, sys
for path in sys.argv[1:]:
    print("file:", path)
    runpy.run_path(path, run_name="__main__")
"""


def test_every_example_is_here() -> None:
    there = {path.stem for path in EXAMPLES.glob("*.py") if not path.stem.startswith("demo")}

    assert there == {*SHOWN, *RUNS}


@pytest.mark.parametrize("name", SHOWN)
def test_an_example_shows_what_it_promises(name: str, tmp_path: Path) -> None:
    if name in CONFINED:
        need("a kernel that confines tools", level()["level"] != "none")

    printed = _run([str(EXAMPLES / f"{name}.py")], tmp_path)

    _assert_shown(printed, SHOWN[name])


def test_examples_of_runs_show_what_they_promise(tmp_path: Path) -> None:
    paths = [str(EXAMPLES / f"{name}.py") for name in RUNS]

    printed = _run(["-c", _ONE_BY_ONE, *paths], tmp_path)

    for path, of_file in zip(paths, printed.split("file: ")[1:], strict=True):
        _assert_shown(of_file, [path, *RUNS[Path(path).stem]])


def _assert_shown(printed: str, texts: list[str]) -> None:
    """Assert that all texts are printed, in this order."""
    at = 0
    for text in texts:
        at = printed.find(text, at)
        assert at >= 0, f"{text!r} is not in\n{printed}"


def _run(words: list[str], folder: Path) -> str:
    done = complete(
        [sys.executable, "-W", "error", *words], cwd=folder, input="", capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert list(folder.iterdir()) == []  # nothing is left behind
    return str(done.stdout)
