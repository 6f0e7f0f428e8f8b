"""A project as MCP clients see it: its tools, and the meta-tools to list, find, call and make tools.

The meta-tools are ordinary tools on the one path. `tool_call` makes a second call by that path for the same
caller, so policy, approval, limits and audit apply to the inner tool as in a direct call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from toolcrib.core.context import Context
from toolcrib.errors import AuditUnavailable, InvalidInput, ToolNotFound
from toolcrib.executors.function.threads import run_in_thread
from toolcrib.guard.audit.search import AuditQuery, AuditReader
from toolcrib.manifest import dump
from toolcrib.project.authoring.creation import ToolDraft, draft, publish
from toolcrib.project.project import Project
from toolcrib.spec import Annotations, Caller, Catalog, McpForms, Outcome, Retry, Tool

_MOST = 500
_ONCE = Retry(max_attempts=1)
_ACTS = Annotations()
_LOOKS = Annotations(read_only=True)
_FINDS = (
    "Find tools by what they should do, in a few words or a sentence; gives the best few, with input schemas."
)
_MAKES = (
    "Make a new tool. A person has to trust it before its first call and approves each call. It may ask for"
    " no more than this project allows to tools that agents make."
)


def _object(required: str = "", **properties: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of arguments; `required` are names with blanks between them."""
    names = {"required": required.split()} if required else {}
    return {"type": "object", **names, "additionalProperties": False, "properties": properties}


def _whole(default: int, low: int, most: int | None, description: str) -> dict[str, Any]:
    limits = {"minimum": low} if most is None else {"minimum": low, "maximum": most}
    return {"type": "integer", **limits, "default": default, "description": f"{description} ({default})."}


def _map(description: str) -> dict[str, Any]:
    return {"type": "object", "description": description, "default": {}}


def _text(description: str, **limits: int) -> dict[str, Any]:
    return {"type": "string", **limits, "description": description}


_NAME = _text("The tool's name, as tools_list gives it.")
_NEW_NAME = _text("Its name: letters, digits, '_' and '-'.")
_CALL = _object("name", name=_NAME, arguments=_map("Its arguments."))
_GLEE_CALL = _object("name", name=_NAME, params=_map("Parameters for the tool."))
_DEFINITION = {
    "type": "object",
    "description": "What tool.yml would say: description, kind (http, command, python, file), version,"
    " inputs, outputs, exec, permissions, approval, examples.",
}
_CREATE = _object("name definition", name=_NEW_NAME, definition=_DEFINITION)
_LIST = _object(
    offset=_whole(0, 0, None, "How many to pass over"), limit=_whole(100, 1, _MOST, "How many at most")
)
_SEARCH = _object(
    "query",
    query=_text("What to look for.", minLength=1, maxLength=500),
    limit=_whole(5, 1, 100, "How many at most"),
)
_NOTHING = _object()
_WAIT = {
    "type": "number",
    "minimum": 0,
    "maximum": 240,
    "default": 240,
    "description": "Seconds to wait for its end (240); it continues after them.",
}
_WORKFLOW = _object("name", name=_text("The workflow's name."), inputs=_map("Its inputs."), wait_s=_WAIT)
_MAKES_AGENT = (
    "Make a new agent. A person has to trust it before its first run. Its tools may have no more permissions"
    " than this project allows to tools that agents make."
)
_AGENT = {
    "type": "object",
    "description": "What its file would say: model, description, instructions, tools, agents, budgets,"
    " settings.",
}
_CREATE_AGENT = _object("name definition", name=_NEW_NAME, definition=_AGENT)
_TASK = _object(
    "prompt",
    prompt=_text("The task, with all it needs to know.", minLength=1),
    agent=_text("Who gets it; without it, whose description fits best."),
    session=_text("The session of an earlier task to continue."),
)
_PAGE = {"type": "object", "required": ["name"], "properties": {"name": _NAME}}
_FORMS = {
    "tool_page": McpForms(listed=False, resource="toolcrib://tools/{name}", mime_type="text/markdown"),
    "own_calls": McpForms(listed=False, resource="toolcrib://calls", mime_type="application/json"),
    "own_artifacts": McpForms(listed=False, resource="toolcrib://artifacts", mime_type="application/json"),
}
"""The meta-tools that are resources of every project."""
_MOST_CALLS = 100


def mcp_catalog(project: Project) -> Catalog:
    """Return what MCP clients see of a project: of a Python file its functions, without meta-tools."""
    return McpCatalog(project) if project.place.file is None else project


class McpCatalog:
    """A project as MCP clients see it. A meta-tool never takes the name of a tool of the project.

    With more tools than `mcp.max_listed` only the meta-tools and those of `mcp.pinned` are listed. The
    others are found by `tools_search` and called by `tool_call`, or by their names.
    """

    def __init__(self, project: Project) -> None:
        self._project = project
        self.get, self.invoke = project.get, project.invoke
        self.subscribe, self.on_change = project.subscribe, project.on_change
        self._meta = project.catalog.sources.switches.exempt = frozenset(self._register())

    @property
    def revision(self) -> int:
        """Changes whenever the list of tools changes."""
        return self._project.revision

    def untrusted(self) -> int:
        """Return how many tools wait for trust, so that no list has them."""
        return self._project.untrusted()

    def tools(self, caller: str = "local", identity: Caller | None = None) -> Sequence[Tool]:
        """Return the tools in the list of this caller."""
        found = self.listed(caller, identity)
        return [one if isinstance(one, Tool) else self.get(name) for name, one in found.items()]

    def listed(
        self, caller: str = "local", identity: Caller | None = None
    ) -> Mapping[str, Tool | memoryview]:
        """Return the same by name, with kept entries in place of tools."""
        settings = self._project.config
        shown = self._meta | set(settings.pinned)
        # For a caller who sees all, the number is known without looking at the tools.
        seen = 0 if self._project.hides(identity) else self._project.toolset.count - len(self._meta)
        if max(seen, self._project.bundles.count()) > settings.max_listed:
            among = self._project.tools(caller, identity, among=shown)  # None of the others is read.
            return {tool.name: tool for tool in among}
        found = self._project.listed(caller, identity)
        if len(found) - len(self._meta) <= settings.max_listed:
            return found
        return {name: one for name, one in found.items() if name in shown}

    # -- the meta-tools ----------------------------------------------------------------------------

    def _register(self) -> list[str]:
        named: dict[str, tuple[Callable[..., Any], dict[str, Any], str, Annotations]] = {
            "tool_call": (self._call, _CALL, "Call a tool by its name.", _ACTS),
            "tool_create": (self._create, _CREATE, _MAKES, _ACTS),
            "tools_list": (self._list, _LIST, "List the tools: name and description of each.", _LOOKS),
            "tools_search": (self._search, _SEARCH, _FINDS, _LOOKS),
        }
        prefix = "glee_" if self._project.place.home.name == ".glee" else ""
        if prefix:
            named["glee_tool"] = (self._glee_call, _GLEE_CALL, "Call a tool by its name.", _ACTS)
            named["glee_tool_create"] = named["tool_create"]
            named["glee_tools_list"] = (self._glee_list, _NOTHING, "List the tools there are.", _LOOKS)
        if self._project.place.workflows.is_dir():
            about = "Run a workflow and return its state, and its value once it is done. Workflows: "
            names = ", ".join(self._project.workflows.all())
            workflow = (self._run_workflow, _WORKFLOW, about + (names or "none"), _ACTS)
            named |= dict.fromkeys(("workflow_run", *(["glee_workflow"] if prefix else [])), workflow)
        teams = self._project.config.teams(self._project.root)
        if self._project.place.agents.is_dir() or any(path.is_file() for path in teams):
            about = "Hand a task to an agent and return its answer, with the session to continue. Agents: "
            task = (self._task, _TASK, about + (", ".join(self._project.tasks.candidates()) or "none"), _ACTS)
            make = (self._create_agent, _CREATE_AGENT, _MAKES_AGENT, _ACTS)
            for start in dict.fromkeys(("", prefix)):
                named |= {f"{start}agent_create": make, f"{start}task": task}
        named["tool_page"] = (self._tool_page, _PAGE, "The page of a tool.", _LOOKS)
        named["own_calls"] = (self._own_calls, _NOTHING, "Your calls in the audit log.", _LOOKS)
        named["own_artifacts"] = (self._own_artifacts, _NOTHING, "Long outputs of your calls.", _LOOKS)
        free = [name for name in named if self._project.toolset.same_name(name) is None]
        for name, (function, schema, description, hints) in named.items():
            if name in free:
                self._project.toolset.register(
                    name, function, description=description, input_schema=schema, annotations=hints,
                    mcp=_FORMS.get(name), retry=_ONCE, tags=("meta",),
                )  # fmt: skip
        return free

    async def _call(self, ctx: Context, name: str, arguments: dict[str, Any] | None = None) -> Outcome:
        if name in self._meta:
            raise InvalidInput(f"{name} is a meta-tool", hint=f"Call {name} itself.")
        inner = ctx.inner(name, arguments or {})
        inner.on_event = ctx.relay
        result = await self._project.invoke(inner)
        return Outcome(result.unwrap(), result.warnings, result.details)

    async def _glee_call(self, ctx: Context, name: str, params: dict[str, Any] | None = None) -> Outcome:
        return await self._call(ctx, name, params)

    async def _run_workflow(
        self, ctx: Context, name: str, inputs: dict[str, Any] | None = None, wait_s: float = 240.0
    ) -> dict[str, Any]:
        project = self._project
        run_id = project.workflows.start(
            name, inputs, ctx.variables, caller=ctx.caller, identity=ctx.identity
        )
        return project.workflows.outcome(await project.runs.wait(run_id, wait_s))

    async def _task(
        self, ctx: Context, prompt: str, agent: str | None = None, session: str | None = None
    ) -> dict[str, Any]:
        wait = "raise" if ctx.wait == "pending" else ctx.wait
        return await self._project.tasks.run(
            prompt, agent, session, ctx.variables, caller=ctx.caller, identity=ctx.identity,
            on_event=ctx.relay, wait=wait, client=ctx.client,
        )  # fmt: skip

    async def _create_agent(self, ctx: Context, name: str, definition: dict[str, Any]) -> dict[str, Any]:
        from toolcrib.project.authoring.agent_creation import create_agent

        creator = ctx.caller.removeprefix("mcp:")
        made = await run_in_thread(lambda: create_agent(self._project, name, definition, creator))
        path = (self._project.place.agents / f"{name}.yml").relative_to(self._project.root)
        return {"name": made.name, "path": str(path), "trust": "a person has to trust it before it runs"}

    async def _create(self, ctx: Context, name: str, definition: dict[str, Any]) -> dict[str, Any]:
        project = self._project
        creator = ctx.caller.removeprefix("mcp:")

        made: ToolDraft = await run_in_thread(
            lambda: publish(project, draft(project, name, definition, creator))
        )
        project.catalog.adopt(made.tool, made.warnings)
        return {
            "name": made.tool.name,
            "path": str((project.place.tools / name / "tool.yml").relative_to(project.root)),
            "approval": {"required": True, "reason": made.tool.approval.reason},
            "warnings": [f"{one.where} {one.message}" for one in made.warnings],
        }

    async def _list(self, ctx: Context, offset: int = 0, limit: int | None = 100) -> list[dict[str, Any]]:
        wish = self._project.wish(ctx.caller, ctx.identity)
        found = await run_in_thread(lambda: self._project.bundles.described(wish, offset, limit))
        return [{"name": name, "description": text} for name, text in found]

    async def _glee_list(self, ctx: Context) -> list[dict[str, Any]]:
        return await self._list(ctx, limit=None)

    async def _search(self, ctx: Context, query: str, limit: int = 5) -> list[dict[str, Any]]:
        from toolcrib.search import words_of

        if not words_of(query):
            return []
        wish = self._project.wish(ctx.caller, ctx.identity)
        names = self._project.bundles.best(query, wish, limit=limit)
        return [
            {"name": tool.name, "description": tool.description, "input_schema": tool.input_schema}
            for tool in map(self._project.offered, map(self._project.get, names))
            if tool is not None
        ]

    async def _tool_page(self, ctx: Context, name: str) -> str:
        own = self._project.toolset.same_name(name) or name
        for tool in self._project.tools(ctx.caller, ctx.identity, among=(own,)):
            return page_of(tool)
        raise ToolNotFound(f"there is no tool named {name[:200]!r}")

    async def _own_calls(self, ctx: Context) -> Any:
        """Return the caller's own lines of the audit log, the newest last."""

        def read() -> list[dict[str, Any]]:
            query = AuditQuery(caller=ctx.caller)
            try:
                found = AuditReader(self._project.place.audit).newest(query, _MOST_CALLS)
            except OSError as error:
                raise AuditUnavailable(f"the audit log cannot be read: {error.strerror}") from None
            kept = ("time", "event", "fields")
            return [{key: one for key, one in line.as_dict().items() if key in kept} for line in found]

        return await run_in_thread(read)

    async def _own_artifacts(self, ctx: Context) -> Any:
        """Return the artifacts of the caller's own calls, the newest first."""
        outputs = self._project.outputs
        owner = outputs.readable(ctx.caller, ctx.identity)
        found = await run_in_thread(lambda: outputs.store.all(owner))
        return [{"tool": one.tool, **one.as_json()} for one in found[:_MOST_CALLS]]


def page_of(tool: Tool) -> str:
    """Return the page of a tool, in Markdown."""
    return "\n\n".join(_paragraphs(tool)) + "\n"


def _paragraphs(tool: Tool) -> Iterator[str]:
    yield f"# {tool.name}"
    yield tool.description
    yield f"Version {tool.version} of a tool of kind {tool.kind}, in {tool.bundle}."
    if tool.approval.required:
        yield f"A person approves each call: {tool.approval.reason or 'no reason is given'}."
    examples = [asdict(example) for example in tool.examples]
    for title, data in (("Input", tool.input_schema), ("Output", tool.output.schema), ("Examples", examples)):
        if data:
            yield f"## {title}\n\n```yaml\n{dump(data)}```"
