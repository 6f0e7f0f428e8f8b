"""Values that a program takes as code are found by program and option; other words need no approval."""

from __future__ import annotations

from typing import Any

from toolcrib.executors.command.code_values import code_reason, code_values
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
    ("sh -c 'echo {{x}}'", "sh -c"),
    ('/bin/bash -ec "{{x}}"', "bash -ec"),
    ("bash -o pipefail -c {{x}}", "bash -c"),
    ("zsh -c {{x}}", "zsh -c"),
    ("sh {{x}}", "sh"),
    ("bash -s {{x}}", "bash -s"),
    ("bash --rcfile {{x}}", "bash --rcfile"),
    ("exec sh -c {{x}}", "sh -c"),
    ("nohup env A=1 sh -c {{x}}", "sh -c"),
    ("timeout -k 1 5 bash -c {{x}}", "bash -c"),
    ("nice -n 5 sh -c {{x}}", "sh -c"),
    ("python3 -c 'print({{x}})'", "python3 -c"),
    ("python3.12 -m {{x}}", "python3.12 -m"),
    ("python3 -u {{x}}", "python3"),
    ("python3 -m cProfile -s cumtime {{x}}", "python3 -m cProfile"),
    ("python3 -mpdb -c {{x}} a.py", "python3 -m pdb -c"),
    ("go run {{x}}", "go"),
    ("dotnet {{x}}", "dotnet"),
    ("dotnet --depsfile a.json {{x}}", "dotnet --depsfile"),
    ("dotnet --depsfile {{x}} a.dll", "dotnet --depsfile"),
    ("coverage run {{x}}", "coverage"),
    ("perl -ne '{{x}}'", "perl -e"),
    ("perl -Mstrict {{x}}", "perl -M"),
    ("ruby -e {{x}}", "ruby -e"),
    ("node --eval={{x}}", "node --eval"),
    ("node --require {{x}} a.js", "node --require"),
    ("php -r {{x}}", "php -r"),
    ("php -c {{x}} a.php", "php -c"),
    ("R -e {{x}}", "R -e"),
    ("Rscript -e {{x}}", "Rscript -e"),
    ("pwsh -c {{x}}", "pwsh"),
    ("psql -c {{x}}", "psql -c"),
    ("psql -tAc {{x}}", "psql -c"),
    ("mysql --execute={{x}}", "mysql --execute"),
    ("sqlite3 -header db {{x}}", "sqlite3"),
    ("awk {{x}} f", "awk"),
    ("awk -F , 'BEGIN{print \"{{x}}\"}'", "awk"),
    ("sed -E -n {{x}} f", "sed"),
    ("sed 's/a/b/' -e {{x}}", "sed -e"),
    ("sed -n{{x}} p f", "sed"),
    ("find . -exec sh -c {{x}} \\;", "sh -c"),
    ("rsync -e {{x}} a b", "rsync -e"),
    ("rsync -av --rsync-pa={{x}} a b", "rsync --rsync-path"),
    ("tar --checkpoint-action={{x}} -cf a b", "tar --checkpoint-action"),
    ("tar -I {{x}} -xf a", "tar -I"),
    ("git -c core.pager={{x}} log", "git -c"),
    ("git clone --upload-pack {{x}} u", "git --upload-pack"),
    ("git config alias.a {{x}}", "git"),
    ("ssh host {{x}}", "ssh"),
    ("ssh -o {{x}} host", "ssh -o"),
    ("sudo {{x}}", "sudo"),
    ("su -c {{x}}", "su"),
    ("docker exec box ls {{x}}", "docker"),
    ("kubectl -n a exec p -- /bin/bash -lc {{x}}", "kubectl"),
    ("env PATH={{x}} ls", "env"),
    ("env GCONV_PATH={{x}} iconv -l", "env"),
    ("env -S {{x}}", "env -S"),
    ("[ -v {{x}} ]", "[ -v"),
    ("echo {{x}} | sh", "sh"),
    ("echo {{x}} | tee f | bash -s", "bash"),
    ("echo {{x}} | (cat; sh)", "sh"),
    ("{ echo {{x}}; } | python3 -", "python3"),
    ("echo {{x}} | xargs rm", "xargs"),
    ("sh < {{x}}", "sh"),
    ("while :; do sh; done < {{x}}", "sh"),
    ("python3 -m pip install {{x}}", "python3 -m pip"),
    ("python3 -m timeit {{x}}", "python3 -m timeit"),
    ("kubectl apply -f {{x}}", "kubectl"),
    ("echo {{x}} | kubectl apply -f -", "kubectl"),
    ("npm run-script {{x}}", "npm"),
    ("cargo build --manifest-path {{x}}", "cargo"),
    ("gh alias set x {{x}}", "gh"),
    ("cmake -P {{x}}", "cmake"),
    ("rg --pre {{x}} word", "rg --pre"),
    ("pandoc a.md -t {{x}}", "pandoc -t"),
    ("echo {{x}} | sftp -b - host", "sftp -b"),
    ("ssh -I {{x}} host ls", "ssh -I"),
    ("fd -e md -x sh -c {{x}}", "sh -c"),
    ("git init --template={{x}}", "git --template"),
    ("yt-dlp --exec {{x}} u", "yt-dlp --exec"),
    ("env KUBECONFIG={{x}} kubectl get pods", "env"),
    ("wrapper sh -c {{x}}", "sh -c"),
    ("env " * 100 + "sh -c {{x}}", "env"),
    ("git -C repo {{x}} {{y}}", "git"),
    ("git --no-pager {{x}}", "git"),
    ("npm {{x}}", "npm"),
    ("cargo b --manifest-path {{x}}", "cargo"),
    ("docker bake -f {{x}}", "docker"),
    ("view -c {{x}} f", "view"),
    ("aria2c --on-download-complete={{x}} u", "aria2c --on-download-complete"),
    ("ssh-keygen -D {{x}}", "ssh-keygen -D"),
    ("echo {{x}} | sed -f - f", "sed -f"),
    ("echo {{x}} | awk -f /dev/stdin f", "awk -f"),
    ("echo {{x}} | bash /dev/fd/0", "bash"),
    ("echo {{x}} | ssh host", "ssh"),
    ("echo {{x}} | ssh host bash -s", "bash"),
    ("echo {{x}} | find . -exec sh \\;", "sh"),
    ("find -- {{x}} -name '*.log'", "find --"),
    ("find . " + "-exec find " * 40 + "-exec sh -c {{x}}", "find"),
]
NAMES_THE_PROGRAM = ["ls | xargs {{x}}", "env {{x}}", "timeout 5 {{x}}", "exec {{x}}", "find . -exec {{x}} +"]
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


def test_a_value_that_becomes_code_needs_approval() -> None:
    for text, where in CODE:
        (found,) = code_values(line(text))
        assert found.needs_approval, text
        assert f"becomes code of `{where}`" in found.message, text
        assert code_reason(line(text)) == found.message
        assert code_values(line(text, allow_code=True)) == []


def test_a_value_that_names_the_program_needs_approval() -> None:
    for text in NAMES_THE_PROGRAM:
        assert code_reason(line(text)) == "the value of `x` names the program that is run", text


def test_an_ordinary_word_needs_no_approval() -> None:
    for text in ORDINARY:
        assert code_values(line(text)) == [], text


def test_the_words_of_a_command_are_read_by_the_same_rule() -> None:
    for given, path in (
        (("sh", "-c", "ls ${x} | wc -l"), ("args", 1)),
        (("/usr/bin/psql", "--command=${x}"), ("args", 0)),
        (("timeout", "5", "sh", "-ec", "${x}"), ("args", 3)),
        (("env", "${x}"), ("args", 0)),
    ):
        (found,) = code_values(words(*given))
        assert (found.path, found.needs_approval) == (path, True)
    assert code_values(words("sh", "-c", 'ls "$1"', "sh", "${x}")) == []
    assert code_values(words("wc", "-l", "--", "${x}")) == []
    assert [found.path for found in code_values(words("python3", stdin="${x}"))] == [("stdin",)]
    assert [found.path for found in code_values(words("ls", env={"LD_PRELOAD": "${x}"}))] == [
        ("env", "LD_PRELOAD")
    ]
    for name in ("AWS_CONFIG_FILE", "DOTNET_STARTUP_HOOKS", "RUSTFLAGS", "CC"):
        assert code_reason(words("ls", env={name: "${x}"})), name
    assert code_values(words("ls", env={"NOTE": "${x}"}, stdin="${x}")) == []
    assert code_values(words("sh", "-c", "ls ${x}", allow_code=True)) == []


def test_an_option_of_an_unknown_program_is_a_warning() -> None:
    for text in (
        "tool -c {{x}}",
        "tool -e {{x}}",
        "tool --eval={{x}}",
        "tool --exec {{x}}",
        "tool --command={{x}}",
    ):
        (found,) = code_values(line(text))
        assert not found.needs_approval
        assert "may become code of `tool -" in found.message
        assert code_reason(line(text)) is None
    assert code_values(line("tool -c {{n}}")) == []


def test_a_nul_of_the_manifest_is_no_value() -> None:
    assert code_values(words("sh", "-c", "\0", "${x}")) == []
    assert code_values(line("\0")) == []


def test_a_bad_template_has_no_code_values() -> None:
    assert code_values(line("set -- {{x}}")) == []
    assert code_values(words("sh", "-c", "${gone}")) == []
