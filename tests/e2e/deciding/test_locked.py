"""`toolcrib trust --locked`: a machine without a person accepts exactly what was locked elsewhere."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import pytest

from tests.commands import decides
from tests.crib import Crib, accept
from tests.e2e.cli.test_cli import cli


@pytest.fixture
def locked(tmp_path: Path) -> Crib:
    """A project as its maker has locked it."""
    crib = Crib(tmp_path / "ours")
    crib.write("out", "nothing")
    save(crib, "good")
    accept(crib.root)
    assert cli(crib, "trust", "--lock").code == 0
    return crib


def save(crib: Crib, text: str) -> None:
    grants = {"fs": {"write": ["out"]}}
    crib.tool("save", "file", {"action": "write", "path": "out", "content": text}, permissions=grants)


def test_in_ci_exactly_the_lock_of_that_digest_is_accepted(locked: Crib, tmp_path: Path) -> None:
    clone = Path(
        shutil.copytree(locked.root, tmp_path / "clone", ignore=shutil.ignore_patterns("audit", "*.db*"))
    )
    digest = hashlib.sha256((clone / "toolcrib.lock").read_bytes()).hexdigest()
    settings = tmp_path / "ci.yml"
    env = {"TOOLCRIB_DATA": str(tmp_path / "data"), "TOOLCRIB_CONFIG": str(settings)}

    def ci(*words: str) -> tuple[int, str]:
        done = cli(None, *words, "--root", str(clone), env=env, accepted=False)
        return done.code, done.out + done.err

    settings.write_text("")
    code, said = ci("trust", "--locked", digest)
    assert (code, "decide_without_terminal: [{what: [trust], where: [" in said) == (5, True), said
    settings.write_text(decides(clone, "trust"))
    code, said = ci("trust", "--locked", "0f" * 32)
    assert (code, "so nothing was trusted" in said) == (5, True), said
    assert ci("run", "save")[0] == 5
    assert ci("trust", "--locked", digest)[0] == 0
    assert ci("run", "save")[0] == 0
    assert (clone / "out").read_text() == "good"
    manifest = clone / ".toolcrib/tools/save/tool.yml"
    changed = json.loads(manifest.read_text())
    changed["exec"]["file"]["content"] = "evil"
    manifest.write_text(json.dumps(changed))
    code, said = ci("trust", "--locked", digest)
    assert (code, "save" in said) == (5, True), said
    assert ci("run", "save")[0] == 5
    assert (clone / "out").read_text() == "good"
