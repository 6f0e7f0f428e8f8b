"""A template in another spelling stands for the same."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from toolcrib.errors import ManifestError
from toolcrib.spec import Choice, Spelling
from toolcrib.template import Namespaces, parse, respell, untied

PLAIN = Namespaces(frozenset({"x", "y-2", "a.b", "if", "odd name"}), frozenset({"KEY"}), frozenset({"HOME"}))
BRACES = replace(PLAIN, spelling=Spelling.DOUBLE_BRACE)

PIECES = st.lists(
    st.sampled_from(
        ["${x}", "${ x }", "${x | default:10}", "${x | default:'10'}", "${x | default: a b}", "${y-2}",
         "${a.b}", "${x.k[0]}", "${if}", "${odd name}", "${KEY}", "${secret:KEY}", "${HOME}", "${run_id}",
         "$${", "$$${x}", "$", "$$", "{", "}", "}}", "a", "'", '"', "\n", "é\u200d", "{ {", "#"]
    ),
    max_size=6,
).map("".join)  # fmt: skip


@given(PIECES)
def test_any_text_goes_to_the_other_spelling_and_back_or_is_refused(text: str) -> None:
    try:
        written = respell(text, PLAIN, Spelling.DOUBLE_BRACE)
    except ManifestError:
        event("refused")
        return
    assert untied(parse(written, BRACES)) == untied(parse(text, PLAIN))
    back = respell(written, BRACES, Spelling.DOLLAR_BRACE)
    assert untied(parse(back, PLAIN)) == untied(parse(text, PLAIN))


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("${x} and ${KEY}", "{{x}} and ${KEY}"),
        ("${secret:KEY}", "${KEY}"),
        ("${x | default:10}", "{{x | default:10}}"),
        ("${x | default:'10'}", "{{x | default:'10'}}"),
        ("$${x} $$${x}", "$${x} ${{x}}"),
        ("$\n${x}", "$\n{{x}}"),
        ("{${x}}", "{${x}}"),
        ("${odd name} ${if}", "${odd name} ${if}"),
        ("${run_id}", "${run_id}"),
    ],
)
def test_arguments_become_tags_and_all_else_stays(text: str, written: str) -> None:
    assert respell(text, PLAIN, Spelling.DOUBLE_BRACE) == written
    assert respell({"a": [text, 1]}, PLAIN, Spelling.DOUBLE_BRACE) == {"a": [written, 1]}


def test_what_the_other_spelling_cannot_say_is_refused() -> None:
    for text in ("{{x}}", "a {{ b", "{{end}}"):
        with pytest.raises(ManifestError, match="would mean something else"):
            respell(text, PLAIN, Spelling.DOUBLE_BRACE)
    for value in ("{{if x}}a{{end}}", Choice((("x", "a"),))):
        with pytest.raises(ManifestError, match="a condition"):
            respell(value, BRACES, Spelling.DOLLAR_BRACE)
    with pytest.raises(ManifestError, match="neither an argument"):
        respell("${gone}", PLAIN, Spelling.DOUBLE_BRACE)
