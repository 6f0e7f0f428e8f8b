"""The fast places are the same as the exact ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ryaml import dumps  # type: ignore[attr-defined]  # the package's stub does not list what it exports

from toolcrib.manifest.yaml.outline import outline
from toolcrib.manifest.yaml.positions import Positions, yaml_spots
from toolcrib.manifest.yaml.source import load

GLEE = sorted((Path(__file__).parents[3] / "data/glee").glob("*/tool.yml"))

TEXTS = st.text("ab :#-'\"{}[]|>\n?!&*é0", max_size=12) | st.sampled_from(
    ["x\ny: z\n", "- a", "# no", "a: b"]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 99) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=12,
)


def differences(text: str) -> list[Any]:
    document = load(text.encode(), "tool.yml")
    fast = outline(document.text, document.data)
    if fast is None:
        return []
    exact = Positions(yaml_spots(document.text))
    found = [(path, spot, exact.find(path)) for path, spot in fast.items()]
    return [
        (p, s, e)
        for p, s, (e, same) in found
        if not same or e is None or (e.start, e.key) != (s.start, s.key)
    ]


@pytest.mark.parametrize("path", GLEE, ids=[path.parent.name for path in GLEE])
def test_ordinary_manifests_have_exact_places_fast(path: Path) -> None:
    text = path.read_text()
    document = load(text.encode(), "tool.yml")
    assert outline(document.text, document.data)
    assert differences(text) == []


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(TEXTS, VALUES, min_size=1, max_size=4))
def test_what_is_found_fast_is_exact(data: dict[str, Any]) -> None:
    text = dumps(data)
    assert load(text.encode(), "tool.yml").data == data
    assert differences(text) == []


@pytest.mark.parametrize(
    "text",
    [
        "a: |\n  b: 1\n  c: 2\nc: 3\n",
        "a:\n- x: 1\n  y: 2\n- - 3\n  - 4\nb: {c: 1}\n",
        "a: one\n  two\n  three\nb: 4\n",
        'a: "one\n  b: 2"\nb: 3\n',
        "a: # why\n  # because\n  b: 1\n\n\nc:\n",
        "'a b': 1\n\"c\" : 2\n",
        "a:\n\n  - |\n    - x\n  - y\n",
        "---\na: 1\n",
    ],
)
def test_unusual_layouts_have_exact_places(text: str) -> None:
    assert differences(text) == []
