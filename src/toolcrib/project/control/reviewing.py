"""The reviews and the acceptance of a project, as a person gives them: every one is written down."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from toolcrib.errors import ToolcribError
from toolcrib.guard import AuditLog, ToolDigest, Trust
from toolcrib.project.config.settings import Config
from toolcrib.project.control.first_use import FirstUse, ReviewSheet
from toolcrib.spec import Tool


class Reviewing:
    """Shows what there is to review, and records the decisions. `found` returns all that can be reviewed."""

    def __init__(
        self,
        first_use: FirstUse,
        found: Callable[[], Iterable[Tool]],
        audit: AuditLog,
        trust: Trust,
        config: Config,
    ) -> None:
        self._first_use, self._found, self._audit = first_use, found, audit
        self._trust, self._config = trust, config

    def sheets(self) -> tuple[list[ReviewSheet], list[ToolcribError]]:
        """Return every tool, agent and workflow as it is shown for review, and the errors of all others.

        Tools of bundles are not of the project; `FirstUse.sheet` shows one of them.
        """
        sheets, errors = [], []
        for tool in self._found():
            try:
                if tool.source is not None:
                    sheets.append(self._first_use.sheet(tool))
            except ToolcribError as error:
                errors.append(error)
        return sheets, errors

    def accept(self, by: str, sheets: Sequence[ReviewSheet] = (), *, channel: str = "program") -> None:
        """Record that a person accepts the project with its settings and these tools, as they were shown."""
        digest, names = self._config.digest, [one.tool.name for one in sheets]
        # The log comes first: if it cannot be written, this raises and nothing is accepted.
        self._audit.record("PROJECT_ACCEPTED", approver=by, channel=channel, digest=digest, tools=names)
        self._first_use.reviews.accept_all([(one.tool, one.digest) for one in sheets], by)
        self._trust.accept(digest, by, self._config.started, self._config.policy_document)

    def review(self, tool: Tool, by: str, digest: ToolDigest, channel: str) -> None:
        """Record that a person has reviewed a tool with this digest."""
        self._audit.record(
            "TOOL_APPROVED",
            name=tool.name,
            approver=by,
            channel=channel,
            scope="review",
            digest=digest.digest,
        )
        self._first_use.reviews.accept(tool, digest, by)
