"""Types of the options of a registered function."""

from __future__ import annotations

from typing import Any

import pytest

from toolcrib import Toolset
from toolcrib.errors import DefinitionError


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"retry": 3}, "retry must be of type Retry, not 3"),
        ({"annotations": {"readOnlyHint": True}}, "annotations must be of type Annotations"),
        ({"approval": True}, "approval must be of type str, not True"),
    ],
)
def test_an_option_of_a_wrong_type_is_named(options: Any, says: str) -> None:
    tools = Toolset()
    with pytest.raises(DefinitionError, match=says):
        tools.register("add", lambda: 1, **options)
    assert tools.names == []
