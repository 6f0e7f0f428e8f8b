"""Teams: members and agents, and the tools that they list."""

from __future__ import annotations

from pathlib import Path

import pytest

from toolcrib import Toolset, load_team
from toolcrib.errors import ManifestError, NotFoundError
from toolcrib.manifest import diagnostics_of
from toolcrib.manifest.dialects.registry import read_dialect, reread
from toolcrib.manifest.team import check_team, read_team

TEAM = """\
# team.yaml
members:
  - name: Gary
    role: Developer
    skills:  # Tool whitelist
      - read_file
      - write_file
      - exec
agents:
  reporter:
    model: claude-sonnet-4-20250514
    system: You compile and email daily summaries.
    tools:
      - send_email
"""


def test_the_printed_lists_are_read() -> None:
    team = read_team("team.yaml", TEAM.encode())
    assert team.member("Gary").skills == ("read_file", "write_file", "exec")
    assert (team.member("Gary").role, team.member("reporter").skills) == ("Developer", ("send_email",))
    assert team.member("reporter").more["model"] == "claude-sonnet-4-20250514"
    with pytest.raises(NotFoundError, match="no member 'gary'") as caught:
        team.member("gary")
    assert caught.value.hint == "Did you mean Gary?"


def test_a_toolset_is_cut_down_to_a_member() -> None:
    tools = Toolset()
    for name in ("read_file", "write_file", "exec", "send_email"):
        tools.register(name, lambda: None)
    team = read_team("team.yaml", TEAM.encode())
    assert check_team(team, tools.names) == []
    assert tools.filter(*team.member("Gary").skills).names == ["read_file", "write_file", "exec"]
    assert tools.filter(*read_team("t", b"members: [{name: A}]").member("A").skills).names == []


def test_a_program_reads_a_team_file(tmp_path: Path) -> None:
    (path := tmp_path / "team.yaml").write_text(TEAM)
    assert load_team(path).member("Gary").skills == ("read_file", "write_file", "exec")
    with pytest.raises(NotFoundError, match="there is no team file"):
        load_team(tmp_path / "none.yaml")
    path.write_text("members: [{skills: [a]}]\n")
    with pytest.raises(ManifestError):
        load_team(path)


def test_a_tool_that_there_is_not_is_reported_with_its_place_and_the_nearest() -> None:
    found = check_team(read_team("team.yaml", TEAM.encode()), ["read_file", "write_files", "exec"])
    assert [(f.line, f.column, f.rule, f.hint) for f in found] == [
        (7, 9, "team", "did you mean `write_files`?"),
        (14, 9, "team", "`toolcrib list` shows the tools that there are"),
    ]


@pytest.mark.parametrize(
    ("text", "rule", "expected"),
    [
        ("a: 1", "not-a-mapping", "`members:`"),
        ("members: {}", "wrong-type", "must be a list"),
        ("agents: []", "wrong-type", "must be a mapping"),
        ("members: [x]", "wrong-type", "must be a mapping"),
        ("members: [{skills: [a]}]", "missing-key", "`name`"),
        ("members: [{name: A, skills: a}]", "wrong-type", "skills` must be a list"),
        ("members: [{name: A, skils: [a]}]", "unknown-key", "`skils`"),
        ("members: [{name: A}, {name: A}]", "wrong-value", "twice"),
        ("members: [{name: A}]\nmembers: []", "yaml-duplicate-key", "twice"),
    ],
)
def test_what_is_no_team_is_refused(text: str, rule: str, expected: str) -> None:
    with pytest.raises(ManifestError) as caught:
        read_team("team.yaml", text.encode())
    (finding,) = diagnostics_of(caught.value)
    assert finding.rule == rule
    assert expected in finding.message


INLINE = """\
name: Demo
agents:
  worker:
    tools: [weather, folder]
tools:
  weather:
    name: weather
    description: The weather of a city
    params:
      - {name: city, type: string, required: true}
    implementation:
      type: http
      url: https://api.example.com/current
      query:
        {{if city}}
        q: "{{city}}"
        {{end}}
  # a comment between them
  folder:
    description: The files of a folder
    params:
      path: {type: string, required: true}
    implementation:
      type: exec
      command: ls {{path}}
  wrong:
    description: Has a fault
    params:
      q: {typ: string}
    implementation: {type: builtin, function: f}
  include: [more.yaml]
workflows: {}
"""


def test_tools_that_a_team_file_defines_itself_are_read_with_their_positions() -> None:
    loaded = read_dialect("demo.vega.yaml", INLINE.encode())
    assert [tool.name for tool in loaded.tools] == ["weather", "folder"]
    assert loaded.tools[1].input_schema["required"] == ["path"]
    document = reread(loaded.tools[1])
    assert document is not None
    assert document.locate(("inputs", "schema", "properties", "path")) == (22, 13)
    assert [(f.line, f.column, f.rule) for f in loaded.diagnostics] == [
        (29, 11, "unknown-key"),
        (31, 3, "dialect"),
    ]
    assert "team without tools" in read_dialect("t.yaml", b"members: [{name: A}]").diagnostics[0].message
