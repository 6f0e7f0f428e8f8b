"""`toolcrib sidecar`: commands of requests, confined, and none lost or repeated when it is killed."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from tests.commands import PROGRAM, Forked, run
from tests.conftest import need
from tests.mailbox import Runner
from tests.patience import wait_for
from toolcrib.pods.ipc import Client
from toolcrib.pods.protocol import EXEC, FAILED, ExecRequest
from toolcrib.pods.spool import Spool

pytestmark = pytest.mark.usefixtures("kernel")


class Pod:
    """A folder of requests, a workspace, and a sidecar."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.workspace = folder / "workspace"
        self.workspace.mkdir()
        self.runner = Runner(folder / "ipc")
        self._argv = [PROGRAM, "sidecar", "--ipc", str(folder / "ipc"), *options]
        self.process = self.start()

    def start(self) -> Forked:
        self.process = Forked(self._argv, cwd=self.workspace)
        return self.process

    def ask(self, name: str, command: str = "", **request: Any) -> dict[str, Any]:
        self.runner.put(name, command=command, **request)
        return self.runner.answer(name)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture(scope="module")
def pod(tmp_path_factory: pytest.TempPathFactory, kernel: None) -> Iterator[Pod]:
    folder = tmp_path_factory.mktemp("pod")
    (folder / "given").mkdir()
    (folder / "given" / "file").write_text("given")
    os.environ["POD_GIVEN"] = "from the pod"
    made = Pod(folder, "--read", str(folder / "given"), "--env", "POD_GIVEN", "--target", "git")
    yield made
    made.process.terminate()
    assert made.process.wait() == 0


def test_a_command_is_answered_with_its_streams_and_exit_code(pod: Pod) -> None:
    assert pod.ask("1", "echo out; echo err >&2; exit 3") == {
        "id": "1",
        "exitCode": 3,
        "stdout": "out\n",
        "stderr": "err\n",
        "timedOut": False,
    }
    assert pod.ask("2", "kill -9 $$")["exitCode"] == 137
    assert pod.ask("3", argv=["cat"], stdin="words of mine")["stdout"] == "words of mine"
    assert pod.ask("4", "printf", args=["%s|%s", "a b", "$(id)"])["stdout"] == "a b|$(id)"
    assert "no_such_program" in pod.ask("5", argv=["no_such_program"])["stderr"]


def test_a_command_starts_in_the_workspace_or_a_folder_in_it(pod: Pod) -> None:
    (pod.workspace / "inner").mkdir()
    workspace = f"{pod.workspace}\n"
    assert pod.ask("1", "pwd")["stdout"] == workspace
    assert pod.ask("2", "pwd", workDir="/workspace")["stdout"] == workspace
    assert pod.ask("3", "pwd", workDir="inner")["stdout"] == f"{pod.workspace}/inner\n"
    outside = pod.ask("4", "pwd", workDir="/etc")
    assert (outside["exitCode"], outside["stderr"]) == (FAILED, "path escapes sandbox: /etc")
    assert "does not exist" in pod.ask("5", "pwd", workDir="missing")["stderr"]


def test_a_command_sees_what_the_sidecar_grants_and_never_the_requests(pod: Pod) -> None:
    folder = pod.workspace.parent
    assert pod.ask("1", f"cat {folder}/given/file; echo $POD_GIVEN; echo $HOME")["stdout"] == (
        "givenfrom the pod\n/tmp\n"
    )
    forged = pod.ask("2", f"echo '{{}}' > {pod.runner.folder}/exec-result-3.json")
    assert forged["exitCode"] != 0
    assert not (pod.runner.folder / "exec-result-3.json").exists()
    assert pod.ask("3", f"ls {pod.runner.folder}")["exitCode"] != 0
    assert pod.ask("4", "touch new && ls new")["stdout"] == "new\n"


def test_commands_in_a_workspace_of_their_own_may_write_every_file_again(tmp_path: Path) -> None:
    lines = "mkdir -p .git .toolcrib; echo $0 >> .git/config; echo $0 >> .env; echo $0 >> AGENTS.md; cat .env"
    for options, code in (((), 2), (("--own-workspace",), 0)):
        folder = tmp_path / str(code)
        folder.mkdir()
        pod = Pod(folder, *options)
        pod.ask("1", lines)
        again = pod.ask("2", lines)
        assert (again["exitCode"] != 0) == bool(code), again
        if not code:
            assert again["stdout"] == "/bin/sh\n" * 2
        pod.process.terminate()
        assert pod.process.wait() == 0


def test_a_command_beyond_its_limit_ends_with_all_its_children(pod: Pod) -> None:
    for seconds in (1, 8, 60):
        found = pod.ask(f"{seconds}", "echo begun; sleep 600 & sleep 600", timeout=seconds)
        if found["stdout"]:
            break
    else:
        raise AssertionError("no limit is long enough")
    assert (found["timedOut"], found["exitCode"], found["stdout"]) == (True, 124, "begun\n")


_LONG = """
import os, random
numbers = random.Random(7)
for _ in range({parts}):
    for stream in (1, 2):
        part = numbers.randbytes(50_000).hex().encode()
        while part:
            part = part[os.write(stream, part):]
"""


def test_a_long_output_is_whole_in_a_file_and_takes_no_memory(pod: Pod) -> None:
    found = pod.ask("short", "head -c 300001 /dev/zero | tr '\\0' x")
    assert found["stdout"] == "x" * 300_001
    pod.ask("warm", argv=["python3", "-c", _LONG.format(parts=50)], timeout=120)
    before = _memory(pod)
    found = pod.ask("long", argv=["python3", "-c", _LONG.format(parts=500)], timeout=120)
    assert _memory(pod) - before < 8 << 10
    sums: dict[str, Any] = {stream: sha256() for stream in ("stdout", "stderr")}
    numbers = random.Random(7)
    for _ in range(500):
        for each in sums.values():
            each.update(numbers.randbytes(50_000).hex().encode())
    *notes, stderr = found["stderr"].splitlines()
    for (stream, each), name, shown in zip(
        sums.items(), ("the output", "standard error"), (found["stdout"], stderr), strict=True
    ):
        path = f".outputs/long.{stream}"
        assert (
            f"toolcrib: {name} is cut: 20,000 of 50,000,000 bytes are here; all of it is in /workspace/{path}"
            in notes
        )
        whole = (pod.workspace / path).read_bytes()
        assert sha256(whole).digest() == each.digest()
        assert shown == whole[:20_000].decode()
    assert pod.ask("count", "cat /workspace/.outputs/long.* | wc -c")["stdout"] == "100000000\n"


def _memory(pod: Pod) -> int:
    """Return the most memory that the sidecar has had, in KiB."""
    status = Path(f"/proc/{pod.process.pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0])


def test_the_oldest_long_outputs_make_room_and_a_character_is_not_cut(pod: Pod) -> None:
    folder = pod.workspace / ".outputs"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for age, size in ((3, 200 << 20), (2, 200 << 20), (1, 1)):
        with (folder / f"{age}.stdout").open("wb") as file:
            file.truncate(size)
        os.utime(folder / f"{age}.stdout", (time.time() - age * 60,) * 2)
    found = pod.ask("4", "yes ä | tr -d '\\n' | tail -c +2 | head -c 2000001 | sed s/^/xyz/")
    assert found["stdout"][:4] == "xyz\ufffd"  # It begins with half a character, and so is no text.
    found = pod.ask("5", "yes x€ | tr -d '\\n' | head -c 2000000")
    assert found["stdout"] == "x€" * 5_000
    found = pod.ask("6", "yes €€€ | tr -d '\\n' | head -c 3000000")
    assert "19,998 of 3,000,000" in found["stderr"]
    assert sorted(path.name for path in folder.iterdir()) == [
        "1.stdout", "2.stdout", "4.stdout", "5.stdout", "6.stdout",
    ]  # fmt: skip


def test_a_long_output_follows_no_link_of_a_command(pod: Pod) -> None:
    outside = pod.workspace.parent / "outside"
    outside.write_text("as it was")
    lines = f"mkdir -p .outputs; ln -s {outside} .outputs/2.stdout", "rm -r .outputs; ln -s .. .outputs"
    for line, where in zip(lines, ("all of it is in /workspace", "the rest is lost: "), strict=True):
        assert pod.ask("1", line)["exitCode"] == 0
        assert where in pod.ask("2", "head -c 2000000 /dev/zero")["stderr"]
        assert outside.read_text() == "as it was"
    assert pod.ask("3", "rm .outputs")["exitCode"] == 0


def test_on_a_full_disk_the_beginning_of_an_output_is_in_the_result(tmp_path: Path) -> None:
    (tmp_path / "pod").mkdir()
    wrap = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", _DISK, "sh", str(tmp_path / "pod")]
    tried = subprocess.run([*wrap, "true"], capture_output=True, check=False)
    need("mounts in a user namespace", tried.returncode == 0)
    log = tmp_path / "log"
    with log.open("w") as stderr:
        words = [sys.executable, "-c", _FULL, str(tmp_path / "pod"), str(log)]
        done = subprocess.run([*wrap, *words], stdout=subprocess.PIPE, stderr=stderr, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "done\n"), log.read_text()
    assert "Traceback" not in log.read_text()


_DISK = 'mount -t tmpfs -o size=20m none "$1" && shift && exec "$@"'
_FULL = """
import subprocess, sys
from pathlib import Path
from tests.commands import PROGRAM
from tests.mailbox import Runner
from tests.patience import wait_for

disk = Path(sys.argv[1])
workspace = disk / "workspace"
workspace.mkdir()
words = ["sidecar", "--ipc", str(disk / "ipc"), "--workspace", str(workspace)]
runner = Runner(disk / "ipc")
with subprocess.Popen([PROGRAM, *words]) as process:
    try:
        runner.put("1", command="head -c 50000000 /dev/zero")
        found = runner.answer("1", 60)
        assert len(found["stdout"]) == 1 << 20
        assert "the rest is lost: No space left on device" in found["stderr"], found["stderr"]
        assert list((workspace / ".outputs").iterdir()) == []
        # A result that cannot be written waits for room; its command does not run again.
        runner.put("2", command="echo ran >> log; head -c 50000000 /dev/zero > ballast; echo full")
        wait_for((workspace / "log").exists, "the command")
        wait_for(lambda: "2.json cannot be written" in Path(sys.argv[2]).read_text(), "the result")
        (workspace / "ballast").unlink()
        assert runner.answer("2")["stdout"] == "full\\n"
        assert (workspace / "log").read_text() == "ran\\n"
    finally:
        process.terminate()
print("done")
"""


async def test_the_longest_result_arrives(pod: Pod) -> None:
    line = "head -c 1048576 /dev/zero | tr '\\0' '\\1' | tee /dev/stderr"  # Each byte is six in JSON.
    spool = Spool(pod.runner.folder.parent, EXEC.folder)
    async with Client(spool, EXEC).opened() as client:
        found = await client.ask("longest", ExecRequest(command=line), 60)
    spool.close()
    assert found.stdout == found.stderr == "\1" * (1 << 20)


def test_a_long_output_is_whole_after_the_sidecar_was_killed_in_the_middle(tmp_path: Path) -> None:
    pod = Pod(tmp_path)
    line = "head -c 9000000 /dev/zero; [ -e go ] || sleep 60; head -c 1000000 /dev/zero | tr '\\0' x"
    pod.runner.put("1", command=line)
    file = pod.workspace / ".outputs/1.stdout"
    wait_for(lambda: file.exists() and file.stat().st_size == 9_000_000, "the first part")
    pod.kill()
    (pod.workspace / "go").touch()
    pod.start()
    assert "all of it is in /workspace/.outputs/1.stdout" in pod.runner.answer("1")["stderr"]
    assert file.read_bytes() == b"\0" * 9_000_000 + b"x" * 1_000_000
    # What nobody waits for any more leaves nothing behind.
    pod.runner.put("2", command="head -c 9000000 /dev/zero; sleep 60")
    file = pod.workspace / ".outputs/2.stdout"
    wait_for(file.exists, "the file")
    (pod.runner.folder / "exec-request-2.json").unlink()
    wait_for(lambda: not file.exists(), "its end")
    pod.process.terminate()
    assert pod.process.wait() == 0


def test_a_request_for_another_target_stays(pod: Pod) -> None:
    pod.runner.put("1", command="true", target="kubectl")
    assert pod.ask("2", "echo ours", target="git")["stdout"] == "ours\n"
    assert not (pod.runner.folder / "exec-result-1.json").exists()


def test_folders_that_contain_each_other_are_refused(tmp_path: Path) -> None:
    done = run(["sidecar", "--ipc", "ipc", "--workspace", "."], tmp_path)
    assert done.returncode == 2
    assert b"contain each other" in done.stderr


@pytest.mark.parametrize(("requests", "kills"), [(200, 4), pytest.param(2_000, 60, marks=pytest.mark.soak)])
def test_a_sidecar_that_is_killed_loses_no_request_and_repeats_none_it_has_answered(
    tmp_path: Path, requests: int, kills: int
) -> None:
    pod, chance = Pod(tmp_path, "--concurrency", "4"), random.Random(requests)
    written = pod.workspace / "log"
    answered: set[str] = set()
    waiting: list[str] = []
    again: Counter[str] = Counter()
    killed_after = sorted(chance.sample(range(requests), kills))
    for number in range(requests):
        pod.runner.put(str(number), command=f"echo {number} >> log; echo {number}")
        waiting.append(str(number))
        if number in killed_after:
            time.sleep(chance.random() * 0.05)
            pod.kill()
            again.update(one for one in waiting if not _result(pod, one).exists())
            pod.start()
        while len(waiting) > 12:
            answered.add(_collect(pod, waiting.pop(0)))
    answered.update(_collect(pod, one) for one in waiting)
    pod.kill()
    assert len(answered) == requests
    ran = Counter(written.read_text().split())
    assert set(ran) == answered
    assert {one: count for one, count in ran.items() if count > 1 + again[one]} == {}


def _result(pod: Pod, name: str) -> Path:
    return pod.runner.folder / f"exec-result-{name}.json"


def _collect(pod: Pod, name: str) -> str:
    found = pod.runner.answer(name, 60)
    assert (found["stdout"], found["exitCode"]) == (f"{name}\n", 0)
    return name


def test_a_request_that_kills_its_sidecar_each_time_is_given_up(tmp_path: Path) -> None:
    pod = Pod(tmp_path)
    pod.runner.put("1", command="echo begun >> log; sleep 60")
    log = pod.workspace / "log"
    begun: Callable[[int], bool] = lambda times: log.exists() and log.read_text().count("begun") == times  # noqa: E731
    for times in (1, 2, 3):
        wait_for(lambda times=times: begun(times), "the command")  # type: ignore[misc]
        pod.kill()
        pod.start()
    assert "given up" in pod.runner.answer("1")["stderr"]
    pod.process.send_signal(signal.SIGTERM)
    assert pod.process.wait() == 0
