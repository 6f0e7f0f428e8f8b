"""Formats on the command line: lint, convert, lists for providers, the schema, examples as tests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from tests.commands import PROGRAM
from tests.crib import Crib
from tests.e2e.cli.test_cli import ENVIRONMENT, cli
from tests.integration.project.test_creation import api

CONVERT = ("import", "convert")
DATA = Path(__file__).parents[2] / "data" / "dialects"


def plain(crib: Crib, name: str = "hello", output: str = "hello ...\n", **more: Any) -> None:
    config = {"entrypoint": "printf", "args": ["hello %s\\n", "${who}"]}
    examples = [{"description": "Greet", "params": {"who": "Ann"}, "expected_output": output}]
    who = {"type": "string", "description": "Whom"}
    crib.tool(
        name, "command", config, {"who": who}, outputs={"format": "text"}, **{"examples": examples, **more}
    )


# -- convert ------------------------------------------------------------------------------------------


def test_convert_writes_the_tool_and_tells_no_loss_where_there_is_none(crib: Crib) -> None:
    done = cli(crib, *CONVERT, str(DATA / "tool.json"), "--to", "native")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("name: weather\n")
    same = cli(crib, *CONVERT, str(DATA / "tool.json"), "--to", "flexigpt")
    assert same.out.encode() == (DATA / "tool.json").read_bytes()


def test_convert_tells_what_is_lost(crib: Crib) -> None:
    crib.tool("ask", "function", {"reference": "m.f"}, approval={"required": True, "reason": "It is dear"})
    done = cli(crib, *CONVERT, ".toolcrib/tools/ask/tool.yml", "--to", "flexigpt")
    assert done.code == 0
    assert 'ask: $.approval: {"required": true, "reason": "It is dear"} is lost' in done.err
    report = cli(crib, *CONVERT, ".toolcrib/tools/ask/tool.yml", "--to", "flexigpt", "--json").document
    assert [loss["path"] for loss in report["tools"][0]["losses"]] == ["$.version", "$.approval"]


def test_convert_puts_several_tools_into_folders_and_overwrites_nothing(crib: Crib) -> None:
    words = (
        "import",
        "convert",
        str(DATA / "skillpack.yaml"),
        "--to",
        "native",
        "--output",
        ".toolcrib/tools",
    )
    assert cli(crib, *words[:-2]).code == 2
    assert cli(crib, *words).code == 0
    assert cli(crib, *words).code == 7
    names = [tool["name"] for tool in cli(crib, "list", "--json").document["tools"]]
    assert names == ["echo_words", "list_pods"]
    assert (
        cli(crib, *CONVERT, str(DATA / "skillpack.yaml"), "--to", "flexigpt", "--only", "list_pods").code == 4
    )
    assert cli(crib, *CONVERT, "gone.json", "--to", "native").code == 3
    assert cli(crib, *CONVERT, str(DATA / "tool.json"), "--to", "natve").code == 2


def test_convert_reads_vega_and_does_not_write_it(crib: Crib) -> None:
    vega = DATA.parent / "vega"
    for path in (vega / "conditions.yaml", DATA / "tool.json"):
        refused = cli(crib, *CONVERT, str(path), "--to", "vega")
        assert (refused.code, refused.out) == (2, "")
        assert "the format vega is read only" in refused.err
        assert "Formats that can be written: native, flexigpt, sympozium." in refused.err
    block = "{type: http, url: 'https://api.example.com/', query: {q: '{{q}}'}}"
    params = "params: [{name: q, type: string}]"
    crib.write("look.yaml", f"name: look\ndescription: d\n{params}\nimplementation: {block}\n")
    native = cli(crib, *CONVERT, "look.yaml", "--to", "native")
    assert (native.code, native.err) == (0, "")
    assert "q: ${q}" in native.out
    record = cli(crib, *CONVERT, "look.yaml", "--to", "flexigpt", "--json").document["tools"][0]
    assert json.loads(record["text"])["impl"]["urlTemplate"] == "https://api.example.com/?q=${q}"


def test_no_name_of_a_tool_leads_out_of_the_folder(crib: Crib) -> None:
    block = "{type: http, url: 'https://api.example.com/'}"
    crib.write("a/b/own.yaml", f"name: ../../own\ndescription: d\nparams: []\nimplementation: {block}\n")
    (crib.root / "a/b/out").mkdir()
    for target in ("native", "flexigpt"):
        assert cli(crib, *CONVERT, "a/b/own.yaml", "--to", target, "--output", "a/b/out").code == 4
    assert {path.name for path in (crib.root / "a").rglob("*")} == {"b", "own.yaml", "out"}


# -- lint ---------------------------------------------------------------------------------------------


def test_lint_speaks_to_a_github_workflow(crib: Crib) -> None:
    crib.write(
        ".toolcrib/tools/a,b/tool.yml", "name: a\ndescription: 100%\nkind: cmd\nversion: 1\nexec: {}\n"
    )
    done = cli(crib, "lint", "--format", "github")
    assert done.code == 4
    lines = done.out.splitlines()
    assert all(
        line.startswith(("::error file=.toolcrib/tools/a%2Cb/tool.yml,line=", "::warning ")) for line in lines
    )
    assert any(",line=3,col=7,title=wrong-value::" in line for line in lines)


def test_lint_reads_files_of_any_format(crib: Crib) -> None:
    assert cli(crib, "lint", *(str(DATA / name) for name in ("tool.json", "skillpack.yaml"))).code == 0
    text = (
        (DATA / "tool.json").read_text().replace('"slug"         : "weather"', '"slug"         : "we_ather"')
    )
    crib.write("bad.json", text)
    found = cli(crib, "lint", "bad.json", "--json").document
    assert [(one["line"], one["column"], one["rule"]) for one in found["diagnostics"]] == [(4, 22, "dialect")]
    assert cli(crib, "lint", "gone.json").code == 3
    (crib.root / "link.json").symlink_to("gone.json")
    assert cli(crib, "lint", "link.json").code == 3


HOSTILE: dict[str, bytes] = {
    "brackets": b"[" * 200_000,
    "braces": b'{"a":' * 200_000,
    "laughs": b"a: &a [x,x,x,x,x,x,x,x,x]\n"
    + b"".join(b"%c: &%c [%s]\n" % (c, c, b",".join([b"*%c" % (c - 1)] * 9)) for c in range(98, 110)),
    "deep": b"".join(b" " * at + b"a:\n" for at in range(1200)),
    "scalar": b"name: " + b"x" * 1_000_000,
    "quoted": b'name: "' + b"\\n" * 500_000 + b'"',
    "mark": b"\xef\xbb\xbfname: x\n",
    "windows": b"name: x\r\nkind: y\r\n",
    "tabs": b"name:\n\tx: 1\n",
    "documents": b"name: a\n---\nname: b\n",
    "norway": b"name: no\ndescription: on\nkind: off\nversion: 1\nexec: {}\n",
    "date": b"name: 2024-01-01\ndescription: 2024-01-01T00:00:00Z\nkind: x\nversion: 1.0\nexec: {}\n",
    "python": b"name: !!python/object/apply:os.system ['touch pwned']\n",
    "bytes": b"name: \xff\xfe\n",
    "utf16": "name: x\n".encode("utf-16"),
    "nul": b"name: \x00\n",
    "keys": b"".join(b"k%d: 1\n" % at for at in range(50_000)),
    "items": b"x:\n" + b"- 1\n" * 100_000,
    "anchors": b"".join(b"a%d: &a%d x\n" % (at, at) for at in range(20_000)),
    "merge": b"a: &a {b: 1}\nc: {<<: *a}\n",
    "colons": b": " * 300_000,
    "dashes": b"- " * 300_000,
    "question": b"? " * 300_000,
    "huge": b"x" * (2 << 20),
}  # fmt: skip


# A child starts with the peak memory of the process that forked it: a small process must start the program.
MEASURED = """
import resource, subprocess, sys
code = subprocess.run(sys.argv[1:]).returncode
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(used.ru_utime + used.ru_stime, used.ru_maxrss, file=sys.stderr)
sys.exit(code)
"""


@pytest.mark.parametrize("file", ["tool.yml", "tool.json", "SKILL.md"])
def test_hostile_files_are_errors_in_bounded_time_and_memory(crib: Crib, file: str) -> None:
    framed = {name: b"---\n" + raw + b"\n---\n" for name, raw in HOSTILE.items()}
    contents = framed if file == "SKILL.md" else HOSTILE
    paths = [str(crib.write(f"{name}/{file}", raw)) for name, raw in contents.items()]
    lint = [sys.executable, "-c", MEASURED, PROGRAM, "lint", "--json", *paths]
    done = subprocess.run(lint, cwd=crib.root, env=ENVIRONMENT, capture_output=True, check=False)
    assert done.returncode == 4, done.stderr[-300:]
    found = json.loads(done.stdout)["diagnostics"]
    wrong = {Path(one["path"]).parent.name for one in found if one["severity"] == "error"}
    assert wrong == set(HOSTILE)
    cpu_s, peak_kb = map(float, done.stderr.split()[-2:])
    assert cpu_s < 60
    assert peak_kb < 700 * 1024  # all of them, one after the other
    assert not (crib.root / "pwned").exists()


@pytest.mark.parametrize("file", ["tool.yml", "tool.json", "SKILL.md"])
def test_pipes_and_links_in_circles_are_findings(crib: Crib, file: str) -> None:
    folder = crib.root / ".toolcrib/tools"
    for name in ("pipe", "loop", "folder"):
        (folder / name).mkdir()
    os.mkfifo(folder / "pipe" / file)
    (folder / "loop" / file).symlink_to(file)
    (folder / "folder" / file).mkdir()
    plain(crib)
    found = cli(crib, "lint", "--json")
    assert found.code == 4
    assert {Path(one["path"]).parent.name for one in found.document["diagnostics"]} >= {
        "pipe",
        "loop",
        "folder",
    }
    assert [tool["name"] for tool in cli(crib, "list", "--json").document["tools"]] == ["hello"]


# -- schema and editors -------------------------------------------------------------------------------


def test_the_schema_of_manifests_is_printed_and_is_what_lint_uses(crib: Crib) -> None:
    schema = cli(crib, "lint", "--schema", "manifest").document
    check = jsonschema_rs.Draft202012Validator(schema)
    assert check.is_valid({"name": "a", "description": "A", "kind": "command", "version": 1,
                           "exec": {"command": {"entrypoint": "ls"}}})  # fmt: skip
    assert not check.is_valid({"name": "a"})


def test_new_manifests_name_the_schema_beside_them(tmp_path: Path) -> None:
    venv.create(tmp_path / ".venv", symlinks=True)  # One with pip takes seconds.
    words = [PROGRAM, "init", "--examples"]
    subprocess.run(words, cwd=tmp_path, env=ENVIRONMENT, capture_output=True, check=True)
    for manifest in (tmp_path / ".toolcrib/tools").glob("*/tool.yml"):
        first = manifest.read_text().splitlines()[0]
        prefix, _, reference = first.partition("$schema=")
        assert prefix == "# yaml-language-server: "
        assert json.loads((manifest.parent / reference).read_text())["title"] == "Toolcrib tool manifest"


# -- lists for providers ------------------------------------------------------------------------------


def test_tools_are_listed_as_each_provider_takes_them(crib: Crib) -> None:
    plain(crib, "say.hello")
    crib.tool("any", "command", {"entrypoint": "ls"}, {"value": {}})
    for shape in ("mcp", "anthropic", "openai", "gemini"):
        done = cli(crib, "list", "--for", shape)
        names = [one.get("name") or one["function"]["name"] for one in done.document]
        assert (names, done.err) == (["any", "say_hello"], "")
    strict = cli(crib, "list", "--for", "openai-strict", "--json")
    assert [one["function"]["name"] for one in strict.document] == ["say_hello"]
    assert "any is left out: $.value takes a value of any type" in strict.err


def test_leniency_is_a_setting(crib: Crib) -> None:
    crib.tool("n", "function", {"reference": "f"}, {"n": {"type": "integer"}})
    assert cli(crib, "run", "n", "n:=12", "--json").document["error"]["code"] == "tool_unavailable"
    refused = cli(crib, "run", "n", 'n:="12"', "--json")
    assert refused.document["error"]["code"] == "invalid_input"
    crib.write(".toolcrib/config.yml", "inputs: {lenient: true}\n")
    assert cli(crib, "run", "n", 'n:="12"', "--json").document["error"]["code"] == "tool_unavailable"


# -- examples as tests --------------------------------------------------------------------------------


@pytest.mark.usefixtures("kernel")
def test_examples_are_run_and_compared(crib: Crib) -> None:
    plain(crib, "right")
    plain(crib, "wrong", "hello Bob")
    plain(crib, "asks", approval={"required": True, "reason": "It is dear"})
    plain(crib, "none", examples=[])
    crib.tool("web", "http", {"url": "https://api.example.com/"}, examples=[{"params": {}}],
              permissions={"network": {"allow": ["api.example.com"]}})  # fmt: skip
    done = cli(crib, "test", "--json")
    assert done.code == 1
    found = {one["tool"]: one for one in done.document["examples"]}
    assert {name: one["outcome"] for name, one in found.items()} == {
        "asks": "skipped", "right": "passed", "web": "skipped", "wrong": "failed"}  # fmt: skip
    assert "expected: hello Bob\ngot:      hello Ann" in found["wrong"]["problem"]
    assert "It is dear" in found["asks"]["problem"]
    assert "--live" in found["web"]["problem"]
    told = cli(crib, "test", "right")
    assert (told.code, told.out) == (0, "ok      right[0] Greet\n")
    assert cli(crib, "test", "gone").code == 3

    crib.write(".toolcrib/tools/broken/tool.yml", "- a\n")
    (crib.root / ".toolcrib/tools/wrong/tool.yml").unlink()
    told = cli(crib, "test")
    assert told.code == 4
    assert "broken/tool.yml:1:1: error[not-a-mapping]" in told.err
    assert [one["rule"] for one in cli(crib, "test", "--json").document["diagnostics"]] == ["not-a-mapping"]
    assert cli(crib, "test", "right").code == 0  # only what is named


def test_the_answers_of_http_tools_are_recorded_and_replayed_without_the_server(crib: Crib) -> None:
    tape, secret = str(crib.root / "tape.json"), {"WEATHER_KEY": "very-secret-value"}
    with api() as (port, asked):
        host = f"127.0.0.1:{port}"
        crib.tool(
            "weather",
            "http",
            {"url": f"http://{host}/v1", "query": {"key": "${WEATHER_KEY}"}},
            permissions={
                "network": {"allow": [host]},
                "secrets": {"WEATHER_KEY": {"type": "string", "required": True}},
            },
            examples=[{"params": {}, "expected_output": '{"celsius": 21}'}],
        )
        skipped = cli(crib, "test", env=secret)
        assert "skipped weather[0]" in skipped.out, skipped.err
        assert cli(crib, "test", "--replay", tape, env=secret).code == 3
        assert cli(crib, "test", "--record", tape, env=secret).code == 0
    assert asked == [("/v1?key=very-secret-value", None)]
    assert "very-secret-value" not in Path(tape).read_text()
    replayed = cli(crib, "test", "--replay", tape, env=secret)
    assert (replayed.code, replayed.out, len(asked)) == (0, "ok      weather[0]\n", 1)
    without = cli(crib, "test", "--replay", tape)
    assert (without.code, without.out, len(asked)) == (0, "ok      weather[0]\n", 1)
    lacking = cli(crib, "test", "--live")
    assert (lacking.code, lacking.out) == (0, "skipped weather[0]\n")
    assert "Secret WEATHER_KEY is not set" in lacking.err
    assert cli(crib, "test", "--record", "a", "--replay", "b").code == 2


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("home", [".toolcrib", ".glee"])
def test_the_examples_of_a_new_project_hold_also_when_it_is_used(tmp_path: Path, home: str) -> None:
    crib = Crib(tmp_path / "new", home)
    assert cli(crib, "init", "--examples").code == 0
    crib.write(".env", "PASSWORD=4711")
    assert cli(crib, "run", "web_search", "query=x", "--wait", "pending").code == 5
    assert (crib.home / "state.db").exists()
    crib.write("notes.txt", "TODO: oil the lathe\n")
    assert "./notes.txt:1:TODO" in cli(crib, "run", "repo_scan").out
    done = cli(crib, "test")
    assert (done.code, done.out.count("ok "), "0 failed" in done.err) == (0, 2, True)
    gone = cli(crib, "run", "repo_scan", "path=gone")
    assert gone.code == 1
    assert "gone cannot be read" in gone.err


@pytest.mark.usefixtures("kernel")
def test_tools_of_other_formats_run_from_their_own_files(crib: Crib) -> None:
    skill = crib.home / "tools/pdf-forms"
    skill.mkdir()
    (skill / "SKILL.md").write_bytes((DATA / "pdf-forms/SKILL.md").read_bytes())
    (skill / "references").mkdir()
    (skill / "references/fields.md").write_text("Fields.")
    cli(crib, "trust", "--yes")
    said = cli(crib, "run", "pdf-forms", "--json").document
    assert "Read `references/fields.md` first." in said["value"]
    inside = "file=.toolcrib/tools/pdf-forms/references/fields.md"
    assert cli(crib, "run", "pdf-forms", inside, "--json").document["value"] == "Fields."
    crib.write("references/fields.md", "Of the project.")
    own = cli(crib, "run", "pdf-forms", "file=references/fields.md", "--json").document
    assert own["value"] == "Fields."
    outside = cli(crib, "run", "pdf-forms", "file=.toolcrib/tools/pdf-forms/../../config.yml", "--json")
    assert outside.document["error"]["code"] in ("invalid_input", "permission_denied")


@pytest.mark.usefixtures("kernel")
def test_converted_tools_run(crib: Crib) -> None:
    pack = str(DATA / "skillpack.yaml")
    done = cli(crib, *CONVERT, pack, "--to", "native", "--output", ".toolcrib/tools")
    assert done.code == 0
    words = ("first=a b; $(x)", "second=%s", "--json")
    assert cli(crib, "run", "echo_words", *words).document["value"] == "a b; $(x)|%s"
