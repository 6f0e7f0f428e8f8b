"""`--json` of each command: keys in camelCase, and REST's document where REST has one of the same thing."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Iterator
from typing import Any

import click
import pytest

from tests.commands import run
from tests.filled import filled
from tests.http_server import HttpServerProcess
from tests.unit.cli.test_help import EVERY

SPEC = {
    "openapi": "3.1.0",
    "info": {"title": "Shop", "version": "1"},
    "servers": [{"url": "https://shop.example.com"}],
    "paths": {"/items": {"get": {"operationId": "find_items", "responses": {"200": {"description": "x"}}}}},
}
RECORD = {
    "slug": "more",
    "version": "v1",
    "displayName": "More",
    "type": "http",
    "argSchema": {"type": "object", "properties": {"an_id": {"type": "string"}}},
    "impl": {"urlTemplate": "https://shop.example.com/${an_id}"},
}
LINES = """
agents add claude
agents choose "Helps in the shop."
agents import other.md --dry-run
agents list
agents show helper
agents task "count it" --agent helper
approvals list --status all
approvals show {approval}
approvals approve {approval} --yes
approvals deny {other} --yes
approvals show {other}
approvals grants
approvals revoke {other}
audit search
audit tail
audit verify
bundle create spare
bundle list
bundle show shop-api
bundle disable spare
bundle enable spare
bundle export shop-api shop.zip
bundle import shop.zip --dry-run
bundle delete spare
bundle tool put shop-api record.json
bundle tool get shop-api/list@v1
bundle tool history shop-api/list@v1
bundle tool revisions shop-api/list@v1
bundle tool versions shop-api/list
bundle tool disable shop-api/list@v1
bundle tool enable shop-api/list@v1
bundle tool delete shop-api/list@v1 --yes
calls list
calls submit stock_count "c=exit 3"
calls wait --last
calls show --last
calls retry --last
calls cancel --tool stock_count --yes
connect claude-code
doctor
import convert .toolcrib/tools/stock_count/tool.yml --to native
import openapi api.json
init --examples
lint
list
list stock
messages list
messages show gone
messages retry gone
new count_things --kind command --run "wc -l ${{path}}"
policy add deny stock_move --yes
policy explain orders_refund
policy show
policy try deny stock_move
run stock_count "c=echo hi"
run stock_count "c=cat /etc/shadow"
run stock_count d=1
run orders_refund "c=exit 3" --dry-run
run orders_refund "c=exit 3"
runs list
runs show {workflow}
runs wait {run}
runs watch {workflow}
runs fork {run} --prompt again
runs cancel --agent helper --yes
runs retry {workflow}
runs run helper "how many"
runs prune
runs sessions create
runs sessions list
secrets list
secrets check
secrets set SHOP_KEY
secrets login stock_count
servers list
servers add tiny --yes --json -- {python} calculator.py
servers login calculator
servers logout calculator
servers remove tiny --yes
show weather_forecast
status
test
token create bot --scope invoke
token list
token revoke bot
trace stock_count "c=cat /etc/passwd"
trust
trust --check
trust --yes
workflows list
workflows show closing
workflows run closing day=Monday
"""
TRIED = [f"{line} " for line in LINES.strip().splitlines()]
REFUSED = {
    "messages retry gone",
    "messages show gone",
    "secrets login stock_count",
    "servers login calculator",
}
"""Those of which only the error is seen here."""
APART = {"pod up", "pod-run"}
"""Commands that need a pod; their documents are those of files, whose form is not ours."""
OF_USERS = {
    *("arguments", "metadata", "params", "value", "variables"),
    *("agent", "document", "permissions", "rule", "rules", "settings", "steps", "tools.script", "would"),
    *("argSchema", "definitions", "inputs", "refused", "started", "schema"),
    "fields",  # Those of a line of the audit log, as they are in its file.
}
"""Keys below which names of arguments, settings, manifests and schemas are keys."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServerProcess]:
    """A server of a project with calls, runs and what waits for a person."""
    with filled(tmp_path_factory.mktemp("json") / "shop", calls=12) as server:
        (server.root / "record.json").write_text(json.dumps(RECORD))
        (server.root / "api.json").write_text(json.dumps(SPEC))
        (server.root / "other.md").write_text("---\nname: other\ndescription: It helps.\n---\nHelp.\n")
        yield server


def documents(server: HttpServerProcess, line: str) -> list[Any]:
    """Return what a command prints with `--json`: one document, or one a line."""
    words = shlex.split(line)
    words += [] if "--json" in words else ["--json"]
    env = {**os.environ, "TOOLCRIB_DATA": str(server.data)}
    done = run(words, server.root, env, b"a-long-value-1", accepted=False)
    try:
        return [json.loads(done.stdout)]
    except ValueError:
        return [json.loads(one) for one in done.stdout.splitlines()]


def snakes(value: Any, path: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield the keys that are not in camelCase."""
    if isinstance(value, dict):
        for key, one in value.items():
            if "_" in key:
                yield ".".join((*path, key))
            if key not in OF_USERS:
                yield from snakes(one, (*path, key))
    elif isinstance(value, list):
        for one in value:
            yield from snakes(one, path)


SAME = (
    ("agents list", "/agents", "agents"),
    ("approvals list --status all", "/approvals", "approvals"),
    ("approvals grants", "/grants", "grants"),
    ("audit verify", "/audit/verify", ""),
    ("calls list", "/tools/calls", "calls"),
    ("doctor", "/doctor", ""),
    ("lint", "/lint", ""),
    ("messages list", "/messages", "messages"),
    ("policy show", "/policy", ""),
    ("runs list", "/runs", "runs"),
    ("runs sessions list", "/sessions", "sessions"),
    ("servers list", "/servers", "servers"),
    ("status", "/workers", "workers"),
    ("token list", "/tokens", "tokens"),
    ("workflows list", "/workflows", "workflows"),
)
"""Commands, the addresses of the same documents in REST, and the key of the entries of a list."""
OF_ONE = (
    ("approvals list --status all", "approvals show {}", "/approvals/{}", "approvals"),
    ("calls list", "calls show {}", "/tools/calls/{}", "calls"),
    ("runs list", "runs show {}", "/runs/{}/timeline", "runs"),
)


def test_a_command_prints_the_document_of_rest(server: HttpServerProcess) -> None:
    different = {}
    for line, path, key in SAME:
        answer, (printed,) = server.send("GET", path).json, documents(server, line)
        if key:
            # A call that its client awaited is not in the store, and a page of REST is shorter.
            ids = [{one.get("id") for one in listed[key]} for listed in (answer, printed)]
            answer, printed = (
                [one for one in listed[key] if one.get("id") in ids[0] & ids[1]]
                for listed in (answer, printed)
            )
        different[line] = list(differences(answer, printed))
    for every, line, path, key in OF_ONE:
        for one in documents(server, every)[0][key][:5]:
            answer, (printed,) = (
                server.send("GET", path.format(one["id"])).json,
                documents(server, line.format(one["id"])),
            )
            different[line.format(one["id"])] = list(differences(answer, printed))
    assert {line: found[:5] for line, found in different.items() if found} == {}


def differences(answer: Any, printed: Any, path: str = "$") -> Iterator[str]:
    """Yield where a document of REST is not in what the command line prints."""
    if isinstance(answer, dict) and isinstance(printed, dict):
        for key in answer.keys() - {"seenAt"}:
            if key in printed:
                yield from differences(answer[key], printed[key], f"{path}.{key}")
            elif key != "reason":  # The server that asked a person keeps it.
                yield f"{path}.{key} is missing"
    elif isinstance(answer, list) and isinstance(printed, list) and len(answer) == len(printed):
        for number, (one, other) in enumerate(zip(answer, printed, strict=True)):
            yield from differences(one, other, f"{path}[{number}]")
    elif answer != printed:
        yield f"{path}: {str(answer)[:100]} is {str(printed)[:100]}"


def test_every_key_is_in_camel_case(server: HttpServerProcess) -> None:
    approvals = server.send("GET", "/approvals?status=pending").json["approvals"]
    runs = {one["agent"]: one["id"] for one in server.send("GET", "/runs").json["runs"]}
    names = {"approval": approvals[0]["id"], "other": approvals[1]["id"]}
    names |= {"run": runs["helper"], "workflow": runs["workflow:closing"], "python": sys.executable}
    found, refused = {}, set()
    for line in LINES.strip().splitlines():
        printed = documents(server, line.format_map(names))
        assert printed, line
        if isinstance(printed[0], dict) and printed[0].keys() == {"error"}:
            refused.add(line)
        found[line] = sorted({key for one in printed for key in snakes(one)})
    assert {line: keys for line, keys in found.items() if keys} == {}
    assert refused == REFUSED


def test_every_command_with_json_is_tried() -> None:
    paths = {context.command_path.partition(" ")[2] for command, context in EVERY if _has_json(command)}
    assert {path for path in paths if not any(line.startswith(f"{path} ") for line in TRIED)} == APART


def _has_json(command: click.Command) -> bool:
    return any("--json" in one.opts for one in command.params)
