"""The docs agree with the code: everything that exists is documented, and everything documented exists.

tests/unit/manifest/native/test_schema.py checks the fields of manifests and the rules of lint.
"""

from __future__ import annotations

import ast
import datetime
import decimal
import inspect
import json
import re
import tomllib
import typing
import uuid
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import click
import pytest
from pydantic import Field

import toolcrib
from scripts import make_docs
from toolcrib import errors
from toolcrib.cli.group import COMMANDS
from toolcrib.cli.group import toolcrib as program
from toolcrib.core.bound import Options
from toolcrib.executors.function.threads import MAX_THREADS
from toolcrib.project.config.settings import KEYS, Config, load_config
from toolcrib.schema.derive import inspect_function

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = make_docs.pages()
ROW = re.compile(r"^\| (.+?) \|", re.MULTILINE)
CODE = re.compile(r"`([^`]+)`")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
EVENT = re.compile(
    r"(?:AGENT|APPROVAL|AUDIT|BUNDLE|MCP_SERVER|POLICY|PROJECT|SANDBOX|SECRET|TOOL|TRUST)_[A-Z]+|TRUSTED"
)
COMMAND = re.compile(r"(?:`|^(?:\$ )?)toolcrib ([a-z][^`\n]*(?:\n[^`\n]+)?`|[a-z].*)", re.MULTILINE)
FENCED = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
TYPE_ROW = re.compile(r"^\| `(.+?)` \| `(\{.*\})` \|$", re.MULTILINE)
ANNOTATIONS = {
    **vars(typing),
    "Field": Field,
    "Path": Path,
    "Sequence": Sequence,
    "UUID": uuid.UUID,
    "Decimal": decimal.Decimal,
    "date": datetime.date,
    "datetime": datetime.datetime,
    "time": datetime.time,
    "timedelta": datetime.timedelta,
}


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def section(text: str, heading: str) -> str:
    """Return the text of a page from a heading to the next of its level or above."""
    level = heading.split(" ", maxsplit=1)[0]
    found = re.search(
        rf"^{re.escape(heading)}\n(.*?)(?=^#{{1,{len(level)}}} |\Z)", text, re.DOTALL | re.MULTILINE
    )
    assert found is not None, heading
    return found[1]


def first_cells(text: str) -> list[str]:
    """Return the code in the first column of a table's rows."""
    return [name for cell in ROW.findall(text) for name in CODE.findall(cell)]


@pytest.mark.timeout(120)
def test_the_generated_parts_are_up_to_date() -> None:
    assert [page.name for page in make_docs.outdated()] == [], "run `make docs`"


def test_every_generated_part_is_on_a_page() -> None:
    everything = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    assert {name for _, name, _ in make_docs.PART.findall(everything)} == set(make_docs.PARTS)


def test_every_command_and_option_is_documented() -> None:
    page = text_of("docs/cli.md")
    top = click.Context(program, info_name="toolcrib")
    for name in COMMANDS:
        command = program.get_command(top, name)
        assert command is not None
        parts = {f"### toolcrib {name}": command}
        if isinstance(command, click.Group):
            parts |= {f"#### toolcrib {name} {part}": inner for part, inner in command.commands.items()}
        for heading, one in parts.items():
            text = section(page, heading)
            for parameter in one.params:
                option = isinstance(parameter, click.Option)
                for word in parameter.opts if option else [parameter.make_metavar(top)]:
                    assert word.strip("[].") in text, f"{heading} {word}"


def test_every_command_that_a_page_names_exists() -> None:
    texts = [page.read_text(encoding="utf-8") for page in PAGES]
    for words in (line.rstrip("`").split() for text in texts for line in COMMAND.findall(text)):
        top = click.Context(program, info_name="toolcrib")
        command = program.get_command(top, words[0])
        if words[0] == "help":
            continue
        assert command is not None, words
        if isinstance(command, click.Group) and len(words) > 1 and words[1].isalpha() and words[1].islower():
            assert words[1] in command.commands, words
            command = command.commands[words[1]]
        if command.context_settings.get("ignore_unknown_options"):
            continue
        known = {"--help", "--root", *(name for one in command.params for name in one.opts)}
        parts = command.commands.values() if isinstance(command, click.Group) else ()
        known |= {name for part in parts for one in part.params for name in one.opts}
        own = words[: words.index("--")] if "--" in words else words
        assert {word.partition("=")[0] for word in own if re.match(r"--\w", word)} <= known, words


def test_exactly_the_settings_are_documented() -> None:
    assert sorted(first_cells(section(text_of("docs/project.md"), "## Settings"))) == sorted(KEYS)
    settings = [one.metadata["setting"] for one in fields(Config) if "setting" in one.metadata]
    waiting = {one.key for one in settings if one.weakens is not None} | {".mcp.json"}
    assert set(first_cells(section(text_of("docs/security.md"), "### Settings"))) == waiting


def known_below(folder: Path, settings: dict[str, Any]) -> set[str] | None:
    """Return the keys that are known where `settings` have the key `?`; None where no mapping belongs."""
    (folder / "config.yml").write_text(json.dumps(settings))
    with pytest.raises(errors.ConfigError) as caught:
        load_config(folder / "config.yml")
    (finding,) = caught.value.details["diagnostics"]
    known = re.search("known here: (.*)", finding["hint"] or finding["message"])
    return set(known[1].split(", ")) if finding["rule"] == "unknown-key" and known else None


def test_the_documented_settings_are_those_that_are_read(tmp_path: Path) -> None:
    blocks = known_below(tmp_path, {"?": 0})
    assert blocks is not None
    found = set()
    for block in blocks:
        below = known_below(tmp_path, {block: {"?": 0}})
        found |= {block} if below is None else {f"{block}.{key}" for key in below}
    assert found == set(KEYS)


def test_every_key_of_an_entry_is_documented(tmp_path: Path) -> None:
    rule = known_below(tmp_path, {"policy": {"rules": [{"?": 0}]}})
    assert set(first_cells(section(text_of("docs/security.md"), "### Rules"))) == rule

    table = section(FENCED.sub("", text_of("docs/secrets.md")), "## Sources")
    kinds = known_below(tmp_path, {"secrets": {"sources": [{"?": 0}]}})
    assert kinds is not None
    documented = dict(re.findall(r"^\| `(\w+)` \|(.*?) \|", table, re.MULTILINE))
    assert set(documented) == kinds
    for kind in kinds - {"env"}:
        options = known_below(tmp_path, {"secrets": {"sources": [{kind: {"?": 0}}]}})
        assert set(CODE.findall(documented[kind])) == options, kind

    (tmp_path / "config.yml").write_text("mcp_servers: {a: {'?': 0}}")
    with pytest.raises(errors.ConfigError, match="known: ") as caught:
        load_config(tmp_path / "config.yml")
    (finding,) = caught.value.details["diagnostics"]
    fields = first_cells(section(text_of("docs/manifest.md"), "### MCP servers"))
    documented_keys = {field.rpartition(".")[2] for field in fields}
    assert set(finding["message"].partition("known: ")[2].split(", ")) <= documented_keys

    row = re.search(r"^\| `sources` .*$", text_of("docs/project.md"), re.MULTILINE)
    below = known_below(tmp_path, {"sources": [{"?": 0}]})
    assert row is not None
    assert below is not None
    assert below <= set(CODE.findall(row[0]))


def test_every_variable_of_the_environment_is_documented() -> None:
    source = "".join(path.read_text(encoding="utf-8") for path in make_docs.SOURCE.rglob("*.py"))
    read = set(re.findall(r'"((?:TOOLCRIB|XDG)_[A-Z]+_?[A-Z]*|NO_COLOR)"', source))
    documented = first_cells(section(text_of("docs/cli.md"), "## Environment variables"))
    assert set(documented) == read


def test_every_event_of_the_audit_log_is_documented() -> None:
    names = {
        node.value
        for package in ("cli", "executors", "guard", "project", "serve")
        for path in (make_docs.SOURCE / package).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and EVENT.fullmatch(node.value)
    }
    assert sorted(first_cells(section(text_of("docs/audit.md"), "## Events"))) == sorted(names)


def test_every_error_code_is_documented_once() -> None:
    codes = [kind.code for kind in make_docs.error_classes()]
    rows = re.findall(
        r"^\| `(\w+)` \| `\w+` \| \d", section(text_of("docs/errors.md"), "## All codes"), re.MULTILINE
    )
    assert sorted(rows) == sorted(set(codes))


def test_every_exit_code_is_described() -> None:
    text = section(text_of("docs/cli.md"), "## Exit codes")
    for kind in make_docs.error_classes():
        assert re.search(rf"(?<!\d){kind.exit_code} [a-z]", text), kind.exit_code


def test_every_public_name_is_documented_and_used() -> None:
    page = text_of("docs/python.md")
    for name in toolcrib.__all__:
        assert re.search(rf"`[^`\n]*\b{name}\b", FENCED.sub("", page)), f"{name} is not documented"
        assert re.search(rf"\b{name}\b", "".join(FENCED.findall(page))), f"{name} is in no block that runs"


def test_every_option_of_registration_is_documented() -> None:
    table = section(text_of("docs/python.md"), "## Make a tool from a function")
    options = inspect.signature(Options).parameters
    assert [cell for cell in first_cells(table) if cell in options] == list(options)


def test_every_field_of_retry_is_documented() -> None:
    table = section(text_of("docs/python.md"), "## Errors and retries").partition("| `Retry` |")[2]
    assert first_cells(table) == [field.name for field in fields(toolcrib.Retry)]


def test_every_signal_is_documented() -> None:
    text = section(text_of("docs/python.md"), "## Errors and retries")
    for signal in errors.ToolSignal.__subclasses__():
        assert f"`{signal.__name__}(" in text


def test_the_table_of_types_is_right() -> None:
    for annotation, schema in TYPE_ROW.findall(text_of("docs/python.md")):
        kind: Any = eval(annotation.replace("\\|", "|"), dict(ANNOTATIONS))
        function = lambda a: a  # noqa: E731 - its annotations are set below
        function.__annotations__["a"] = kind
        assert inspect_function(function).schema()["properties"]["a"] == json.loads(schema), annotation


def test_the_documented_layers_are_those_that_are_checked() -> None:
    contract = tomllib.loads(text_of("pyproject.toml"))["tool"]["importlinter"]["contracts"][0]
    there = {path.stem for path in make_docs.parts_of_toolcrib()}
    layers = [
        sorted(package for name in layer.split(":") if (package := name.strip(" ()")) in there)
        for layer in reversed(contract["layers"])
    ]
    documented: dict[int, list[str]] = {}
    for layer, package in re.findall(
        r"^\| (\d+) \| `(\w+)` \|", text_of("docs/architecture.md"), re.MULTILINE
    ):
        documented.setdefault(int(layer), []).append(package)

    assert [sorted(packages) for _, packages in sorted(documented.items())] == [
        layer for layer in layers if layer
    ]
    assert sorted(package for packages in documented.values() for package in packages) == sorted(there)


def test_every_page_is_linked_from_the_overview() -> None:
    linked = set(LINK.findall(text_of("docs/index.md")))
    assert {page.name for page in DOCS.glob("*.md")} - linked == {"index.md"}


def test_every_example_is_linked() -> None:
    linked = set(LINK.findall(text_of("docs/python.md")))
    there = {path for path in (ROOT / "examples").glob("*.py") if not path.stem.startswith("demo")}
    assert {f"../examples/{path.name}" for path in there} - linked == set()


def test_the_readme_names_targets_that_make_has() -> None:
    targets = set(re.findall(r"^(\w+):", text_of("Makefile"), re.MULTILINE))
    named = {
        name for page in PAGES for name in re.findall(r"(?:`|^)make (\w+)", page.read_text(), re.MULTILINE)
    }
    assert {"demo", "test"} <= named <= targets


def anchors(text: str) -> set[str]:
    """Return the link targets of a page's headings."""
    headings = re.findall(r"^#+ (.+)$", FENCED.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_no_link_is_broken() -> None:
    pages = [*PAGES, ROOT / "CHANGELOG.md"]
    texts = [FENCED.sub("", page.read_text(encoding="utf-8")) for page in pages]
    links = [(page, link) for page, text in zip(pages, texts, strict=True) for link in LINK.findall(text)]
    for page, link in links:
        if re.match(r"https?:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), (page, link)
        if anchor:
            assert anchor in anchors(target.read_text(encoding="utf-8")), (page, link)


def test_every_row_of_the_threat_model_names_its_test() -> None:
    rows = re.findall(r"^\|.*\|$", section(text_of("docs/security.md"), "## Threat model"), re.MULTILINE)[2:]
    assert rows
    for row in rows:
        named = re.findall(r"`([\w/]+\.py)::(\w+)`", row.rsplit("|", 2)[1])
        assert named, row
        for path, name in named:
            assert f"def {name}(" in text_of(f"tests/{path}"), row


def test_the_page_names_the_number_of_threads() -> None:
    assert f"At most {MAX_THREADS} threads run tools at once" in text_of("docs/python.md")
