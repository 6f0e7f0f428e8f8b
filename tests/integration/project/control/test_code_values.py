"""A value that a program takes as code needs approval at every interface."""

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
REASON = "the value of `c` becomes code of `sh -c`"
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
ASKS = r"""
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
R -e {{x}}
pwsh -c {{x}}
mysql -e {{x}}
sqlite3 db {{x}}
awk {{x}} f
sed -e {{x}} f
find . -exec {{x}} +
rsync -e {{x}} a b
git -c core.pager={{x}} log
tar --checkpoint-action={{x}} -cf a b
ssh host {{x}}
sudo {{x}}
docker exec box {{x}}
echo {{x}} | sh
echo {{x}} | xargs rm
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


def test_a_value_in_the_code_of_a_command_asks_and_runs_after_approval(crib: Crib) -> None:
    folder = crib.tool("count", "command", COUNT, SH, outputs={"format": "text"})
    written = (folder / "tool.yml").read_bytes()
    project = crib.open()
    assert project.get("count").approval.reason == REASON
    assert REASON in failed(crib.call("count", {"c": "$(id)"}), "approval_required")
    assert crib.call("count", {"c": "hi"}, approved_by="ann").unwrap() == "ran hi\n"
    assert (folder / "tool.yml").read_bytes() == written


def test_it_asks_also_where_the_result_of_the_checks_comes_from_the_cache(crib: Crib) -> None:
    manifest = crib.tool("count", "command", COUNT, SH) / "tool.yml"
    while time.time_ns() - manifest.stat().st_ctime_ns < 150_000_000:  # a younger file is not put there
        pass
    for _ in range(3):
        found = {tool.name: tool.approval.reason for tool in crib.open().tools()}
        assert found["count"] == REASON


def test_allow_code_runs_without_approval_once_trusted(crib: Crib) -> None:
    crib.tool("count", "command", {**COUNT, "allow_code": True}, SH, outputs={"format": "text"})
    assert crib.call("count", {"c": "hi"}).unwrap() == "ran hi\n"

    async def ask() -> Result:
        async with crib.open() as project:
            return await project.invoke(Call("count", {"c": "hi"}, caller="mcp:agent"))

    crib.accept = "trusted"
    message = failed(asyncio.run(ask()), "approval_required")
    assert "nobody has trusted this tool" in message
    assert "code: values of a call may be run as code" in message


def test_every_hostile_line_is_refused_or_asks(tmp_path: Path) -> None:
    with pytest.raises(ManifestError) as caught:
        vega(tmp_path / "refused", REFUSED).load_directory(tmp_path / "refused")
    rules = [one["rule"] for one in caught.value.details["diagnostics"] if one["severity"] == "error"]
    assert rules == ["shell"] * len(REFUSED)
    tools = vega(tmp_path / "asks", ASKS)
    for name in tools.load_directory(tmp_path / "asks"):
        for value in HOSTILE[:2]:
            failed(tools.call_sync(name, {"x": value}), "approval_required")
    assert len(REFUSED) + len(ASKS) >= 60


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
