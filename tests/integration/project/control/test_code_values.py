"""A tool in which a value would be code does not load at any interface, unless its manifest allows it."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

import pytest

from tests.crib import SH, Crib, failed
from toolcrib import Result, Toolset
from toolcrib.errors import ManifestError
from toolcrib.spec import Call

pytestmark = pytest.mark.usefixtures("kernel")

COUNT = {"entrypoint": "sh", "args": ["-c", "echo ran ${c}"]}
FAULT = "the value of `c` would be code of `sh`"
LINE = """\
name: {name}
description: Run it
params:
  - {{name: x, type: string, required: true, description: What}}
implementation:
  type: exec
  command: {command}
"""
REFUSED = r"""
{{x}} a
a; {{x}}
$(echo {{x}})
echo `echo {{x}}`
echo $(echo {{x}})
echo $((1 + {{x}}))
(({{x}}))
[[ {{x}} = 1 ]]
cat <<< {{x}}
cat <(echo {{x}})
echo $'{{x}}'
echo {a,{{x}}}
echo a # {{x}}
export V={{x}}
set -- {{x}}
read {{x}}
alias ls={{x}}
PATH={{x}} ls
LD_PRELOAD={{x}} ls
IFS={{x}}; echo $a
for i in {{x}}; do echo $i; done
case {{x}} in a) ls;; esac
case a in {{x}}) ls;; esac
f() { echo {{x}}; }
cat >&{{x}}
V={{x}}; echo $((V))
""".strip().splitlines()
CODE = r"""
eval {{x}}
'ev'al {{x}}
eval "$(echo {{x}})"
V={{x}}; eval "$V"
. {{x}}
trap {{x}} EXIT
sh -c {{x}}
sh -ec "{{x}}"
sh -c 'echo {{x}}'
sh {{x}}
env A=1 sh -c {{x}}
timeout 5 sh -c {{x}}
nice sh -c {{x}}
exec {{x}}
python3 -c {{x}}
perl -ne {{x}}
ruby -e {{x}}
node --eval={{x}}
php -r {{x}}
psql -c {{x}}
pwsh -c {{x}}
mysql -e {{x}}
sqlite3 db {{x}}
awk {{x}} f
sed -e {{x}} f
find . -exec {{x}} +
ssh host {{x}}
sudo {{x}}
docker exec box sh -c {{x}}
echo {{x}} | sh
echo {{x}} | xargs sh -c
""".strip().splitlines()
DATA = r"""
echo {{x}}
echo '{{x}}'
echo "{{x}}"
echo a{{x}}b
echo --x={{x}}
V={{x}}; echo $V
V={{x}} env >/dev/null; echo "{{x}}"
if true; then echo {{x}}; fi
for i in 1; do echo {{x}}; done
(echo {{x}})
{ echo {{x}}; } | cat
echo "$(echo {{x}})"
case a in a) echo {{x}};; esac
sh -c 'echo "$1"' sh {{x}}
printf '%s\n' {{x}} | grep -F -e {{x}}
echo {{x}} 2>/dev/null
""".strip().splitlines()
HOSTILE = [
    "$(touch pwned)",
    "'; touch pwned; '",
    '"; touch pwned; "',
    "`touch pwned`",
    "a\ntouch pwned",
    "*",
    "x -rf",
]


def vega(folder: Path, lines: list[str]) -> Toolset:
    """A toolset, and a folder with these lines as the files of tools."""
    folder.mkdir()
    for number, line in enumerate(lines):
        (folder / f"t{number:02}.yaml").write_text(
            LINE.format(name=f"t{number:02}", command=json.dumps(line))
        )
    return Toolset()


def test_a_tool_in_which_a_value_would_be_code_does_not_load(crib: Crib) -> None:
    crib.tool("count", "command", COUNT, SH)
    crib.tool("plain", "command", {"entrypoint": "sh", "args": ["-c", 'echo "$1"', "sh", "${c}"]}, SH)
    project = crib.open()
    assert [tool.name for tool in project.tools() if not tool.is_builtin] == ["plain"]
    (finding,) = (one for one in project.diagnostics if one.is_error)
    assert (finding.rule, finding.message) == ("code", FAULT)
    assert finding.path.endswith("count/tool.yml")
    for text in ("sh -c 'ls \"$1\"' sh ${c}", "allow_code: true"):
        assert text in (finding.hint or "")
    for approved_by in (None, "ann"):
        message = failed(crib.call("count", {"c": "hi"}, approved_by=approved_by), "invalid_manifest")
        assert FAULT in message


def test_it_stays_out_where_the_result_of_reading_comes_from_the_cache(crib: Crib) -> None:
    manifest = crib.tool("count", "command", COUNT, SH) / "tool.yml"
    while time.time_ns() - manifest.stat().st_ctime_ns < 150_000_000:  # a younger file is not put there
        pass
    for _ in range(3):
        assert "count" not in {tool.name for tool in crib.open().tools()}


def test_one_entry_of_a_folder_does_not_take_the_others_with_it(crib: Crib) -> None:
    for name, command in (("bad", "eval {{x}}"), ("good", "echo {{x}}")):
        crib.write(f"lines/{name}.yaml", LINE.format(name=name, command=json.dumps(command)))
    crib.write(".toolcrib/config.yml", "sources:\n- dir: lines\n")
    crib.trust()
    project = crib.open()
    names = {tool.name for tool in project.tools()}
    assert "good" in names
    assert "bad" not in names
    (error,) = (one for one in project.diagnostics if one.is_error)
    assert (error.rule, error.line) == ("code", 7)
    assert error.path.endswith("lines/bad.yaml")


def test_with_allow_code_it_loads_once_trusted(crib: Crib) -> None:
    crib.tool("count", "command", {**COUNT, "allow_code": True}, SH, outputs={"format": "text"})
    assert crib.call("count", {"c": "hi"}).unwrap() == "ran hi\n"

    async def ask() -> Result:
        async with crib.open() as project:
            return await project.invoke(Call("count", {"c": "hi"}, caller="mcp:agent"))

    crib.accept = "trusted"
    message = failed(asyncio.run(ask()), "approval_required")
    assert "nobody has trusted this tool" in message
    assert "code: values of a call may be run as code" in message


def test_no_hostile_line_loads(tmp_path: Path) -> None:
    for folder, rule, lines in (("refused", "shell", REFUSED), ("code", "code", CODE)):
        with pytest.raises(ManifestError) as caught:
            vega(tmp_path / folder, lines).load_directory(tmp_path / folder)
        errors = [one for one in caught.value.details["diagnostics"] if one["severity"] == "error"]
        assert [one["rule"] for one in errors] == [rule] * len(lines)
        assert all((one["line"], one["column"] > 12) == (7, True) for one in errors)
    assert len(REFUSED) + len(CODE) >= 55


@pytest.mark.timeout(60)
def test_every_value_of_an_ordinary_line_is_data(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / ".toolcrib/scratch").mkdir(parents=True)
    tools = vega(tmp_path / "data", DATA)
    names = tools.load_directory(tmp_path / "data", root=root, write=["."])
    for name, line in zip(names, DATA, strict=True):
        for value in HOSTILE:
            assert value in str(tools.call_sync(name, {"x": value}).unwrap()), (line, value)
    assert [path.name for path in root.iterdir()] == [".toolcrib"]
