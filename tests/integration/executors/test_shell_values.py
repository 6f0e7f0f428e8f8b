"""Shell lines with hostile values, run by real shells: each value arrives as one piece of one word."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.conftest import need
from toolcrib.spec import Spelling
from toolcrib.template import Namespaces, Values, parse_conditional, parse_shell

NAMES = Namespaces(frozenset({"a", "b", "flag"}), spelling=Spelling.DOUBLE_BRACE)
SHELLS = [name for name in ("sh", "dash", "bash", "busybox") if shutil.which(name)]
HOSTILE = [
    "$(touch pwned)", "`touch pwned`", "; touch pwned", "\ntouch pwned\n", "| touch pwned",
    "&& touch pwned &",
    "'", '"', "'; touch pwned; '", '"; touch pwned; "', "\\", "\\'", '\\"', "*", "?", "[a-z]*", "~", "~root",
    "$HOME", "${HOME}", "$((1+1))", "!!", "#", "a b", "\t", " ", "", "{a,b}", "> pwned", "< /etc/passwd",
    "$'\\n'", '$"x"', "a=b", "\u00e9\U0001f600", "\x01\x7f", "\r\n", "$TOOLCRIB_2", "${TOOLCRIB_2}", "%s%n",
    "x" * 100_000, "--", "]]", "fi", "done", ")", "(", "}",
]  # fmt: skip
LINES = [
    ("SEE w {{a}} {{b}}", ["w", "A", "B"]),
    ("SEE w '{{a}}' \"{{b}}\"", ["w", "A", "B"]),
    ("SEE w{{a}}x 'y{{b}}z'", ["wAx", "yBz"]),
    ("SEE w \"q {{a}} '{{b}}'\"", ["w", "q A 'B'"]),
    ("SEE w '\"{{a}}\"' x{{a}}{{b}}", ["w", '"A"', "xAB"]),
    ("if true; then SEE w {{a}}; fi # {{b}}", ["w", "A"]),
    ("(SEE w {{a}} && true) || SEE no {{b}}", ["w", "A"]),
    ("{{if flag}}SEE w '{{a}}'{{else}}SEE no{{end}} x{{b}}", ["w", "A", "xB"]),
    ("V={{a}} SEE w {{b}}", ["w", "B"]),
    ("SEE w '\\{{a}}' \"\\\\{{b}}\"", ["w", "\\A", "\\B"]),
    ("SEE w '$'{{a}} \"\\${{b}}\"", ["w", "$A", "$B"]),
    ("true; SEE w {{a}} </dev/null 2>/dev/null", ["w", "A"]),
]


@pytest.fixture(scope="module")
def helper(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program that tells which arguments it was given."""
    folder = tmp_path_factory.mktemp("see")
    program = folder / "see.py"
    program.write_text(f"#!{sys.executable} -IS\nimport json, sys\nprint(json.dumps(sys.argv[1:]))\n")
    program.chmod(0o755)
    return program


def seen(helper: Path, shell: str, line: str, a: str, b: str) -> list[str]:
    template = parse_shell(parse_conditional(line.replace("SEE", shlex.quote(str(helper))), NAMES))
    values = Values({"a": a, "b": b, "flag": True})
    chosen = template.line(values)
    env = chosen.environment(values, ("a", "b"))
    command = [shell, "sh", "-c"] if shell == "busybox" else [shell, "-c"]
    done = subprocess.run(
        [*command, chosen.text],
        env={"PATH": "/usr/bin:/bin", **env},
        cwd=helper.parent,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: list[str] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(("line", "words"), LINES)
def test_hostile_values_arrive_as_they_are(helper: Path, shell: str, line: str, words: list[str]) -> None:
    need("dash or another POSIX shell", bool(SHELLS))
    for at, value in enumerate(HOSTILE):
        other = HOSTILE[-1 - at]
        expected = [word.replace("A", "\0").replace("B", other).replace("\0", value) for word in words]
        assert seen(helper, shell, line, value, other) == expected, (value, other)
    assert [path.name for path in helper.parent.iterdir()] == [helper.name]


PIECES = [
    "{{a}}", "{{b}}", "'", '"', " ", "x", "$", "\\", ";", "\n", "(", ")", "|", "&", "$(", "`", "$((", "${",
    "}",
    "{", "#", "<", ">", "if ", "then ", "fi", "eval ", "echo ", "=", "V=", "[ ", " ]", "sh -c ", "!", "*",
    "~",
    "1", "--", "-", "[[ ", "]] ", "do ", "done ", "while ", "case ", "in ", "esac",
]  # fmt: skip
PAYLOADS = [
    "$(touch pwned)", "`touch pwned`", "';touch pwned;'", '";touch pwned;"', "\ntouch pwned\n", ">pwned",
    ";touch pwned;", "|touch pwned", "&touch pwned&", "a[$(touch pwned)]", "touch pwned", "pwned;touch pwned",
    ")touch pwned", "\\", "x'$(touch pwned)'", "}; touch pwned; {",
]  # fmt: skip


@pytest.mark.timeout(60)
@settings(max_examples=250, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    pieces=st.lists(st.sampled_from(PIECES), min_size=1, max_size=12),
    a=st.sampled_from(PAYLOADS),
    b=st.sampled_from(PAYLOADS),
)
def test_whatever_line_is_taken_no_value_is_run(helper: Path, pieces: list[str], a: str, b: str) -> None:
    from toolcrib.errors import ToolcribError

    line = "echo " + "".join(pieces)
    if "{{" not in line:
        return
    try:
        template = parse_shell(parse_conditional(line, NAMES))
        values = Values({"a": a, "b": b})
        chosen = template.line(values)
        env = chosen.environment(values)
    except ToolcribError:
        return
    folder = helper.parent / "run"
    folder.mkdir(exist_ok=True)
    # What the author's own redirections write is no matter: only what a value would.
    for shell in [name for name in SHELLS if name in ("sh", "bash")]:
        subprocess.run(
            [shell, "-c", chosen.text],
            env={"PATH": "/usr/bin:/bin", **env},
            cwd=folder,
            capture_output=True,
            check=False,
            stdin=subprocess.DEVNULL,
            timeout=30,
        )
        assert not (folder / "pwned").exists(), (shell, line, chosen.text, a, b)
    shutil.rmtree(folder)
