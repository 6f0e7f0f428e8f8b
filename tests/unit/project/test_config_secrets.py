"""`secrets.sources` in the settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from toolcrib.errors import ConfigError
from toolcrib.guard import EnvFileSecrets, EnvironmentSecrets
from toolcrib.guard.secrets.command_sources import start_unconfined
from toolcrib.project import load_config
from toolcrib.project.config.secrets import (
    SourceSetting,
    helper_folders,
    helper_programs,
    hidden_paths,
    open_sources,
)


def sources(tmp_path: Path, text: str) -> tuple[SourceSetting, ...]:
    file = tmp_path / "config.yml"
    file.write_text(f"secrets: {text}")
    return load_config(file).secret_sources


def test_the_environment_alone_unless_said_otherwise(tmp_path: Path) -> None:
    for text in ("", "{}"):
        settings = sources(tmp_path, text)
        assert settings == (SourceSetting("env"),)
        chain = open_sources(settings, tmp_path, lambda *_: start_unconfined, EnvironmentSecrets({}))
        assert [type(one) for one in chain.sources] == [EnvironmentSecrets, EnvironmentSecrets]


def test_every_kind_of_source(tmp_path: Path) -> None:
    settings = sources(
        tmp_path,
        """
  sources:
    - env: {}
    - env:
    - env_file: {path: conf/.env}
    - folder: {path: /run/secrets}
    - command: {argv: [pass, show], timeout_ms: 500, cache_s: 1.5}
    - keyring: {service: toolcrib, cache_s: 0}
""",
    )
    assert settings == (
        SourceSetting("env"),
        SourceSetting("env"),
        SourceSetting("env_file", path="conf/.env"),
        SourceSetting("folder", path="/run/secrets"),
        SourceSetting("command", argv=("pass", "show"), timeout_ms=500, cache_s=1.5),
        SourceSetting("keyring", service="toolcrib", cache_s=0),
    )
    chain = open_sources(settings, tmp_path, lambda *_: start_unconfined, EnvironmentSecrets({}))
    file = chain.sources[3]
    assert isinstance(file, EnvFileSecrets)
    assert file.path == tmp_path / "conf/.env"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{source: []}", "`secrets.source` is not a setting"),
        ("{sources: {env: {}}}", "`secrets.sources` must be a list"),
        ("{sources: []}", "at least one"),
        ("{sources: [env]}", "`secrets.sources[0]` must be a mapping"),
        ("{sources: [{}]}", "must name one source"),
        ("{sources: [{env: {}, keyring: {service: x}}]}", "must name one source"),
        ("{sources: [{vault: {}}]}", "`secrets.sources[0].vault` is not a setting"),
        ("{sources: [{env: {x: 1}}]}", "`secrets.sources[0].env.x` is not a setting"),
        ("{sources: [{env_file: {}}]}", "needs `path`"),
        ("{sources: [{folder: {path: 5}}]}", "needs `path`, a text"),
        ("{sources: [{keyring: {service: ''}}]}", "needs `service`"),
        ("{sources: [{command: {}}]}", "needs `argv`"),
        ("{sources: [{command: {argv: pass show}}]}", "must be a list of texts"),
        ("{sources: [{command: {argv: [x], timeout_ms: 0}}]}", "from 1 to 60,000"),
        ("{sources: [{command: {argv: [x], permissions: {fs: {write: [a]}}}}]}", "cannot be granted"),
        ("{sources: [{command: {argv: [x], cache_s: -1}}]}", "from 0 to 86,400"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        sources(tmp_path, text)
    assert told in caught.value.message
    assert "config.yml:1:" in caught.value.message


def test_what_holds_secrets_and_what_runs_is_known_by_its_real_path(tmp_path: Path) -> None:
    root = tmp_path.resolve() / "project"
    (root / "bin").mkdir(parents=True)
    (root / "bin/helper").write_text("")
    (root / "real.env").write_text("")
    (root / ".env").symlink_to("real.env")
    settings = (
        SourceSetting("env_file", path=".env"),
        SourceSetting("folder", path="../secrets"),
        SourceSetting("command", argv=("bin/helper", "--all")),
        SourceSetting("command", argv=("sh", "bin/helper", "bin/none")),
        SourceSetting("keyring", service="x"),
    )
    folder = str(tmp_path.resolve() / "secrets")
    assert hidden_paths(settings, root) == (f"{root}/.env", f"{root}/real.env", folder)
    assert helper_programs(settings, root) == (f"{root}/bin/helper",)


@pytest.mark.parametrize(
    ("argv", "folders"),
    [
        (["scripts/helper.py"], {"scripts"}),
        (["way/helper.py"], {"scripts"}),
        (["python3", "scripts/helper.py", "conf/data.yaml"], {"scripts"}),
        (["uv", "run", "scripts/helper.py"], {"scripts"}),
        (["sops", "-d", "conf/data.yaml"], set()),
        (["./helper"], {"."}),
        (["env/bin/python", "scripts/helper.py"], {"scripts", "env", "env/bin"}),
        (["python3", "-m", "scripts.helper"], {".", "scripts"}),
        (["python3", "-I", "-m", "keyring"], set()),
        (["op", "read"], set()),
    ],
)
def test_folders_that_a_helper_loads_code_from(tmp_path: Path, argv: list[str], folders: set[str]) -> None:
    root = tmp_path.resolve()
    for path in ("scripts/helper.py", "conf/data.yaml", "helper", "env/bin/python", "env/pyvenv.cfg"):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).touch()
    (root / "way").symlink_to("scripts")

    found = helper_folders((SourceSetting("command", argv=tuple(argv)),), root)

    assert set(found) == {str(root / folder) for folder in folders}
