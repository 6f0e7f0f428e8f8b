"""The one protocol between a project and its interfaces: MCP, the command line, REST, a web page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from toolcrib.guard import Approval, ApprovalStatus, GrantScope
from toolcrib.spec import Caller, Catalog, Tool


class ApprovalView(Protocol):
    """One approval as a person sees it."""

    @property
    def approval(self) -> Approval:
        """The approval."""

    @property
    def tool(self) -> Tool | None:
        """The tool as it is now; None if there is none of that name any more."""

    @property
    def document(self) -> dict[str, Any]:
        """JSON form with secrets masked. `approve` and `deny` take the `seal` in it."""


class PendingApprovals(Protocol):
    """The approvals of calls, for people to decide on."""

    def list(
        self, status: ApprovalStatus | None = None, limit: int = 100, *, before: str | None = None
    ) -> Sequence[ApprovalView]:
        """Return approvals, the newest first; `before` is the id of the last one of the page before."""

    def show(self, id: str, changed: Mapping[str, Any] | None = None) -> ApprovalView:  # noqa: A002 - the field's name
        """Return one approval, as it is or with changed arguments. NotFoundError, InvalidInput."""

    def approve(
        self,
        id: str,  # noqa: A002 - the field's name
        by: str,
        scope: GrantScope = "once",
        arguments: Mapping[str, Any] | None = None,
        note: str = "",
        until: float | None = None,
        *,
        seal: str | None = None,
        decider: Caller | None = None,
        channel: str = "program",
    ) -> ApprovalView:
        """Approve a call. Raises ConflictError, InvalidInput, DeniedError."""

    def deny(
        self,
        id: str,  # noqa: A002 - the field's name
        by: str,
        note: str = "",
        hold_s: float | None = None,
        *,
        seal: str | None = None,
        decider: Caller | None = None,
        channel: str = "program",
    ) -> ApprovalView:
        """Deny a call. Raises ConflictError, DeniedError."""


class ToolService(Catalog, Protocol):
    """A catalog with search and approvals: a whole project. A `Catalog` alone is also a toolset."""

    @property
    def approval_service(self) -> PendingApprovals:
        """The calls that wait for approval."""

    def search(
        self,
        query: str,
        *,
        tags: Sequence[str] = (),
        kinds: Sequence[str] = (),
        limit: int = 25,
        page: str | None = None,
        caller: str = "local",
        identity: Caller | None = None,
    ) -> dict[str, Any]:
        """Return the matching tools that this caller may see: `hits`, `total`, `facets`, `next`.

        Raises UsageError for a query without a word, and for a page of another search.
        """
