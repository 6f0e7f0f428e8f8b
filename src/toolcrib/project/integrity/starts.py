"""Starts the commands that the settings name, if their code is what was trusted and pinned."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from toolcrib.errors import NotTrusted, ToolcribError
from toolcrib.guard import Ledger, Pinned, Snapshots, ToolDigest, UnreadableError, changed_parts
from toolcrib.project.config.secrets import SourceSetting
from toolcrib.project.config.settings import Config, is_trusted
from toolcrib.project.config.started import CommandLine, digest_of
from toolcrib.project.integrity.lock import require_started
from toolcrib.project.root import Place
from toolcrib.spec import CommandExec, Tool

if TYPE_CHECKING:
    from toolcrib.executors.workspace.workspace import Workspace
    from toolcrib.guard.secrets.command_sources import StartHelper

_MAX_OUTPUT = 65_537
"""Bytes of a helper's output: one more than a secret may have."""


class Starts:
    """The rule about what the settings of one project start.

    `workspace` returns what a confined helper command sees of the project. `whole`: the program that opened
    the project answers for all that is in it.
    """

    def __init__(
        self,
        config: Config,
        place: Place,
        ledger: Ledger,
        snapshots: Snapshots,
        workspace: Callable[[], Workspace],
        *,
        whole: bool,
    ) -> None:
        self._root, self._ledger = place.root, ledger
        self._snapshots, self._workspace = snapshots, workspace
        self._accepts_all = whole
        self.use(config)

    def use(self, config: Config) -> None:
        """Compare with these settings from now on."""
        self._config = config
        self._own = config.document is None and not config.servers.trusted_bytes
        """True for settings that a program made itself."""
        self._whole = self._accepts_all or self._own

    def require(self, setting: str, line: CommandLine) -> ToolDigest:
        """Return the digest of the code inside the project that a command starts, as it is now.

        Raises NotTrusted, or LockDrift, if it is not what was trusted or pinned; ToolUnavailable if it cannot
        be read.
        """
        found = digest_of(line, self._root)
        parts = {f"{setting}/{part}": value for part, value in found.parts.items()}
        then = {part: value for part, value in self._config.started.items() if part.startswith(f"{setting}/")}
        changed = [] if self._whole else list(changed_parts(then, parts))
        shown = self._config.unconfined.get(setting, "")
        # Another program may be found by its name since the person saw the settings.
        if line.unconfined != shown and not self._own:
            changed.append(f"its unconfined program (was {shown or 'none'}, is {line.unconfined or 'none'})")
        # The user may have trusted it since this project was opened, as it is now.
        if changed and not is_trusted(self._config.with_started(self._root).digest, self._ledger):
            raise NotTrusted(
                f"what {setting} starts has changed since it was trusted: {', '.join(changed)}",
                hint="To see it and accept it: toolcrib trust",
                details={"changed": changed},
            )
        require_started(self._root, setting, parts)
        return found

    def code(self, setting: str, line: CommandLine) -> Pinned:
        """Return the code that a command starts, to be mounted in its sandbox. Raises as `require` does, and
        ConflictError if it changes meanwhile."""
        return self._snapshots.of(self.require(setting, line))

    def helper(self, setting: str, source: SourceSetting) -> StartHelper:
        """Return what runs the helper command of a setting."""

        from toolcrib.guard.secrets.command_sources import start_unconfined

        def start(argv: Sequence[str], timeout: float) -> tuple[int, bytes]:
            try:
                code = self.require(setting, CommandLine(source.argv))
                if source.confined:
                    return self._confined(setting, source, argv, timeout, self._snapshots.of(code))
            except ToolcribError as error:
                raise UnreadableError(error.message, error.hint or "See `toolcrib trust --show`.") from None
            # Any tool that writes in the project could change it, and it would run with all rights of the
            # user.
            parts = code.parts.items()  # A link out of the project, and data that it reads, are not its code.
            inside = [
                part for part, text in parts if not (text.startswith("link ") or part.startswith("file/"))
            ]
            if inside:
                raise UnreadableError(
                    f"it runs code of the project ({', '.join(inside)}), so not with confined: false",
                    "Remove `confined: false`, and state what it needs under `permissions`.",
                )
            program = os.path.join(self._root, argv[0]) if "/" in argv[0] else argv[0]
            return start_unconfined([program, *argv[1:]], timeout, self._root)

        return start

    def _confined(
        self, setting: str, source: SourceSetting, argv: Sequence[str], timeout: float, pinned: Pinned
    ) -> tuple[int, bytes]:
        from toolcrib.executors.workspace.workspace import process_job

        command, permissions = CommandExec(argv[0], tuple(argv[1:])), source.permissions
        tool = Tool(setting, " ".join(argv), "command", {"type": "object"}, command, permissions=permissions)
        env = {name: os.environ[name] for name in permissions.env if name in os.environ}
        job = process_job(
            self._workspace(), tool, tuple(argv), ".", env, {}, output_limit=_MAX_OUTPUT, pinned=pinned
        )
        from toolcrib.sandbox import run

        job = replace(job, timeout_ms=max(1, int(timeout * 1000)))
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(1) as pool:  # an event loop may run in this thread already
            done = pool.submit(lambda: asyncio.run(run(job))).result()
        if done.timed_out:
            hint = "It must not ask anybody; raise timeout_ms if it is slow."
            raise UnreadableError(f"it took longer than {timeout:g} s", hint)
        return -(done.signal or 0) if done.exit_code is None else done.exit_code, done.stdout
