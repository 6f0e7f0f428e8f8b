"""What the return annotation of a function says of its output."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NotRequired, TypedDict

import pytest
from pydantic import BaseModel, Field, computed_field

from toolcrib import Toolset
from toolcrib.spec import Outcome


class Place(TypedDict):
    name: str
    at: NotRequired[list[float]]


class Found(BaseModel):
    name: str = Field(serialization_alias="calledName")

    @computed_field  # type: ignore[prop-decorator]
    @property
    def size(self) -> int:
        return len(self.name)


def returns(annotation: Any, value: Any) -> Callable[[], Any]:
    def tool() -> Any:
        return value

    tool.__annotations__["return"] = annotation
    return tool


@pytest.mark.parametrize(
    ("annotation", "value", "kind"),
    [
        (Place, {"name": "here", "at": [1.5]}, "object"),
        (list[Found], [Found(name="here")], "array"),
        (dict[str, int], {"a": 1}, "object"),
        (int, 3, "integer"),
        ("list[Place]", [{"name": "here"}], "array"),
    ],
)
async def test_the_return_annotation_is_the_output_schema(annotation: Any, value: Any, kind: str) -> None:
    tools = Toolset()
    tools.register("tool", returns(annotation, value))
    schema = tools.get("tool").output.schema
    assert schema is not None
    assert schema.get("type", "object") == kind
    assert (await tools.call("tool")).warnings == ()
    tools.register("wrong", returns(annotation, "no such thing"), on_violation="fail")
    assert (await tools.call("wrong")).error.code == "invalid_output"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "annotation", [None, str, bytes, Any, object, Outcome, Outcome | int, "Unknown", type]
)
def test_an_annotation_that_says_nothing_of_the_value_is_no_schema(annotation: Any) -> None:
    tools = Toolset()
    tools.register("tool", returns(annotation, 1))
    assert tools.get("tool").output.schema is None
