"""`sources` of a project: files and folders of every format, and what their tools may touch."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.crib import Crib, failed
from toolcrib import Context, Project, Toolset
from toolcrib.errors import UsageError
from toolcrib.project import find, load_config
from toolcrib.project.authoring.lint import lint_sources, project_findings
from toolcrib.spec import Call, CallEvent

pytestmark = pytest.mark.usefixtures("kernel")
DATA = Path(__file__).parents[3] / "data" / "dialects"
PACK = """\
apiVersion: sympozium.ai/v1alpha1
kind: SkillPack
metadata: {name: files}
spec:
  sidecar:
    tools:
      - name: keep
        description: Keep a word
        parameters: {type: object, required: [word], properties: {word: {type: string, description: It}}}
        command: [tee, -a, "out/words", "${word}"]
"""
VEGA = """\
name: look
description: Look at it
params:
  - {name: path, type: string, required: true, description: Where}
implementation: {type: file_read, path: "{{path}}"}
"""
RECORD = {
    "slug": "weather", "version": "v1", "description": "Weather", "type": "go",
    "impl": {"goFunc": "a/b.Weather"},
    "argSchema": {"type": "object", "properties": {"city": {"type": "string", "description": "C"}}},
}  # fmt: skip


def weather(city: str) -> str:
    """Weather of a city."""
    return f"sunny in {city}"


def sources(crib: Crib, *entries: dict[str, Any], **more: Any) -> None:
    crib.write(".toolcrib/config.yml", json.dumps({"sources": entries, **more}))


def names(crib: Crib) -> list[str]:
    opened = crib.open()
    found = [tool.name for tool in opened.tools()]
    assert [finding.render() for finding in opened.diagnostics if finding.is_error] == []
    return found


FILES: dict[str, tuple[str, str, str, dict[str, Any], Any]] = {
    "vega": ("look.yaml", VEGA, "look", {"path": "notes.txt"}, "noted"),
    "flexigpt": ("weather.json", json.dumps(RECORD), "weather", {"city": "Bern"}, "sunny in Bern"),
    "sympozium": ("pack.yaml", PACK, "keep", {"word": "out/new"}, ""),
    "skill": ("forms/SKILL.md", (DATA / "pdf-forms/SKILL.md").read_text().replace("pdf-forms", "forms"),
              "forms", {}, None),
}  # fmt: skip
"""By format: a file, what is in it, its tool, arguments for it, and what comes of it."""


@pytest.mark.parametrize("how", ["file", "file, format said", "dir"])
@pytest.mark.parametrize("dialect", FILES)
async def test_a_file_of_every_format_is_a_source(crib: Crib, dialect: str, how: str) -> None:
    name, text, tool, arguments, value = FILES[dialect]
    crib.write(f"more/{name}", text)
    crib.write("notes.txt", "noted")
    crib.write("out/words", "")
    entry: dict[str, Any] = {"dir": "more"} if how == "dir" else {"file": f"more/{name}"}
    if how != "file" and (how != "dir" or dialect != "vega"):
        entry["dialect"] = dialect
    sources(crib, {**entry, "permissions": {"fs": {"read": ["."], "write": ["out"]}}})
    assert tool in names(crib)
    async with crib.open() as project:
        project.functions.register("Weather", weather)
        result = (await project.call(tool, arguments)).unwrap()
        assert project.fingerprint(project.get(tool)).digest
    assert result == value if value is not None else "fields.md" in result


async def test_a_function_that_a_manifest_names_reports_to_the_caller_of_the_tool(crib: Crib) -> None:
    name, text, tool, arguments, _ = FILES["flexigpt"]
    crib.write(f"more/{name}", text)
    sources(crib, {"file": f"more/{name}", "dialect": "flexigpt"})

    def reporting(ctx: Context, city: str) -> str:
        ctx.progress(1, 2, "looking")
        ctx.chunk("warm")
        return weather(city)

    async with crib.open() as project:
        project.functions.register("Weather", reporting)
        stream = project.stream(tool, arguments)
        events = [event async for event in stream if isinstance(event, CallEvent)]
    assert [(event.kind, event.message or event.text) for event in events[1:-1]] == [
        ("progress", "looking"),
        ("chunk", "warm"),
    ]


async def test_a_manifest_borrows_no_tool_that_asks_or_comes_from_a_manifest(crib: Crib) -> None:
    name, text, tool, arguments, _ = FILES["flexigpt"]
    crib.write(f"more/{name}", text)
    crib.shell("Weather2", config={"args": ["-c", "touch ran"]}, permissions={"fs": {"write": ["."]}})
    crib.write("more/other.json", text.replace("a/b.Weather", "Weather2").replace('"weather"', '"other"'))
    sources(crib, *({"file": f"more/{one}", "dialect": "flexigpt"} for one in (name, "other.json")))
    async with crib.open() as project:
        project.toolset.register("Weather", weather, approval="it is dear")
        for borrowing in (tool, "other"):
            failed(await project.call(borrowing, arguments), "tool_unavailable")
    assert not (crib.root / "ran").exists()


def test_a_command_touches_what_its_source_was_granted_and_no_more(crib: Crib) -> None:
    crib.write("pack.yaml", PACK)
    crib.write("out/words", "")
    sources(crib, {"file": "pack.yaml"})
    failed(crib.call("keep", {"word": "out/new"}), "permission_denied")
    sources(crib, {"file": "pack.yaml", "permissions": {"fs": {"read": ["."], "write": ["out"]}}})
    assert crib.call("keep", {"word": "out/new"}).ok
    assert not crib.call("keep", {"word": "elsewhere"}).ok
    assert [(crib.root / name).exists() for name in ("out/new", "elsewhere")] == [True, False]


def test_what_lies_beside_a_file_is_no_part_of_its_tools(crib: Crib) -> None:
    crib.write("more/weather.json", json.dumps(RECORD))
    crib.write("more/look.yaml", VEGA)
    sources(crib, {"file": "more/weather.json"}, {"dir": "more"})

    def digests() -> dict[str, str]:
        opened = crib.open()
        return {name: opened.fingerprint(opened.get(name)).digest for name in ("weather", "look")}

    before = digests()
    crib.write("more/other.txt", "other")
    assert digests() == before
    crib.write("more/look.yaml", VEGA.replace("Look at it", "Look"))
    after = digests()
    assert (after["weather"], after["look"] == before["look"]) == (before["weather"], False)


@pytest.mark.parametrize("key", ["dir", "file"])
def test_a_source_outside_of_the_project_waits_for_trust(crib: Crib, tmp_path: Path, key: str) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "look.yaml").write_text(VEGA)
    place = str(outside if key == "dir" else outside / "look.yaml")
    for written in (place, f"../outside{'' if key == 'dir' else '/look.yaml'}"):
        sources(crib, {key: written})
        assert [waiting.name for waiting in crib.open().waiting] == ["sources"]
        assert names(crib) == []
        crib.trust()
        assert names(crib) == ["look"]
    (crib.root / "link").symlink_to(place)
    sources(crib, {key: "link"})
    linked = crib.open()
    assert (linked.tools(), linked.waiting) == ([], [])
    assert "symbolic link takes this" in linked.diagnostics[0].message


def test_one_bad_source_hides_no_other_and_lint_tells_it(crib: Crib) -> None:
    crib.write("look.yaml", VEGA)
    crib.write("weather.json", json.dumps({**RECORD, "slug": "we ather"}))
    crib.write(
        "pack.yaml", PACK + "        colour: red\n      - {name: bad, description: Bad, command: a | b}\n"
    )
    crib.write("again.yaml", VEGA)
    files = ("weather.json", "look.yaml", "gone.yaml", "pack.yaml", "again.yaml")
    sources(crib, *({"file": name} for name in files))
    assert [tool.name for tool in crib.open().tools()] == ["look", "keep"]
    place = find(crib.root)
    found = lint_sources(load_config(place.config), place)
    assert {(Path(one.path).name, one.rule) for one in found if one.is_error} == {
        ("weather.json", "dialect"), ("gone.yaml", "unreadable"), ("pack.yaml", "dialect"),
        ("again.yaml", "name"),
    }  # fmt: skip
    assert any("there is a tool named `look` already" in one.message for one in crib.open().diagnostics)
    assert [one.rule for one in found if not one.is_error] == ["unmapped"]


def test_lint_reports_tools_with_the_same_name_for_clients(crib: Crib) -> None:
    for name in ("say.it", "say_it"):
        crib.shell(name)
    crib.write("say.yaml", VEGA.replace("look", "say-it"))
    crib.write("again.yaml", VEGA.replace("look", "say-it"))
    sources(crib, {"file": "say.yaml"}, {"file": "again.yaml"})
    errors = [one for one in project_findings(find(crib.root)) if one.is_error]
    found = [(Path(one.path).parent.name, one.message) for one in errors]
    assert found == [
        ("say.it", "`say.it` and `say_it` have the same name for clients, `say_it`"),
        ("say_it", "`say_it` and `say.it` have the same name for clients, `say_it`"),
        (crib.root.name, "there is a tool named `say-it` already"),
    ]


def test_lint_knows_the_tools_in_other_formats_that_agents_and_workflows_name(crib: Crib) -> None:
    crib.write("look.yaml", VEGA)
    crib.write(".toolcrib/tools/guide/SKILL.md", "---\nname: guide\ndescription: d\n---\nRead it.\n")
    sources(crib, {"file": "look.yaml"})
    agent = "name: a\ndescription: d\nmodel: scripted\nscript: [text: x]\n"
    crib.write(".toolcrib/agents/a.yml", agent + "tools: [look, guide, web__get, shop/list@v1, lok]\n")
    steps = ("tool: guide", "tool: web__get", "tool: guid", "agent: a, prompt: x", "agent: b, prompt: x")
    lines = (f"  - {{id: s{at}, {step}}}\n" for at, step in enumerate((*steps, "workflow: non")))
    crib.write(".toolcrib/workflows/w.yml", "name: w\nsteps:\n" + "".join(lines))
    found = [one for one in project_findings(find(crib.root)) if one.rule in ("agent", "step-tool")]
    assert [(one.rule, one.severity, one.line, one.column, one.message) for one in found] == [
        ("agent", "warning", 5, 46, "there is no tool `lok`"),
        ("step-tool", "warning", 5, 20, "there is no tool `guid`"),
        ("step-tool", "warning", 7, 21, "there is no agent `b`"),
        ("step-tool", "warning", 8, 24, "there is no workflow `non`"),
    ]
    assert found[1].hint == "did you mean `guide`?"


def test_an_agent_waits_until_a_person_has_looked_at_a_source(crib: Crib) -> None:
    crib.accept = "trusted"
    crib.write("pack.yaml", PACK)
    crib.write("out/words", "")
    granted = {"network": {"allow": ["api.example.com"]}, "fs": {"read": ["."], "write": ["out"]}}
    sources(crib, {"file": "pack.yaml", "permissions": granted})

    async def once(project: Project) -> Any:
        return await project.invoke(Call("keep", {"word": "out/x"}, caller="mcp:agent"))

    async def both() -> list[Any]:
        async with crib.open() as project:
            first = await once(project)
            project.trust.trust(project.get("keep"), "ann")
            return [first, await once(project)]

    first, second = asyncio.run(both())
    assert "api.example.com" in failed(first, "approval_required")
    assert second.ok


async def test_a_toolset_alone_loads_folders_of_every_format(crib: Crib) -> None:
    crib.write("notes.txt", "noted")
    crib.write("out/words", "")
    tools = Toolset()
    tools.register("Weather", weather)
    for dialect, (name, text, tool, arguments, value) in FILES.items():
        crib.write(f"{dialect}/{name}", text)
        folder = crib.root / dialect
        loaded = tools.load_directory(folder, dialect=dialect, root=crib.root, write=["out"])
        assert tool in loaded
        result = (await tools.call(tool, arguments)).unwrap()
        assert result == value if value is not None else "fields.md" in result
    with pytest.raises(UsageError, match="unknown format 'openapi'"):
        tools.load_directory(crib.root, dialect="openapi")
