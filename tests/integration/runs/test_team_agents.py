"""The agents of a team file's map `agents:`, as Vega has them: found, trusted one by one, and run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.crib import Crib
from tests.model_servers import Turn, model_server
from toolcrib.errors import ApprovalRequired, ManifestError, NotFoundError
from toolcrib.project import find
from toolcrib.project.authoring.lint import project_findings

pytestmark = pytest.mark.xdist_group("models")

PRINTED = Path(__file__).parents[2] / "data" / "printed" / "vega" / "agents.yaml"
SCRIPTED = """\
agents:
  greeter:
    role: Greets people
    model: scripted
    script: [{calls: [{tool: greet, arguments: {name: Ada}}]}, {text: "It said {{result}}"}]
    tools: [greet]
  lists_only: {tools: [greet]}
tools:
  greet:
    description: Greet somebody
    params:
      name: {type: string, required: true, description: Whom to greet}
      loud: {type: boolean, description: In capital letters}
    implementation:
      type: exec
      command: |
        {{if loud}}printf 'HELLO %s' {{name}}{{else}}printf 'Hello %s' {{name}}{{end}}
"""


# The client of Anthropic warns of a model that they will switch off; tests make errors of warnings.
@pytest.mark.filterwarnings("ignore:The model .* is deprecated:DeprecationWarning")
async def test_the_printed_agent_runs_as_it_stands(crib: Crib) -> None:
    crib.write("team.yaml", PRINTED.read_bytes())
    with model_server(Turn("Nothing happened today.")) as server:
        provider = {"api": "anthropic", "base_url": server.url, "key": "FAKE_KEY"}
        crib.write(".toolcrib/config.yml", json.dumps({"models": {"providers": {"anthropic": provider}}}))
        crib.trust()
        crib.secrets["FAKE_KEY"] = "sk-1234567890"
        async with crib.open() as project:
            assert (await project.runs.run(None, "reporter", "Go")).answer == "Nothing happened today."
    (request,) = server.requests
    assert request["model"] == "claude-sonnet-4-20250514"
    assert "You compile and email daily summaries." in json.dumps(request["system"])
    assert [tool["name"] for tool in request["tools"]] == ["send_email"]


async def test_a_file_of_tools_and_agents_is_both(crib: Crib) -> None:
    """Agents of a source run with the tools of the same file; an entry without a model is only a list."""
    crib.write("demo.vega.yaml", SCRIPTED)
    crib.write(".toolcrib/config.yml", "sources: [{file: demo.vega.yaml}]\n")
    crib.trust()
    async with crib.open() as project:
        assert list(project.agents.all()) == ["greeter"]
        assert project.agents.find("greeter").description == "Greets people"
        assert (await project.runs.run(None, "greeter", "Go")).answer == "It said Hello Ada"
    assert project_findings(find(crib.root)) == []


def test_each_agent_of_a_file_is_trusted_by_itself(crib: Crib) -> None:
    crib.accept = "trusted"
    text = "agents:\n  one: {model: claude-x, system: Be brief}\n  two: {model: gpt-y, system: Be kind}\n"
    file = crib.write("team.yaml", text)
    project = crib.open()
    with pytest.raises(ApprovalRequired, match="network: the models of anthropic"):
        project.agents.get("one")
    project.trust.accept("ann", [one for one in project.trust.sheets()[0] if one.waits])
    assert (project.agents.get("one").model, project.agents.get("two").model) == (
        "anthropic:claude-x",
        "openai:gpt-y",
    )
    file.write_text(text.replace("Be kind", "Be rude"))
    assert project.agents.get("one").instructions == "Be brief"
    with pytest.raises(ApprovalRequired, match="the agent two is not what ann trusted"):
        project.agents.get("two")


def test_what_is_wrong_is_reported_at_its_place(crib: Crib) -> None:
    own = {"name": "one", "model": "scripted", "script": [{"text": "ok"}]}
    crib.write(".toolcrib/agents/one.yml", json.dumps(own))
    crib.write(
        "team.yaml",
        "agents:\n  two: {model: llama}\n  three:\n    model: gpt-y\n    temperatur: 1\n",
    )
    places = {(one.line, one.column): one.message for one in project_findings(find(crib.root))}
    assert places[2, 16] == "`model` must be PROVIDER:MODEL or `scripted`"
    assert "temperatur" in places[5, 5]
    project = crib.open()
    with pytest.raises(ManifestError, match="must be PROVIDER:MODEL"):
        project.agents.find("two")
    crib.write("team.yaml", "agents:\n  one: {model: claude-x}\n  four: {model: gpt-y, tools: [nothing]}\n")
    found = project_findings(find(crib.root))
    assert [(one.line, one.message.partition(" in ")[0]) for one in found] == [
        (2, "there is an agent `one`"),
        (3, "there is no tool `nothing`"),
    ]
    assert project.agents.find("one").model == "scripted"
    with pytest.raises(NotFoundError, match="no agent named 'five'"):
        project.agents.find("five")
