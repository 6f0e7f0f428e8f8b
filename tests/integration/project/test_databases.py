"""The database of a project: who may name it, and what is kept where."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.commands import PROGRAM, complete
from tests.crib import Crib
from tests.postgres import PostgresProcess
from toolcrib import Project
from toolcrib.errors import ConfigError, UsageError
from toolcrib.state import Vault, name_database


@pytest.fixture
def url(postgres: PostgresProcess) -> str:
    return postgres.url(f"shop_{uuid.uuid4().hex}")


@pytest.fixture(autouse=True)
def person(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.delenv("DATABASE_URL", raising=False)
    monkeypatch.setenv("TOOLCRIB_DATA", str(tmp_path / "data"))
    yield tmp_path / "data"
    name_database(None)


@pytest.fixture
def shop(crib: Crib) -> Crib:
    crib.accept = "trusted"
    crib.shell("dear", approval={"required": True, "reason": "it is dear"})
    crib.shell("plain")
    return crib


def rows(url: str, table: str) -> list[Any]:
    with psycopg.connect(url) as connection:
        known = connection.execute("SELECT to_regclass(%s)", (table,)).fetchone()
        if known is None or known[0] is None:
            return []
        return connection.execute(f"SELECT * FROM {table}".encode()).fetchall()


def ask_and_approve(crib: Crib) -> None:
    """A call waits, a person approves it in another process' project, and it runs."""
    first = crib.call("dear", {"c": "echo done"}, wait="pending")
    assert first.status == "pending"
    project = Project.open(crib.root)
    (waiting,) = project.approval_service.approvals.list("pending")
    project.approval_service.approvals.approve(waiting.id, "ada")
    project._steps.store.close()
    assert crib.call("dear", {"c": "echo done"}).status == "ok"


def trust(crib: Crib) -> None:
    Project.inspect(crib.root).trust.accept("ann", settings=True)


def test_a_call_that_needs_no_database_opens_none(shop: Crib, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.accept = "all"
    monkeypatch.setenv("DATABASE_URL", "postgresql://ada@127.0.0.1:1/nowhere")
    assert shop.call("plain", {"c": "echo done"}).status == "ok"
    assert not (shop.home / "state.db").exists()
    away = shop.call("dear", {"c": "echo done"}, wait="pending").error
    assert away is not None
    assert away.code == "state_unavailable"


def test_the_environment_names_the_database_of_all(
    shop: Crib, url: str, person: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_URL", url)
    ask_and_approve(shop)
    assert len(rows(url, "approvals")) == len(rows(url, "grants")) == 1
    assert not (shop.home / "state.db").exists()
    assert (person / "grants-key").stat().st_mode & 0o777 == 0o600


def test_a_decision_on_the_server_counts_only_with_the_key(
    shop: Crib, url: str, person: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_URL", url)
    shop.call("dear", {"c": "echo done"}, wait="pending")
    project = Project.open(shop.root)
    (waiting,) = project.approval_service.approvals.list("pending")
    project.approval_service.approvals.approve(waiting.id, "ada")
    project._steps.store.close()
    (person / "grants-key").write_text("0" * 64)
    assert shop.call("dear", {"c": "echo done"}, wait="pending").status == "pending"


def test_a_project_names_a_server_only_when_trusted_and_never_for_decisions(shop: Crib, url: str) -> None:
    shop.write(".toolcrib/config.yml", f"database: '{url}'\n")
    (waiting,) = Project.open(shop.root).waiting
    assert waiting.name == "database"
    assert url in waiting.allows
    ask_and_approve(shop)
    assert rows(url, "approvals") == []
    assert (shop.home / "state.db").exists()
    trust(shop)
    ask_and_approve(shop)
    assert len(rows(url, "approvals")) == 1
    assert rows(url, "grants") == []
    assert (Vault(shop.root).path / "grants.db").exists()


def test_the_users_settings_come_before_the_projects_and_the_flag_before_all(
    shop: Crib, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.write(".toolcrib/config.yml", "database: postgresql://ada@127.0.0.1:1/nowhere\n")
    trust(shop)
    settings = tmp_path / "settings.yml"
    settings.write_text(f"database: {url}\n")
    monkeypatch.setenv("TOOLCRIB_CONFIG", str(settings))
    ask_and_approve(shop)
    assert len(rows(url, "approvals")) == 1
    monkeypatch.setenv("DATABASE_URL", "mysql://another@program/db")
    ask_and_approve(shop)
    assert len(rows(url, "approvals")) == 2
    name_database("sqlite")
    ask_and_approve(shop)
    assert len(rows(url, "approvals")) == 2
    assert (shop.home / "state.db").exists()


def test_commands_take_it_as_an_option(shop: Crib, url: str) -> None:
    command = [PROGRAM, "approvals", "list", "--root", str(shop.root), "--json"]
    done = complete(
        [*command, "--database", url],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT COUNT(*) FROM approvals").fetchone() == (0,)
    wrong = complete(
        [*command, "--database", "mysql://x"], capture_output=True, text=True, timeout=60, check=False
    )
    assert wrong.returncode == UsageError.exit_code
    assert "a database is named by" in wrong.stderr + wrong.stdout


@pytest.mark.parametrize(
    "address", ["postgresql://ada:hunter2@db/x", "postgresql://db/x?password=hunter2", "mysql://db/x", "5"]
)
def test_a_project_names_no_password_and_no_other_kind(address: str, shop: Crib) -> None:
    shop.write(".toolcrib/config.yml", f"database: '{address}'\n")
    with pytest.raises(ConfigError, match="`database` "):
        Project.open(shop.root)


def test_the_starts_of_limited_calls_are_counted_on_the_server(
    shop: Crib, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_URL", url)
    shop.accept = "all"
    shop.shell("rare", limits={"calls_per_minute": 2})
    results = [shop.call("rare", {"c": "echo done"}) for _ in range(3)]
    assert [result.status for result in results[:2]] == ["ok", "ok"]
    assert results[2].error is not None
    assert results[2].error.code == "rate_limited"
    assert len(rows(url, "starts")) == 2


def test_a_program_names_the_database_when_it_opens_the_project(
    shop: Crib, url: str, person: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgresql://ada@127.0.0.1:1/nowhere")
    project = Project.open(shop.root, database=url)
    result = asyncio.run(project.call("dear", {"c": "echo done"}, wait="pending"))
    asyncio.run(project.aclose())
    assert result.status == "pending"
    assert len(rows(url, "approvals")) == 1
    assert (person / "grants-key").exists()
    in_file = Project.open(shop.root, database="sqlite")
    assert in_file.approval_service.approvals.list("pending") == []
    asyncio.run(in_file.aclose())
    with pytest.raises(UsageError, match="a database is named by"):
        Project.open(shop.root, database="mysql://ada@db/shop")
