"""What YAML is taken for, what is refused, and that nothing hangs or fills the memory."""

from __future__ import annotations

import os
import re
import subprocess
import time
import tracemalloc
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolcrib.errors import ManifestError
from toolcrib.manifest import MAX_BYTES, Diagnostic, diagnostics_of, load, read

ROOT = Path(__file__).parents[4]


def data(text: str) -> Any:
    return load(text.encode(), "tool.yml").data


def refusal(raw: bytes) -> Diagnostic:
    with pytest.raises(ManifestError) as caught:
        load(raw, "tool.yml")
    (finding,) = diagnostics_of(caught.value)
    return finding


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: no", "no"),
        ("a: on", "on"),
        ("a: 12:30:45", "12:30:45"),
        ("a: 2024-01-01", "2024-01-01"),
        ("a: 017", "017"),
        ("a: 0644", "0644"),
        ("a: 0o17", 15),
        ("a: 0x1F", 31),
        ("a: 1e3", 1000.0),
        ("a: 1_000", "1_000"),
        ("a: true", True),
        ("a: ~", None),
        ("a: 18446744073709551615", 2**64 - 1),
        ("a: complete! v2.0 is live", "complete! v2.0 is live"),
        ("a: 'say !hi'", "say !hi"),
        ("a: hi !there", "hi !there"),
        ("a: |\n  !x\n  b: <<\n", "!x\nb: <<\n"),
        ("a: R &D *x", "R &D *x"),
        ("a: 50 % off", "50 % off"),
        ("a: info.infra .nano", "info.infra .nano"),
        ("a: &x [1]\nb: *x", [1]),
        ("\ufeffa: 1", 1),
        ("a: b\r\nc: |\r\n  x\r\n", "b"),
        ("a:\tb", "b"),
        ('a: "\\u202e"', "\u202e"),
        ("---\na: 1\n...\n", 1),
        ("# comment\n\na: 😀 ü", "😀 ü"),
    ],
)
def test_values_are_those_of_yaml_1_2(text: str, value: Any) -> None:
    assert data(text)["a"] == value


def test_an_empty_file_has_no_data() -> None:
    assert data("") is None
    assert data("# nothing\n") is None


ALIAS_BOMB = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"a{level}: &a{level} [" + ",".join([f"*a{level - 1}"] * 10) + "]\n" for level in range(1, 9)
)
MEMORY_BOMB = 'a: &a "' + "x" * 50_000 + '"\nb:\n' + "- *a\n" * 3_000

REFUSED = [
    ("a: !x y", "yaml-tag", 1, 4),
    ("t: !!python/object/apply:os.system ['true']", "yaml-tag", 1, 4),
    ("a:\n  - b: !!str 1\n", "yaml-tag", 2, 8),
    ("a: ! x", "yaml-tag", 1, 4),
    ("b: [" + "1, " * 7_000 + "1]\na: !x y", "yaml-tag", 2, 4),
    ("a: !", "yaml-tag", 1, 4),
    ("a: &k !x y", "yaml-tag", 1, 7),
    ('{"a":!x 1}', "yaml-tag", 1, 6),
    ("a: complete!\nb: !<tag:yaml.org,2002:str> 1", "yaml-tag", 2, 4),
    ("a: b\tc\nd: !x 1", "yaml-tag", 2, 4),
    ('a: !!str "\\x21\\x21"', "yaml-tag", 1, 4),
    ("a: &k hi!!\nb: *k\nc: !!str 1", "yaml-tag", 3, 4),
    ("a: !x\n  b: 1 # !", "yaml-tag", 1, 4),
    ("%TAG ! tag:x,2000:\n---\na: 1", "yaml-directive", 1, 1),
    ("# c\n%YAML 1.1\n---\na: no", "yaml-directive", 2, 1),
    ("a: &x {p: 1}\nb:\n  <<: *x\n", "yaml-merge-key", 3, 3),
    ("a:\n  b: 1\n  200: x", "yaml-key", 3, 3),
    ("true: 1", "yaml-key", 1, 1),
    ("~: 1", "yaml-key", 1, 1),
    ("a: 1\n&x : 2", "yaml-key", 1, 1),
    ("? [1]\n: 2", "yaml-key", 1, 1),
    ("a: 1\n---\nb: 2\n", "yaml-documents", 2, 1),
    ("# c\n---\na: 1\n---\nb: 2\n--- 3\n", "yaml-documents", 4, 1),
    ("a: 1\n...\nb: 2\n", "yaml-documents", 2, 1),
    ("x: 1\ny: 2\nx: 3", "yaml-duplicate-key", 3, 1),
    ("a:\n  b: 1\n  c: 2\n  b: 3\n", "yaml-duplicate-key", 4, 3),
    ("a:\n\tb: 1\n", "yaml-tab", 2, 1),
    ("a: x\x00y", "yaml-character", 1, 5),
    ("a: 1\nb: \x1b[31m", "yaml-character", 2, 4),
    ("a: b\x85c: d", "yaml-character", 1, 5),
    ("a: b # no comment\u2028c: d", "yaml-character", 1, 18),
    ("a: b # x\rc: d", "yaml-character", 1, 9),
    ("a:\n  b: [1, .nan]", "yaml-number", 2, 10),
    ("a: -.inf", "yaml-number", 1, 4),
    ("a: 1180591620717411303424", "yaml-number", 1, 4),
    ("a: &a [*a]", "yaml-alias", 1, 8),
    ("a: *nothing", "yaml-alias", 1, 4),
    (ALIAS_BOMB, "too-large", 6, 18),
    (MEMORY_BOMB, "too-large", 86, 3),
    ('a: &a "' + "x" * 500_000 + '"\nb:\n' + "- *a\n" * 3_000, "too-large", 1, 1),
    ("[" * 200_000, "yaml-depth", 1, 10_001),
    ("{a: " * 9_000, "yaml-depth", 1, 513),
    ("- " * 100_000, "yaml-depth", 1, 257),
    ("".join(" " * depth + f"k{depth}:\n" for depth in range(1_000)), "yaml-depth", 129, 129),
    ('name: x\nexec:\n  http:\n    url: "ht', "yaml-syntax", 4, 10),
    ("name: x\nargs: [1, 2\nb: 3", "yaml-syntax", 3, 2),
    ("name: x\nargs: [", "yaml-syntax", 2, 8),
    ("a: b: c", "yaml-syntax", 1, 5),
    ("a: 1\n  b: 2\n", "yaml-syntax", 2, 4),
    ("- a\nb: 1", "yaml-syntax", 2, 1),
    ("args: [${path}]", "yaml-syntax", 1, 9),
    ("a: @x", "yaml-syntax", 1, 4),
    ('a: "\\ud800"', "yaml-syntax", 1, 7),
    ("é: ü\n名: [ü, {}}", "yaml-syntax", 2, 10),
]


@pytest.mark.parametrize(
    ("text", "rule", "line", "column"), REFUSED, ids=[re.sub(r"\W+", "-", case[0][:24]) for case in REFUSED]
)
def test_bad_yaml_is_refused_at_its_place_within_a_second(
    text: str, rule: str, line: int, column: int
) -> None:
    started = time.process_time()
    finding = refusal(text.encode())
    assert time.process_time() - started < 10
    assert (finding.rule, finding.line, finding.column) == (rule, line, column)
    assert finding.is_error


@pytest.mark.parametrize(
    "text",
    [
        "a: " + "x" * (MAX_BYTES - 10),
        "a: |\n" + " xxxxxxxxxxx\n" * 80_000,
        "".join(f"k{number}: 1\n" for number in range(90_000)),
        "- 1\n" * 260_000,
        "#" * (MAX_BYTES - 10) + "\na: 1",
        "a:" + " " * (MAX_BYTES - 10) + "1",
        "a: " + "x " * 400_000 + "\nb: hi !x y",
        "a: [" + "x," * 500_000 + "]",
    ],
    ids=["scalar", "literal", "keys", "items", "comment", "spaces", "words", "flow"],
)
def test_a_megabyte_is_read_within_a_second(text: str) -> None:
    started = time.process_time()
    assert data(text)
    assert time.process_time() - started < 10


def test_what_is_larger_than_a_megabyte_is_refused() -> None:
    assert refusal(b"a" * (MAX_BYTES + 1)).rule == "too-large"


def test_a_bad_byte_is_reported_with_its_place() -> None:
    finding = refusal("a: ü\nb: x".encode() + b"\xff\n")
    assert (finding.rule, finding.line, finding.column) == ("encoding", 2, 5)
    assert "byte 10 (0xff)" in finding.message
    assert finding.render().splitlines()[1:3] == ["  b: x\N{REPLACEMENT CHARACTER}", "      ^"]


def test_utf_16_is_named_as_what_it_is() -> None:
    assert refusal("a: b".encode("utf-16")).hint == "the file is UTF-16; save it as UTF-8"


def test_a_placeholder_in_a_list_without_quotes_is_reported_with_the_fix() -> None:
    hint = refusal(b"args: [${path}]").hint
    assert hint is not None
    assert "in quotes" in hint


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir], ids=["pipe", "folder"])
def test_what_is_not_a_file_is_refused_without_waiting(tmp_path: Path, make: Any) -> None:
    make(tmp_path / "tool.yml")
    with pytest.raises(ManifestError) as caught:
        read(str(tmp_path / "tool.yml"))
    assert diagnostics_of(caught.value)[0].rule == "unreadable"


def test_a_circle_of_links_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tool.yml").symlink_to(tmp_path / "tool.yml")
    with pytest.raises(ManifestError, match="symbolic links"):
        read(str(tmp_path / "tool.yml"))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "tool.yml"
    path.write_text("a: 1")
    path.chmod(0)
    with pytest.raises(ManifestError, match="Permission denied"):
        read(str(path))


def test_devices_and_files_of_the_kernel_end(tmp_path: Path) -> None:
    with pytest.raises(ManifestError, match="not a regular file"):
        read("/dev/zero")
    assert read("/proc/self/status").startswith(b"Name:")
    pipe = subprocess.PIPE
    with subprocess.Popen(["cat"], stdin=pipe, stdout=pipe, env={"LONG": "x" * 100_000}) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"it runs\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"it runs\n"  # Before that, its environment may be missing.
        assert read(f"/proc/{process.pid}/environ") == b"LONG=" + b"x" * 100_000 + b"\0"
        process.communicate()
    large = tmp_path / "tool.yml"
    with large.open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(ManifestError, match="larger than 1 MiB"):
        read(str(large))


DOCUMENT = """\
# a comment
name: x
list:
  - one
  - {deep: [1, 2]}
  -
    key: v
empty:
text: |
  one
  two ${x} and ${x}
"""


@pytest.mark.parametrize("ending", ["\n", "\r\n"], ids=["lf", "crlf"])
def test_places_are_those_an_editor_shows(ending: str) -> None:
    document = load(DOCUMENT.replace("\n", ending).encode(), "tool.yml")
    assert document.locate(()) == (2, 1)
    assert document.locate(("name",)) == (2, 7)
    assert document.locate(("name",), key=True) == (2, 1)
    assert document.locate(("list", 0)) == (4, 5)
    assert document.locate(("list", 1, "deep", 1)) == (5, 16)
    assert document.locate(("list", 2, "key"), key=True) == (7, 5)
    assert document.locate(("list", 2, "missing"), key=True) == (7, 5)
    assert document.locate(("empty",), key=True) == (8, 1)
    assert document.locate_text(("text",), "${x}", 0) == (11, 7)
    assert document.locate_text(("text",), "${x}", 1) == (11, 16)


def test_the_place_of_something_far_down_a_huge_file_is_near_enough() -> None:
    text = "a:\n" + "".join(f"  k{number}: 1\n" for number in range(60_000)) + "b: &x 1\n"
    document = load(text.encode(), "tool.yml")
    started = time.process_time()
    line, column = document.locate(("b",))
    assert time.process_time() - started < 10
    assert 1 <= line <= 60_002
    assert column >= 1


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=200) | st.text("ab:-?!&*<>|'\"[]{},#%@`~ \n\t0.", max_size=60))
def test_any_text_is_read_or_refused_and_nothing_else(text: str) -> None:
    try:
        document = load(text.encode("utf-8", "surrogatepass"), "tool.yml")
    except ManifestError as error:
        (finding,) = diagnostics_of(error)
        assert finding.line >= 1
        assert finding.column >= 1
        assert finding.render()
    else:
        assert document.locate(("a", 0, "b")) >= (1, 1)


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused_and_nothing_else(raw: bytes) -> None:
    with suppress(ManifestError):
        load(raw, "tool.yml")


def test_only_four_modules_know_yaml() -> None:
    knowing = {
        path.name
        for path in (ROOT / "src/toolcrib").rglob("*.py")
        if re.search(r"^\s*(?:import|from) (?:ryaml|ruamel)", path.read_text(), re.MULTILINE)
    }
    assert knowing == {"source.py", "positions.py", "document.py", "base.py"}


def test_a_short_document_takes_little_memory() -> None:
    tracemalloc.start()
    try:
        documents = [load(b"name: a", "tool.yml") for _ in range(500)]
        assert tracemalloc.get_traced_memory()[0] < 500 * 3_000
    finally:
        tracemalloc.stop()
    assert documents[0].json == b'{"name":"a"}'
