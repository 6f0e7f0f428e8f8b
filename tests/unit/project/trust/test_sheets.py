"""A tool as it is shown to the person who trusts it."""

from __future__ import annotations

from typing import Any

from toolcrib.guard import ToolDigest, Trusted
from toolcrib.project.trust.sheets import TrustSheet
from toolcrib.spec import ApprovalRule, CommandExec, Source, Tool

RAW = b"name: t\n"


def sheet(last: Trusted | None = None, status: Any = "new", **more: Any) -> TrustSheet:
    source = Source("native", "/p/t/tool.yml", RAW, "f" * 64)
    tool = Tool("t", "D.", "command", {"type": "object"}, CommandExec("sh"), source=source, **more)
    digest = ToolDigest("1" * 64, {"manifest": "m", "files/run.sh": "r"})
    reasons = ("write .",)
    return TrustSheet(
        tool, "tool:t", digest, status, last, ["read .", "write ."], reasons, "ro\x1bbot", True,
        lambda: ["tool.yml:", "    1 | name: t"], lambda: ["run.sh:", "    1 | rm -rf \x1b[0m"],
    )  # fmt: skip


def test_what_is_new_is_shown_with_its_files_and_a_short_digest() -> None:
    assert list(sheet().lines()) == [
        "t: not trusted yet",
        "  made by the agent ro\\x1bbot",
        "  digest: 111111111111",
        "  may touch: read .",
        "  may touch: write .",
        "  tool.yml:",
        "      1 | name: t",
        "  run.sh:",
        "      1 | rm -rf \\x1b[0m",
    ]


def test_what_has_changed_names_the_parts_and_who_trusted_it() -> None:
    parts = {"manifest": "m", "files/run.sh": "other", "files/gone": "x"}
    lines = list(sheet(Trusted("tool:t", "2" * 64, shown={"parts": parts}, by="ann"), "changed").lines())
    assert "  last trusted by ann: 222222222222" in lines
    assert "  changed since then: files/gone, files/run.sh" in lines


def test_what_is_trusted_shows_no_files() -> None:
    last = Trusted("tool:t", "1" * 64, shown={"parts": {"manifest": "m", "files/run.sh": "r"}}, by="ann")
    shown = sheet(last, "trusted")
    assert not any("|" in line for line in shown.lines())
    assert shown.as_dict()["diff"] == ""
    assert shown.changed == []


def test_the_row_holds_what_was_shown_and_granted() -> None:
    row = sheet(approval=ApprovalRule(True, "it is dear")).row
    assert (row.subject, row.digest, row.bundle) == ("tool:t", "1" * 64, "project")
    assert row.source == "f" * 64
    assert row.shown["parts"] == {"manifest": "m", "files/run.sh": "r", "approval": "required"}
    assert set(row.shown["listed"]) == {"description", "input_schema", "output_schema"}


def test_the_json_form() -> None:
    document = sheet().as_dict()
    assert (document["name"], document["status"], document["maker"]) == ("t", "new", "ro\x1bbot")
    assert (document["trustedBy"], document["lastDigest"], document["changed"]) == (None, None, [])
    assert document["diff"] == "tool.yml:\n    1 | name: t\nrun.sh:\n    1 | rm -rf \x1b[0m"
