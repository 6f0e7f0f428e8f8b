"""The forms of requests and results, and of the environment of a task."""

from __future__ import annotations

import msgspec
import pytest

from toolcrib.errors import UsageError
from toolcrib.pods.protocol import EXEC, MESSAGES, ExecRequest, ExecResult
from toolcrib.pods.runner import Task
from toolcrib.pods.tools import result_text


@pytest.mark.parametrize(
    ("given", "counts"), [(-1, 30), (0, 30), (0.5, 30), (1, 1), (119.5, 119.5), (500, 120)]
)
def test_a_limit_that_is_too_small_or_too_large_is_replaced(given: float, counts: float) -> None:
    assert ExecRequest(timeout=given).seconds == counts


def test_a_request_has_the_names_of_the_guide() -> None:
    text = msgspec.json.encode(ExecRequest("1", "ls", work_dir="/workspace"))
    assert text == b'{"id":"1","command":"ls","workDir":"/workspace"}'
    # As Go writes what is not set.
    assert EXEC.read("1", b'{"id":"1","command":"ls","args":null,"timeout":30,"more":1}').line == (
        "/bin/sh",
        "-c",
        "ls",
    )
    assert EXEC.read("1", b'{"argv":["ls","-l"]}').line == ("ls", "-l")


def test_the_id_of_a_request_is_the_one_in_the_name_of_its_file() -> None:
    assert EXEC.id_of("exec-request-a.json") == "a"
    assert [
        EXEC.id_of(name) for name in ("exec-request-.json", "exec-result-a.json", "exec-request-a.json~")
    ] == [None] * 3
    assert MESSAGES.id_of("send-1.json") == "1"
    with pytest.raises(msgspec.DecodeError, match="not the one in the name"):
        EXEC.read("a", b'{"id":"b"}')


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (ExecResult("1", 0, "out\n"), "out\n"),
        (ExecResult("1", 2, "out", "err"), "out\nSTDERR: err\n(exit code: 2)"),
        (ExecResult("1", 1), "\n(exit code: 1)"),
        (ExecResult("1"), "(no output)"),
        (ExecResult("1", 124, "", "", True), "\n(timed out)\n(exit code: 124)"),
    ],
)
def test_a_model_reads_streams_and_exit_code(result: ExecResult, text: str) -> None:
    assert result_text(result) == text


def test_a_task_is_read_from_the_environment() -> None:
    environment = {
        "TASK": "do it",
        "MODEL_PROVIDER": "my-llm",
        "MODEL_NAME": "small",
        "MODEL_BASE_URL": "http://llm:8000/v1",
        "TOOLS_ENABLED": "False",
        "SOURCE_CHANNEL": "slack",
    }
    task = Task.of(environment)
    assert (task.task, task.tools, task.channel, task.chat) == ("do it", False, "slack", "")
    (provider,) = task.providers
    assert (provider.name, provider.api, provider.base_url, provider.key) == (
        "my-llm",
        "openai",
        "http://llm:8000/v1",
        None,
    )
    with pytest.raises(UsageError, match="TASK is not set"):
        Task.of({})
