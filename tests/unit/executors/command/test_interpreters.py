"""A value that would be code to an interpreter is an error of the manifest; other words are plain."""

from __future__ import annotations

from typing import Any

from toolcrib.executors.command.lint import code_values
from toolcrib.spec import CommandExec, Permissions, SecretSpec, Source, Spelling, Tool

TEXT = {"type": "string"}
PROPERTIES: dict[str, Any] = {
    "x": TEXT,
    "y": TEXT,
    "n": {"type": "integer"},
    "price": {"type": ["number", "null"]},
    "flag": {"type": "boolean"},
    "mode": {"enum": ["a", "b"]},
    "items": {"type": "array", "items": {"type": "integer"}},
}
SOURCE = Source("any", "", b"", "", spelling=Spelling.DOUBLE_BRACE)


def tool(config: CommandExec, source: Source | None = None) -> Tool:
    permissions = Permissions(secrets=(SecretSpec("KEY"),))
    schema = {"type": "object", "properties": PROPERTIES}
    return Tool("t", "Does t.", "command", schema, config, permissions=permissions, source=source)


def line(text: str, **more: Any) -> Tool:
    return tool(CommandExec("/bin/sh", shell=text, **more), SOURCE)


def words(*given: str, **more: Any) -> Tool:
    return tool(CommandExec(given[0], tuple(given[1:]), **more))


CODE = [
    ("eval {{x}}", "eval"),
    ("'ev'al {{x}}", "eval"),
    ("\\eval {{x}}", "eval"),
    ('A=1 eval "echo {{x}}"', "eval"),
    ('eval "$(printf %s {{x}})"', "eval"),
    ('echo "$(eval {{x}})"', "eval"),
    ('V={{x}}; eval "$V"', "eval"),
    ("if true; then eval {{x}}; fi", "eval"),
    (". {{x}}", "."),
    ("trap {{x}} EXIT", "trap"),
    ("sh -c 'echo {{x}}'", "sh"),
    ('/bin/bash -ec "{{x}}"', "bash"),
    ("bash -o pipefail -c {{x}}", "bash"),
    ("zsh -c {{x}}", "zsh"),
    ("sh {{x}}", "sh"),
    ("bash -s {{x}}", "bash"),
    ("bash --rcfile {{x}}", "bash"),
    ("exec sh -c {{x}}", "sh"),
    ("nohup env A=1 sh -c {{x}}", "sh"),
    ("timeout -k 1 5 bash -c {{x}}", "bash"),
    ("nice -n 5 sh -c {{x}}", "sh"),
    ("python3 -c 'print({{x}})'", "python3"),
    ("python3.12 -m {{x}}", "python3.12"),
    ("python3 -u {{x}}", "python3"),
    ("python3 -m cProfile -s cumtime {{x}}", "python3"),
    ("python3 -mpdb -c {{x}} a.py", "python3"),
    ("perl -ne '{{x}}'", "perl"),
    ("perl -Mstrict {{x}}", "perl"),
    ("ruby -e {{x}}", "ruby"),
    ("node --eval={{x}}", "node"),
    ("node --require {{x}} a.js", "node"),
    ("php -r {{x}}", "php"),
    ("php -c {{x}} a.php", "php"),
    ("pwsh -c {{x}}", "pwsh"),
    ("psql -c {{x}}", "psql"),
    ("psql -tAc {{x}}", "psql"),
    ("mysql --execute={{x}}", "mysql"),
    ("sqlite3 -header db {{x}}", "sqlite3"),
    ("awk {{x}} f", "awk"),
    ("awk -F , 'BEGIN{print \"{{x}}\"}'", "awk"),
    ("sed -E -n {{x}} f", "sed"),
    ("sed 's/a/b/' -e {{x}}", "sed"),
    ("sed -n{{x}} p f", "sed"),
    ("find . -exec sh -c {{x}} \\;", "sh"),
    ("ssh host {{x}}", "ssh"),
    ("ssh -o {{x}} host", "ssh"),
    ("su -c {{x}}", "su"),
    ("kubectl -n a exec p -- /bin/bash -lc {{x}}", "bash"),
    ("env PATH={{x}} ls", "env"),
    ("env GCONV_PATH={{x}} iconv -l", "env"),
    ("env -S {{x}}", "env"),
    ("[ -v {{x}} ]", "["),
    ("echo {{x}} | sh", "sh"),
    ("echo {{x}} | tee f | bash -s", "bash"),
    ("echo {{x}} | (cat; sh)", "sh"),
    ("{ echo {{x}}; } | python3 -", "python3"),
    ("sh < {{x}}", "sh"),
    ("while :; do sh; done < {{x}}", "sh"),
    ("python3 -m timeit {{x}}", "python3"),
    ("ssh -I {{x}} host ls", "ssh"),
    ("fd -e md -x sh -c {{x}}", "sh"),
    ("wrapper sh -c {{x}}", "sh"),
    ("env " * 100 + "sh -c {{x}}", "env"),
    ("echo {{x}} | sed -f - f", "sed"),
    ("echo {{x}} | awk -f /dev/stdin f", "awk"),
    ("echo {{x}} | bash /dev/fd/0", "bash"),
    ("echo {{x}} | ssh host", "ssh"),
    ("echo {{x}} | ssh host bash -s", "bash"),
    ("echo {{x}} | find . -exec sh \\;", "sh"),
    ("find -- {{x}} -name '*.log'", "find"),
    ("find . " + "-exec find " * 40 + "-exec sh -c {{x}}", "sh"),
]
NAMES_THE_PROGRAM = [
    "sudo --user root {{x}}",
    "xargs --max-args 1 {{x}}",
    "ls | xargs {{x}}",
    "env {{x}}",
    "sudo {{x}}",
    "timeout 5 {{x}}",
    "exec {{x}}",
    "find . -exec {{x}} +",
]
ORDINARY = [
    "curl -s '{{x}}' | jq '{{y}}'",
    "grep -cF -e '{{x}}' -- '{{y}}'",
    "grep -n bash {{x}}",
    "find . -exec grep {{x}} {} +",
    "find {{x}} -name {{y}}",
    "find -- src -name {{y}}",
    "ls | xargs -n 1 grep {{x}}",
    "sh -c 'echo \"$1\"' _ {{x}}",
    "bash -eu script.sh {{x}}",
    "python3 -c 'import sys' {{x}}",
    "python3 -u script.py {{x}}",
    "awk -v n={{x}} '{print n}' {{y}}",
    "sed -n 's/a/b/p' {{x}}",
    "sqlite3 {{x}} 'SELECT 1'",
    "psql -h {{x}} -c 'SELECT 1'",
    "git commit -m {{x}}",
    "kubectl get pods -n {{x}}",
    "pip show {{x}}",
    "python3 -m json.tool {{x}}",
    "rg -n {{x}} src",
    "fd {{x}} src",
    "fd -- {{x}} src",
    "env " * 20 + "ls",
    "env2 A={{x}} ls",
    "sudo --user {{x}} ls",
    "pandoc {{x}} -o out.html",
    "gh issue view {{x}}",
    "openssl dgst -sha256 {{x}}",
    "git log --author={{x}}",
    "tar -xzf {{x}} -C {{y}}",
    "rsync -av {{x}} out/",
    "ssh {{x}} uptime",
    "echo {{x}} | ssh host 'cat > f'",
    "echo {{x}} | ssh host tee bash",
    "kubectl -n {{x}} get pods",
    "git --git-dir {{x}} log",
    "git --no-pager log {{x}}",
    "docker --debug logs {{x}}",
    "pip -q show {{x}}",
    "docker inspect {{x}}",
    "env A={{x}} ls",
    "timeout {{n}} ls {{x}}",
    "printf {{x}}",
    "echo {{x}} | sh -c 'cat'",
    "./scripts/scan.sh {{x}}",
    "$HOME/bin/tool {{x}}",
    "tool --name={{x}}",
    "sh -c 'head -n {{n}} f; echo {{price}} {{flag}} {{mode}} {{items[0]}}'",
    "echo {{n}} | sh",
    "psql -c ${KEY}",
    "psql -c ${version}",
]


def message(found: Tool) -> str:
    """The message about the one value that would be code."""
    ((_, _, text),) = code_values(found)
    return text


def test_a_value_that_would_be_code_is_found_by_program_and_option() -> None:
    for text, program in CODE:
        assert f"would be code of `{program}`" in message(line(text)), text
        assert code_values(line(text, allow_code=True)) == [], text


def test_a_value_that_names_the_program_is_found() -> None:
    for text in NAMES_THE_PROGRAM:
        assert message(line(text)) == "the value of `x` would name the program to run", text


def test_an_ordinary_word_is_plain() -> None:
    for text in ORDINARY:
        assert code_values(line(text)) == [], text


def test_the_words_of_a_command_are_read_by_the_same_rule() -> None:
    for given, path in (
        (("sh", "-c", "ls ${x} | wc -l"), ("args", 1)),
        (("/usr/bin/psql", "--command=${x}"), ("args", 0)),
        (("timeout", "5", "sh", "-ec", "${x}"), ("args", 3)),
        (("find", ".", "-exec", "ls", ";", "-exec", "sh", "-c", "${x}", ";"), ("args", 7)),
        (("env", "${x}"), ("args", 0)),
    ):
        ((found, value, _),) = code_values(words(*given))
        assert (found, value.name) == (path, "x")
    assert code_values(words("sh", "-c", 'ls "$1"', "sh", "${x}")) == []
    assert code_values(words("wc", "-l", "--", "${x}")) == []
    assert code_values(words("sh", "-c", "ls ${x}", allow_code=True)) == []


def test_standard_input_counts_where_a_program_reads_code_from_it() -> None:
    for given in (
        ("python3",),
        ("env", "A=1", "bash", "-s", "a"),
        ("xargs", "sh", "-c"),
        ("xargs", "-I", "{}", "sh", "-c", "echo {}"),
        ("xargs", "env"),
    ):
        ((path, _, _),) = code_values(words(*given, stdin="${x}"))
        assert path == ("stdin",), given
    for given in (("wc",), ("sh", "-c", "cat"), ("xargs", "rm"), ("xargs", "sh", "a.sh")):
        assert code_values(words(*given, stdin="${x}")) == [], given
    assert code_values(words("python3", stdin="${n}")) == []


def test_a_variable_that_steers_loading_takes_no_value() -> None:
    for name in ("LD_PRELOAD", "PYTHONPATH", "NODE_OPTIONS", "BASH_ENV", "PATH", "GIT_SSH_COMMAND"):
        ((path, _, text),) = code_values(words("ls", env={name: "${x}"}))
        assert path == ("env", name)
        assert f"the variable {name}, which decides what is loaded or run" in text
        assert code_values(words("ls", env={name: "${mode}"})) == []
        assert code_values(words("ls", env={name: "${x}"}, allow_code=True)) == []
    for name in ("NOTE", "GIT_AUTHOR_NAME"):
        assert code_values(words("ls", env={name: "${x}"})) == []


def test_a_listed_value_may_be_absent() -> None:
    choices: list[dict[str, Any]] = [{"enum": ["a", "b"]}, {"type": "null"}]
    config = CommandExec("sh", ("-c", "echo ${m}"))
    for more, is_code in (([], False), ([TEXT], True)):
        schema = {"type": "object", "properties": {"m": {"anyOf": [*choices, *more]}}}
        assert bool(code_values(Tool("t", "Does t.", "command", schema, config))) == is_code


def test_a_nul_of_the_manifest_is_no_value() -> None:
    assert code_values(words("sh", "-c", "\0", "${x}")) == []
    assert code_values(line("\0")) == []


def test_a_bad_template_has_no_code_values() -> None:
    assert code_values(line("set -- {{x}}")) == []
    assert code_values(words("sh", "-c", "${gone}")) == []
