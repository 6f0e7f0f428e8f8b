"""Types of the options of a registered function."""

from __future__ import annotations

from typing import Any

import pytest

from toolcrib import Toolset
from toolcrib.core.bound import ToolOptions
from toolcrib.errors import DefinitionError


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"retry": 3}, "retry must be of type Retry, not 3"),
        ({"annotations": {"readOnlyHint": True}}, "annotations must be of type Annotations"),
        ({"approval": True}, "approval must be of type str, not True"),
        ({"version": 1.5}, r"version must be of type int \| str, not 1.5"),
        ({"on_violation": "nope"}, "on_violation must be 'warn' or 'fail', not 'nope'"),
    ],
)
def test_an_option_of_a_wrong_type_is_named(options: Any, says: str) -> None:
    tools = Toolset()
    with pytest.raises(DefinitionError, match=says):
        tools.register("add", lambda: 1, **options)
    assert tools.names == []


def test_an_option_that_is_none_is_as_if_not_given() -> None:
    tools = Toolset()
    absent: Any = dict.fromkeys(ToolOptions.__annotations__)
    tools.register("add", lambda: 1, **absent)
    tools.register("plain", lambda: 1)
    one, other = tools.get("add"), tools.get("plain")
    assert (one.tags, one.version, one.output) == (other.tags, other.version, other.output)
