"""Tasks: work handed to an agent of the project, or to a command-line agent in the sandbox.

A command-line agent is a tool with the tag `agent`: it takes a `prompt` and perhaps a `session`, and prints
JSON lines. A session is a file that remembers the session of each agent; what the programs print is kept.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from toolcrib.errors import ConflictError, NotFoundError, StateUnavailable, ToolFailed, UsageError
from toolcrib.manifest import SourceFiles, read
from toolcrib.project.durable.agents import ProjectAgents
from toolcrib.project.root import Place
from toolcrib.runs.agents import AgentRuns
from toolcrib.spec import Call, Caller, CallEvent, Invoke, Tool
from toolcrib.spec.identifier import new_id
from toolcrib.spec.naming import suggestion

if TYPE_CHECKING:
    from toolcrib.search import MarkedIndex


_TAG = "agent"
_CONTEXT_BYTES = 65_536
_WORDS = 64
# No link is followed: a clone could bring one, and have any file of its user written.
_FLAGS = os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
_is_id = re.compile(r"[0-9a-f-]{36}\Z").match


class Candidate(NamedTuple):
    """Somebody who can be handed a task."""

    name: str
    kind: Literal["agent", "program"]
    """An agent of the project, or a tool that runs a command-line agent."""
    description: str


class ProjectTasks:
    """Chooses agents for tasks and hands them over."""

    def __init__(
        self,
        place: Place,
        files: SourceFiles,
        tools: Callable[[str, Caller | None], Sequence[Tool]],
        agents: ProjectAgents,
        runs: Callable[[], AgentRuns],
        invoke: Invoke,
    ) -> None:
        self._place, self._files, self._tools = place, files, tools
        self._agents, self._runs, self._invoke = agents, runs, invoke
        self._index: MarkedIndex | None = None

    def candidates(self, caller: str = "local", identity: Caller | None = None) -> dict[str, Candidate]:
        """Return everybody who can be handed a task, by name. An agent hides a program of its name."""
        programs = [one for one in self._tools(caller, identity) if _TAG in one.tags]
        found = [Candidate(one.name, "program", one.description) for one in programs]
        found += [Candidate(one.name, "agent", one.description) for one in self._agents.all().values()]
        return {one.name: one for one in found}

    def choose(
        self, task: str, limit: int = 5, *, caller: str = "local", identity: Caller | None = None
    ) -> list[Candidate]:
        """Return those whose name or description fits the task, the best first.

        It is the search of tools, so the same task gets the same answer, and no model is asked.
        """
        from toolcrib.search import (
            EMPTY_WORDS,
            MarkedIndex,
            SearchedIndex,
            SearchEntry,
            Wanted,
            find,
            words_of,
        )

        words = tuple(word for word in dict.fromkeys(words_of(task)) if word not in EMPTY_WORDS)[:_WORDS]
        there = dict(sorted(self.candidates(caller, identity).items()))
        if not words or not there:
            return []
        self._index = index = self._index or MarkedIndex(None)
        marks = {name: [len(there) - at, *one] for at, (name, one) in enumerate(there.items())}
        index.sync(
            marks, lambda name: SearchEntry((name,), there[name].kind, (), there[name].description, ())
        )
        found = find([SearchedIndex(index, index.keys.get)], Wanted(words), limit)
        return [there[hit.tool] for hit in found.hits]

    async def run(
        self,
        prompt: str,
        agent: str | None = None,
        session: str | None = None,
        variables: Mapping[str, Any] | None = None,
        *,
        caller: str = "local",
        identity: Caller | None = None,
        on_event: Callable[[CallEvent], None] | None = None,
        **options: Any,
    ) -> dict[str, Any]:
        """Hand a task over, and return its end: `session`, `agent`, `answer`, `log`.

        Without an agent the last one of the session gets it, or the best of `choose`. The first task of an
        agent in a session begins with AGENTS.md and the project's memories; the next ones continue its
        session. `log` is the file with all that a program printed. `options` are further fields of its call.
        Raises the error of the call or run; `UsageError` if nobody fits; `ConflictError` while another task
        of the session runs.
        """
        with self._session(session, caller, identity) as record:
            name = agent or record["last"] or self._best(prompt, caller, identity)
            there = self.candidates(caller, identity)
            if name not in there:
                hint = suggestion(name, there, f"Known here: {', '.join(there) or 'none'}.")
                raise NotFoundError(f"there is no agent {name[:100]!r} to hand a task to", hint=hint)
            record["last"] = name
            resume = record["agents"].get(name)
            text = prompt if resume else f"{self._context()}{prompt}"
            answer: str | None
            if there[name].kind == "agent":
                runs, log = self._runs(), None
                record["agents"][name] = resume = resume or runs.create_session(caller=caller)
                run = await runs.run(resume, name, text, variables, caller=caller, identity=identity)
                answer = run.answer
            else:
                log = self._folder("stream_logs") / f"{record['id']}.jsonl"
                arguments = {"prompt": text} | ({"session": resume} if resume else {})
                given = dict(variables or {})
                call = Call(name, arguments, caller, given, on_event=on_event, identity=identity, **options)
                answer = await self._run_program(call, record, log)
            shown = None if log is None else str(log.relative_to(self._place.root))
            return {"session": record["id"], "agent": name, "answer": answer, "log": shown}

    async def _run_program(self, call: Call, record: dict[str, Any], log: Path) -> str:
        """Run a command-line agent, keep what it prints, and return its answer."""
        output, listener = AgentOutput(), call.on_event
        with os.fdopen(os.open(log, os.O_WRONLY | os.O_APPEND | _FLAGS, 0o600), "a") as kept:

            def listen(event: CallEvent) -> None:
                if event.kind == "chunk":
                    kept.write(event.text)
                    kept.flush()  # A reader follows it.
                    output.feed(event.text)
                if listener is not None:
                    listener(event)

            call.on_event = listen
            result = await self._invoke(call)
        output.end()
        # Before the result is looked at: also after a failure the next task can continue the session.
        if output.session is not None:
            record["agents"][call.tool] = output.session
        result.unwrap()
        if output.error is not None or output.answer is None:
            text = f"{call.tool} ended without an answer: {output.error or 'it printed none'}"
            raise ToolFailed(text, hint=f"All that it printed is in {log}.")
        return output.answer

    def _best(self, prompt: str, caller: str, identity: Caller | None) -> str:
        found = self.choose(prompt, 1, caller=caller, identity=identity)
        if not found:
            there = ", ".join(self.candidates(caller, identity))
            none = "There are no agents. To add one: toolcrib agents add --help"
            hint = f"Name one of these: {there}." if there else none
            raise UsageError("no agent's description fits this task", hint=hint)
        return found[0].name

    def _context(self) -> str:
        """Return AGENTS.md and the memories, each with its name above it, as the beginning of a prompt."""
        place = self._place
        paths = [place.root / "AGENTS.md", *sorted((place.home / "memories").glob("*.md"))]
        parts, left = [], _CONTEXT_BYTES
        for path in paths:
            try:
                raw = read(str(path), self._files)
            except FileNotFoundError:
                continue
            text = raw[:left].decode(errors="replace").strip()
            parts.append(f"# {path.relative_to(place.root)}\n\n{text}\n\n")
            left -= len(raw)
            if left <= 0:
                parts.append(f"(The context ends here: it has more than {_CONTEXT_BYTES:,} bytes.)\n\n")
                break
        return "".join(parts) + "# The task\n\n" if parts else ""

    def _folder(self, name: str) -> Path:
        folder = self._place.home / name
        try:
            folder.mkdir(exist_ok=True)
        except OSError as error:
            raise StateUnavailable(f"{folder} cannot be made: {error.strerror}") from None
        # For the same reason as in `_FLAGS`: `mkdir` accepts a link to a folder anywhere.
        if folder.is_symlink():
            raise StateUnavailable(f"{folder} is a link; it must be a folder of the project's own")
        return folder

    @contextmanager
    def _session(self, session: str | None, caller: str, identity: Caller | None) -> Iterator[dict[str, Any]]:
        """Hold the record of a session, and store it in the end."""
        # The same for a session of another caller, which must not learn that it exists.
        unknown = NotFoundError(f"there is no session {str(session)[:100]!r} of tasks")
        path = self._folder("agent_sessions") / f"{session or new_id()}.json"
        # Only an id: any other text could be the path of a file somewhere else.
        if session is not None and not (_is_id(session) and path.is_file()):
            raise unknown
        try:
            descriptor = os.open(path, os.O_RDWR | _FLAGS, 0o600)
        except OSError as error:
            raise StateUnavailable(f"{path} cannot be opened: {error.strerror}") from None
        with os.fdopen(descriptor, "r+") as file:
            try:
                # The kernel releases it if this process dies.
                flock(file, LOCK_EX | LOCK_NB)
            except BlockingIOError:
                message = f"another task of the session {session} is running"
                raise ConflictError(message, hint="Wait for its end, or begin another session.") from None
            new: dict[str, Any] = {"id": path.stem, "caller": caller, "last": None, "agents": {}}
            # It is empty if it is new, or if a process died before it wrote the record.
            try:
                record: dict[str, Any] = new | json.loads(file.read() or "{}")
            except (ValueError, TypeError):
                text = f"{path} is damaged: it was changed, or a process died while it wrote it"
                raise StateUnavailable(text, hint="Begin another session.") from None
            if not (identity is None or identity.may("admin") or record["caller"] == caller):
                raise unknown
            try:
                yield record
            finally:
                if record["last"] is None:  # Nobody was handed anything.
                    path.unlink()
                file.seek(0)
                file.write(json.dumps(record) + "\n")
                file.truncate()


# A program prints it, and it is an argument of its next start: it must not look like an option.
_is_session = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}\Z").match


class AgentOutput:
    """The output of a command-line agent so far: its session, its answer or its error.

    It reads the events of `claude -p --output-format stream-json`, of `codex exec --json` and of `gemini
    --output-format stream-json`. Other lines are passed over.
    """

    def __init__(self) -> None:
        self.session: str | None = None
        """The program's own id of the session, to continue it."""
        self.answer: str | None = None
        self.error: str | None = None
        self._parts: list[str] = []
        self._rest = ""

    def feed(self, text: str) -> None:
        """Take the next part of the output."""
        *lines, self._rest = (self._rest + text).split("\n")
        for line in lines:
            self._read(line)

    def end(self) -> None:
        """Take what is after the last line break, and settle the answer."""
        self._read(self._rest)
        if self.answer is None and self._parts:
            self.answer = "".join(self._parts)

    def _read(self, line: str) -> None:
        try:
            event = json.loads(line) if line.startswith("{") else None
        except ValueError:
            return
        if not isinstance(event, dict):
            return
        session = event.get("session_id") or event.get("thread_id")
        if isinstance(session, str) and _is_session(session):
            self.session = session
        kind = event.get("type")
        is_error = event.get("is_error") or event.get("status") == "error"
        if kind == "turn.failed" or (kind == "result" and is_error):
            self.error = _message(event)
        elif kind == "result" and isinstance(event.get("result"), str):  # claude
            self.answer = event["result"]
        elif kind == "message" and event.get("role") == "assistant":  # gemini: the answer in parts
            self._parts.append(str(event.get("content") or ""))
        elif kind == "item.completed":  # codex: its last message is the answer
            item = event.get("item")
            if isinstance(item, dict) and item.get("type") == "agent_message":
                self.answer = str(item.get("text") or "")


def _message(event: dict[str, Any]) -> str:
    error = event.get("error") or event.get("result") or event.get("subtype") or "it does not say why"
    return str(error.get("message", error) if isinstance(error, dict) else error)
