"""A template of Vega in the spelling of manifests stands for the same."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from toolcrib.errors import ManifestError
from toolcrib.spec import Choice, Spelling
from toolcrib.template import Namespaces, parse, untied
from toolcrib.template.respelling import respell

PLAIN = Namespaces(frozenset({"x", "y-2", "a.b", "if", "odd name"}), frozenset({"KEY"}), frozenset({"HOME"}))
BRACES = replace(PLAIN, spelling=Spelling.DOUBLE_BRACE)

PIECES = st.lists(
    st.sampled_from(
        ["{{x}}", "{{ .x }}", "{{x | default:10}}", "{{x | default:'10'}}", "{{x | default: a b}}", "{{y-2}}",
         "{{x | default:a}b}}", "{{a.b}}", "{{x.k[0]}}", "${x}", "${if}", "${odd name}", "${KEY}",
         "${secret:KEY}", "${HOME}", "${run_id}", "$${", "$$${x}", "$", "$$", "{", "}", "}}", "a", "'", '"',
         "\n", "é\u200d", "{ {", "#"]
    ),
    max_size=6,
).map("".join)  # fmt: skip


@given(PIECES)
def test_any_text_of_vega_is_written_for_a_manifest_or_is_refused(text: str) -> None:
    try:
        written = respell(text, BRACES)
    except ManifestError:
        event("refused")
        return
    assert untied(parse(written, PLAIN)) == untied(parse(text, BRACES))
    assert respell(written, PLAIN) == written


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("{{x}} and ${KEY}", "${x} and ${KEY}"),
        ("${secret:KEY}", "${KEY}"),
        ("{{x | default:10}}", "${x | default:10}"),
        ("{{ .x | default:'10' }}", "${x | default:'10'}"),
        ("$${x} ${{x}}", "$${x} $$${x}"),
        ("$\n{{x}}", "$\n${x}"),
        ("{${x}}", "{${x}}"),
        ("${odd name} ${if}", "${odd name} ${if}"),
        ("${run_id}", "${run_id}"),
    ],
)
def test_tags_become_placeholders_and_all_else_stays(text: str, written: str) -> None:
    assert respell(text, BRACES) == written
    assert respell({"a": [text, 1]}, BRACES) == {"a": [written, 1]}


def test_what_a_manifest_cannot_say_is_refused() -> None:
    with pytest.raises(ManifestError, match="would mean something else"):
        respell("{{x | default:a}b}}", BRACES)
    for value in ("{{if x}}a{{end}}", Choice((("x", "a"),))):
        with pytest.raises(ManifestError, match="a condition"):
            respell(value, BRACES)
    with pytest.raises(ManifestError, match="neither an argument"):
        respell("${gone}", BRACES)
