"""The project's settings: what they give, and what is said of wrong ones."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from toolcrib.errors import ConfigError
from toolcrib.project import Config, load_config
from toolcrib.project.config.settings import KEYS


def config(tmp_path: Path, text: str | bytes) -> Config:
    file = tmp_path / "config.yml"
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    return load_config(file)


@pytest.mark.parametrize("text", ["", "# only a comment\n", "---\n", "\n\n", "limits:\nretry:\n"])
def test_an_empty_file_leaves_the_defaults(tmp_path: Path, text: str) -> None:
    assert config(tmp_path, text) == Config()


def test_a_missing_file_leaves_the_defaults(tmp_path: Path) -> None:
    assert load_config(tmp_path / "config.yml") == Config()
    assert Config().retry.max_attempts == 2
    assert Config().timeout_ms == 300_000
    assert Config().allowed_hosts is None


def test_every_setting(tmp_path: Path) -> None:
    found = config(
        tmp_path,
        """
limits: {timeout_ms: 1000}
retry: {max_attempts: 3, jitter: 0.5}
sandbox: {minimum: landlock}
security:
  allowed_hosts: [api.example.com]
  max_permissions: {network: true, fs: {read: ["."], write: [.glee/]}, secrets: [TOKEN]}
""",
    )
    assert found.timeout_ms == 1000
    assert found.sandbox_minimum == "landlock"
    assert (found.retry.max_attempts, found.retry.jitter) == (3, 0.5)
    assert found.allowed_hosts == ("api.example.com",)
    ceiling = found.max_permissions
    assert ceiling is not None
    assert (ceiling.network.mode, ceiling.read, ceiling.write) == ("any", (".",), (".glee/",))
    assert [secret.name for secret in ceiling.secrets] == ["TOKEN"]
    assert {key.partition(".")[0] for key in KEYS} == {
        *(
            "approvals",
            "audit",
            "builtins",
            "database",
            "inputs",
            "limits",
            "mcp",
            "mcp_servers",
            "middleware",
            "retention",
            "models",
            "policy",
            "retry",
            "roots",
            "sandbox",
            "secrets",
            "security",
            "sources",
            "workers",
        ),
    }


@pytest.mark.parametrize(
    ("text", "place", "rule", "told", "hint"),
    [
        ("limit: {}", "1:1", "unknown-key", "`limit` is not a setting", "`limits`"),
        (
            "zzz: {}",
            "1:1",
            "unknown-key",
            "`zzz`",
            "known here: approvals, audit, builtins, database, inputs",
        ),
        ("limits:\n  timeout: 5", "2:3", "unknown-key", "`limits.timeout`", "`timeout_ms`"),
        ("limits: 5", "1:1", "wrong-type", "must be a mapping", "timeout_ms"),
        ("limits: {timeout_ms: 0}", "1:22", "wrong-value", "from 1 to 86,400,000", None),
        ("limits: {timeout_ms: true}", "1:22", "wrong-value", "a whole number", None),
        ("retry: {jitter: 2}", "1:17", "wrong-value", "from 0 to 1", None),
        ("retry: {max_attempts: 1.5}", "1:23", "wrong-value", "a whole number from 1 to 100", None),
        ("sandbox: {minimum: some}", "1:20", "wrong-value", "one of: full, landlock, none", "doctor"),
        ("sources: {dir: a}", "1:1", "wrong-type", "`sources` must be a list", None),
        ("sources: [{}]", "1:11", "wrong-value", "name a folder or a file", None),
        ("sources: [{dir: a, file: b}]", "1:11", "wrong-value", "name a folder or a file", None),
        ("sources: [{file: a, dialect: native}]", "1:30", "wrong-value", "`native`", "folder of tools"),
        ("sources: [{file: a, dialect: openapi}]", "1:30", "wrong-value", "`openapi`", "import openapi"),
        ("sources: [{file: .mcp.json}]", "1:18", "wrong-value", "names MCP servers", "`mcp_servers`"),
        ("sources: [{file: a, dialect: skil}]", "1:30", "wrong-value", "one of: vega", "`skill`"),
        ("sources: [{dir: a, dialect: vga}]", "1:29", "wrong-value", "must be one of: vega", "`vega`"),
        ("sources: [{dir: a, permissions: {fs: {red: []}}}]", "1:39", "unknown-key", "red", "`read`"),
        ("security: {allowed_hosts: x}", "1:27", "wrong-value", "a list of texts", "[…]"),
        (
            "security: {allowed_hosts: [x.org, 'https://y.org/']}",
            "1:35",
            "wrong-value",
            "`security.allowed_hosts[1]` must be a host",
            "no https://",
        ),
        ("mcp_servers: {a: {comand: x}}", "1:18", "wrong-value", "cannot be used: `comand`", None),
        ("security: {max_permissions: {network: 5}}", "1:39", "wrong-value", "must be false, true", None),
        ("security: {max_permissions: {fs: {rad: []}}}", "1:35", "unknown-key", "rad", "`read`"),
        ("- a", "1:1", "wrong-type", "the file must be a mapping", "limits"),
        ("limits: [1", "1:11", "yaml-syntax", "not closed", None),
        ("a: 1\na: 2", "2:1", "yaml-duplicate-key", "twice", None),
        (b"limits: \xff", "1:9", "encoding", "UTF-8", None),
        ("[" * 200_000, "1:10001", "yaml-depth", "nested", None),
    ],
)
def test_what_is_wrong_is_told_with_its_place(
    tmp_path: Path, text: str | bytes, place: str, rule: str, told: str, hint: str | None
) -> None:
    with pytest.raises(ConfigError) as caught:
        config(tmp_path, text)
    first, *lines = caught.value.message.splitlines()
    assert first.startswith(f"{tmp_path / 'config.yml'}:{place}: error[{rule}]: ")
    assert told in first
    assert any(line.strip() == "^" for line in lines) or rule in ("encoding", "yaml-depth")
    assert hint is None or hint in (caught.value.hint or "")
    assert caught.value.exit_code == 4


def test_everything_wrong_is_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        config(tmp_path, "limits: {a: 1}\nretry: 5\nother: {}\nsandbox: {minimum: full}\n")
    assert [violation.path for violation in caught.value.violations] == ["$.limits.a", "$.retry", "$.other"]
    assert len(caught.value.details["diagnostics"]) == 3


def test_a_file_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "config.yml").mkdir()
    with pytest.raises(ConfigError):
        load_config(tmp_path / "config.yml")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ConfigError):
        load_config(tmp_path / "pipe")
