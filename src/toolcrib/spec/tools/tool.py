"""A tool: identity, schemas, execution, permissions, source."""

from __future__ import annotations

from dataclasses import field
from enum import Enum
from typing import TYPE_CHECKING, Any

from toolcrib.spec.record import record
from toolcrib.spec.tools.permissions import Permissions
from toolcrib.spec.tools.policies import (
    Annotations,
    ApprovalRule,
    Auth,
    Example,
    Limits,
    McpForms,
    Output,
    Retry,
)

if TYPE_CHECKING:
    from toolcrib.spec.tools.kinds import ExecConfig


_TOOL_ONLY = McpForms()


class Spelling(Enum):
    """The placeholders that the texts of a file may contain."""

    DOLLAR_BRACE = "${name}"
    """`${name}` and `${secret:NAME}`; `{{` is plain text."""
    DOUBLE_BRACE = "{{name}}"
    """As `DOLLAR_BRACE`, and `{{name}}` and `{{if name}} … {{end}}`, which name arguments only."""


@record
class Source:
    """The file that a tool was read from, byte for byte."""

    dialect: str
    path: str
    raw: bytes
    sha256: str
    shared: bool = False
    """The file is not the one manifest of a folder: files beside it do not belong to the tool."""
    spelling: Spelling = Spelling.DOLLAR_BRACE
    """The placeholders that the file uses."""
    stored: bool = False
    """A record of the user's store of bundles, not of the project. `raw` is the definition in it."""
    shipped: bool = False
    """A built-in tool. `raw` is its definition, and `path` the module of its function."""


PLAIN = ("owner",)
"""Fields of a tool that are a text, and that a manifest, lists and `show` have as it is."""


@record
class Tool:
    """One tool, from whatever source."""

    name: str
    description: str
    kind: str
    """A name in `toolcrib.manifest.KINDS`: how it runs."""
    input_schema: dict[str, Any]
    """JSON Schema 2020-12 of the arguments, an object."""
    config: ExecConfig
    output: Output = field(default_factory=Output)
    permissions: Permissions = field(default_factory=Permissions)
    approval: ApprovalRule = field(default_factory=ApprovalRule)
    retry: Retry | None = None
    limits: Limits = field(default_factory=Limits)
    annotations: Annotations = field(default_factory=Annotations)
    tags: tuple[str, ...] = ()
    examples: tuple[Example, ...] = ()
    version: int | str = 1
    bundle: str = "project"
    source: Source | None = None
    extensions: dict[str, Any] = field(default_factory=dict)
    auth: tuple[Auth, ...] = ()
    mcp: McpForms = _TOOL_ONLY
    owner: str = ""
    files: tuple[str, ...] = ()
    """Files and folders of its code, from the project's root, in place of the folders of its scripts."""
    display_name: str = ""
    """Of a record: the name that people read."""
    translations: dict[str, dict[str, str]] = field(default_factory=dict)
    """Of a record: language tag to the `displayName` and `description` that people read in it."""

    def __repr__(self) -> str:
        return f"<Tool {self.name} version {self.version} ({self.kind}): {self.description[:60]!r}>"

    @property
    def is_stored(self) -> bool:
        """True if it comes from the user's store of bundles, not from the project."""
        return self.source is not None and self.source.stored

    @property
    def is_builtin(self) -> bool:
        """True if it comes with Toolcrib."""
        return self.source is not None and self.source.shipped


HINT_ASKED = "A person has been asked. Once they have approved it, make the same call again."
"""A hint for callers that may be models: it never says how to approve."""
