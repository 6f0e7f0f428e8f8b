"""`toolcrib list --member`: what a member of a team may use."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from tests.commands import run, text

TOOL = """\
name: {name}
description: A tool
params: []
implementation:
  type: exec
  command: echo {name}
"""


def toolcrib(root: Path, *args: str) -> subprocess.CompletedProcess[str]:
    return text(run(args, root))


def test_a_member_is_shown_their_tools_and_a_wrong_list_its_place(tmp_path: Path) -> None:
    (tmp_path / ".toolcrib").mkdir()
    (tmp_path / ".toolcrib/config.yml").write_text("sources: [{dir: tools}]\n")
    (tmp_path / "tools").mkdir()
    for name in ("read_file", "write_file", "exec"):
        (tmp_path / f"tools/{name}.yaml").write_text(TOOL.format(name=name))
    team = tmp_path / "team.yaml"
    team.write_text("members:\n  - name: Gary\n    skills:\n      - read_file\n      - exec\n")
    done = toolcrib(tmp_path, "list", "--member", "Gary", "--team", "team.yaml", "--json")
    assert [tool["name"] for tool in json.loads(done.stdout)["tools"]] == ["exec", "read_file"]
    assert toolcrib(tmp_path, "list", "--member", "Gary", "--json").stdout == done.stdout
    nobody = toolcrib(tmp_path, "list", "--member", "Mary")
    assert (nobody.returncode, "no member 'Mary'" in nobody.stderr) == (3, True)
    assert toolcrib(tmp_path, "list", "--member", "Gary", "--team", "none.yaml").returncode == 3
    team.write_text("agents:\n  reporter:\n    tools:\n      - send_email\n")
    done = toolcrib(tmp_path, "list", "--member", "reporter", "--json")
    assert [tool["name"] for tool in json.loads(done.stdout)["tools"]] == ["send_email"]
    assert "send_email" not in toolcrib(tmp_path, "list").stdout
    team.write_text("members:\n  - name: Gary\n    skills:\n      - read_fil\n")
    wrong = toolcrib(tmp_path, "list", "--member", "Gary")
    assert wrong.returncode == 4
    assert "team.yaml:4:9: error[team]" in wrong.stderr
    assert "did you mean `read_file`?" in wrong.stderr
    (tmp_path / "tools/bad.yaml").write_text(TOOL.format(name="bad").replace("echo", "eval {{x}} #"))
    lint = toolcrib(tmp_path, "lint")
    assert lint.returncode == 4
    assert "bad.yaml" in lint.stdout
    assert "`x` is not a parameter" in lint.stdout
