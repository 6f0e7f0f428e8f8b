"""A grant that passes through a symbolic link which a tool could have made."""

from __future__ import annotations

import asyncio

from tests.crib import Crib, failed


def arrange(crib: Crib, grant: str) -> None:
    """A tool that may write a shared folder, and two that were granted a name in it."""
    crib.write(".git/config", "[core]\n")
    crib.write("shared/note", "shared")
    crib.shell("maker", permissions={"fs": {"write": ["shared"]}})
    permissions = {"fs": {"write": [grant]}}
    crib.shell("command", permissions=permissions)
    file = {"action": "write", "path": "shared/out/made", "content": "x"}
    crib.tool("file", "file", file, permissions=permissions)


def shown(crib: Crib, tool: str) -> list[str]:
    """What is shown that the tool may touch."""

    async def sheet() -> list[str]:
        async with crib.open() as project:
            return project.trust.sheet(project.get(tool)).touches

    return asyncio.run(sheet())


def refused(crib: Crib) -> None:
    link = str(crib.root / "shared/out")
    for tool, arguments in (("command", {"c": "touch shared/out/made"}), ("file", {})):
        message = failed(crib.call(tool, arguments), "permission_denied")
        assert "'shared/out'" in message
        assert f"the symbolic link {link}" in message
    assert not (crib.root / ".git/made").exists()
    assert not (crib.root / "real/made").exists()


def test_a_link_that_a_tool_made_lends_no_grant(crib: Crib) -> None:
    arrange(crib, "shared/out")
    crib.sh("ln -s ../.git shared/out", "maker")
    refused(crib)


def test_trust_pins_the_target_of_a_link(crib: Crib) -> None:
    arrange(crib, "shared/out")
    (crib.root / "real").mkdir()
    (crib.root / "shared/out").symlink_to("../real")
    refused(crib)
    assert "shared/out is a link to real" in shown(crib, "file")
    crib.trust_tools("command", "file")
    assert crib.call("file").ok
    assert crib.call("command", {"c": "rm shared/out/made"}).ok
    crib.sh("ln -sfn ../.git shared/out", "maker")
    refused(crib)
    crib.sh("ln -sfn ../real shared/out", "maker")
    assert crib.call("file").ok


def test_the_trusted_target_is_not_replaced_by_a_folder(crib: Crib) -> None:
    arrange(crib, "shared/out")
    (crib.root / "real").mkdir()
    (crib.root / "shared/out").symlink_to("../real")
    crib.trust_tools("file")
    crib.sh("rm shared/out; mkdir shared/out", "maker")
    assert "not where it led when it was trusted" in failed(crib.call("file"), "permission_denied")


def test_a_link_outside_of_the_project_that_a_tool_could_have_made(crib: Crib) -> None:
    outside = crib.root.parent / "outside"
    (outside / "data").mkdir(parents=True)
    crib.write("../secret/file", "CANARY")
    crib.shell("maker", permissions={"fs": {"write": [str(outside)]}})
    crib.shell("reader", permissions={"fs": {"read": [str(outside / "out")]}})
    (outside / "out").symlink_to("data")
    assert "symbolic link" in failed(crib.call("reader", {"c": "true"}), "permission_denied")
    crib.trust_tools("reader")
    assert crib.call("reader", {"c": f"ls {outside}/out/"}).ok
    crib.sh(f"ln -sfn ../secret {outside}/out", "maker")
    assert "symbolic link" in failed(
        crib.call("reader", {"c": f"cat {outside}/out/file"}), "permission_denied"
    )
