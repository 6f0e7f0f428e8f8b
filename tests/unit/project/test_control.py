"""The steps of a project: what they write down of a call, and the secrets that they give and mask."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from toolcrib import Context, Result
from toolcrib.core.bound import BoundTool
from toolcrib.errors import (
    HostNotAllowed,
    InvalidInput,
    SandboxUnavailable,
    SecretMissing,
    TimedOut,
    ToolcribError,
    ToolFailed,
)
from toolcrib.guard import AuditLog, EnvironmentSecrets, Ledger
from toolcrib.guard.audit.line import AuditEntry, parse
from toolcrib.project.control.records import CallAudit, SecretsStep
from toolcrib.spec import FunctionExec, Permissions, SecretSpec, Tool
from toolcrib.state import Vault


@pytest.fixture
def log(tmp_path: Path) -> Iterator[AuditLog]:
    with AuditLog(tmp_path / "audit/tools.log") as log:
        yield log


def last(log: AuditLog) -> AuditEntry:
    return parse(log.path.read_bytes().splitlines()[-1])


def record(log: AuditLog, call: Context, result: Result) -> None:
    ledger = Ledger(Vault(log.path.parent, log.path.parent / "data"))
    CallAudit(log, SecretsStep(EnvironmentSecrets({})), ledger).record(call, result)


def bound(*secrets: str) -> BoundTool:
    permissions = Permissions(secrets=tuple(SecretSpec(name) for name in secrets))
    tool = Tool("t", "D.", "function", {"type": "object"}, FunctionExec("m:f"), permissions=permissions)
    return BoundTool(tool, lambda: pytest.fail("nothing is run here"))


def begun(**more: Any) -> Context:
    context = Context("t", {"a": 1}, **more)
    context.started = 1.0
    return context


@pytest.mark.parametrize(
    ("error", "ran", "event"),
    [
        (InvalidInput("x"), False, "TOOL_REFUSED"),
        (InvalidInput("x"), True, "TOOL_REFUSED"),
        (InvalidInput("x", details={"raisedBy": "tool"}), True, "TOOL_EXECUTED"),
        (HostNotAllowed("x"), True, "TOOL_REFUSED"),
        (SecretMissing("x"), False, "TOOL_REFUSED"),
        (ToolFailed("x"), True, "TOOL_EXECUTED"),
        (TimedOut("x"), True, "TOOL_EXECUTED"),
        (ToolFailed("x", details={"enforcement": "a tool's own"}), True, "TOOL_EXECUTED"),
    ],
)
def test_what_ran_is_told_from_what_was_refused(
    log: AuditLog, error: ToolcribError, ran: bool, event: str
) -> None:
    call = begun() if ran else Context("t", {"a": 1})
    record(log, call, Result("error", None, error))
    assert last(log).event == event
    assert last(log).fields["status"] == ("refused" if event == "TOOL_REFUSED" else "error")
    assert last(log).fields["code"] == error.code


async def test_secrets_are_resolved_and_masked_also_after_they_change() -> None:
    values = {"A": "first-value"}
    secrets = SecretsStep(EnvironmentSecrets(values))

    async def given(ctx: Context) -> Result:
        return Result("ok", dict(ctx.secrets))

    async def secrets_of(tool: BoundTool) -> Any:
        call = Context("t", {})
        call.bound = tool
        return (await secrets(given)(call)).value

    assert secrets.mask("first-value") == "first-value"
    secrets.know([bound("A", "GONE").tool])
    assert secrets.mask("first-value") == "***A***"
    values["A"] = "second-value"
    assert await secrets_of(bound("A")) == {"A": "second-value"}
    assert secrets.mask("first-value second-value") == "***A*** ***A***"
    assert await secrets_of(bound()) == {}
    with pytest.raises(SecretMissing):
        await secrets_of(bound("GONE"))


def test_the_sandbox_level_is_told_for_success_and_failure(log: AuditLog) -> None:
    held = {"enforcement": {"level": "namespaces"}}
    record(log, begun(call_id="c-1"), Result("ok", 1, details=held))
    assert (last(log).fields["sandbox"], last(log).fields["call"]) == ("namespaces", "c-1")
    record(log, begun(), Result("error", None, ToolFailed("x", details=held)))
    assert last(log).fields["sandbox"] == "namespaces"


def test_what_was_not_held_is_told_beside_the_level(log: AuditLog) -> None:
    held = {
        "level": "landlock",
        "missing": ["pid namespace"],
        "exceeded": ["cpu"],
        "limits": {"cpu": "rlimit"},
    }
    record(log, begun(), Result("ok", 1, details={"enforcement": held}))
    fields = last(log).fields
    assert fields["sandbox"] == "landlock"
    assert fields["sandbox_missing"] == ["pid namespace"]
    assert fields["sandbox_exceeded"] == ["cpu"]
    assert "sandbox_unprotected" not in fields


def test_a_refusal_names_the_mechanism_that_is_missing(log: AuditLog) -> None:
    error = SandboxUnavailable("x", details={"mechanism": "pid namespace", "reason": "y"})
    record(log, begun(), Result("error", None, error))
    assert last(log).event == "TOOL_REFUSED"
    assert last(log).fields["mechanism"] == "pid namespace"
