"""A source of tools for tests: records that are kept in memory, with their switches."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from toolcrib.bundles import BundleRecord, ListedTool, ToolRecord
from toolcrib.bundles.answers import Source
from toolcrib.bundles.listing import listed_of
from toolcrib.bundles.records import file_of

MOMENT = "2026-01-01T00:00:00.000Z"


@dataclass
class MemorySource:
    """A bundle whose tools are these records."""

    id: str
    slug: str
    tools: list[ToolRecord]
    source: Source = "builtin"
    switches: dict[str, bool] = field(default_factory=dict)
    revision: int = 0

    def __post_init__(self) -> None:
        self.name = self.slug

    def bundle(self) -> BundleRecord:
        on, built_in = self.switches.get("", True), self.source == "builtin"
        return BundleRecord(
            id=self.id,
            slug=self.slug,
            is_enabled=on,
            is_built_in=built_in,
            created_at=MOMENT,
            modified_at=MOMENT,
        )

    def listed(self) -> list[ListedTool]:
        return [
            msgspec.structs.replace(
                listed_of(self._switched(tool), file_of(tool.slug, tool.version)),
                full=tool.slug,
                name=tool.slug,
            )
            for tool in self.tools
        ]

    def find(self, slug: str, version: str) -> ListedTool | None:
        return next((one for one in self.listed() if (one.slug, one.version) == (slug, version)), None)

    def record(self, tool: ListedTool) -> ToolRecord:
        return next(self._switched(one) for one in self.tools if one.id == tool.id)

    def switch(self, tool: ListedTool | None, *, enabled: bool, by: str) -> None:
        assert by
        self.switches["" if tool is None else tool.slug] = enabled
        self.revision += 1

    def put(self, tools: Iterable[ToolRecord]) -> None:
        """Have these tools from now on, as after a change of a file."""
        self.tools = list(tools)
        self.revision += 1

    def _switched(self, tool: ToolRecord) -> ToolRecord:
        return msgspec.structs.replace(tool, is_enabled=self.switches.get(tool.slug, tool.is_enabled))
