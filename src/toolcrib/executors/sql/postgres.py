"""One statement on a Postgres server: values are bound by name, in a read-only transaction by default."""

from __future__ import annotations

import base64
import datetime
import re
from collections.abc import Iterator
from contextlib import aclosing
from typing import Any
from urllib.parse import quote

from toolcrib.egress import Destination, HostPolicy
from toolcrib.errors import ManifestError, PermissionDenied, SecretMissing, ToolFailed, ToolUnavailable
from toolcrib.executors.host import Host
from toolcrib.spec import Call, CallContext, Outcome, SqlExec, Tool
from toolcrib.state.installation import install_hint

_NAME = re.compile(r"%(?:\((\w+)\)([sbt])|(.?))", re.DOTALL)
_MAX_ROWS = 1_000
_MAX_BYTES = 1_048_576
_PASSING = ("08", "40", "53", "55", "57")
"""Classes of errors that another attempt may not meet: connection, serialization, resources, locks."""
_TIMEOUT = "57014"


def postgres_faults(tool: Tool) -> Iterator[tuple[tuple[str, ...], str, str | None]]:
    """Yield place, reason and hint of everything that keeps the tool from being called."""
    config = tool.config
    assert isinstance(config, SqlExec)
    if config.secret not in {secret.name for secret in tool.permissions.secrets}:
        hint = f"add to permissions.secrets: {config.secret}: {{type: string, required: true}}"
        yield ("secret",), f"the secret {config.secret} is not declared", hint
    if config.parameters:
        yield (
            ("parameters",),
            "statements on Postgres have named parameters only",
            "write %(name)s, and no list",
        )
    known = tool.input_schema.get("properties", {})
    for name, _, other in _NAME.findall(config.statement):
        if name and name not in known:
            yield ("statement",), f"`%({name})s` is not an argument", "declare it in inputs.schema"
        elif not name and other != "%":
            yield (
                ("statement",),
                "the statement has a single `%`",
                "write %% for one, %(name)s for a value",
            )


class PostgresExecutor:
    """Runs one statement on the server whose address is a secret."""

    def __init__(self, tool: Tool, host: Host) -> None:
        config = tool.config
        assert isinstance(config, SqlExec)
        for path, reason, hint in postgres_faults(tool):
            raise ManifestError(reason, hint=hint, details={"path": ["exec", "sql", *path]})
        self._tool, self._config, self._host = tool, config, host
        self._names = [name for name, *_ in _NAME.findall(config.statement) if name]
        self._rows = config.max_rows or _MAX_ROWS

    async def run(self, call: Call, ctx: CallContext) -> Outcome:
        """Run the statement. Return a list of rows as objects, or the number of changed rows."""
        try:
            import psycopg
        except ImportError:
            message = "SQL on Postgres needs psycopg, which is not installed"
            raise ToolUnavailable(message, hint=install_hint("postgres")) from None

        url = ctx.secrets.get(self._config.secret or "")
        if url is None:
            name = self._config.secret
            raise SecretMissing(f"the secret {name} is not set", details={"name": name})
        assert not isinstance(call.arguments, bytes | str)
        values = {name: _bound(call.arguments.get(name)) for name in self._names}
        conninfo = await self._address(url)
        try:
            async with self._host.connections().connection(conninfo) as connection:
                return await self._execute(connection, values, ctx)
        except psycopg.Error as error:
            raise self._failed(error, ctx) from None

    async def _execute(self, connection: Any, values: dict[str, Any], ctx: CallContext) -> Outcome:
        limit = max(1, int(ctx.remaining * 1000))
        mode = "READ WRITE" if self._config.write else "READ ONLY"
        await connection.execute(f"BEGIN {mode}; SET LOCAL statement_timeout = {limit}")
        rows: list[dict[str, Any]] = []
        warnings: tuple[str, ...] = ()
        cursor = connection.cursor()
        statement = self._config.statement.encode()
        if self._config.write:
            await cursor.execute(statement, values, prepare=True)
            if cursor.description is None:
                changed = max(cursor.rowcount, 0)
                await connection.execute("COMMIT")
                return Outcome({"changed": changed})
            names = _columns(cursor)
            found = await cursor.fetchmany(self._rows + 1)
            await connection.execute("COMMIT")
            rows = [_row(names, row) for row in found[: self._rows]]
            warnings = self._cut() if len(found) > self._rows else ()
            return Outcome(rows, warnings)
        size = 0
        # Row by row: a query without LIMIT must not fill the memory before the limit is seen.
        async with aclosing(cursor.stream(statement, values)) as stream:
            async for row in stream:
                rows.append(_row(_columns(cursor), row))
                size += len(repr(rows[-1]))
                if len(rows) > self._rows or size > _MAX_BYTES:
                    rows.pop()
                    warnings = self._cut(f" or {_MAX_BYTES:,} bytes" if size > _MAX_BYTES else "")
                    break
        await cursor.close()
        await connection.execute("ROLLBACK")
        return Outcome(rows, warnings)

    def _cut(self, more: str = "") -> tuple[str, ...]:
        return (f"the answer has more than {self._rows:,} rows{more}; the others are left out",)

    async def _address(self, url: str) -> str:
        """Return the connection string with the addresses that the tool's permissions allow."""
        import psycopg
        from psycopg.conninfo import conninfo_to_dict, make_conninfo

        try:
            given: dict[str, Any] = dict(conninfo_to_dict(url))
        except psycopg.Error:
            raise ToolFailed(
                f"the secret {self._config.secret} is not the address of a Postgres server"
            ) from None
        # libpq reads further hosts and services from the string; one that is checked must be the one that is
        # used.
        host = str(given.get("host") or given.get("hostaddr") or "")
        if not host or "," in host:
            raise ToolFailed(f"the secret {self._config.secret} must name one host")
        if host.startswith("/"):
            files = self._host.workspace().files()
            if not files.grants(self._tool).cover(files.resolve(host)):
                raise PermissionDenied(
                    f"{self._tool.name} may not use the socket of its database in {host}",
                    hint=f"Name the folder {host} under permissions.fs.read in the manifest.",
                )
            return make_conninfo(**given)
        port = int(given.get("port") or 5432)
        written = f"[{host}]" if ":" in host else quote(host, safe="")
        # The policy knows http and https only: https stands for a connection that may be encrypted.
        destination = Destination.parse(f"https://{written}:{port}")
        network, allowed = self._tool.permissions.network, self._host.allowed_hosts
        policy = HostPolicy.of(network, port=port, allowed_hosts=allowed)
        addresses = await self._host.egress().addresses(destination, policy)
        # libpq connects to `hostaddr`, the checked address, and verifies the certificate for `host`.
        return make_conninfo(**{**given, "host": host, "hostaddr": addresses[0]})

    def _failed(self, error: Any, ctx: CallContext) -> Exception:
        code = error.sqlstate or ""
        if code == _TIMEOUT:
            return ctx.timed_out()
        message = error.diag.message_primary or " ".join(str(error).split())
        hint = error.diag.message_hint
        if code == "25006":
            hint = "Set exec.sql.write: true in the manifest if the tool may change data."
        return ToolFailed(
            f"Postgres: {message}", hint=hint, details={"sqlstate": code} if code else {},
            retryable=code[:2] in _PASSING or (not code and error.__class__.__name__ == "OperationalError"),
        )  # fmt: skip


def _columns(cursor: Any) -> list[str]:
    names = [column.name for column in cursor.description]
    if len(set(names)) != len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        raise ToolFailed(f"the columns {', '.join(twice)} appear twice: rename them with AS")
    return names


def _row(names: list[str], row: tuple[Any, ...]) -> dict[str, Any]:
    return {name: _cell(value) for name, value in zip(names, row, strict=True)}


def _cell(value: Any) -> Any:
    """Return a value as JSON: exact numbers, dates and other types as text, bytes as base64."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if value - value == 0 else None
    if isinstance(value, bytes | memoryview):
        return base64.b64encode(value).decode()
    if isinstance(value, list | tuple):
        return [_cell(item) for item in value]
    if isinstance(value, dict):
        return {str(key): _cell(item) for key, item in value.items()}
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    return str(value)


def _bound(value: Any) -> Any:
    """Return an argument for Postgres: an object, or a list with one in it, is JSON."""
    if isinstance(value, dict) or (isinstance(value, list) and any(isinstance(one, dict) for one in value)):
        from psycopg.types.json import Jsonb

        return Jsonb(value)
    return value
