"""Tools, calls and results as pure data, and the protocols between the packages. No input or output."""

from __future__ import annotations

from toolcrib.spec.calls.call import Call as Call
from toolcrib.spec.calls.call import CallEvent as CallEvent
from toolcrib.spec.calls.call import CallEvents, Result
from toolcrib.spec.calls.call import Chunk as Chunk
from toolcrib.spec.calls.call import Outcome as Outcome
from toolcrib.spec.calls.call import Progress as Progress
from toolcrib.spec.calls.caller import SCOPES, Caller, Scope
from toolcrib.spec.calls.client import CallClient, CallSession, RoundClient
from toolcrib.spec.calls.content import Content
from toolcrib.spec.ports import CallContext as CallContext
from toolcrib.spec.ports import Catalog, Clock, Invoke, SecretSource
from toolcrib.spec.ports import Executor as Executor
from toolcrib.spec.tools.kinds import (
    ABSENT,
    Absent,
    BodyPart,
    BuiltinExec,
    Choice,
    CommandExec,
    Comparison,
    CompositeExec,
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
from toolcrib.spec.tools.kinds import ExecConfig as ExecConfig
from toolcrib.spec.tools.permissions import Network, Permissions, SecretSpec
from toolcrib.spec.tools.policies import (
    LEVELS,
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
from toolcrib.spec.tools.policies import Annotations as Annotations
from toolcrib.spec.tools.tool import Source, Spelling
from toolcrib.spec.tools.tool import Tool as Tool
