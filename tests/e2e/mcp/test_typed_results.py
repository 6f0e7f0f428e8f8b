"""Functions with structures as arguments and results, called by the official client."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from mcp import StdioServerParameters
from mcp.client import Client

from tests.commands import shared_server
from tests.e2e.cli.test_cli import ENVIRONMENT

APP = """
from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date, timedelta
from decimal import Decimal
from typing import NotRequired, TypedDict

from pydantic import BaseModel

from toolcrib import Toolset

tools = Toolset()


@dataclass
class Branch:
    name: str
    grown: date
    parts: list[Branch] = field(default_factory=list)


class Row(TypedDict):
    price: Decimal
    left: NotRequired[timedelta]


class Parcel(BaseModel):
    data: bytes
    inner: Parcel | None = None


@tools.tool
def graft(branch: Branch, part: Branch = None) -> Branch:
    "Add a part to a branch."
    return Branch(branch.name, branch.grown, [*branch.parts, *([part] if part else [])])


@tools.tool
def double(row: Row) -> Row:
    "Double a price."
    return {**row, "price": row["price"] * 2}


@tools.tool
def wrap(parcel: Parcel) -> Parcel:
    "Put a parcel into another."
    return Parcel(data=parcel.data[::-1], inner=parcel)


@tools.tool
def rows(count: float) -> list[Row]:
    "List rows."
    return [{"price": Decimal(count)}]


tools.run()
"""
BUD = {"name": "bud", "grown": "2026-02-03", "parts": []}


@pytest.mark.parametrize(
    ("tool", "arguments", "content"),
    [
        ("graft", {"branch": BUD, "part": BUD}, {**BUD, "parts": [BUD]}),
        ("graft", {"branch": BUD, "part": None}, BUD),
        ("double", {"price": "1.10", "left": "PT1M"}, {"price": "2.20", "left": "PT1M"}),
        ("wrap", {"data": "+/8="}, {"data": "//s=", "inner": {"data": "+/8=", "inner": None}}),
        ("rows", {"count": 3}, {"result": [{"price": "3"}]}),
    ],
)
@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_a_structure_is_the_structured_content_itself(
    tool: str, arguments: Any, content: Any, mode: Any, tmp_path: Path
) -> None:
    (tmp_path / "app.py").write_text(APP)
    server = StdioServerParameters(
        command=str(shared_server().program("python")),
        args=[str(tmp_path / "app.py")],
        cwd=tmp_path,
        env=ENVIRONMENT | {"TOOLCRIB_DATA": str(tmp_path / "data")},
    )
    async with Client(server, mode=mode) as client:
        # The client checks it against the output schema, which it has to list for that.
        listed = {one.name: one for one in (await client.list_tools()).tools}
        assert (listed[tool].output_schema or {})["type"] == "object"
        assert (await client.call_tool(tool, arguments)).structured_content == content
