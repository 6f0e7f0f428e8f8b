"""Shell lines: where a value may stand, and how it is written there."""

from __future__ import annotations

import pytest

from toolcrib.errors import InvalidInput, ManifestError
from toolcrib.executors.command.shell import parse_shell, shell_problems, variables_with_values
from toolcrib.spec import Spelling
from toolcrib.template import (
    Namespaces,
    Values,
    parse_conditional,
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
        ("echo {{x}} # a comment", 'echo "${TOOLCRIB_1}" # a comment'),
        (
            "while read l; do echo {{x}}; done <{{y}}",
            'while read l; do echo "${TOOLCRIB_1}"; done <"${TOOLCRIB_2}"',
        ),
        ("case $A in (a|b) ls {{x}};; *) ;; esac", 'case $A in (a|b) ls "${TOOLCRIB_1}";; *) ;; esac'),
        (
            "if a; then b; elif c {{x}}; then d; else e; fi >f",
            'if a; then b; elif c "${TOOLCRIB_1}"; then d; else e; fi >f',
        ),
        ("! grep {{x}} f && a || b & c", '! grep "${TOOLCRIB_1}" f && a || b & c'),
        ("curl -s \\\n  {{x}}", 'curl -s \\\n  "${TOOLCRIB_1}"'),
        ("V=a{{x}}; echo $V \"$V\" '$V'", 'V=a"${TOOLCRIB_1}"; echo "${V}" "${V}" \'$V\''),
        ("V=$(basename {{x}}); W=$V; echo $W", 'V=$(basename "${TOOLCRIB_1}"); W="${V}"; echo "${W}"'),
        ("grep -n bash {{x}}", 'grep -n bash "${TOOLCRIB_1}"'),
        ("for i in 1 2; do echo {{x}}; done", 'for i in 1 2; do echo "${TOOLCRIB_1}"; done'),
        ("echo $$((1 + 2)) {{x}}", 'echo $$((1 + 2)) "${TOOLCRIB_1}"'),
    ],
)
def test_how_a_value_is_written_by_the_quotes_round_it(line: str, written: str) -> None:
    if "$$((" in line:
        line, written = line.replace("$$((", "$(("), written.replace("$$((", "$((")
    assert bound(line, x="1", y="2")[0] == written


REFUSED = [
    ("{{x}} a", "the program"),
    ("true; {{x}}", "the program"),
    ("echo a && '{{x}}'", "the program"),
    ("A=1 {{x}}", "the program"),
    ("$(echo {{x}}) a", "double quotes"),
    ("$SHELL {{x}}", "not written out"),
    ("`echo sh` {{x}}", "not written out"),
    ("echo `cat {{x}}`", "backticks"),
    ("echo $(cat {{x}})", "double quotes"),
    ("echo $((1 + {{x}}))", "arithmetic"),
    ('echo "$((1 + {{x}}))"', "arithmetic"),
    ("echo $[{{x}}]", "`$[`"),
    ("(({{x}}))", "arithmetic"),
    ("[[ {{x}} = 1 ]]", "`[[`"),
    ("cat <<E\n{{x}}\nE", "here-document"),
    ("cat <\\\n<E\n{{x}}\nE", "target of a redirection"),
    ("cat <<< {{x}}", "here-document"),
    ("cat <(echo {{x}})", "target of a redirection"),
    ("echo $${a:-{{x}}}", "expansion"),
    ("echo $'{{x}}'", "different shells"),
    ("echo ${{x}}", "after `$`"),
    ('echo "${{x}}"', "after `$`"),
    ("echo \\{{x}}", "backslash"),
    ("echo {a,{{x}}}", "unquoted `{`"),
    ("echo '{{x}}", "not closed"),
    ('echo "{{x}}', "not closed"),
    ("echo {{x}})", "closes nothing"),
    ("(echo {{x}}", "missing"),
    ("if true; then echo {{x}}", "`fi` is missing"),
    ("echo {{x}} |& cat", "`|&`"),
    ("echo a # {{x}}", "comment"),
    ("export V={{x}}", "`export`"),
    ("set -- {{x}}", "`set`"),
    ("read {{x}}", "`read`"),
    ("alias ls={{x}}", "`alias`"),
    ("PATH={{x}} ls", "`PATH`"),
    ("LD_PRELOAD={{x}} ls", "`LD_PRELOAD`"),
    ("IFS={{x}}; echo $a", "`IFS`"),
    ("for i in {{x}}; do echo $i; done", "`for`"),
    ("for {{x}} in a; do echo; done", "`for`"),
    ("V={{x}}; for i in $V; do echo $i; done", "`for`"),
    ("V={{x}}; echo $((V))", "`V` has a value"),
    ("V={{x}}; echo `echo $V`", "`V` has a value"),
    ("V={{x}}; $V", "the program"),
    ("case {{x}} in a) ls;; esac", "`case`"),
    ("case a in {{x}}) ls;; esac", "`case`"),
    ("f() { echo {{x}}; }", "function"),
    ("A=({{x}})", "function"),
    ("function f { echo {{x}}; }", "`function`"),
    ("cat >&{{x}}", "`>&`"),
    ("echo $TOOLCRIB_1 {{x}}", "`TOOLCRIB_`"),
]


def test_a_value_in_any_other_place_is_refused() -> None:
    for line, reason in REFUSED:
        found = shell_problems(parse_conditional(line, NAMES))
        assert [reason in problem.message for problem in found] == [True], (line, found)
        with pytest.raises(ManifestError):
            parse_shell(parse_conditional(line, NAMES))


def test_a_line_without_values_is_left_to_the_shell() -> None:
    line = 'for f in *; do [[ -f $f ]] && eval "echo `date`"; done <<E\nE'
    assert bound(line) == (line, {})


def test_every_line_that_conditions_can_give_is_parsed() -> None:
    line = "curl {{if flag}}-H 'A: {{x}}'{{else}}-s{{end}} -- {{y}}"
    assert bound(line, flag=True, x="1", y="2")[0] == "curl -H 'A: '\"${TOOLCRIB_1}\"'' -- \"${TOOLCRIB_2}\""
    assert bound(line, flag=False, y="2") == ('curl -s -- "${TOOLCRIB_1}"', {"TOOLCRIB_1": "2"})
    (problem,) = shell_problems(parse_conditional("echo {{if flag}}a; set {{end}}{{x}}", NAMES))
    assert "`set`" in problem.message
    many = parse_conditional("echo " + "{{if flag}}a{{else}}b{{end}}" * 7, NAMES)
    assert "too many conditions" in shell_problems(many)[0].message


def test_a_line_too_large_to_parse_at_once_is_refused() -> None:
    for line, reason in (
        ("echo {{x}} " + "a" * 50_000, "longer than 50,000 characters"),
        ("echo {{x}} " + "a" * 1000 + "{{if flag}}b{{end}}" * 6, "longer than 50,000 characters"),
        ("echo" + " {{x}}" * 501, "more than 500 values"),
        ("V=a{{x}}; " + "V=a$V; " * 500, "more than 500 values"),
        ("A={{x}}; B=$A; C=$B; D=$C; E=$D", "too long a chain"),
    ):
        (problem,) = shell_problems(parse_conditional(line, NAMES))
        assert reason in problem.message
    for line in (
        "! " * 10_000 + "ls {{x}}",
        "".join(f"V{n}={{{{x}}}}; " for n in range(500)) + "a $B " * 5000,
    ):
        assert shell_problems(parse_conditional(line, NAMES)) == []
    assert bound("echo " + "a" * 100_000)[1] == {}


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


def test_a_variable_that_holds_a_value_is_quoted_where_it_is_used() -> None:
    held = variables_with_values({"NOTE": "{{x}}", "PLAIN": "a"}, NAMES)
    assert held == ["NOTE"]
    line = parse_shell(parse_conditional("echo $NOTE '$NOTE' \"$NOTE\" $PLAIN", NAMES), held)
    assert line.line(Values()).text == 'echo "${NOTE}" \'$NOTE\' "${NOTE}" $PLAIN'
    for unsafe in ("$NOTE a", "echo $${NOTE%x}", "echo $((NOTE))", "echo `echo $NOTE`"):
        assert shell_problems(parse_conditional(unsafe, NAMES), held), unsafe
    with pytest.raises(InvalidInput, match="begins with"):
        line.line(Values()).environment(Values(), (), {"NOTE": "-n"})
    for name in ("PATH", "LD_PRELOAD", "TOOLCRIB_1"):
        with pytest.raises(ManifestError):
            variables_with_values({name: "{{x}}"}, NAMES)
