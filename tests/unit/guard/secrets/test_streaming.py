"""However a stream is cut, what comes out is the mask of the whole."""

from __future__ import annotations

import os
import re
import time
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.unit.guard.secrets.test_secrets import ENCODINGS, VALUE
from toolcrib.guard import BytesMasker, MaskRules, Redactor, StreamMasker

values = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20) | st.text(
    st.sampled_from("\\\"'%+/=& \n\r\t;#*aA1nux05"), min_size=3, max_size=12
)
# What looks like the forms of values, and like pieces of them.
noise = st.text(st.sampled_from("\\%&#;+=\r\nu0x5cCdD32aA1b*3/ "), max_size=8)


def in_pieces(redactor: Redactor, text: str, cuts: list[int]) -> str:
    masker = StreamMasker(redactor)
    edges = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    pieces = [text[a:b] for a, b in pairwise(edges)]
    out = [masker.feed(piece) for piece in pieces]
    return "".join(out) + masker.flush()


@given(
    secrets=st.lists(values, min_size=1, max_size=2),
    names=st.lists(st.sampled_from(sorted(ENCODINGS)), min_size=1, max_size=3),
    between=st.lists(noise, min_size=4, max_size=4),
    cuts=st.lists(st.integers(0, 300), max_size=8),
)
@example(secrets=["%25x1"], names=["url, whole"], between=["%", "", "", ""], cuts=[1, 4])
@example(secrets=["abab"], names=["plain", "plain"], between=["ab", "a", "", ""], cuts=[1, 3, 5])
def test_any_cuts_give_the_mask_of_the_whole(
    secrets: list[str], names: list[str], between: list[str], cuts: list[int]
) -> None:
    redactor = Redactor({f"S{n}": value for n, value in enumerate(secrets)})
    text = between[0]
    for n, name in enumerate(names):
        value = secrets[n % len(secrets)]
        text += ENCODINGS[name](value) + between[n + 1]
    whole = in_pieces(redactor, text, [])
    assert in_pieces(redactor, text, cuts) == whole
    assert in_pieces(redactor, text, list(range(len(text)))) == whole
    assert whole == redactor.redact_text(text)


@given(
    parts=st.lists(st.sampled_from(["1234", "12", "7", "x", " ", "\n", "line\nbreak", "line"]), max_size=12),
    cuts=st.lists(st.integers(0, 60), max_size=8),
)
def test_any_cuts_give_the_mask_of_the_lines_where_there_are_patterns(
    parts: list[str], cuts: list[int]
) -> None:
    redactor = Redactor({"TWO": "line\nbreak"}).with_rules(MaskRules({re.compile(r"\b\d{4,}\b"): "#"}))
    text = "".join(parts)
    assert in_pieces(redactor, text, cuts) == redactor.redact_text(text)


def test_whole_lines_come_at_once_where_there_are_patterns() -> None:
    masker = StreamMasker(Redactor({}).with_rules(MaskRules({re.compile(r"\d{4}"): "#"})))
    assert [masker.feed(part) for part in ("card 12", "34\nnext", " 1")] == ["", "card #\n", ""]
    assert masker.flush() == "next 1"
    assert len(masker.feed("x" * 100_000)) == 100_000  # Nothing waits without an end.


def test_every_single_cut_of_every_encoding() -> None:
    redactor = Redactor({"TOKEN": VALUE})
    for name, encode in ENCODINGS.items():
        text = f"before {encode(VALUE)} after"
        whole = redactor.redact_text(text)
        assert "***TOKEN***" in whole, name
        for cut in range(len(text)):
            assert in_pieces(redactor, text, [cut]) == whole, (name, cut)


@given(data=st.binary(max_size=60), cuts=st.lists(st.integers(0, 80), max_size=6), at=st.integers(0, 60))
def test_bytes_that_are_no_text_are_kept(data: bytes, cuts: list[int], at: int) -> None:
    secret = b"p\xc3\xa4ss\xff\xfeword"
    redactor = Redactor({"TOKEN": os.fsdecode(secret)})
    stream = data[:at] + secret + data[at:]
    masker = BytesMasker(redactor)
    edges = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    pieces = [stream[a:b] for a, b in pairwise(edges)]
    out = b"".join(masker.feed(piece) for piece in pieces) + masker.flush()
    assert out == redactor.redact(stream)
    assert secret not in out


def test_only_what_could_be_a_value_is_held_back() -> None:
    masker = StreamMasker(Redactor({"TOKEN": "hunter22"}))
    assert masker.feed("downloading… 41 %\n") == "downloading… 41 %\n"
    assert masker.feed("the hun") == "the "
    assert masker.feed("t is on\n") == "hunt is on\n"
    assert masker.feed("hunter2") == ""
    assert masker.feed("2") == "***TOKEN***"
    assert masker.flush() == ""


def test_without_secrets_nothing_is_held_back() -> None:
    masker = StreamMasker(Redactor({}))
    assert masker.feed("anything") == "anything"
    assert masker.flush() == ""


@pytest.mark.parametrize("text", ["123", "1234", "12", "x123"])
def test_a_very_short_value_is_masked_where_it_is_all_there_is(text: str) -> None:
    redactor = Redactor({"PIN": "123"})
    for cut in range(len(text)):
        assert in_pieces(redactor, text, [cut]) == redactor.redact_text(text)


@pytest.mark.parametrize("value", ["****", "*a**", "se*cret", "*█*█"])
def test_a_mask_never_makes_up_a_value(value: str) -> None:
    for text in (value * 3, f"**{value}*", f"*{value}**{value}"):
        for cut in range(len(text)):
            assert value not in in_pieces(Redactor({"A": value}), text, [cut])


@pytest.mark.parametrize("filler", ["\\", "%5C", "&#0", "0", "\r\n", "ab", "MIIE", "hunter2"])
def test_what_is_held_back_is_bounded_and_the_work_is_too(filler: str) -> None:
    key = "-----BEGIN KEY-----\n" + "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCAB0\n" * 20 + "-----END KEY-----\n"
    masker = StreamMasker(Redactor({"KEY": key, "TOKEN": "hunter22", "ODD": "ab\\\\%\\\n0 ab"}))
    began, given_out, fed = time.process_time(), 0, 0
    for _ in range(30):
        chunk = filler * (4096 // len(filler))
        fed += len(chunk)
        given_out += len(masker.feed(chunk))
        assert fed - given_out <= masker.longest
    assert masker.longest < 50_000
    assert time.process_time() - began < 30
