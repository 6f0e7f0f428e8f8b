"""`toolcrib pod-run` and `toolcrib pod up`: a task from the environment, its tools, its files, its end."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.commands import PROGRAM, Forked, run
from tests.mailbox import serve_once
from tests.patience import wait_for
from toolcrib.pods.protocol import AgentResult, message_id
from toolcrib.pods.runner import Folders, PodRunner, Task
from toolcrib.spec import views

Step = tuple[str, dict[str, Any]]


@pytest.fixture(autouse=True)
def lead(monkeypatch: pytest.MonkeyPatch) -> None:
    """A runner has a process of its own, whose errors all begin with one word."""
    monkeypatch.setattr(views, "one_lead", None)


@pytest.fixture
def folders(tmp_path: Path) -> Folders:
    for name in ("ipc", "workspace", "skills", "tmp"):
        (tmp_path / name).mkdir()
    (tmp_path / "end").touch()
    return Folders(*(str(tmp_path / name) for name in ("ipc", "workspace", "skills", "tmp", "state", "end")))


def script(*steps: Step) -> list[dict[str, Any]]:
    calls = [{"tool": name, "arguments": arguments} for name, arguments in steps]
    return [{"calls": calls}, {"text": "All is done."}]


async def ran(folders: Folders, *steps: Step, **more: Any) -> AgentResult:
    task = Task("do it", "scripted", "", script=json.dumps(script(*steps)), **more)
    return await PodRunner(task, folders).run()


def shown(folders: Folders) -> dict[str, str]:
    """Return what the model was shown of each tool."""
    import sqlite3

    with sqlite3.connect(Path(folders.state, ".toolcrib", "state.db")) as database:
        rows = database.execute("SELECT content FROM run_messages WHERE kind = 'results'").fetchall()
    return {part["tool_name"]: part["content"] for (text,) in rows for part in json.loads(text)["parts"]}


def outputs(folders: Folders) -> dict[str, Any]:
    return {path.name: json.loads(path.read_text()) for path in Path(folders.ipc, "output").iterdir()}


def ended(folders: Folders) -> Any:
    return json.loads(Path(folders.end).read_text())


async def test_a_task_runs_with_the_tools_of_the_guide(
    folders: Folders, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "toolcrib.pods")
    workspace, ipc = Path(folders.workspace), Path(folders.ipc)
    (workspace / "a.txt").write_text("lathe")
    executor = asyncio.create_task(asyncio.to_thread(serve_once, Path(folders.ipc)))
    result = await ran(
        folders,
        ("execute_command", {"command": "echo out; echo err >&2; exit 3"}),
        ("read_file", {"path": "/workspace/a.txt"}),
        ("write_file", {"path": "/workspace/new/b.txt", "content": "turned"}),
        ("list_directory", {"path": "/workspace"}),
        ("send_channel_message", {"text": "hi"}),
        channel="slack",
        chat="C7",
    )
    assert (await executor)["command"] == "echo out; echo err >&2; exit 3"
    assert (result.status, result.response, result.metrics["toolCalls"]) == ("success", "All is done.", 5)
    seen = shown(folders)
    assert seen["execute_command"] == "out\n\nSTDERR: err\n\n(exit code: 3)"
    assert seen["read_file"] == "lathe"
    assert (workspace / "new" / "b.txt").read_text() == "turned"
    assert "a.txt" in seen["list_directory"]
    (message,) = (ipc / "messages").iterdir()
    assert json.loads(message.read_text()) == {"channel": "slack", "text": "hi", "chatId": "C7"}
    assert seen["send_channel_message"].endswith(f"id {message_id('', message.name[5:-5])}")
    assert "tool call: execute_command" in caplog.messages
    written = outputs(folders)
    assert written["result.json"]["response"] == "All is done."
    assert written["status.json"]["phase"] == "done"
    assert ended(folders) == {"result": "All is done.", "error": ""}
    parts = [written[f"stream-{number}.json"]["content"] for number in range(len(written) - 2)]
    assert "".join(parts) == "All is done."
    assert list((ipc / "tools").glob("exec-*")) == []


async def test_what_tools_refuse_and_how_long_results_are(folders: Folders) -> None:
    executor = asyncio.create_task(asyncio.to_thread(serve_once, Path(folders.ipc)))
    await ran(
        folders,
        ("execute_command", {"command": "head -c 70000 /dev/zero | tr '\\0' x"}),
        ("read_file", {"path": "/etc/passwd"}),
        ("write_file", {"path": "/skills/a.md", "content": "x"}),
        ("send_channel_message", {"channel": "pigeon", "text": "hi"}),
    )
    await executor
    seen = shown(folders)
    assert seen["execute_command"].startswith("x" * 50_000 + "\n[cut: the first 50,000 of 70,000 bytes")
    assert "artifact_read" in seen["execute_command"]
    assert seen["read_file"].startswith("Error: path escapes sandbox: /etc/passwd")
    assert seen["write_file"].startswith("Error: ")
    assert seen["send_channel_message"].startswith("Error: ")


async def test_the_model_sees_100_kb_of_a_file_and_where_to_read_on(folders: Folders) -> None:
    workspace = Path(folders.workspace)
    (workspace / "long").write_text("x" * 150_000)
    await ran(folders, ("read_file", {"path": "/workspace/long"}))
    seen = shown(folders)["read_file"]
    assert seen.startswith("x" * 100_000 + "\n[cut: ")
    assert "offset=100000" in seen


PACK = """\
kind: SkillPack
spec:
  sidecar:
    tools:
      - name: weigh
        description: Weigh a part.
        exec: [sh, -c, 'printf "%s|" "$@"; cat', run]
        subcommand: ${PART}
        positionalArgs: [part, unit]
        inputMode: stdin
        parameters:
          type: object
          required: [part]
          properties:
            part: {type: string, description: The part}
            unit: {type: string, description: The unit}
            scales: {type: integer, description: The scales}
"""


async def test_the_tools_of_a_skillpack_run_in_its_sidecar(folders: Folders) -> None:
    (Path(folders.skills) / "scales").mkdir()
    pack = Path(folders.skills) / "scales" / "pack.yaml"
    pack.write_text(PACK)
    executor = asyncio.create_task(asyncio.to_thread(serve_once, Path(folders.ipc)))
    await ran(folders, ("weigh", {"part": "-a b", "scales": 7}), target="another")
    request = await executor
    assert (request["target"], request["timeout"], request["workDir"]) == ("scales", 120, "/workspace")
    assert shown(folders)["weigh"] == '${PART}|--|-a b|{"scales": 7}'


@pytest.mark.parametrize(
    ("written", "instead", "reason"),
    [
        ("positionalArgs: [part, unit]", "positionalArgs: [size]", "there is no parameter 'size'"),
        ("name: weigh", "name: read_file", "read_file"),
        (
            'exec: [sh, -c, \'printf "%s|" "$@"; cat\', run]',
            "command: [cat, '${part}']\n        env: {K: '${KEY}'}",
            "KEY",
        ),
    ],
)
async def test_a_skillpack_that_is_wrong_ends_the_run(
    folders: Folders, written: str, instead: str, reason: str
) -> None:
    assert written in PACK
    (Path(folders.skills) / "pack.yml").write_text(PACK.replace(written, instead))
    result = await ran(folders, ("weigh", {"part": "a"}))
    assert (result.status, reason in result.error) == ("error", True), result.error


async def test_a_run_without_tools_and_one_that_fails(folders: Folders) -> None:
    assert (await ran(folders, tools=False)).metrics["toolCalls"] == 0
    task = Task("do it", "openai", "some", base_url="http://127.0.0.1:9/v1")
    other = Folders(folders.ipc, folders.workspace, folders.skills, folders.tmp, folders.state + "2")
    failed = await PodRunner(Task("do it", "nobody", "some"), other).run()
    assert (failed.status, failed.response) == ("error", "")
    assert "there is no model provider 'nobody'" in failed.error
    assert outputs(folders)["status.json"]["phase"] == "failed"
    assert task.providers[0].key is None


def _environment(folders: Folders, steps: Sequence[Step]) -> dict[str, str]:
    return {
        **os.environ,
        "TASK": "do it",
        "MODEL_PROVIDER": "scripted",
        "MODEL_SCRIPT": json.dumps(script(*steps)),
    }


@pytest.mark.usefixtures("kernel")
def test_a_runner_that_is_killed_goes_on_and_its_command_runs_once(folders: Folders) -> None:
    ipc, workspace = folders.ipc, Path(folders.workspace)
    where = ["--ipc", ipc, "--workspace", str(workspace), "--skills", folders.skills]
    sidecar = Forked([PROGRAM, "sidecar", *where[:4]])
    command = "echo ran >> log; while [ ! -e go ]; do sleep 0.05; done; echo end; yes | head -c 2000000 >&2"
    environment = _environment(folders, [("execute_command", {"command": command})])
    argv = [PROGRAM, "pod-run", *where, "--state", folders.state]
    first = Forked(argv, env=environment)
    wait_for((workspace / "log").exists, "the command", 60)
    first.kill()
    first.wait()
    (workspace / "go").touch()
    done = run(argv[1:], workspace, environment)
    sidecar.terminate()
    sidecar.wait()
    assert (done.returncode, done.stdout) == (0, b"All is done.\n"), done.stderr
    assert (workspace / "log").read_text() == "ran\n"
    (file,) = (workspace / ".outputs").iterdir()
    assert shown(folders)["execute_command"] == (
        "end\n\nSTDERR: toolcrib: standard error is cut: 20,000 of 2,000,000 bytes are here;"
        f" all of it is in /workspace/.outputs/{file.name}\n" + "y\n" * 10_000
    )


@pytest.mark.usefixtures("kernel")
def test_pod_up_prints_the_answer(tmp_path: Path) -> None:
    steps = script(
        ("execute_command", {"command": "echo turned > /workspace/out; cat out"}),
        ("send_channel_message", {"channel": "slack", "text": "It is turned."}),
        ("note", {"file": "notes", "lathe": 7}),
    )
    words = {name: {"description": name} for name in ("file", "lathe")}
    note = {
        "name": "note",
        "description": "Note",
        "exec": ["tee"],
        "inputMode": "stdin",
        "positionalArgs": ["file"],
        "parameters": {"type": "object", "properties": words},
    }
    (tmp_path / "skills/notes").mkdir(parents=True)
    (tmp_path / "skills/notes/pack.yaml").write_text(json.dumps({"sidecar": {"tools": [note]}}))
    spec = {"task": "do it", "model": {"provider": "scripted", "model": "", "script": steps}}
    document = {
        "apiVersion": "sympozium.ai/v1alpha1",
        "kind": "AgentRun",
        "metadata": {"name": "test-tool"},
        "spec": {"instanceRef": "mine", **spec},
    }
    (tmp_path / "run.yaml").write_text(json.dumps(document))
    environment = {**os.environ, "TOOLCRIB_DATA": str(tmp_path / "data")}
    done = run(["pod", "up", "run.yaml", "--skills", "skills"], tmp_path, environment)
    assert (done.returncode, done.stdout) == (0, b"All is done.\n"), done.stderr
    folder = tmp_path / "data/pods/test-tool"
    assert not (folder / "state").exists()
    # The bridge has passed it on to the NATS that was started with it.
    assert list((folder / "ipc/messages").glob("send-*")) == []
    assert b"not sent" not in done.stderr
    stored = b"".join(path.read_bytes() for path in (folder / "nats").rglob("*.blk"))
    assert b"It is turned." in stored
    assert (folder / "workspace/out").read_text() == "turned\n"
    assert (folder / "workspace/notes").read_text() == '{"lathe": 7}'
    (tmp_path / "other.yaml").write_text("kind: Pod\n")
    done = run(["pod", "up", "other.yaml"], tmp_path, environment)
    assert done.returncode == 4
    assert b"this is not an AgentRun" in done.stderr


@pytest.mark.usefixtures("kernel")
def test_a_signal_even_kill_ends_all_processes_of_pod_up_and_the_run_continues(tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    steps = script(
        ("execute_command", {"command": "echo ran >> log; while [ ! -e go ]; do sleep 0.05; done"})
    )
    spec = {"instanceRef": "mine", "task": "do it", "model": {"provider": "scripted", "script": steps}}
    document = {"kind": "AgentRun", "metadata": {"name": "test-tool"}, "spec": spec}
    (tmp_path / "run.yaml").write_text(json.dumps(document))
    environment = {**os.environ, "TOOLCRIB_DATA": str(tmp_path / "data")}
    words = ["pod", "up", "run.yaml", "--workspace", str(workspace)]
    for end, code in ((signal.SIGTERM, 130), (signal.SIGKILL, -signal.SIGKILL)):
        process = Forked([PROGRAM, *words], cwd=tmp_path, env=environment)
        wait_for((workspace / "log").exists, "the command", 60)
        process.send_signal(end)
        assert process.wait() == code
        wait_for(lambda: not _processes(tmp_path), "their end")
        (workspace / "log").unlink()
    (workspace / "go").touch()
    done = run(words, tmp_path, environment)
    assert (done.returncode, done.stdout) == (0, b"All is done.\n"), done.stderr


def _processes(folder: Path) -> list[bytes]:
    """Return the command lines of the processes that a pod in this folder has started."""
    found = []
    for one in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # It has ended since.
            found.append(one.read_bytes())
    return [line for line in found if os.fsencode(folder / "data/pods") in line]
