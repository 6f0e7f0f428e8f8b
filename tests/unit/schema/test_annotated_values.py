"""Values of annotated types: bytes are Base64 in JSON, and what is wrong is named by its place."""

from __future__ import annotations

from typing import Any, Literal

import pydantic
import pytest
from pydantic import BaseModel

from tests.unit.schema.test_annotations import Customer, Parcel
from toolcrib.errors import InvalidInput
from toolcrib.schema import to_json
from toolcrib.schema.annotations import Annotation
from toolcrib.schema.plain import plain


@pytest.mark.parametrize("text", ["%", "a", "aGk=aGk="])
def test_what_is_not_base64_is_refused_with_its_place(text: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        Annotation(list[Parcel]).read([{"data": text}], at=("parcels",))

    assert [(v.path, v.message) for v in caught.value.violations] == [("$.parcels[0].data", "is not Base64")]


def test_bytes_are_the_usual_base64_and_both_alphabets_are_read() -> None:
    assert to_json(Parcel(data=b"\xff\xfe")) == {"data": "//4=", "parts": []}
    for text in ("//4=", "__4=", "__4"):
        assert Annotation(Parcel).read({"data": text}).data == b"\xff\xfe"


def test_a_model_that_says_how_bytes_are_written_keeps_that() -> None:
    class Hex(BaseModel, ser_json_bytes="hex", val_json_bytes="hex"):
        data: bytes

    class Twice(BaseModel):
        data: pydantic.Base64Bytes
        inner: Hex
        more: bytes

    value = Annotation(Twice).read({"data": "aGk=", "inner": {"data": "ff"}, "more": "aGk="})
    assert (value.data, value.inner.data, value.more) == (b"hi", b"\xff", b"hi")
    assert to_json(value)["inner"] == {"data": "ff"}


def test_a_violation_names_the_place() -> None:
    with pytest.raises(InvalidInput) as caught:
        Annotation(Customer).read({"name": "A", "address": {"street": "s", "zip": 1}}, at=("who",))

    assert [v.path for v in caught.value.violations] == ["$.who.address.zip"]


@pytest.mark.parametrize(
    "annotation", [int, str, bool, Any, None, list[int], dict[str, int], int | str, Literal["a"]]
)
def test_plain_json_needs_no_conversion(annotation: Any) -> None:
    found = plain(annotation)
    assert found is not None
    assert found.convert is None
