"""What the settings start is what was trusted and pinned, at every interface."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.commands import decides
from tests.crib import Crib
from tests.e2e.deciding.test_trust_tools import Person, commit
from tests.e2e.deciding.test_trust_tools import origin as origin_fixture
from tests.mcp_servers import RAW
from toolcrib import Project

pytestmark = pytest.mark.usefixtures("kernel")
origin = origin_fixture

HELPER = '#!/bin/sh\n[ "$1" = TOKEN ] && echo {value}; true\n'
SERVER = RAW + "main()\n"


@pytest.fixture
def ann(origin: Crib, tmp_path: Path) -> Callable[..., Person]:
    """Clone the project for a person whose own settings let commands decide without a terminal."""

    def clone(name: str = "ann") -> Person:
        commit(origin)
        person = Person(tmp_path, origin, name)
        person.settings(decides(person.root))
        return person

    return clone


def helper(crib: Crib, **more: Any) -> None:
    """A project with a tool that shows a secret of its helper command."""
    source = {"command": {"argv": ["bin/helper"], "cache_s": 0, **more}}
    crib.write(".toolcrib/config.yml", json.dumps({"secrets": {"sources": [source]}}))
    crib.write("bin/helper", HELPER.format(value="good-value"), 0o755)
    crib.tool(
        "keyed",
        "command",
        {"entrypoint": "sh", "args": ["-c", "echo $TOKEN | rev"]},
        outputs={"format": "text"},
        permissions={"secrets": {"TOKEN": {}}},
    )


def server(crib: Crib, *argv: str) -> None:
    command, *args = argv
    crib.write("servers/s.py", SERVER)
    crib.write("s.sh", "exec python3 servers/s.py\n")
    settings = {"mcp_servers": {"raw": {"command": command, "args": args}}}
    crib.write(".toolcrib/config.yml", json.dumps(settings))


def answers(person: Person, tool: str) -> list[str]:
    """Call a tool at each interface."""
    done = person.run("run", tool)
    return [done.stdout + done.stderr, json.dumps(person.project(tool)), person.mcp(tool)]


def test_a_changed_helper_is_not_started_at_any_interface(origin: Crib, ann: Callable[[], Person]) -> None:
    helper(origin)
    person = ann()
    assert person.run("trust", "--yes").returncode == 0
    assert all("eulav-doog" in one for one in answers(person, "keyed"))
    (person.root / "bin/helper").write_text(HELPER.format(value="evil-value"))
    for one in answers(person, "keyed"):
        assert "eulav-live" not in one
        assert "secret_missing" in one or "not_trusted" in one
    shown = person.run("trust", "--show").stdout
    assert "Code that the settings start has changed: bin/helper" in shown
    assert person.run("trust", "--yes").returncode == 0
    assert all("eulav-live" in one for one in answers(person, "keyed"))


def test_a_helper_that_changes_while_a_program_runs_is_not_started(
    origin: Crib, ann: Callable[[], Person], monkeypatch: pytest.MonkeyPatch
) -> None:
    helper(origin)
    person = ann()
    assert person.run("trust", "--yes").returncode == 0
    monkeypatch.delenv("XDG_DATA_HOME")
    monkeypatch.setenv("HOME", str(person.home))

    async def main() -> None:
        async with Project.open(person.root) as project:
            assert (await project.call("keyed")).unwrap() == "eulav-doog\n"
            (person.root / "bin/helper").write_text(HELPER.format(value="evil-value"))
            error = (await project.call("keyed")).error
            assert error is not None
            assert error.code == "secret_missing"
            assert "secrets.sources[0]/script/bin/helper" in error.message
            person.run("trust", "--yes")
            assert (await project.call("keyed")).unwrap() == "eulav-live\n"

    asyncio.run(main())


@pytest.mark.parametrize("accepted_by", ["trust", "lock"])
def test_a_changed_server_is_not_started_at_any_interface(
    origin: Crib, ann: Callable[[], Person], accepted_by: str
) -> None:
    server(origin, "sh", "-o", "errexit", "s.sh")
    person = ann()
    assert person.run("trust", "--yes").returncode == 0
    assert person.run("trust", "--lock").returncode == 0
    assert all("hello" in one for one in answers(person, "raw__hello"))
    (person.root / "s.sh").write_text("touch /tmp/x; exec python3 servers/s.py # other\n")
    assert "has changed: s.sh" in person.run("trust", "--show").stdout
    if accepted_by == "lock":  # Trust alone does not bring it past the lock: the server does not start.
        assert person.run("trust", "--yes").returncode == 1
    for one in answers(person, "raw__hello"):
        assert '"text": "hello"' not in one
        assert "not_trusted" in one or "lock_drift" in one, one
    assert person.run("trust", "--yes").returncode == 1
    assert person.run("trust", "--lock").returncode == 0
    assert person.run("trust", "--yes").returncode == 0
    assert all("hello" in one for one in answers(person, "raw__hello"))


def test_a_helper_in_the_project_runs_confined(
    origin: Crib, ann: Callable[[], Person], tmp_path: Path
) -> None:
    helper(origin)
    outside = tmp_path / "outside"
    outside.write_text("good-value")
    reads = f'#!/bin/sh\n[ "$1" = TOKEN ] && {{ cat {outside}; cat .env; touch made; }}; echo end\n'
    origin.write("bin/helper", reads, 0o755)
    origin.write(".env", "good-value\n")
    person = ann()
    person.run("trust", "--yes")
    assert [one for one in answers(person, "keyed") if "eulav-doog" in one] == []
    assert not (person.root / "made").exists()


def test_a_helper_gets_the_grants_beside_it(origin: Crib, ann: Callable[[], Person], tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("good-value")
    helper(origin, permissions={"fs": {"read": [str(outside)]}, "env": ["HOME"]})
    origin.write("bin/helper", f'#!/bin/sh\n[ "$1" = TOKEN ] && cat {outside}; true\n', 0o755)
    person = ann()
    person.run("trust", "--yes")
    assert all("eulav-doog" in one for one in answers(person, "keyed"))


def test_only_a_helper_outside_of_the_project_runs_without_confinement(
    origin: Crib, ann: Callable[..., Person], tmp_path: Path
) -> None:
    helper(origin, confined=False)
    person = ann("ben")
    shown = person.run("trust", "--yes").stdout
    assert "with all of your own rights runs:" in shown
    for one in answers(person, "keyed"):
        assert "eulav-doog" not in one
        assert "confined: false" in one

    # As `pass` does: it needs the user's own folder.
    program = tmp_path / "pass"
    program.write_text('#!/bin/sh\n[ "$2" = TOKEN ] && cat "$HOME/.store"; true\n')
    program.chmod(0o755)
    helper(origin, argv=[str(program), "show"], confined=False)
    person = ann("eve")
    (person.home / ".store").write_text("good-value")
    shown = person.run("trust", "--yes").stdout
    assert f'["{program}", "show"]' in shown
    assert all("eulav-doog" in one for one in answers(person, "keyed"))


@pytest.fixture
def short() -> Iterator[str]:
    """A folder with a short path, because GnuPG's agent listens on a socket there."""
    with tempfile.TemporaryDirectory(prefix="g", ignore_cleanup_errors=True) as folder:
        yield folder


@pytest.mark.skipif(
    not (shutil.which("pass") and shutil.which("gpg")), reason="needs the programs pass and gpg"
)
def test_the_password_store_itself_gives_a_secret(
    origin: Crib, ann: Callable[..., Person], short: str
) -> None:
    helper(origin, argv=["pass", "show"], confined=False)
    person = ann("kim")
    person.env["GNUPGHOME"] = short
    environment = {"HOME": str(person.home), "PATH": os.environ["PATH"], "GNUPGHOME": short}

    def do(*argv: str, text: str = "") -> None:
        subprocess.run(argv, env=environment, input=text.encode(), check=True, capture_output=True)

    key = ["--quick-generate-key", "kim@example.com", "default", "default", "never"]
    try:
        do("gpg", "--batch", "--pinentry-mode", "loopback", "--passphrase", "", *key)
        do("pass", "init", "kim@example.com")
        do("pass", "insert", "--multiline", "TOKEN", text="good-value\n")
        person.run("trust", "--yes")
        assert all("eulav-doog" in one for one in answers(person, "keyed"))
        do("pass", "rm", "--force", "TOKEN")
        assert all("secret_missing" in one for one in answers(person, "keyed"))
    finally:
        do("gpgconf", "--kill", "gpg-agent")
