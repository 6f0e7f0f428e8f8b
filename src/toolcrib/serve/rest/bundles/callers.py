"""The route that says who may call a tool."""

from __future__ import annotations

from msgspec import Struct

from toolcrib.errors import ManifestError, ToolcribError, ToolNotFound
from toolcrib.guard import Effect
from toolcrib.project.catalog.bundles import Wish
from toolcrib.project.project import Project
from toolcrib.project.reports import explain_call
from toolcrib.serve.http import Answer, Routes
from toolcrib.serve.rest.bundles.tools import named_tool
from toolcrib.serve.rest.refusals import NO_TOOL
from toolcrib.serve.rest.services import RestRequest
from toolcrib.spec import Caller, Tool

ROUTES = Routes()


class MayCall(Struct, frozen=True, kw_only=True):
    """One caller of a tool."""

    caller: str
    """`page`, `cli`, `mcp` for a client without a token, `token:NAME`, `agent:NAME`."""
    effect: Effect
    """The strictest decision that any arguments could lead to."""
    why: str


class Callers(Struct, frozen=True, kw_only=True, rename="camel"):
    """Everybody who may call a tool, or would be refused."""

    callers: list[MayCall]
    used_by: list[str]
    """Full names of at most 256 tools with steps that lead to it, and `agent:NAME` of agents that have it."""


@ROUTES.add(
    "GET",
    "/tools/bundles/{bundleID}/tools/{toolSlug}/version/{v}/callers",
    "admin",
    {200: Callers},
    *NO_TOOL,
    ManifestError,
)
async def list_callers(request: RestRequest) -> Answer:
    """List who may call a tool: this person, clients, tokens that are valid, and agents that have it."""
    services = request.services
    project = services.project
    named, stored = named_tool(request), project.bundles.stored
    services.store.tool(*named)  # Raises for one that is not there.
    with stored.lock:
        listed = stored.listing.find(*named)
    if listed is None:
        raise ToolNotFound(f"{services.name(*named)} has just been deleted")
    tool = project.bundles.entries.tool(listed)  # On or off.
    who: list[tuple[str, Caller | None]] = [("page", None), ("cli", None), ("mcp", None)]
    tokens = [one.caller for one in services.access.tokens.all() if not one.expired]
    who += [(f"token:{one.given_name}", one) for one in tokens]
    agents = [f"agent:{name}" for name, tools in project.agents.listed().items() if tool.name in tools]
    who += [(name, None) for name in agents]
    found = []
    for caller, identity in who:
        try:
            said = explain_call(project, tool, {}, caller, identity)
        except ToolcribError as error:
            said = {"effect": "deny", "why": error.message}
        found.append(MayCall(caller=caller, effect=said["effect"], why=said["why"]))
    composites = project.bundles.tools(Wish(kinds=("composite",)), sort="name", limit=256).tools
    users = [one.name for one in composites if _leads_to(project, one.name, tool)]
    return Answer(Callers(callers=found, used_by=[*users, *agents]))


def _leads_to(project: Project, name: str, tool: Tool) -> bool:
    try:
        return tool.name in {part.name for part in project.parts_of(project.get(name))}
    except ToolcribError:  # Another of its steps is missing.
        return False
