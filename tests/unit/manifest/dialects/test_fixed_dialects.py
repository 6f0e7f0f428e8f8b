"""Faults of other formats that were found in documents from elsewhere."""

from __future__ import annotations

import pytest

from toolcrib.manifest.dialects.flexigpt.reader import extraction
from toolcrib.manifest.dialects.vega.conditions import fold, unfold
from toolcrib.manifest.yaml.source import load
from toolcrib.spec import Choice


@pytest.mark.parametrize(
    ("written", "key", "read"),
    [
        ("/x(.)/i", "regex", "(?i)x(.)"),
        ("/x/gims", "regex", "(?ims)x"),
        ("/x/", "regex", "x"),
        ("/a/list", "regex", "/a/list"),
        ("re:/x/i", "regex", "/x/i"),
        ("$.a", "jsonpath", "$.a"),
    ],
)
def test_a_regular_expression_keeps_its_flags(written: str, key: str, read: str) -> None:
    assert extraction(written) == (key, read)


def test_a_list_item_that_holds_only_a_condition_is_one_item() -> None:
    text = "items:\n  -\n    {{if x}}\n    a: 1\n    {{end}}\n  - b: 2\n"
    unfolded = unfold(text, "t.yaml")
    folded = fold(load(unfolded.text.encode(), "t.yaml").data, unfolded.tags)
    assert not folded.found
    first, second = folded.data["items"]
    assert isinstance(first["a"], Choice)
    assert second == {"b": 2}
