"""What a tool is, what a call is, and the seams between the rooms. Pure data, no input or output."""

from toolcrib.spec.call import Call, Outcome, Result
from toolcrib.spec.caller import SCOPES, Caller, Scope
from toolcrib.spec.kinds import (
    BodyPart,
    CommandExec,
    ExecConfig,
    FieldMap,
    FileExec,
    FunctionExec,
    HttpExec,
    ParameterStyle,
    PythonExec,
    SqlExec,
)
from toolcrib.spec.permissions import Network, Permissions, SecretSpec
from toolcrib.spec.policies import (
    LEVELS,
    Annotations,
    Approval,
    Auth,
    Example,
    Level,
    Limits,
    Output,
    Retry,
)
from toolcrib.spec.ports import CallContext, Catalog, Clock, Executor, Invoke, SecretSource
from toolcrib.spec.tool import Source, Tool

__all__ = [
    "LEVELS",
    "SCOPES",
    "Annotations",
    "Approval",
    "Auth",
    "BodyPart",
    "Call",
    "CallContext",
    "Caller",
    "Catalog",
    "Clock",
    "CommandExec",
    "Example",
    "ExecConfig",
    "Executor",
    "FieldMap",
    "FileExec",
    "FunctionExec",
    "HttpExec",
    "Invoke",
    "Level",
    "Limits",
    "Network",
    "Outcome",
    "Output",
    "ParameterStyle",
    "Permissions",
    "PythonExec",
    "Result",
    "Retry",
    "Scope",
    "SecretSource",
    "SecretSpec",
    "Source",
    "SqlExec",
    "Tool",
]
