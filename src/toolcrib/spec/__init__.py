"""Tools, calls and results as pure data, and the protocols between the packages. No input or output."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from toolcrib.spec.calls.call import Call, Outcome, Result
from toolcrib.spec.calls.caller import SCOPES, Caller, Scope
from toolcrib.spec.calls.client import CallClient, CallSession, RoundClient
from toolcrib.spec.calls.content import Content
from toolcrib.spec.calls.events import CallEvent, CallEvents, Chunk, Progress
from toolcrib.spec.ports import CallContext, Catalog, Clock, Executor, Invoke, SecretSource
from toolcrib.spec.tools.permissions import Network, Permissions, SecretSpec
from toolcrib.spec.tools.policies import (
    LEVELS,
    Annotations,
    ApprovalRule,
    Auth,
    Example,
    Hmac,
    Level,
    Limits,
    McpForms,
    OAuth2,
    Output,
    Retry,
)
from toolcrib.spec.tools.tool import Source, Spelling, Tool

if TYPE_CHECKING:
    from toolcrib.spec.tools.kinds import (
        ABSENT,
        Absent,
        BodyPart,
        BuiltinExec,
        Choice,
        CommandExec,
        Comparison,
        CompositeExec,
        ExecConfig,
        FieldMap,
        FileExec,
        FunctionExec,
        HttpExec,
        McpExec,
        ParameterStyle,
        PythonExec,
        SqlExec,
        Step,
    )

__all__ = [
    "ABSENT",
    "LEVELS",
    "SCOPES",
    "Absent",
    "Annotations",
    "ApprovalRule",
    "Auth",
    "BodyPart",
    "BuiltinExec",
    "Call",
    "CallClient",
    "CallContext",
    "CallEvent",
    "CallEvents",
    "CallSession",
    "Caller",
    "Catalog",
    "Choice",
    "Chunk",
    "Clock",
    "CommandExec",
    "Comparison",
    "CompositeExec",
    "Content",
    "Example",
    "ExecConfig",
    "Executor",
    "FieldMap",
    "FileExec",
    "FunctionExec",
    "Hmac",
    "HttpExec",
    "Invoke",
    "Level",
    "Limits",
    "McpExec",
    "McpForms",
    "Network",
    "OAuth2",
    "Outcome",
    "Output",
    "ParameterStyle",
    "Permissions",
    "Progress",
    "PythonExec",
    "Result",
    "Retry",
    "RoundClient",
    "Scope",
    "SecretSource",
    "SecretSpec",
    "Source",
    "Spelling",
    "SqlExec",
    "Step",
    "Tool",
]


def __getattr__(name: str) -> Any:
    """Return a configuration of an execution kind. They are many, and a program's own functions need none."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("toolcrib.spec.tools.kinds"), name)
