"""Shell lines with hostile values, run by real shells: each value arrives as one piece of one word."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.conftest import need
from toolcrib.errors import ToolcribError
from toolcrib.executors.command.lint import code_values
from toolcrib.executors.command.shell import parse_shell
from toolcrib.spec import CommandExec, Source, Spelling, Tool
from toolcrib.template import Namespaces, Values, parse_conditional

TEXT = {"type": "string"}
SCHEMA = {"type": "object", "properties": {"a": TEXT, "b": TEXT, "flag": {"type": "boolean"}}}
SOURCE = Source("any", "", b"", "", spelling=Spelling.DOUBLE_BRACE)
NAMES = Namespaces(frozenset({"a", "b", "flag"}), spelling=Spelling.DOUBLE_BRACE)
SEE = "/usr/bin/printf '%s\\0'"
"""A program that prints its arguments, each with a NUL after it."""
FOUND = {name: shutil.which(name) for name in ("dash", "bash", "busybox", "sh")}
SHELLS = list({os.path.realpath(path): name for name, path in FOUND.items() if path is not None}.values())
"""The shells of this machine by one name each: `sh` is mostly one of the others."""
HOSTILE = [
    "$(touch pwned)", "`touch pwned`", "; touch pwned", "\ntouch pwned\n", "| touch pwned",
    "&& touch pwned &",
    "'", '"', "'; touch pwned; '", '"; touch pwned; "', "\\", "\\'", '\\"', "*", "?", "[a-z]*", "~", "~root",
    "$HOME", "${HOME}", "$((1+1))", "!!", "#", "a b", "\t", " ", "", "{a,b}", "> pwned", "< /etc/passwd",
    "$'\\n'", '$"x"', "a=b", "\u00e9\U0001f600", "\x01\x7f", "\r\n", "$TOOLCRIB_2", "${TOOLCRIB_2}", "%s%n",
    "x" * 100_000, "--", "-rf", "]]", "fi", "done", ")", "(", "}",
]  # fmt: skip
LINES = [
    ("SEE w {{a}} {{b}}", ["w", "A", "B"]),
    ("SEE w '{{a}}' \"{{b}}\"", ["w", "A", "B"]),
    ("SEE w{{a}}x 'y{{b}}z'", ["wAx", "yBz"]),
    ("SEE --include={{a}} /data/{{b}}.txt", ["--include=A", "/data/B.txt"]),
    ("SEE w \"q {{a}} '{{b}}'\"", ["w", "q A 'B'"]),
    ("SEE w '\"{{a}}\"' x{{a}}{{b}}", ["w", '"A"', "xAB"]),
    ("SEE w '\\{{a}}' \"\\\\{{b}}\"", ["w", "\\A", "\\B"]),
    ("SEE w '$'{{a}} \"\\${{b}}\"", ["w", "$A", "$B"]),
    ("SEE w ~{{a}} *{{b}}", ["w", "~A", "*B"]),
    ("SEE w \\\n  {{a}} # a comment", ["w", "A"]),
    ("{{if flag}}SEE w '{{a}}'{{else}}SEE no{{end}} x{{b}}", ["w", "A", "xB"]),
    ("if true; then SEE w {{a}}; else SEE no {{b}}; fi", ["w", "A"]),
    ("if false; then :; elif [ -n w ]; then SEE w {{a}}; fi", ["w", "A"]),
    ("for i in 1; do SEE w$i {{a}}; done", ["w1", "A"]),
    ("until SEE w {{a}}; do :; done", ["w", "A"]),
    ("case w in v) SEE no {{b}};; (w|x) SEE w {{a}};; esac", ["w", "A"]),
    ("(SEE w {{a}} && true) || SEE no {{b}}", ["w", "A"]),
    ("{ SEE w {{a}}; } 2>/dev/null | cat", ["w", "A"]),
    ("! SEE w {{a}} || true", ["w", "A"]),
    ("true; SEE w {{a}} </dev/null 2>/dev/null", ["w", "A"]),
    ("V={{a}} SEE w {{b}}", ["w", "B"]),
    ("V='v {{a}}'; SEE w $V \"$V\" '$V' $V{{b}}", ["w", "v A", "v A", "$V", "v AB"]),
    ("SEE w \"$(SEE {{a}} | tr -d '\\000' | sed 's/$/|/')\"", None),
    ("exec SEE w {{a}}", ["w", "A"]),
    ("env -i SEE w {{a}}", ["w", "A"]),
    ("sh -c 'exec SEE_ARGS \"$@\"' sh w {{a}}", ["w", "A"]),
]


def words_seen(folder: Path, shell: str, line: str, a: str, b: str, *, shown: bool = False) -> list[str]:
    """Run a line as a tool does; `shown`: as a dry run shows it."""
    line = line.replace("SEE_ARGS", SEE.replace("'", '"')).replace("SEE", SEE)
    template = parse_shell(parse_conditional(line, NAMES))
    values = Values({"a": a, "b": b, "flag": True})
    chosen = template.line(values)
    env = chosen.environment(values, ("a", "b"))
    command = [shell, "sh"] if shell == "busybox" else [shell]
    done = subprocess.run(
        command if shown else [*command, "-c", chosen.text],
        env={"PATH": "/usr/bin:/bin", **({} if shown else env)},
        input=chosen.shown(env).encode() if shown else None,
        cwd=folder,
        capture_output=True,
        check=False,
    )
    return done.stdout.decode().split("\0")[:-1]


@pytest.mark.timeout(120)
@pytest.mark.parametrize("shell", SHELLS)
def test_hostile_values_arrive_as_they_are(tmp_path: Path, shell: str) -> None:
    need("dash or another POSIX shell", bool(SHELLS))
    for line, words in LINES:
        for at, value in enumerate(HOSTILE):
            other = HOSTILE[-1 - at]
            seen = words_seen(tmp_path, shell, line, value, other)
            if words is not None:
                expected = [
                    word.replace("A", "\0").replace("B", other).replace("\0", value) for word in words
                ]
                assert seen == expected, (line, value, other)
    assert not list(tmp_path.iterdir())


BARE = st.text("xyz.,=/:%+-", min_size=1, max_size=4).map(lambda text: (text, text))
PLACED = st.sampled_from([("{{a}}", "\1"), ("{{b}}", "\2")])
QUOTED = st.lists(
    st.one_of(st.text("xy *?;|&<>()#~", max_size=4).map(lambda text: (text, text)), PLACED), max_size=3
)


def joined(parts: list[tuple[str, str]]) -> tuple[str, str]:
    return "".join(part for part, _ in parts), "".join(value for _, value in parts)


def in_quotes(mark: str) -> st.SearchStrategy[tuple[str, str]]:
    return QUOTED.map(joined).map(lambda pair: (f"{mark}{pair[0]}{mark}", pair[1]))


WORD = st.lists(st.one_of(BARE, PLACED, in_quotes("'"), in_quotes('"')), min_size=1, max_size=4).map(joined)
AROUND = st.sampled_from([
    "( SELF)", "{ SELF; }", "true && SELF", "if SELF; then :; fi", "for i in 1; do SELF; done", "SELF | cat",
    "case x in x) SELF;; esac", "V={{a}}; SELF", ": {{b}}; SELF", "false ||\nSELF", "{\nSELF\n}",
])  # fmt: skip


@pytest.mark.timeout(60)
@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    around=st.lists(AROUND, max_size=3),
    words=st.lists(WORD, min_size=1, max_size=4),
    a=st.text(st.characters(codec="utf-8", exclude_characters="\0\2"), max_size=8),
    b=st.sampled_from(HOSTILE[:-8]),
)
def test_a_program_sees_the_words_with_the_values_in_them(
    around: list[str], words: list[tuple[str, str]], a: str, b: str
) -> None:
    line = " ".join(("SEE", *(word for word, _ in words)))
    for outer in around:
        line = outer.replace("SELF", line)
    expected = [re.sub("[\1\2]", lambda mark: a if mark[0] == "\1" else b, value) for _, value in words]
    for shell in SHELLS:
        assert words_seen(Path("/"), shell, line, a, b) == expected, (shell, line)
    assert words_seen(Path("/"), SHELLS[0], line, a, b, shown=True) == expected, line


PIECES = [
    "{{a}}", "{{b}}", "'", '"', " ", "x", "$", "\\", ";", "\n", "(", ")", "|", "&", "$(", "`", "$((", "${",
    "}", "{", "#", "<", ">", "if ", "then ", "fi", "eval ", "echo ", "=", "V=", "[ ", " ]", "sh -c ", "!",
    "1", "--", "-", "[[ ", "]] ", "do ", "done ", "while ", "case ", "in ", "esac", "xargs ", "env ", "$V",
    "*", "~", ";;",
]  # fmt: skip
PAYLOADS = [
    "$(touch pwned)", "`touch pwned`", "';touch pwned;'", '";touch pwned;"', "\ntouch pwned\n", ">pwned",
    ";touch pwned;", "|touch pwned", "&touch pwned&", "a[$(touch pwned)]", "touch pwned", "pwned;touch pwned",
    ")touch pwned", "\\", "x'$(touch pwned)'", "}; touch pwned; {",
]  # fmt: skip


@pytest.mark.timeout(60)
@settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    pieces=st.lists(st.sampled_from(PIECES), min_size=1, max_size=12),
    a=st.sampled_from(PAYLOADS),
    b=st.sampled_from(PAYLOADS),
)
def test_no_value_of_a_line_that_loads_is_run(tmp_path: Path, pieces: list[str], a: str, b: str) -> None:
    line = "echo " + "".join(pieces)
    config = CommandExec("/bin/sh", shell=line)
    if "{{" not in line or code_values(Tool("t", "d", "command", SCHEMA, config, source=SOURCE)):
        return
    try:
        values = Values({"a": a, "b": b})
        chosen = parse_shell(parse_conditional(line, NAMES)).line(values)
        env = chosen.environment(values)
    except ToolcribError:
        return
    folder = tmp_path / "run"
    folder.mkdir(exist_ok=True)
    # What the author's own redirections write does not matter, only what a value would.
    for shell in [name for name in SHELLS if name in ("sh", "bash")]:
        subprocess.run(
            [shell, "-c", chosen.text],
            env={"PATH": "/usr/bin:/bin", **env},
            cwd=folder,
            capture_output=True,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        assert not (folder / "pwned").exists(), (shell, line, chosen.text, a, b)
    shutil.rmtree(folder)
