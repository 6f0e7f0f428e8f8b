from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.guard.secrets.sources import parse_env_file


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("A=plain", "plain"),
        ("export A=plain", "plain"),
        ("  A = plain words  ", "plain words"),
        ("A=plain # a comment", "plain"),
        ("A=no#comment", "no#comment"),
        ("A=#hash", "#hash"),
        ("A= # nothing", ""),
        ("A=", ""),
        ("A=it's", "it's"),
        ("A=$HOME/${X}", "$HOME/${X}"),
        ("A=a=b==", "a=b=="),
        (r"A=back\slash\n", r"back\slash\n"),
        ("A='single \"${X}\" \\n' # c", 'single "${X}" \\n'),
        ("A='two\nlines'", "two\nlines"),
        (r'A="a\nb\tc\"d\\e\$f"', 'a\nb\tc"d\\e$f'),
        ('A="two\nlines"', "two\nlines"),
        ('A="$HOME"', "$HOME"),
        ("\ufeffA=bom", "bom"),
        ("# c\r\n\r\nA=crlf\r\nB=2", "crlf"),
        ("A=ä ö", "ä ö"),
    ],
)
def test_each_way_to_write_a_value(text: str, value: str) -> None:
    assert parse_env_file(text)["A"] == value


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("just words s3cret", "line 1 is not NAME=value"),
        ("# c\n1A=s3cret", "line 2 is not NAME=value"),
        ("A-B=s3cret", "line 1"),
        ("A=1\n\nA=s3cret", "line 3 sets A a second time"),
        ("B=1\nA='s3cret", "line 2 has an unclosed quote"),
        ('A="s3cret\\"', "line 1 has an unclosed quote"),
        ("A='s3cret' more", "line 1 continues after the closing quote"),
        (r'A="s3cret\q"', "line 1 has an unknown escape"),
        ("A=1\nB=s3\0cret", "line 2 contains a NUL"),
    ],
)
def test_what_is_unclear_is_refused_without_being_shown(text: str, told: str) -> None:
    with pytest.raises(ValueError, match=told) as caught:
        parse_env_file(text)
    assert "s3" not in str(caught.value)


@given(st.dictionaries(st.from_regex(r"[A-Z_]{1,5}", fullmatch=True), st.text(max_size=20)))
def test_what_is_quoted_is_read_back(values: dict[str, str]) -> None:
    wanted = {name: re.sub("\0|\r", "", value) for name, value in values.items()}
    escaped = {
        name: re.sub(r'(["\\$])', r"\\\1", value).replace("\n", "\\n") for name, value in wanted.items()
    }
    assert parse_env_file("".join(f'{name}="{value}"\n' for name, value in escaped.items())) == wanted


@given(st.text(st.sampled_from("A=\"'\\\n #$x\t"), max_size=30))
def test_any_text_is_read_or_refused(text: str) -> None:
    told = None
    try:
        parse_env_file(text)
    except ValueError as error:
        told = str(error)
    assert told is None or re.match(r"line \d+ ", told)
