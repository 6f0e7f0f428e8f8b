"""A project as it is after some weeks: many tools of four sources, calls, what waits for a person."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tests import mcp_servers
from tests.crib import Crib
from tests.http_server import HttpServerProcess, http_server
from toolcrib import Project
from toolcrib.guard import Ledger
from toolcrib.project import load_config
from toolcrib.project.trust.trust import settings_rows
from toolcrib.spec.identifier import new_id
from toolcrib.state import Vault

CALLS = 300
_BUILTINS = ["read_file", "write_file", "list_files", "web_search", "fetch_url"]
_RULE = {"name": "outside", "effect": "ask", "tools": ["report_*"], "callers": ["mcp:*"]}
_WORDS = {
    "orders": ("find", "cancel", "refund", "export", "label", "track"),
    "stock": ("count", "move", "reserve", "reorder", "audit", "value"),
    "machine": ("start", "stop", "calibrate", "log", "warm-up", "temperature"),
    "report": ("draft", "check", "send", "archive", "compare", "translate"),
    "customer": ("look-up", "merge", "note", "invite", "block", "history"),
}
_ABOUT = {
    "orders": "Works on orders of the shop: {verb} one by its number, or all of a day.",
    "stock": "{verb} parts in the stock. Numbers are those of the last count.",
    "machine": "{verb} one of the machines in the hall, and says what it reports afterwards.",
    "report": "{verb} a report for the people in the office, in the words that they use.",
    "customer": "{verb} a customer. Personal data stays in the project.",
}
AGENT = {
    "name": "helper", "model": "scripted", "description": "Helps in the shop.", "tools": ["stock_count"],
    "script": [
        {"text": "I look at the stock. ", "calls": [{"tool": "stock_count", "arguments": {"c": "echo 42"}}]},
        {"text": "You asked: {{prompt}} The stock says: {{result}}"},
    ],
}  # fmt: skip
WORKFLOW = {
    "name": "closing", "description": "What is done in the evening.",
    "inputs": {"schema": {"type": "object", "properties": {"day": {"type": "string"}}}},
    "steps": [
        {"id": "count", "tool": "stock_count", "foreach": ["nuts", "bolts"], "args": {"c": "echo ${item}"}},
        {"id": "value", "tool": "stock_value", "args": {"c": "echo 7"}},
        {"id": "words", "agent": "helper", "prompt": "There are ${steps.count.value[0]}"},
        {"id": "send", "needs": ["words", "value"], "tool": "slow_count", "args": {"c": "exit 3"}},
    ],
}  # fmt: skip
WEATHER = {
    "type": "object",
    "required": ["place", "days"],
    "additionalProperties": False,
    "properties": {
        "place": {
            "description": "Where: a city, or coordinates.",
            "oneOf": [
                {"title": "City", "type": "object", "required": ["city"], "additionalProperties": False,
                 "properties": {"city": {"type": "string", "minLength": 2},
                                "country": {"$ref": "#/$defs/country"}}},
                {"title": "Coordinates", "type": "object", "required": ["lat", "lon"],
                 "additionalProperties": False,
                 "properties": {"lat": {"type": "number", "minimum": -90, "maximum": 90},
                                "lon": {"type": "number"}}},
            ],
        },
        "days": {"type": "integer", "minimum": 1, "maximum": 14, "default": 3, "description": "Days ahead."},
        "units": {"enum": ["metric", "imperial"], "default": "metric"},
        "alerts": {"type": "boolean", "description": "Warnings too."},
        "fields": {"type": "array", "items": {"enum": ["wind", "rain", "sun"]}, "uniqueItems": True},
        "from": {"type": "string", "format": "date"},
        "labels": {"type": "object", "additionalProperties": {"type": "string"}, "description": "Labels."},
        "note": {"type": ["string", "null"], "maxLength": 200},
    },
    "$defs": {"country": {"type": "string", "pattern": "^[A-Z]{2}$", "description": "Two letters."}},
}  # fmt: skip


def _write(crib: Crib) -> None:
    for area, verbs in _WORDS.items():
        for verb in verbs:
            name = f"{area}_{verb.replace('-', '_')}"
            more: dict[str, Any] = {
                "description": _ABOUT[area].format(verb=verb.replace("-", " ").capitalize())
            }
            if verb in ("refund", "send", "block", "stop"):
                more["approval"] = {"required": True, "reason": f"It cannot be undone: {verb}."}
            if area in ("report", "stock"):
                more["permissions"] = {"fs": {"read": [area], "write": [area]}}
            crib.write(f"{area}/.keep", "")
            crib.shell(name, tags=[area, "daily" if len(verb) < 5 else "weekly"], **more)
    forecast = "import json, sys, time\n\n\ndef run(**given):\n    return {'ok': True, 'given': given}\n"
    crib.python(
        forecast, "weather_forecast", schema=WEATHER, tags=["weather"],
        description="Forecasts the weather for a place: temperature, wind and rain for each day.",
        examples=[
            {"description": "Three days in Genoa.",
             "params": {"place": {"city": "Genoa", "country": "IT"}, "days": 3}},
            {"description": "By coordinates.", "params": {"place": {"lat": 44.4, "lon": 8.9}, "days": 1}},
        ],
    )  # fmt: skip
    crib.write(".toolcrib/agents/helper.yml", json.dumps(AGENT))
    crib.write(".toolcrib/workflows/closing.yml", json.dumps(WORKFLOW))
    crib.shell("shop_order", permissions={"secrets": {"SHOP_KEY": {"type": "string"}}})
    crib.shell("slow_count", description="Counts slowly, and prints each number.", tags=["demo"])


def _put_records(server: HttpServerProcess) -> None:
    for bundle in ("Shop API", "Translations", "Scratch"):
        slug = bundle.lower().replace(" ", "-")
        address = f"/tools/bundles/{new_id()}"
        made = server.send("PUT", address, {"slug": slug, "displayName": bundle})
        assert made.status in (200, 201), made.body
        for verb in ("list", "get", "create", "update", "search", "remove"):
            body = {
                "type": "http", "displayName": f"{verb.capitalize()} in {bundle}",
                "description": f"Sends the request to {verb} an entry of {bundle}.", "tags": [slug],
                "argSchema": {"type": "object", "properties": {"id": {"type": "string"}}},
                "impl": {"urlTemplate": f"https://api.example.com/{slug}/${{id}}"},
            }  # fmt: skip
            put = server.send("PUT", f"{address}/tools/{verb}/version/v1", body)
            assert put.status == 201, put.body


def _make_calls(server: HttpServerProcess, number: int) -> None:
    chance = random.Random(7)
    names = [f"{area}_{verb}" for area, verbs in _WORDS.items() for verb in verbs if "-" not in verb]
    names = [name for name in names if name.split("_")[1] not in ("refund", "send", "block", "stop")]
    for _ in range(number):
        # A few tools are called much more than others.
        name = names[min(int(chance.expovariate(0.15)), len(names) - 1)]
        script = "exit 3" if chance.random() < 0.12 else "echo done"
        server.send("POST", f"/tools/invoke/{quote(name)}", {"args": {"c": script}})
    asked = {"Prefer": "respond-async"}
    for name in ("orders_refund", "report_send", "customer_block", "machine_stop", "orders_refund"):
        server.send("POST", f"/tools/invoke/{name}", {"args": {"c": f"echo {name}"}}, asked)


def _make_runs(server: HttpServerProcess) -> None:
    for number in range(10):
        server.send("POST", "/runs", {"agent": "helper", "prompt": f"How many gears are there? ({number})"})
    started = [
        server.send("POST", "/workflows/closing/runs", {"inputs": {"day": day}}).json["runId"]
        for day in ("Monday", "Tuesday")
    ]
    server.send("GET", f"/runs/{started[-1]}/events")  # Until the end of the last one.


@contextmanager
def filled(root: Path, calls: int = CALLS) -> Iterator[HttpServerProcess]:
    """Serve such a project below `root`."""
    crib = Crib(root)
    _write(crib)
    mcp_servers.mount(crib, "calculator", mcp_servers.GOOD)
    path = root / ".toolcrib" / "config.yml"
    servers = json.dumps(json.loads(path.read_text())["mcp_servers"])
    rules = f"policy:\n  rules:\n  - {json.dumps(_RULE)}\n"
    path.write_text(f"builtins: {json.dumps(_BUILTINS)}\nmcp_servers: {servers}\n{rules}")
    data = root.with_name(f"{root.name}-data")
    config = load_config(path, root)
    Ledger(Vault(root, data)).accept(settings_rows(config), "ann", "program")
    asyncio.run(_trust_servers(root, data))
    with http_server(root) as server:
        # What was made after trust waits for it.
        crib.shell("new_idea", description="Came after trust.", tags=["demo"])
        _put_records(server)
        _make_calls(server, calls)
        _make_runs(server)
        yield server


async def _trust_servers(root: Path, data: Path) -> None:
    async with Project.open(root, data=data) as project:
        assert project.servers is not None
        await project.servers.ready(60)
        project.trust.accept("ann", more=[one.row() for one in project.servers.mounted.values()])
