"""Shell lines: where a value may stand, and how it is written there."""

from __future__ import annotations

import pytest

from toolcrib.errors import InvalidInput, ManifestError
from toolcrib.spec import Spelling
from toolcrib.template import (
    Namespaces,
    Values,
    held_variables,
    parse_conditional,
    parse_shell,
    shell_problems,
)

NAMES = Namespaces(frozenset({"x", "y", "flag"}), frozenset({"KEY"}), spelling=Spelling.DOUBLE_BRACE)


def bound(line: str, **values: object) -> tuple[str, dict[str, str]]:
    """The line for these values, and its variables."""
    template = parse_shell(parse_conditional(line, NAMES))
    given = Values(values, secrets={"KEY": "s3"})
    chosen = template.line(given)
    return chosen.text, chosen.environment(given)


@pytest.mark.parametrize(
    ("line", "written"),
    [
        ("echo {{x}}", 'echo "${TOOLCRIB_1}"'),
        ("echo '{{x}}'", "echo ''\"${TOOLCRIB_1}\"''"),
        ('echo "{{x}}"', 'echo "${TOOLCRIB_1}"'),
        ("echo 'a {{x}} b'", "echo 'a '\"${TOOLCRIB_1}\"' b'"),
        ("echo a{{.x}}b{{y}}", 'echo a"${TOOLCRIB_1}"b"${TOOLCRIB_2}"'),
        ("echo '$'{{x}}", "echo '$'\"${TOOLCRIB_1}\""),
        ("echo '${{x}}'", "echo '$'\"${TOOLCRIB_1}\"''"),
        ('echo "\\${{x}}"', 'echo "\\$${TOOLCRIB_1}"'),
        ('echo "$(cat -- {{x}})"', 'echo "$(cat -- "${TOOLCRIB_1}")"'),
        ("A={{x}} env", 'A="${TOOLCRIB_1}" env'),
        ("sort <{{x}} >{{y}} 2>&1", 'sort <"${TOOLCRIB_1}" >"${TOOLCRIB_2}" 2>&1'),
        ("if [ -n {{x}} ]; then cat {{y}}; fi", 'if [ -n "${TOOLCRIB_1}" ]; then cat "${TOOLCRIB_2}"; fi'),
        ("(cd {{x}} && ls) | wc -l", '(cd "${TOOLCRIB_1}" && ls) | wc -l'),
        ("{ echo {{x}}; }", '{ echo "${TOOLCRIB_1}"; }'),
        ("sh -c 'echo \"$1\"' _ {{x}}", 'sh -c \'echo "$1"\' _ "${TOOLCRIB_1}"'),
        ("python3 -c 'import sys' {{x}}", "python3 -c 'import sys' \"${TOOLCRIB_1}\""),
        ("timeout 5 curl {{x}}", 'timeout 5 curl "${TOOLCRIB_1}"'),
        ("awk -v n={{x}} '{print n}'", "awk -v n=\"${TOOLCRIB_1}\" '{print n}'"),
        ("sed -n 's/a/b/p' {{x}}", "sed -n 's/a/b/p' \"${TOOLCRIB_1}\""),
        ("curl -H 'A: ${KEY}' u", "curl -H 'A: '\"${TOOLCRIB_1}\"'' u"),
        ("echo {{x}} # not {{y}}", 'echo "${TOOLCRIB_1}" # not '),
        ("grep -n bash {{x}}", 'grep -n bash "${TOOLCRIB_1}"'),
        ("for i in 1 2; do echo {{x}}; done", 'for i in 1 2; do echo "${TOOLCRIB_1}"; done'),
        ("echo $$((1 + 2)) {{x}}", 'echo $$((1 + 2)) "${TOOLCRIB_1}"'),
    ],
)
def test_how_a_value_is_written_by_the_quotes_round_it(line: str, written: str) -> None:
    if "$$((" in line:
        line, written = line.replace("$$((", "$(("), written.replace("$$((", "$((")
    assert bound(line, x="1", y="2")[0] == written


UNSAFE = [
    ("eval {{x}}", "`eval`"),
    ("'ev'al {{x}}", "`eval`"),
    ('A=1 eval "echo {{x}}"', "`eval`"),
    ('eval "$(printf %s {{x}})"', "`eval`"),
    ("sh -c 'echo {{x}}'", "code that `sh`"),
    ('/bin/bash -ec "{{x}}"', "code that `bash`"),
    ("sh -c -e '{{x}}'", "code that `sh`"),
    ("exec sh -c {{x}}", "code that `sh`"),
    ("nohup env A=1 sh -c {{x}}", "code that `sh`"),
    ("timeout 5 bash -c {{x}}", "code that `bash`"),
    ("python3 -c 'print({{x}})'", "code that `python3`"),
    ("perl -ne '{{x}}'", "code that `perl`"),
    ("node --eval={{x}}", "option of `node`"),
    ("docker exec box sh -c 'echo {{x}}'", "code that `sh`"),
    ("kubectl exec p -- /bin/bash -lc {{x}}", "code that `bash`"),
    ("sh {{x}}", "program that `sh`"),
    ("ssh host {{x}}", "`ssh`"),
    ("sudo {{x}}", "`sudo`"),
    ("ls | xargs {{x}}", "`xargs`"),
    ("find . -exec grep {{x}} {} +", "`find`"),
    ("awk {{x}} f", "`awk`"),
    ("awk -F , {{x}} f", "`awk`"),
    ("awk 'BEGIN{print \"{{x}}\"}'", "`awk`"),
    ("sed -n {{x}} f", "`sed`"),
    ("sed -E -n {{x}}", "`sed`"),
    ("sed -e {{x}} f", "`sed`"),
    ("jq '.{{x}}'", "`jq`"),
    ("printf {{x}}", "`printf`"),
    ("[ -v {{x}} ]", "`-v`"),
    ("{{x}} a", "the program"),
    ("true; {{x}}", "the program"),
    ("echo a && '{{x}}'", "the program"),
    ("$SHELL {{x}}", "looks up"),
    ("`echo sh` {{x}}", "looks up"),
    ("echo `cat {{x}}`", "backticks"),
    ("echo $(cat {{x}})", "double quotes"),
    ("echo $((1 + {{x}}))", "arithmetic"),
    ('echo "$((1 + {{x}}))"', "arithmetic"),
    ("echo $[{{x}}]", "`$[…]`"),
    ("(({{x}}))", "arithmetic"),
    ("[[ {{x}} = 1 ]]", "`[[`"),
    ("cat <<E\n{{x}}\nE", "here-document"),
    ("cat <<< {{x}}", "here-document"),
    ("cat <(echo {{x}})", "process substitution"),
    ("echo $${a:-{{x}}}", "expansion"),
    ("echo $'{{x}}'", "different shells"),
    ("echo ${{x}}", "after `$`"),
    ('echo "${{x}}"', "after `$`"),
    ("echo \\{{x}}", "backslash"),
    ("echo {a,{{x}}}", "unquoted `{`"),
    ("echo '{{x}}", "not closed"),
    ('echo "{{x}}', "not closed"),
    ("echo {{x}})", "closes nothing"),
    ("(echo {{x}}", "missing at the end"),
    ("V={{x}}; echo $V", "shell variable `V`"),
    ("export V={{x}}", "`export`"),
    ("read {{x}}", "`read`"),
    ("PATH={{x}} ls", "`PATH`"),
    ("LD_PRELOAD={{x}} ls", "`LD_PRELOAD`"),
    ("for i in {{x}}; do echo $i; done", "`for`"),
    ("case {{x}} in a) ls;; esac", "`case`"),
    ("f() { echo {{x}}; }", "function"),
    ("echo {{x}} | sh", "from its input"),
    ("echo {{x}} | tee f | bash -s", "from its input"),
    ("echo {{x}} | (cat; sh)", "from its input"),
    ("{ echo {{x}}; } | sh", "from its input"),
    ("echo {{x}} | while read l; do echo $l; done", "from its input"),
    ("echo {{x}} | python3 -", "from its input"),
    ("sh < {{x}}", "from its input"),
    ("cat >&{{x}}", "`>&`"),
    ("echo $TOOLCRIB_1 {{x}}", "`TOOLCRIB_`"),
]


@pytest.mark.parametrize(("line", "told"), UNSAFE)
def test_places_that_are_not_safe_are_refused_by_name(line: str, told: str) -> None:
    found = shell_problems(parse_conditional(line, NAMES))
    assert [told in problem.message for problem in found] == [True], found
    with pytest.raises(ManifestError):
        parse_shell(parse_conditional(line, NAMES))


def test_a_line_without_values_is_left_to_the_shell() -> None:
    line = 'for f in *; do [[ -f $f ]] && eval "echo `date`"; done <<E\nE'
    assert bound(line) == (line, {})


def test_every_line_that_conditions_can_give_is_looked_at() -> None:
    line = "curl {{if flag}}-H 'A: {{x}}'{{else}}-s{{end}} -- {{y}}"
    assert bound(line, flag=True, x="1", y="2")[0] == "curl -H 'A: '\"${TOOLCRIB_1}\"'' -- \"${TOOLCRIB_2}\""
    assert bound(line, flag=False, y="2") == ('curl -s -- "${TOOLCRIB_1}"', {"TOOLCRIB_1": "2"})
    (problem,) = shell_problems(parse_conditional("echo {{if flag}}a; eval {{end}}{{x}}", NAMES))
    assert "`eval`" in problem.message
    many = parse_conditional("echo " + "{{if flag}}a{{else}}b{{end}}" * 7, NAMES)
    assert "too many conditions" in shell_problems(many)[0].message


def test_an_option_is_refused_and_one_after_dashes_is_not() -> None:
    for line in ("ls {{x}}", "ls '{{x}}'", 'ls "{{x}}"', "ls ''{{x}}", "ls {{y}}{{x}}", "a; ls {{x}}"):
        with pytest.raises(InvalidInput, match="begins with `-`"):
            bound(line, x="-rf", y="")
    for line in ("ls -- {{x}}", "ls a{{x}}", "ls --x={{x}}", "cat <{{x}}"):
        assert bound(line, x="-rf")[1] == {"TOOLCRIB_1": "-rf"}
    template = parse_shell(parse_conditional("ls {{x}}", NAMES))
    values = Values({"x": "-l"})
    assert template.line(values).environment(values, ("x",)) == {"TOOLCRIB_1": "-l"}


def test_what_no_variable_can_hold_is_refused() -> None:
    for value in ("a\0b", "x" * 131_072, ["a"], None):
        with pytest.raises(InvalidInput):
            bound("echo {{x}}", x=value)
    assert bound("echo {{x}}", x="x" * 131_000)[1]["TOOLCRIB_1"] == "x" * 131_000


def test_a_variable_that_holds_a_value_is_held_to_the_same() -> None:
    held = held_variables({"NOTE": "{{x}}", "PLAIN": "a"}, NAMES)
    assert held == ["NOTE"]
    line = parse_shell(parse_conditional("echo $NOTE '$NOTE' \"$NOTE\" $PLAIN", NAMES), held)
    assert line.line(Values()).text == 'echo "${NOTE}" \'$NOTE\' "${NOTE}" $PLAIN'
    for unsafe in ("eval $NOTE", 'sh -c "$NOTE"', "echo $${NOTE%x}", "echo $((NOTE))", "echo `echo $NOTE`"):
        assert shell_problems(parse_conditional(unsafe, NAMES), held), unsafe
    with pytest.raises(InvalidInput, match="begins with"):
        line.line(Values()).environment(Values(), (), {"NOTE": "-n"})
    for name in ("PATH", "LD_PRELOAD", "TOOLCRIB_1"):
        with pytest.raises(ManifestError):
            held_variables({name: "{{x}}"}, NAMES)
