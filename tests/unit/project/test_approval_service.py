"""Approvals as a person meets them: shown, decided, written down."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.crib import Crib
from tests.guarded import ask
from toolcrib import Project
from toolcrib.errors import (
    AuditUnavailable,
    ConflictError,
    DeniedError,
    InvalidInput,
    ToolcribError,
)
from toolcrib.guard import Approval, AuditLog, Permit, canonical
from toolcrib.project.control.approvals import ApprovalService
from toolcrib.spec import Caller

SCHEMA = {"amount": {"type": "integer", "maximum": 10}, "to": {"type": "string", "default": "bob"}}


@pytest.fixture
def crib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Crib:
    monkeypatch.setenv("TOOLCRIB_DATA", str(tmp_path / "data"))
    crib = Crib(tmp_path / "project")
    crib.write("data", "x")
    crib.secrets["TOKEN"] = "very-secret-value"
    crib.tool(
        "pay",
        "file",
        {"action": "read", "path": "data"},
        SCHEMA,
        permissions={"fs": {"read": ["data"]}, "secrets": {"TOKEN": {"type": "string", "required": True}}},
        approval={"required": True, "reason": "it is dear"},
    )
    return crib


@pytest.fixture
def project(crib: Crib) -> Project:
    return crib.open()


def asking(project: Project, amount: Any = 7, **more: Any) -> Any:
    arguments = canonical({"amount": amount, "to": "bob"})
    digest = project.trust.digest_of(project.get("pay"))
    return ask(0, arguments=arguments, **{"tool_digest": digest, **more})


def waits(project: Project, amount: Any = 7, **more: Any) -> Approval:
    found = project.approval_service.approvals.seek(asking(project, amount, **more))
    assert isinstance(found, Approval)
    return found


def test_what_is_shown(project: Project) -> None:
    waiting = waits(project)
    sheet = project.approval_service.show(waiting.id)
    assert sheet.tool is project.get("pay")
    assert sheet.document["arguments"] == {"amount": 7, "to": "bob"}
    assert sheet.document["status"] == "pending"
    assert sheet.document["seal"] == waiting.seal
    assert [one.approval.id for one in project.approval_service.list("pending")] == [waiting.id]


def test_a_yes_is_written_down_and_lets_the_call_run(crib: Crib, project: Project) -> None:
    waiting = waits(project)
    project.approval_service.approve(waiting.id, "ada", note="fine", seal=waiting.seal)
    line = crib.last()
    assert line.event == "TOOL_APPROVED"
    assert line.fields == {
        "name": "pay",
        "approval": waiting.id,
        "caller": "mcp:agent",
        "arguments_sha256": waiting.arguments_digest,
        "approver": "ada",
        "channel": "program",
        "scope": "once",
        "note": "fine",
        "edited": False,
    }
    assert isinstance(project.approval_service.approvals.seek(asking(project)), Permit)


def test_a_no_is_written_down(crib: Crib, project: Project) -> None:
    waiting = waits(project)
    project.approval_service.deny(waiting.id, "ada", "no\nTOOL_APPROVED name=pay")
    assert crib.last().event == "TOOL_DENIED"
    assert crib.last().fields["note"] == "no\nTOOL_APPROVED name=pay"
    assert len(crib.audit()) == 1
    project.approval_service.revoke(waiting.id, "ada")
    assert crib.last().event == "APPROVAL_REVOKED"


def test_changed_arguments_are_checked_and_filled_in_again(crib: Crib, project: Project) -> None:
    waiting = waits(project)
    with pytest.raises(InvalidInput, match="amount"):
        project.approval_service.approve(waiting.id, "ada", arguments={"amount": 11})
    with pytest.raises(InvalidInput, match="amount"):
        project.approval_service.show(waiting.id, {"amount": "x"})
    assert project.approval_service.show(waiting.id, {"amount": 1.0}).document["edited"] == {
        "amount": 1,
        "to": "bob",
    }
    project.approval_service.approve(waiting.id, "ada", arguments={"amount": 1.0})
    permit = project.approval_service.approvals.seek(asking(project))
    assert isinstance(permit, Permit)
    assert permit.arguments == b'{"amount":1,"to":"bob"}'
    assert permit.edited
    assert crib.last().fields["edited"] is True
    assert crib.last().fields["params"] == {"amount": 1, "to": "bob"}


def test_arguments_changed_to_the_same_are_not_changed(project: Project) -> None:
    waiting = waits(project)
    done = project.approval_service.approve(waiting.id, "ada", "arguments", {"to": "bob", "amount": 7})
    assert done.approval.edited is None


@pytest.mark.parametrize("change", ["manifest", "file"])
def test_a_tool_that_has_changed_cannot_be_approved(crib: Crib, project: Project, change: str) -> None:
    waiting = waits(project)
    folder = crib.home / "tools" / "pay"
    if change == "manifest":
        text = (folder / "tool.yml").read_text()
        (folder / "tool.yml").write_text(text.replace("it is dear", "it is cheap"))
    else:
        (folder / "new").write_text("x")
    fresh = crib.open().approval_service
    with pytest.raises(ConflictError, match="has changed since this call asked"):
        fresh.approve(waiting.id, "ada")
    assert crib.last().event == "APPROVAL_VOID"
    assert fresh.show(waiting.id).approval.status == "void"


def test_a_call_of_a_tool_that_only_another_process_has_can_be_approved(crib: Crib, project: Project) -> None:
    waiting = waits(project)
    (crib.home / "tools" / "pay" / "tool.yml").unlink()
    fresh = crib.open().approval_service
    assert fresh.show(waiting.id).approval.status == "pending"
    assert fresh.approve(waiting.id, "ada").approval.status == "approved"


def test_looking_at_an_approval_of_a_changed_tool_voids_it(crib: Crib, project: Project) -> None:
    waiting = waits(project)
    project.approval_service.approve(waiting.id, "ada")
    (crib.home / "tools" / "pay" / "new").write_text("x")
    assert project.approval_service.show(waiting.id).approval.status == "void"
    (crib.home / "tools" / "pay" / "new").unlink()
    assert isinstance(project.approval_service.approvals.seek(asking(project)), Approval)


def test_a_project_that_still_holds_the_old_manifest_decides_nothing(crib: Crib, project: Project) -> None:
    waiting = waits(project)
    path = crib.home / "tools" / "pay" / "tool.yml"
    path.write_text(path.read_text().replace("it is dear", "it is cheap"))
    with pytest.raises(ConflictError, match="since it was loaded"):
        project.approval_service.approve(waiting.id, "ada")
    assert project.approval_service.show(waiting.id).approval.status == "pending"


def test_an_approval_that_cannot_be_written_down_does_not_count(project: Project) -> None:
    taken = project.root / "a-file"
    taken.touch()
    log = AuditLog(taken / "tools.log")
    approvals = project.approval_service.approvals
    unwritable = ApprovalService(approvals, project.get, project.trust, log, project.redact, project.config)
    waiting = waits(project)
    with pytest.raises(AuditUnavailable):
        unwritable.approve(waiting.id, "ada")
    assert project.approval_service.approvals.find(waiting.id).status == "void"
    assert isinstance(project.approval_service.approvals.seek(asking(project)), Approval)


def test_an_approval_must_come_through_an_allowed_channel(project: Project) -> None:
    (project.root / ".toolcrib/config.yml").write_text("approvals: {channels: [page]}")
    strict = Project.open(project.root)
    waiting = waits(strict)
    with pytest.raises(DeniedError, match=r"no approval by 'cli'; its approvals\.channels: page"):
        strict.approval_service.approve(waiting.id, "ada")
    assert strict.approval_service.show(waiting.id).approval.status == "pending"
    strict.approval_service.approve(waiting.id, "ada", channel="page")
    assert strict.approval_service.show(waiting.id).approval.status == "approved"
    strict.approval_service.deny(waits(strict, amount=2).id, "ada")


def test_secrets_are_masked_in_what_is_shown_and_written_but_not_in_what_runs(crib: Crib) -> None:
    project = crib.open()
    secret = crib.secrets["TOKEN"]
    arguments = canonical({"amount": 1, "to": secret})
    digest = project.trust.digest_of(project.get("pay"))
    question = ask(arguments=arguments, tool_digest=digest, reason=f"for {secret}")
    waiting = project.approval_service.approvals.seek(question)
    assert isinstance(waiting, Approval)
    assert secret not in str(project.approval_service.show(waiting.id).document)
    project.approval_service.approve(waiting.id, "ada", arguments={"amount": 2, "to": secret}, note=secret)
    assert secret not in (crib.home / "audit" / "tools.log").read_text()
    permit = project.approval_service.approvals.seek(question)
    assert isinstance(permit, Permit)
    assert secret.encode() in permit.arguments


@pytest.mark.parametrize(
    ("token", "error"),
    [
        (Caller("page", frozenset({"approve"}), None, "bob"), None),
        (Caller("page", frozenset({"invoke"}), None, "bob"), DeniedError),
        (Caller("page", frozenset({"approve"}), None, "ada"), DeniedError),
    ],
)
def test_tokens_decide_only_where_they_may(
    crib: Crib, project: Project, token: Caller, error: type[ToolcribError] | None
) -> None:
    waiting = waits(project)
    if error is None:
        project.approval_service.approve(waiting.id, "bob", decider=token, channel="page")
        assert crib.last().fields["channel"] == "page"
        return
    for decide in (project.approval_service.approve, project.approval_service.deny):
        with pytest.raises(error):
            decide(waiting.id, "bob", decider=token)
    assert project.approval_service.approvals.find(waiting.id).status == "pending"
