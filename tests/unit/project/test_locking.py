"""`toolcrib.lock` written from what is trusted, and accepted by its digest."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.crib import Crib
from toolcrib import Project
from toolcrib.errors import ConfigError, ManifestError, NotFoundError, NotTrusted
from toolcrib.guard import Ledger
from toolcrib.project.authoring.locking import accept_lock, lock_of, write
from toolcrib.state import Vault

SETTINGS = "limits: {timeout_ms: 600000}\n"


@pytest.fixture
def crib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Crib:
    """A project that nobody has accepted, with a tool that waits for trust."""
    monkeypatch.setenv("TOOLCRIB_DATA", str(tmp_path / "data"))
    crib = Crib(tmp_path / "project")
    crib.write(".toolcrib/config.yml", SETTINGS)
    crib.tool(
        "fill", "file", {"action": "write", "path": "x", "content": "1"}, permissions={"fs": {"write": ["."]}}
    )
    Ledger(Vault(crib.root)).revoke()
    return crib


def lock(crib: Crib) -> str:
    project = Project.inspect(crib.root)
    path, digest, number = write(project, lock_of(project))
    assert (path, number) == (crib.root / "toolcrib.lock", len(project.tools()))
    return digest


def trusted(crib: Crib) -> bool:
    project = Project.inspect(crib.root)
    return project.trust.given and not any(sheet.waits for sheet in project.trust.sheets()[0])


def test_a_lock_accepts_nothing_until_its_digest_is_given(crib: Crib) -> None:
    digest = lock(crib)
    assert not trusted(crib)
    assert accept_lock(Project.inspect(crib.root), digest, "ci") == 1
    assert trusted(crib)
    line = crib.last()
    assert (line.event, line.fields["channel"], line.fields["approver"]) == ("TRUSTED", "lock", "ci")
    assert line.fields["subjects"] == ["settings", "policy", "tool:fill"]


def test_another_digest_accepts_nothing(crib: Crib) -> None:
    digest = lock(crib)
    with pytest.raises(NotTrusted, match=f"has the digest {digest}, not {'0' * 64}"):
        accept_lock(Project.inspect(crib.root), "0" * 64, "ci")
    assert not trusted(crib)


def test_without_a_lock_nothing_is_accepted(crib: Crib) -> None:
    with pytest.raises(NotFoundError, match=r"there is no .*toolcrib\.lock"):
        accept_lock(Project.inspect(crib.root), "0" * 64, "ci")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda crib: crib.write(".toolcrib/tools/fill/more", "x"), "fill: files/more"),
        (lambda crib: crib.write(".toolcrib/config.yml", SETTINGS + "#\n"), "settings: config.yml"),
        (
            lambda crib: crib.write(".mcp.json", '{"mcpServers": {"x": {"command": "sh"}}}'),
            "settings: config.yml or .mcp.json",
        ),
        (
            lambda crib: crib.tool("late", "file", {"action": "read", "path": "x"}),
            "late: not in the lock",
        ),
        (lambda crib: (crib.home / "tools/fill/tool.yml").unlink(), "fill: gone"),
    ],
    ids=["file", "settings", "servers", "new", "gone"],
)
def test_a_project_that_is_not_as_the_lock_says_is_not_accepted(
    crib: Crib, change: Callable[[Crib], object], said: str
) -> None:
    digest = lock(crib)
    change(crib)
    with pytest.raises(NotTrusted, match=said):
        accept_lock(Project.inspect(crib.root), digest, "ci")
    assert not trusted(crib)


def test_what_is_no_lock_is_not_accepted_whatever_its_digest(crib: Crib) -> None:
    raw = b"{}"
    (crib.root / "toolcrib.lock").write_bytes(raw)
    with pytest.raises(ConfigError, match="cannot be used"):
        accept_lock(Project.inspect(crib.root), hashlib.sha256(raw).hexdigest(), "ci")
    assert not trusted(crib)


def test_a_project_with_errors_is_not_locked(crib: Crib) -> None:
    crib.write(".toolcrib/tools/bad/tool.yml", "name: [")
    project = Project.inspect(crib.root)
    with pytest.raises(ManifestError, match="nothing was locked: 1 error"):
        lock_of(project)
