from __future__ import annotations

import base64
import json
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

import orjson
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from toolcrib.errors import SecretMissing
from toolcrib.guard import ChainedSecrets, EnvFileSecrets, EnvironmentSecrets, Redactor, among, resolve
from toolcrib.spec import Permissions, SecretSpec

VALUE = 'ghp_s3cr3t+/="quoted\\" päss & wörd\n'


# Sources


def test_the_environment_is_read_when_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    source = EnvironmentSecrets()
    assert source.get("TOOLCRIB_TEST_SECRET") is None
    monkeypatch.setenv("TOOLCRIB_TEST_SECRET", "value")
    assert source.get("TOOLCRIB_TEST_SECRET") == "value"
    monkeypatch.setenv("TOOLCRIB_TEST_SECRET", "")
    assert source.get("TOOLCRIB_TEST_SECRET") is None


def test_only_names_that_a_source_may_have_are_looked_up(tmp_path: Path) -> None:
    file = tmp_path / ".env"
    file.write_text("B=2\n")
    source = ChainedSecrets([EnvironmentSecrets({"A": "1", "Z": "0"}), EnvFileSecrets(file)])
    assert among(source, {"A", "B", "C"}) == {"A", "B"}
    file.write_text("no assignment")
    assert among(source, {"A", "B", "C"}) == {"A", "B", "C"}  # The error comes where a value is needed.


def declared(**required: bool) -> Permissions:
    return Permissions(secrets=tuple(SecretSpec(name, required=must) for name, must in required.items()))


def test_only_declared_secrets_are_given() -> None:
    source = EnvironmentSecrets({"A": "1", "B": "2", "C": "3"})
    assert resolve(declared(A=True, B=False, D=False), source) == {"A": "1", "B": "2"}
    assert resolve(Permissions(), source) == {}


def test_every_missing_secret_is_named_with_how_to_set_it() -> None:
    with pytest.raises(SecretMissing) as caught:
        resolve(declared(A=True, B=True, C=True, D=False), EnvironmentSecrets({"B": "2", "C": ""}))
    error = caught.value
    assert error.message == "Secrets A, C are not set."
    assert "export A=… export C=…" in (error.hint or "")
    assert error.details == {"missing": ["A", "C"]}


def test_one_missing_secret_is_named() -> None:
    with pytest.raises(SecretMissing) as missing:
        resolve(declared(A=True), EnvironmentSecrets({}))
    assert missing.value.message == "Secret A is not set."


# Masking

Encoding = Callable[[str], str]


def at_offset(offset: int, url_safe: bool = False) -> Encoding:
    """Base64 of the value standing somewhere inside other data."""

    def encode(value: str) -> str:
        data = b"user:pw"[:offset] + value.encode() + b"@host"
        return (base64.urlsafe_b64encode if url_safe else base64.b64encode)(data).decode()

    return encode


def small(url: str) -> str:
    return re.sub("%..", lambda octet: octet[0].lower(), url)


ENCODINGS: dict[str, Encoding] = {
    "plain": str,
    "json": lambda v: json.dumps(v)[1:-1],
    "json, not ASCII": lambda v: json.dumps(v, ensure_ascii=False)[1:-1],
    "orjson": lambda v: orjson.dumps(v).decode()[1:-1],
    "url, whole": lambda v: quote(v, safe=""),
    "url, path": quote,
    "url, form": quote_plus,
    "url, small letters": lambda v: small(quote(v, safe="")),
    "url, form, small letters": lambda v: small(quote_plus(v)),
    "base64": lambda v: base64.b64encode(v.encode()).decode(),
    "base64, for URLs": lambda v: base64.urlsafe_b64encode(v.encode()).decode(),
    "base64, no padding": lambda v: base64.b64encode(v.encode()).decode().rstrip("="),
    **{f"base64 at {n}": at_offset(n) for n in range(7)},
    **{f"base64 for URLs at {n}": at_offset(n, url_safe=True) for n in range(7)},
    "hex": lambda v: v.encode().hex(),
    "HEX": lambda v: v.encode().hex().upper(),
}


def cores(value: str) -> list[str]:
    """The base64 characters that the value alone decides, whatever stands around it."""
    found = []
    for offset in range(3):
        data = bytes(offset) + value.encode()
        found.append(base64.b64encode(data).decode()[-(-8 * offset // 6) : 8 * len(data) // 6])
    return found


secrets = st.text(st.characters(codec="utf-8"), min_size=4, max_size=40) | st.text(
    st.sampled_from("\\\"'%+/=& \n\t*aA1nux0"), min_size=4, max_size=20
)


@settings(max_examples=30)
@given(value=secrets, before=st.text(max_size=5), after=st.text(max_size=5))
@example(value=VALUE, before="x", after="y")
@example(value="\\\n\\n", before="", after="")
@example(value="****", before="", after="*")
@example(
    value="-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASC\n-----END KEY-----\n" * 3,
    before="",
    after="",
)
def test_no_encoding_of_a_value_gets_through(value: str, before: str, after: str) -> None:
    redactor = Redactor({"TOKEN": value})
    for name, encode in ENCODINGS.items():
        encoded = encode(value)
        out = redactor.redact_text(before + encoded + after)
        if "base64" in name:
            joined = out.replace("-", "+").replace("_", "/")
            assert value not in out, name
            assert not any(core in joined for core in cores(value)), name
        elif value.strip() == value:  # What is known by its stripped form leaves the blanks.
            assert value not in out, name
            assert encoded not in out, name


def test_the_mask_names_the_secret_and_leaves_the_rest() -> None:
    value = "ghp_16C7e42F292c6912E7710c838347Ae178B4a+/"
    for name, encode in ENCODINGS.items():
        out = Redactor({"GITHUB_TOKEN": value}).redact_text(f"before {encode(value)} after")
        assert "***GITHUB_TOKEN***" in out, name
        assert out.startswith("before "), name
        assert out.endswith(" after"), name


def test_values_without_names_have_a_plain_mask() -> None:
    assert Redactor(["hunter22", ""]).redact_text("is hunter22.") == "is ***."


def test_the_longer_of_two_values_is_masked_whole() -> None:
    redactor = Redactor({"SHORT": "abcd", "LONG": "abcdefgh"})
    assert redactor.redact("abcdefgh abcd") == "***LONG*** ***SHORT***"


@pytest.mark.parametrize("between", ["\n", "\r\n", " ", ""])
@pytest.mark.parametrize("before", [b"", b"x", b"xy"])
def test_a_value_after_the_base64_of_another_is_masked(before: bytes, between: str) -> None:
    for size in range(6, 12):
        first, second = "abQ7xZ-9kP_m"[:size], "drill-press-4711"
        encoded = base64.b64encode(before + first.encode()).decode()
        masked = Redactor({"A": first, "B": second}).redact(f"{encoded}{between}{second}")
        assert masked.endswith(f"{between}***B***")


def test_a_value_is_known_without_its_newline() -> None:
    redactor = Redactor({"TOKEN": " hunter22\n"})
    assert redactor.redact_text("is hunter22.") == "is ***TOKEN***."
    assert redactor.redact_text(base64.b64encode(b"a:hunter22").decode()).endswith("***TOKEN***")


def test_json_values_are_masked_everywhere() -> None:
    redactor = Redactor({"TOKEN": "hunter22", "PIN": "123456", "OTHER": "hunter33"})
    value = {
        "hunter22": ["a", ("hunter22", b"\xffhunter22"), {"deep": "x hunter22"}],
        "hunter33": 123456,
        "near": [12345, 123456.5, True, None],
    }
    assert redactor.redact(value) == {
        "***TOKEN***": ["a", ("***TOKEN***", b"\xff***TOKEN***"), {"deep": "x ***TOKEN***"}],
        "***OTHER***": "***PIN***",
        "near": [12345, "***PIN***.5", True, None],
    }


@settings(max_examples=20)
@given(value=secrets, place=st.sampled_from(["item", "key", "deep", "tuple", "beside a number"]))
@example(value=VALUE, place="deep")
@example(value="12345", place="item")
@example(value="  \ra", place="deep")  # Without blanks it is too short for anything but a whole text.
@example(value="k3Y5" * 60, place="deep")  # Its base64 takes several lines.
def test_a_value_in_a_structure_is_masked_as_in_a_text(value: str, place: str) -> None:
    redactor = Redactor({"KEY": value})
    put: dict[str, Callable[[str], Any]] = {
        "item": lambda item: [item],
        "key": lambda item: {item: 1},
        "deep": lambda item: {"outer": [{"inner": [item, None, 2.5]}]},
        "tuple": lambda item: {"outer": (item, True)},
        "beside a number": lambda item: [0, item, {"inner": 2**70}],
    }

    for name, encode in ENCODINGS.items():
        text = f"before {encode(value)} after"
        assert redactor.redact(put[place](text)) == put[place](redactor.redact_text(text)), name


def test_keys_made_equal_are_kept_apart() -> None:
    redactor = Redactor(["hunter22", "hunter33"])
    assert redactor.redact({"hunter22": 1, "hunter33": 2}) == {"***": 1, "****": 2}


@pytest.mark.parametrize("redactor", [Redactor([]), Redactor({"TOKEN": "hunter22"}), Redactor(["1"])])
def test_what_needs_no_mask_is_the_very_same_object(redactor: Redactor) -> None:
    value: dict[str, Any] = {"a": ["text\nof lines %41 \\u0041", 1.5, None, (1, 2)], "b": {"c": b"bytes"}}
    assert redactor.redact(value) is value
    assert redactor.redact_text(value["a"][0]) is value["a"][0]


def test_a_very_short_value_is_masked_where_it_is_all_there_is() -> None:
    redactor = Redactor({"PIN": "123", "TOKEN": "hunter22"})
    masked = ["***PIN***", 123, "1234", {"***PIN***": "x"}]
    assert redactor.redact(["123", 123, "1234", {"123": "x"}]) == masked


@pytest.mark.parametrize(
    ("name", "value", "mask"),
    [("TOKEN", "TOKEN", "***"), ("MY_TOKEN", "TOKE", "***"), ("", "****", "███"), ("A", "*A**", "███")],
)
def test_a_mask_never_shows_the_value(name: str, value: str, mask: str) -> None:
    assert Redactor({name: value}).redact_text(f"x{value}{value}y") == f"x{mask}{mask}y"


def test_bytes_of_the_environment_that_are_no_utf8_are_masked() -> None:
    value = os.fsdecode(b"pass\xff\xfeword")
    redactor = Redactor({"TOKEN": value})
    assert redactor.redact(b"a pass\xff\xfeword b") == b"a ***TOKEN*** b"
    assert redactor.redact(base64.b64encode(b"pass\xff\xfeword").decode()) == "***TOKEN***"
    assert Redactor({"TOKEN": "pass\ud800word"}).redact("pass\ud800word") == "***TOKEN***"


def test_a_value_nested_too_deeply_is_masked_whole() -> None:
    value: list[Any] = ["hunter22"]
    for _ in range(5000):
        value = [value]
    assert Redactor(["hunter22"]).redact(value) == "***"


def test_the_value_is_not_in_the_redactors_own_text() -> None:
    redactor = Redactor({"TOKEN": "hunter22"})
    assert "hunter22" not in repr(redactor) + str(redactor)


@pytest.mark.parametrize("filler", ["\\", "%", "%5C", "&#0", "0", "\r\n", "\\\\n", "Z2", "ab"])
def test_no_text_makes_the_search_slow(filler: str) -> None:
    redactor = Redactor({"TOKEN": "ab\\\\%\\\n0 ab", "OTHER": "\\\\\\\\0000"})
    text = "ab 0000 " + filler * (100_000 // len(filler))
    began = time.process_time()
    redactor.redact_text(text)
    assert time.process_time() - began < 30


@given(
    st.recursive(
        st.lists(
            st.sampled_from(
                [
                    "drill",
                    "-",
                    "press",
                    "\\",
                    '"',
                    "\n",
                    "ZHJpbGwt",
                    "cHJlc3M",
                    "x",
                    " ",
                    "é",
                    "%2D",
                    "\\u002d",
                ]
            ),
            max_size=6,
        ).map("".join),
        lambda inner: st.one_of(
            st.lists(inner, max_size=3),
            st.dictionaries(st.sampled_from(["k", "drill-press"]), inner, max_size=2),
        ),
        max_leaves=6,
    )
)
def test_the_quick_look_at_a_whole_value_finds_what_a_walk_finds(value: Any) -> None:
    # With a short secret, which is masked where it is a whole text, there is no quick look.
    whole, walked = Redactor({"KEY": "drill-press"}), Redactor({"KEY": "drill-press", "SHORT": "~"})

    assert whole.redact([value]) == walked.redact([value])
