"""Lists of tools as the programs that connect to MCP servers, and the APIs behind them, accept them.

The rules are data. Only what is shown changes: a call is checked against the tool's own schema.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from toolcrib.schema.provider_shapes import as_gemini_json
from toolcrib.schema.shapes.parts import (
    LONGEST,
    cut,
    renamed_properties,
    shortened,
    with_items,
    with_rules,
    without_unions,
    written_out,
)
from toolcrib.spec.record import record

_SERVER = 16
"""Characters kept for the name that the server has in the host's file, which the host does not send."""


@record
class HostRules:
    """The list that one host or API accepts."""

    title: str
    clients: tuple[str, ...]
    """Beginnings of the name that it sends in `clientInfo`."""
    longest: int
    """Characters of a tool's name, with what the host writes before it."""
    before: str
    """Its prefix of a tool's name; `%s` stands for the name of the server."""
    form: Literal["anthropic", "openai", "gemini", "all"]
    """The API whose schemas it accepts; `all` for a host that uses several."""
    most: int | None
    """Tools in one request; None without a limit that is known."""
    source: str

    @property
    def own(self) -> int:
        """The characters that are left for a tool's own name."""
        return self.longest - (len(self.before) - 2 + _SERVER if self.before else 0)

    def name(self, wire_name: str) -> str:
        """Return the name that a tool has in the list."""
        return wire_name if len(wire_name) <= self.own else shortened(wire_name, wire_name, self.own)


HOSTS = {
    "claude-code": HostRules(
        "Claude Code",
        ("claude-code",),
        64,
        "mcp__%s__",
        "anthropic",
        None,
        "https://git.drupalcode.org/project/mcp/-/work_items/3569862",
    ),
    "claude-desktop": HostRules(
        "Claude Desktop",
        ("claude-ai", "claude-desktop", "claude"),
        64,
        "%s:",
        "anthropic",
        None,
        "https://github.com/sparfenyuk/mcp-proxy/issues/45",
    ),
    "codex": HostRules(
        "Codex",
        ("codex",),
        64,
        "mcp__%s__",
        "openai",
        None,
        "openai/codex: codex-rs/core/src/mcp_connection_manager.rs",
    ),
    "cursor": HostRules(
        "Cursor",
        ("cursor",),
        60,
        "%s:",
        "all",
        40,
        "https://github.com/idosal/git-mcp/issues/31, https://github.com/modelcontextprotocol/.github/discussions/360",
    ),
    "gemini": HostRules(
        "Gemini CLI",
        ("gemini-cli",),
        64,
        "mcp_%s_",
        "gemini",
        None,
        "https://zuplo.com/learn/mcp/compatibility/clients/gemini-cli.md",
    ),
    "vscode": HostRules(
        "Visual Studio Code",
        ("visual-studio-code", "vscode"),
        64,
        "mcp_%s_",
        "all",
        128,
        "https://github.com/microsoft/vscode/issues/243602, https://code.visualstudio.com/docs/copilot/agents/agent-tools",
    ),
    "anthropic": HostRules(
        "Anthropic's API",
        (),
        64,
        "",
        "anthropic",
        None,
        "https://github.com/aws-solutions-library-samples/"
        "accelerated-intelligent-document-processing-on-aws/issues/709 (names of properties)",
    ),
    "openai": HostRules(
        "OpenAI's API",
        (),
        64,
        "",
        "openai",
        128,
        "https://platform.openai.com/docs/api-reference/chat/create",
    ),
    "gemini-json": HostRules(
        "Gemini's API",
        (),
        64,
        "",
        "gemini",
        None,
        "https://ai.google.dev/gemini-api/docs/function-calling",
    ),
}
"""Every host and API whose rules are known, by the name of `toolcrib connect` or of `?for=`."""


def rules_of(client: str) -> HostRules | None:
    """Return the rules of the client that names itself so, as in `Call.caller`; None if none are known."""
    name = client.removeprefix("mcp:").lower()
    return next((one for one in HOSTS.values() if one.clients and name.startswith(one.clients)), None)


def fitted(entry: Mapping[str, Any], rules: HostRules) -> tuple[dict[str, Any], dict[str, str]]:
    """Return an entry of `tools/list` as a host accepts it, and its renamed arguments: new name to own name.

    Raises DefinitionError for a schema that has no such form.
    """
    own: dict[str, str] = {}
    schema = entry["inputSchema"]
    schema, apart = without_unions(written_out(schema) if rules.form == "gemini" else schema)
    if rules.form in ("anthropic", "all"):
        schema, own = renamed_properties(schema)
    if rules.form in ("openai", "all"):
        schema = with_items(schema)
    if rules.form == "gemini":
        schema = as_gemini_json(schema)
    name, made = rules.name(entry["name"]), dict(entry)
    if name != entry["name"]:
        made = {**made, "name": name, "title": entry.get("title", entry["name"])}
    description = with_rules(entry["description"], apart)
    if rules.form in ("openai", "all"):
        description = cut(description)
    return {**made, "description": description, "inputSchema": schema}, own


def changes_of(entry: Mapping[str, Any], rules: HostRules, server: str) -> list[str]:
    """Return what the host's list has in another form, and what of the tool it cannot show, in words."""
    made, own = fitted(entry, rules)
    found = []
    if made["name"] != entry["name"]:
        found.append(f"its name is {made['name']}")
    if rules.before and len(rules.before % server + made["name"]) > rules.longest:
        found.append(f"its name is too long beside the server's name {server}; give the server a shorter one")
    found += [f"the argument {name!r} is named {new}" for new, name in own.items()]
    if made["description"].endswith("…") and not entry["description"].endswith("…"):
        found.append(f"its description is cut to {LONGEST:,} characters")
    elif made["description"] != entry["description"]:
        found.append("a rule about all arguments is in its description")
    plain = {"type": "object", "properties": {}, **entry["inputSchema"]}
    if made["inputSchema"] != plain and not found:
        found.append("its schema is simpler")
    return found
