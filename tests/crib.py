"""A project on disk for tests: manifests from Python values, calls, and the audit log read back."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

from toolcrib import Project, Result
from toolcrib.guard import SETTINGS, EnvironmentSecrets, Ledger
from toolcrib.guard.audit.line import AuditEntry, parse
from toolcrib.project import Config, find, load_config
from toolcrib.project.config.settings import is_trusted
from toolcrib.project.trust.trust import settings_rows
from toolcrib.state import Vault

SH = {"c": {"type": "string"}}


def accept(root: Path, data: Path | None = None) -> None:
    """Trust a project and its tools as a person does by `toolcrib trust`, but not its settings.

    `data` is the person's data folder; None: the one of this process.
    """
    vault, place = Vault(root, data), find(root)
    if place.file is not None:  # A Python file needs no trust.
        return
    config = load_config(place.config, place.root)
    project = Project(place, config, secrets=EnvironmentSecrets({}), vault=vault)
    rows = settings_rows(Config()) if project.trust.ledger.last(SETTINGS) is None else []
    sheets = [sheet for sheet in project.trust.sheets()[0] if sheet.waits]
    texts = [one.tool.source.raw for one in sheets if one.tool.source is not None]
    # Without a line in the audit log, in which tests count their own.
    project.trust.ledger.accept([*rows, *(one.row for one in sheets)], "ann", "program", texts)
    project.trust.ledger.close()


class Crib:
    """A project folder. Manifests are written as JSON, which is YAML too."""

    def __init__(self, root: Path, home: str = ".toolcrib") -> None:
        self.root = root.resolve()
        self.home = self.root / home
        (self.home / "tools").mkdir(parents=True)
        self.secrets: dict[str, str] = {}
        self.accept: Literal["trusted", "all"] = "all"
        """`trusted`: in a test of what asks, tools need trust; the project itself is this user's own."""
        Ledger(Vault(self.root)).accept(settings_rows(Config()), "ann", "program")

    def write(self, path: str, text: str | bytes, mode: int = 0o644) -> Path:
        """A file of the project, with its folders."""
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text.encode() if isinstance(text, str) else text)
        file.chmod(mode)
        return file

    def tool(
        self,
        name: str,
        kind: str,
        config: dict[str, Any],
        properties: dict[str, Any] | None = None,
        **more: Any,
    ) -> Path:
        """A tool of any kind; `more` are further blocks of its manifest. Gives the tool's folder."""
        schema = {"type": "object", "properties": properties or {}, "additionalProperties": False}
        manifest = {
            "name": name,
            "description": f"Does {name}.",
            "kind": kind,
            "version": 1,
            "inputs": {"schema": more.pop("schema", schema)},
            "exec": {kind: config},
            **more,
        }
        return self.write(f"{self.home.name}/tools/{name}/tool.yml", json.dumps(manifest)).parent

    def shell(self, name: str = "sh", **more: Any) -> Path:
        """A command tool that runs the shell script in its argument `c`."""
        config = {"entrypoint": "sh", "args": ["-c", "${c}"], "allow_code": True, **more.pop("config", {})}
        return self.tool(name, "command", config, SH, **{"outputs": {"format": "text"}, **more})

    def python(
        self, source: str, name: str = "py", properties: dict[str, Any] | None = None, **more: Any
    ) -> Path:
        """A Python tool whose module `mod` lies beside its manifest; its function is `run`."""
        config = {"module": "mod", "function": "run", **more.pop("config", {})}
        folder = self.tool(name, "python", config, properties, **more)
        (folder / "mod.py").write_text(source)
        return folder

    def open(self) -> Project:
        """The project, with the secrets set here. Its settings weaken nothing before `trust`."""
        config, vault = load_config(self.home / "config.yml", self.root), Vault(self.root)
        ledger = Ledger(vault)
        trusted = not config.weakening() or is_trusted(config.digest, ledger)
        secrets = EnvironmentSecrets(self.secrets)
        place = find(self.root)
        return Project(place, config, secrets=secrets, trusted=trusted, vault=vault, accept=self.accept)

    def trust(self) -> None:
        """Trust the settings, as a person does by `toolcrib trust`."""
        config = load_config(self.home / "config.yml", self.root)
        Ledger(Vault(self.root)).accept(settings_rows(config), "ann", "program")

    def trust_tools(self, *names: str) -> None:
        """Trust tools as they are now, as a person does by `toolcrib trust NAME`."""

        async def accept() -> None:
            async with self.open() as project:
                for name in names:
                    project.trust.trust(project.get(name), "ann")

        with ThreadPoolExecutor(1) as pool:  # an event loop may run in this thread already
            pool.submit(asyncio.run, accept()).result()

    def call(self, tool: str, arguments: Any = None, **options: Any) -> Result:
        """One call in a project opened for it."""

        async def once() -> Result:
            async with self.open() as project:
                return await project.call(tool, arguments, **options)

        return asyncio.run(once())

    def sh(self, script: str, tool: str = "sh") -> str:
        """What a shell tool writes, errors of its commands included."""
        value = self.call(tool, {"c": f"{{ {script}\n}} 2>&1; true"}).unwrap()
        assert isinstance(value, str)
        return value

    def audit(self) -> list[AuditEntry]:
        """The lines of the audit log, without those of calls that start."""
        return [entry for entry in self.audit_lines() if entry.event != "TOOL_STARTED"]

    def audit_lines(self) -> list[AuditEntry]:
        """Every line of the audit log."""
        log = self.home / "audit" / "tools.log"
        return [parse(line) for line in log.read_bytes().splitlines()] if log.exists() else []

    def last(self) -> AuditEntry:
        """The last line of the audit log."""
        return self.audit()[-1]


def failed(result: Result, code: str) -> str:
    """The message of a result that failed so; that it says how to mend it is checked elsewhere."""
    assert result.error is not None, result.value
    assert result.error.code == code, repr(result.error)
    return result.error.message


Make = Callable[..., Crib]
