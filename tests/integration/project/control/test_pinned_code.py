"""What was approved is what runs, however the files change meanwhile."""

from __future__ import annotations

import asyncio
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.crib import Crib
from tests.mcp_servers import RAW, write
from toolcrib import Project, Result
from toolcrib.project.integrity.lock import write_lock
from toolcrib.spec import Level

pytestmark = pytest.mark.usefixtures("kernel")

RUN = "#!/bin/sh\n# {said}\nsleep 0.01; . ${{0%/*}}/lib.sh; grep '^# ' $0; echo $0\n"
GRANTS: dict[str, dict[str, list[str]]] = {
    "a folder beside": {"write": ["out"]},
    "the project": {"read": ["."], "write": ["out"]},
    "the project for writing": {"read": ["."], "write": ["."]},
}


def program(folder: Path, said: str) -> None:
    """Replace the tool's files at once, each by a new one."""
    for name, text in (("run.sh", RUN.format(said=said)), ("lib.sh", f"echo lib {said}\n")):
        new = folder / f".{name}"
        new.write_text(text)
        new.chmod(0o755)
        new.replace(folder / name)


def made(crib: Crib, fs: dict[str, list[str]], **more: Any) -> Path:
    """A trusted command tool whose script and library lie beside its manifest."""
    crib.accept = "trusted"
    config = {"entrypoint": ".toolcrib/tools/t/run.sh"}
    folder = crib.tool("t", "command", config, outputs={"format": "text"}, permissions={"fs": fs}, **more)
    (crib.root / "out").mkdir()
    crib.write("beside.txt", "beside")
    program(folder, "good")
    crib.trust_tools("t")
    return folder


def said(crib: Crib, word: str) -> str:
    return f"lib {word}\n# {word}\n{crib.root}/.toolcrib/tools/t/run.sh\n"


@contextmanager
def changing(change: Callable[[int], None]) -> Iterator[None]:
    """Change something again and again in a thread."""
    stop = threading.Event()

    def work() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            change(number)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@pytest.mark.parametrize("grants", GRANTS)
def test_a_script_that_is_replaced_again_and_again_never_runs_as_another(crib: Crib, grants: str) -> None:
    folder = made(crib, GRANTS[grants])

    def change(number: int) -> None:
        program(folder, "evil" if number % 2 else "good")

    async def main() -> list[Result]:
        async with crib.open() as project:
            with changing(change):
                return [await project.call("t") for _ in range(30)]

    results = asyncio.run(main())
    assert "evil" not in str([one.value for one in results])
    assert {one.error.code for one in results if one.error} <= {"approval_required", "tool_unavailable"}
    program(folder, "good")
    assert crib.call("t").unwrap() == said(crib, "good")


def test_a_folder_that_is_replaced_does_not_bring_another_script(crib: Crib) -> None:
    folder = made(crib, GRANTS["the project"])
    other, tools = crib.root / "other", folder.parent
    shutil.copytree(tools, other)
    program(other / "t", "evil")

    def change(_: int) -> None:
        tools.rename(tools.with_name("kept"))
        other.rename(tools)
        tools.rename(other)
        tools.with_name("kept").rename(tools)

    async def main() -> list[Result]:
        async with crib.open() as project:
            with changing(change):
                return [await project.call("t") for _ in range(30)]

    results = asyncio.run(main())
    assert "evil" not in str([one.value for one in results])


def folders(folder: Path, said: str) -> None:
    """Put another folder in place of the one that holds the tools."""
    tools = folder.parent
    other = tools.with_name("other")
    shutil.copytree(tools, other)
    program(other / folder.name, said)
    tools.rename(tools.with_name("kept"))
    other.rename(tools)


@pytest.mark.parametrize("change", [program, folders])
@pytest.mark.parametrize("grants", GRANTS)
def test_a_running_script_keeps_its_files(
    crib: Crib, grants: str, change: Callable[[Path, str], None]
) -> None:
    folder = made(crib, GRANTS[grants])
    waits = (
        "#!/bin/sh\ntouch out/began; while [ ! -e out/go ]; do sleep 0.01; done; . ${0%/*}/lib.sh; cat $0\n"
    )
    (folder / "run.sh").write_text(waits)
    crib.trust_tools("t")

    async def main() -> Result:
        async with crib.open() as project:
            call = asyncio.ensure_future(project.call("t"))
            while not (crib.root / "out/began").exists():
                assert not call.done(), await call
                await asyncio.sleep(0.01)
            change(folder, "evil")
            (crib.root / "out/go").touch()
            return await call

    assert asyncio.run(main()).unwrap() == f"lib good\n{waits}"


def test_a_tool_sees_its_grants_as_before(crib: Crib) -> None:
    folder = made(crib, GRANTS["the project"])
    crib.write(".env", "SECRET\n")
    (crib.root / "link").symlink_to("beside.txt")
    (folder / "run.sh").write_text(
        "#!/bin/sh\ncat beside.txt link; cat .env; ls .toolcrib/tools/t\n"
        "for f in new .toolcrib/new ${0%/*}/new; do touch $f && echo made $f; done\n"
        "mv .toolcrib/tools gone && echo moved; mv .toolcrib gone && echo moved; echo 1 >out/x\n"
    )
    crib.trust_tools("t")
    result = crib.call("t")
    assert result.unwrap() == "besidebesidelib.sh\nrun.sh\ntool.yml\n"
    assert (crib.root / "out/x").read_text() == "1\n"
    assert not (crib.root / "new").exists()
    assert not (folder / "new").exists()


def test_a_script_elsewhere_and_a_module_are_pinned(crib: Crib) -> None:
    crib.accept = "trusted"
    (crib.root / "out").mkdir()
    crib.write("scripts/s.sh", "sleep 0.02; grep '#' $0 # good\n")
    fs = {"read": ["scripts"], "write": ["out"]}
    config = {"entrypoint": "sh", "args": ["-o", "errexit", "scripts/s.sh"]}
    crib.tool("t", "command", config, outputs={"format": "text"}, permissions={"fs": fs})
    crib.python("def run():\n    return 'good'\n", permissions={"fs": {"write": ["out"]}})
    crib.trust_tools("t", "py")
    module = crib.home / "tools/py/mod.py"

    def change(number: int) -> None:
        word = "evil" if number % 2 else "good"
        for path, text in (
            (crib.root / "scripts/s.sh", f"sleep 0.02; grep '#' $0 # {word}\n"),
            (module, f"def run():\n    return '{word}'\n"),
        ):
            new = path.with_name(f".{path.name}")
            new.write_text(text)
            new.replace(path)

    async def main() -> list[Result]:
        async with crib.open() as project:
            assert (await project.call("t")).unwrap() == "sleep 0.02; grep '#' $0 # good\n"
            assert (await project.call("py")).unwrap() == "good"
            with changing(change):
                return [await project.call(name) for _ in range(15) for name in ("t", "py")]

    assert "evil" not in str([one.value for one in asyncio.run(main())])


def test_a_folder_that_a_tool_names_under_files_is_part_of_its_digest(crib: Crib) -> None:
    crib.accept = "trusted"
    (crib.root / "out").mkdir()
    crib.write("shop/report.py", "SAID = 'good'\n")
    code = "from shop.report import SAID\ndef run():\n    return SAID\n"
    named: dict[str, Any] = {"permissions": {"fs": {"read": ["shop"], "write": ["out"]}}}
    named["files"] = ["shop"]
    crib.python(code, **named)
    config = {"entrypoint": "python3", "args": ["-c", "from shop.report import SAID; print(SAID)"]}
    crib.tool("t", "command", config, outputs={"format": "text"}, **named)
    crib.trust_tools("t", "py")
    assert (crib.call("py").unwrap(), crib.call("t").unwrap()) == ("good", "good\n")
    crib.write("shop/report.py", "SAID = 'evil'\n")
    for name in ("py", "t"):
        error = crib.call(name).error
        assert error is not None
        assert error.code == "approval_required"


def test_a_tool_that_changes_while_its_call_waits_does_not_run(crib: Crib) -> None:
    folder = made(crib, GRANTS["a folder beside"], approval={"required": True, "reason": "It is dear."})

    async def main() -> Result:
        async with crib.open() as project:
            call = asyncio.ensure_future(project.call("t", wait="block"))
            while not (waiting := project.approval_service.list("pending")):
                assert not call.done(), await call
                await asyncio.sleep(0.01)
            sheet = project.approval_service.show(waiting[0].approval.id)
            project.approval_service.approve(sheet.approval.id, "ann", seal=sheet.document["seal"])
            program(folder, "evil")
            return await call

    error = asyncio.run(main()).error
    assert error is not None
    assert error.code == "approval_required"
    assert not (crib.root / "out/ran").exists()


def test_nothing_is_copied_again_while_the_files_are_as_they_were(
    crib: Crib, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = made(crib, GRANTS["the project"])

    def copies(project: Project) -> set[tuple[str, int]]:
        store = project.vault.folder / "code"
        return {(entry.name, entry.stat().st_ino) for entry in os.scandir(store)}

    async def main() -> None:
        async with crib.open() as project:
            assert (await project.call("t")).unwrap() == said(crib, "good")
            before = copies(project)
            assert before
            for _ in range(3):
                assert (await project.call("t")).unwrap() == said(crib, "good")
            assert copies(project) == before
            shutil.rmtree(project.vault.folder / "code")  # It may be removed at any time.
            assert (await project.call("t")).unwrap() == said(crib, "good")
            program(folder, "new")
            project.trust.trust(project.get("t"), "ann")
            assert (await project.call("t")).unwrap() == said(crib, "new")

    asyncio.run(main())


def test_a_lock_pins_a_tool_that_needs_no_trust(crib: Crib) -> None:
    folder = made(crib, {"read": ["."]})

    async def lock() -> None:
        async with crib.open() as project:
            write_lock(project.pins.path, project.pins.now(project.tools(), project.config.digest))

    asyncio.run(lock())

    def change(number: int) -> None:
        program(folder, "evil" if number % 2 else "good")

    async def main() -> list[Result]:
        async with crib.open() as project:
            with changing(change):
                return [await project.call("t") for _ in range(20)]

    results = asyncio.run(main())
    assert "evil" not in str([one.value for one in results])


# -- what the settings start ------------------------------------------------------------------------


def test_the_script_of_a_starting_server_stays_what_was_trusted(crib: Crib) -> None:
    (crib.root / "out").mkdir()
    crib.write("servers/s.py", f"{RAW}main()\n")
    script = "# {said}\ntouch out/began; until [ -e out/go ]; do sleep 0.01; done\n"
    script += "grep '^# ' $0 beside.txt >out/said; exec python3 servers/s.py\n"
    crib.write("servers/s.sh", script.format(said="good"))
    crib.write("beside.txt", "# before\n")
    server = {"command": "sh", "args": ["servers/s.sh"], "permissions": {"fs": GRANTS["the project"]}}
    write(crib, {"raw": server})
    crib.trust()

    def replace(path: str, text: str) -> None:
        crib.write(f"{path}.new", text).replace(crib.root / path)

    async def main() -> Result:
        async with Project.open(crib.root, accept="all") as project:
            call = asyncio.ensure_future(project.call("raw__hello"))
            while not (crib.root / "out/began").exists():
                assert not call.done(), await call
                await asyncio.sleep(0.01)
            replace("servers/s.sh", script.format(said="evil"))
            replace("beside.txt", "# after\n")
            (crib.root / "out/go").touch()
            return await call

    assert asyncio.run(main()).unwrap() == "hello"
    told = (crib.root / "out/said").read_text()
    assert told == "servers/s.sh:# good\nbeside.txt:# after\n", "its code is fixed, its data is of the moment"


def test_without_mounts_the_report_says_so(crib: Crib, monkeypatch: pytest.MonkeyPatch) -> None:
    made(crib, GRANTS["a folder beside"])
    (crib.home / "config.yml").write_text("sandbox: {minimum: landlock}\n")
    crib.trust()
    assert "code" not in enforcement(crib.call("t"))
    monkeypatch.setattr("toolcrib.sandbox.levels.choice.in_force", in_force_landlock)
    result = crib.call("t")
    assert result.unwrap() == said(crib, "good")
    assert enforcement(result)["level"] == "landlock"
    assert enforcement(result)["code"] == "not pinned during the run"


def enforcement(result: Result) -> dict[str, Any]:
    found: dict[str, Any] = (result.details or {})["enforcement"]
    return found


@cache
def in_force_landlock() -> Level:
    """A machine without namespaces."""
    return "landlock"
