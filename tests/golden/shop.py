"""The project of the golden tests: a tool for each way in which a call can go."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from tests.golden.normal import OWN, PROSE

__all__ = ["PORT", "files", "own", "tool"]

PORT = "@PORT@"
"""The place where the port of the test's HTTP server comes to stand."""
TEXT = {"outputs": {"format": "text"}}


def tool(kind: str, config: dict[str, Any], properties: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Give a manifest without its name."""
    schema = {
        "type": "object",
        "additionalProperties": False,
        "required": more.pop("required", []),
        "properties": properties,
    }
    return {
        "description": f"Does what a {kind} does",
        "kind": kind,
        "version": 1,
        "inputs": {"schema": schema},
        "exec": {kind: config},
        **more,
    }


def text(description: str, **more: Any) -> dict[str, Any]:
    """Give the schema of a text."""
    return {"type": "string", "description": description, **more}


WHO = {"who": text('Whom to greet (default "you")', default="you")}
GREETED = {"description": "Greet Ann", "params": {"who": "Ann"}, "expected_output": "hello Ann\n"}
WRONG = {"description": "Greet Bob", "params": {"who": "Bob"}, "expected_output": "bye Bob\n"}
COUNTS = {"n": {"type": "integer", "minimum": 0, "maximum": 9, "description": "How many"}}
LIST = {"type": "array", "items": {"type": "integer"}}
READS = {"permissions": {"fs": {"read": ["stock.txt"]}}}
READ = {"action": "read", "path": "stock.txt"}
AMOUNT = {"amount": {"type": "integer", "maximum": 10, "description": "How much"}}
NET = {"permissions": {"network": {"allow": [f"127.0.0.1:{PORT}"]}}}
URL = f"http://127.0.0.1:{PORT}"

TOOLS: dict[str, dict[str, Any]] = {
    "greet": tool(
        "command",
        {"entrypoint": "printf", "args": ["hello %s\\n", "${who}"]},
        WHO,
        tags=["text", "polite"],
        annotations={"read_only": True, "idempotent": True},
        examples=[GREETED, WRONG],
        **TEXT,
    ),
    "count": tool(
        "python",
        {"module": "counting", "function": "count", "args": ["${n}"]},
        COUNTS,
        required=["n"],
        outputs={"schema": LIST},
        tags=["numbers"],
        examples=[{"description": "Count to three", "params": {"n": 3}, "expected_output": "[0, 1, 2]"}],
    ),
    "describe": tool(
        "python", {"module": "counting", "function": "describe", "kwargs": {"n": "${n}"}}, COUNTS
    ),
    "promise": tool(
        "python", {"module": "counting", "function": "describe"}, COUNTS, outputs={"schema": LIST}
    ),
    "crash": tool("python", {"module": "counting", "function": "crash"}, {}),
    "fail": tool(
        "command", {"entrypoint": "sh", "args": ["-c", "echo out; echo why >&2; exit 3"]}, {}, **TEXT
    ),
    "slow": tool("command", {"entrypoint": "sleep", "args": ["60"], "timeout_ms": 300}, {}, **TEXT),
    "absent": tool("command", {"entrypoint": "no-such-program"}, {}, **TEXT),
    "denied_file": tool(
        "file",
        {"action": "read", "path": "${path}"},
        {"path": text("Which file")},
        required=["path"],
        **READS,
    ),
    "stock": tool("file", READ, {}, tags=["numbers"], **READS),
    "note": tool(
        "file",
        {"action": "write", "path": "notes/today.txt", "content": "${line}"},
        {"line": text("What to keep")},
        required=["line"],
        permissions={"fs": {"write": ["notes"]}},
    ),
    "pay": tool(
        "file",
        READ,
        {**AMOUNT, "to": text("Whom (default bob)", default="bob")},
        required=["amount"],
        approval={"required": True, "reason": "It is dear"},
        **READS,
    ),
    "keyed": tool("file", READ, {}, permissions={"fs": {"read": ["stock.txt"]}, "secrets": {"SHOP_KEY": {}}}),
    "closed": tool("file", READ, {}, **READS),
    "asked": tool("file", READ, {}, **READS),
    "answer": tool("http", {"url": f"{URL}/answer", "query": {"q": "${q}"}}, {"q": text("What")}, **NET),
    "gone": tool("http", {"url": f"{URL}/gone"}, {}, **NET),
    "busy": tool("http", {"url": f"{URL}/busy"}, {}, retry={"max_attempts": 1}, **NET),
    "leak": tool(
        "http",
        {"url": f"{URL}/answer", "headers": {"X-Key": "${SHOP_KEY}"}},
        {},
        permissions={"network": {"allow": [f"127.0.0.1:{PORT}"]}, "secrets": {"SHOP_KEY": {}}},
    ),
    "rows": tool(
        "sql",
        {
            "engine": "sqlite",
            "database": "shop.db",
            "statement": "SELECT ? AS name, 2 AS price",
            "parameters": ["${name}"],
        },
        {"name": text("Which row")},
        required=["name"],
        permissions={"fs": {"read": ["."]}},
    ),
    "both": tool(
        "composite",
        {
            "steps": [
                {"id": "numbers", "tool": "count", "args": {"n": "${n}"}},
                {
                    "id": "greeting",
                    "tool": "greet",
                    "needs": ["numbers"],
                    "when": {"value": "${n}", "schema": {"minimum": 2}},
                },
                {
                    "id": "each",
                    "tool": "describe",
                    "needs": ["greeting"],
                    "foreach": "${steps.numbers.value}",
                    "concurrency": 1,
                    "args": {"n": "${item}"},
                },
            ],
            "output": {"greeting": "${steps.greeting.value}", "each": "${steps.each.value}"},
        },
        COUNTS,
        required=["n"],
    ),
    "broken_step": tool("composite", {"steps": [{"id": "one", "tool": "fail"}]}, {}),
    "function": tool("function", {"reference": "nowhere.run"}, {}),
}
SETTINGS: dict[str, Any] = {
    "policy": {
        "default": "allow",
        "rules": [
            {"name": "shut", "effect": "deny", "tools": ["closed"], "reason": "The shop is closed"},
            {"effect": "ask", "tools": ["asked"], "callers": ["cli", "mcp:*"]},
            {
                "name": "dear",
                "effect": "deny",
                "tools": ["pay"],
                "when": {"required": ["amount"], "properties": {"amount": {"minimum": 9}}},
            },
        ],
    },
    "secrets": {"sources": [{"env": {}}, {"env_file": {"path": ".env"}}]},
}
COUNTING = '''\
"""Tools of the golden project."""


def count(n):
    print("counting")
    return list(range(n))


def describe(n=0):
    return {"n": n, "even": n % 2 == 0, "half": n / 2, "none": None}


def crash():
    raise ValueError("the stock is gone")
'''


def own(value: Any, key: str = "") -> Iterator[str]:
    """Give every text of the fixture that stands where the product's words stand too."""
    if isinstance(value, str) and key in PROSE:
        yield value
    elif isinstance(value, dict):
        for name, one in value.items():
            yield from own(one, name)
    elif isinstance(value, list):
        for one in value:
            yield from own(one, key)


def files(port: int = 9) -> dict[str, str]:
    """Give the project's files by their paths."""
    OWN.update(own(TOOLS), own(SETTINGS))
    found = {
        ".toolcrib/config.yml": json.dumps(SETTINGS, indent=1),
        "stock.txt": "3 files\n",
        "notes/.keep": "",
        "shop.db": "",
        ".env": "",
    }
    for name, manifest in TOOLS.items():
        document = json.dumps({"name": name, **manifest}, indent=1).replace(PORT, str(port))
        found[f".toolcrib/tools/{name}/tool.yml"] = document
    for name in ("count", "describe", "promise", "crash"):
        found[f".toolcrib/tools/{name}/counting.py"] = COUNTING
    return found
