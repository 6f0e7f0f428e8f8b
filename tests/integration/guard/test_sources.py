"""Sources of secrets with real files, links, processes and the keyring library."""

from __future__ import annotations

import os
import stat
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import keyring
import keyring.backend
import keyring.errors
import pytest

from tests.descriptors import many_open
from tests.integration.sandbox.ground import eventually
from toolcrib.errors import SecretMissing
from toolcrib.guard import (
    ChainedSecrets,
    EnvFileSecrets,
    EnvironmentSecrets,
    FolderSecrets,
    SecretStatus,
    UnreadableError,
    look_up,
)
from toolcrib.guard.secrets import command_sources
from toolcrib.guard.secrets.command_sources import CommandSecrets, KeyringSecrets
from toolcrib.spec import SecretSource
from toolcrib.testing import FakeClock

VALUE = "s3cr3t-value"


def refused(source: SecretSource, name: str = "TOKEN") -> SecretMissing:
    with pytest.raises(SecretMissing) as caught:
        source.get(name)
    error = caught.value
    assert VALUE not in str(error.as_dict())
    assert name in error.message
    assert error.hint
    assert look_up(source, name).state == "unreadable"
    return error


# What every source holds to


@pytest.fixture(params=["env", "env_file", "folder", "command", "keyring"])
def source(
    request: pytest.FixtureRequest, tmp_path: Path, memory: dict[tuple[str, str], str]
) -> SecretSource:
    """A source that has TOKEN, and EMPTY with nothing in it."""
    if request.param == "env":
        return EnvironmentSecrets({"TOKEN": VALUE, "EMPTY": ""})
    if request.param == "env_file":
        (tmp_path / ".env").write_text(f"TOKEN={VALUE}\nEMPTY=\n")
        return EnvFileSecrets(tmp_path / ".env")
    if request.param == "folder":
        (tmp_path / "TOKEN").write_text(VALUE + "\n")
        (tmp_path / "EMPTY").write_text("")
        return FolderSecrets(tmp_path)
    if request.param == "command":
        return CommandSecrets(script(tmp_path, f'if [ "$1" = TOKEN ]; then echo {VALUE}; fi'))
    memory[("toolcrib", "TOKEN")] = VALUE
    memory[("toolcrib", "EMPTY")] = ""
    return KeyringSecrets("toolcrib")


@pytest.mark.parametrize(
    "name", ["OTHER", "EMPTY", "", "../TOKEN", "/etc/passwd", ".", "..", "a/b", "-x", "A\0B"]
)
def test_what_is_not_there_is_none(source: SecretSource, name: str) -> None:
    assert source.get(name) is None
    assert look_up(source, name) == SecretStatus("missing")


def test_the_value_is_given_and_never_told(source: SecretSource) -> None:
    for _ in range(2):
        assert source.get("TOKEN") == VALUE
    found = look_up(source, "TOKEN")
    assert found.state == "resolved"
    assert found.source
    assert VALUE not in repr(found) + repr(source) + str(source)


# A `.env` file


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / ".env"
    source = EnvFileSecrets(path)
    assert source.get("TOKEN") is None
    for value in ("one", "two", "six"):
        path.write_text(f"TOKEN={value}")
        os.utime(path, ns=(time.time_ns(), time.time_ns()))
        assert source.get("TOKEN") == value
    path.unlink()
    assert source.get("TOKEN") is None


@pytest.mark.parametrize(
    ("content", "told"),
    [(f"TOKEN='{VALUE}", "line 1"), (b"TOKEN=\xff" + VALUE.encode(), "UTF-8"), ("#" * 2_000_000, "at most")],
)
def test_a_file_that_is_unclear_is_refused(tmp_path: Path, content: str | bytes, told: str) -> None:
    path = tmp_path / ".env"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    assert told in refused(EnvFileSecrets(path)).message


def test_what_is_no_file_is_refused_and_does_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    refused(EnvFileSecrets(tmp_path / "pipe"))
    refused(FolderSecrets(tmp_path), "pipe")
    (tmp_path / "TOKEN").mkdir()
    refused(FolderSecrets(tmp_path))


# A mounted folder


def test_a_folder_as_kubernetes_mounts_it(tmp_path: Path) -> None:
    for version, value in (("one", "first"), ("two", "second")):
        (tmp_path / f"..{version}").mkdir()
        (tmp_path / f"..{version}" / "TOKEN").write_text(value)
    (tmp_path / "..data").symlink_to("..one")
    (tmp_path / "TOKEN").symlink_to("..data/TOKEN")
    source = FolderSecrets(tmp_path)
    assert source.get("TOKEN") == "first"
    (tmp_path / "..new").symlink_to("..two")
    (tmp_path / "..new").rename(tmp_path / "..data")
    assert source.get("TOKEN") == "second"
    assert source.get("..data") is None


@pytest.mark.parametrize("target", ["../outside", "/etc/hostname", "loop"])
def test_a_link_out_of_the_folder_is_refused(tmp_path: Path, target: str) -> None:
    (tmp_path / "outside").write_text(VALUE)
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "loop").symlink_to("loop")
    (folder / "TOKEN").symlink_to(target)
    refused(FolderSecrets(folder))


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    assert "No such file" in refused(FolderSecrets(tmp_path / "none")).message


@pytest.mark.parametrize(("content", "told"), [(b"a\0b", "NUL"), (b"x" * 70_000, "longer than")])
def test_what_can_be_no_secret_is_refused(tmp_path: Path, content: bytes, told: str) -> None:
    (tmp_path / "TOKEN").write_bytes(content)
    assert told in refused(FolderSecrets(tmp_path)).message


@pytest.mark.parametrize(
    ("content", "value"), [("a\n", "a"), ("a\r\n", "a"), ("a\n\n", "a\n"), (" a b", " a b"), ("\n", None)]
)
def test_only_the_last_newline_is_dropped(tmp_path: Path, content: str, value: str | None) -> None:
    (tmp_path / "TOKEN").write_bytes(content.encode())
    assert FolderSecrets(tmp_path).get("TOKEN") == value


# A command


def script(folder: Path, text: str) -> list[str]:
    path = folder / "helper.sh"
    path.write_text(text)
    return ["sh", str(path)]


def test_the_name_is_one_argument_and_no_shell_sees_it(tmp_path: Path) -> None:
    source = CommandSecrets([sys.executable, "-c", "import sys; print(sys.argv[1:])", "lookup"])
    assert source.get("A.B-c") == "['lookup', 'A.B-c']"
    assert source.get("$(id)") is None


def test_a_process_with_a_thousand_open_files_reads_a_command(tmp_path: Path) -> None:
    with many_open():
        assert CommandSecrets(script(tmp_path, "echo $1")).get("TOKEN") == "TOKEN"


def test_what_a_command_gives_is_kept_for_a_while(tmp_path: Path) -> None:
    clock = FakeClock()
    argv = script(tmp_path, f'echo x >>{tmp_path}/asked; wc -l <{tmp_path}/asked | tr -d " "')
    source = CommandSecrets(argv, keep=60, clock=clock.now)
    assert [source.get("A"), source.get("A"), source.get("B"), source.get("A")] == ["1", "1", "2", "1"]
    clock.advance(61)
    assert source.get("A") == "3"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (f"echo {VALUE} >&2; exit 3", "ended with status 3"),
        (f"echo {VALUE}; exit 1", "ended with status 1"),
        ("kill -9 $$", "signal 9"),
        ("head -c 70000 /dev/zero | tr '\\0' x", "longer than"),
        ("while :; do echo yyyyyyyyyyyyyyyyyyyyyyyyyyy; done", "longer than"),
    ],
)
def test_a_command_that_fails_is_refused(
    tmp_path: Path, text: str, told: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert told in refused(CommandSecrets(script(tmp_path, text))).message
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("text", ["sleep 60", "sleep 60 & echo x", "exec >&-; sleep 60", "cat; sleep 60"])
def test_a_command_that_does_not_end_is_ended_with_all_it_started(tmp_path: Path, text: str) -> None:
    (tmp_path / "pid").touch()
    for limit_s in (0.3, 4, 30):
        error = refused(CommandSecrets(script(tmp_path, f"echo $$ >{tmp_path}/pid; {text}"), timeout=limit_s))
        assert f"longer than {limit_s} s" in error.message
        if group := (tmp_path / "pid").read_text().strip():
            break
    else:
        raise AssertionError("no limit is long enough")
    assert eventually(lambda: not living(group))


def living(group: str) -> list[str]:
    """Processes of a group that run; one that has ended may wait for somebody to ask how."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, its_group = path.read_text().rpartition(")")[2].split()[:3]
        except (OSError, ValueError):
            continue
        if its_group == group and state not in "ZX":
            found.append(path.parent.name)
    return found


@pytest.mark.parametrize("argv", [["/no/such/program"], ["/etc/hostname"], ["/"]])
def test_a_command_that_cannot_start_is_refused(argv: list[str]) -> None:
    refused(CommandSecrets(argv))


# The keyring


class Memory(keyring.backend.KeyringBackend):
    """A keyring of this process, made known through the library's own interface."""

    priority = 1

    def __init__(self, entries: dict[tuple[str, str], str]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.entries = entries

    def get_password(self, service: str, username: str) -> str | None:
        if username == "LOCKED":
            raise keyring.errors.KeyringLocked(VALUE)
        return self.entries.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        self.entries[(service, username)] = password


@pytest.fixture
def memory() -> Iterator[dict[tuple[str, str], str]]:
    entries: dict[tuple[str, str], str] = {}
    before = keyring.get_keyring()
    keyring.set_keyring(Memory(entries))
    yield entries
    keyring.set_keyring(before)


def test_an_entry_that_the_library_stored_is_found(memory: dict[tuple[str, str], str]) -> None:
    keyring.set_password("toolcrib", "TOKEN", VALUE)
    assert KeyringSecrets("toolcrib").get("TOKEN") == VALUE
    assert KeyringSecrets("other").get("TOKEN") is None


def test_a_keyring_that_fails_is_refused(memory: dict[tuple[str, str], str]) -> None:
    assert "KeyringLocked" in refused(KeyringSecrets("toolcrib"), "LOCKED").message


def test_no_keyring_at_all_is_refused() -> None:
    import keyring.backends.fail

    before = keyring.get_keyring()
    keyring.set_keyring(keyring.backends.fail.Keyring())  # type: ignore[no-untyped-call]
    try:
        assert "no keyring" in refused(KeyringSecrets("toolcrib")).message
    finally:
        keyring.set_keyring(before)


def test_without_the_library_the_command_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the place of secret-tool, which needs a desktop, a program of the same arguments and answers."""
    monkeypatch.setitem(sys.modules, "keyring", None)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    tool = tmp_path / "secret-tool"
    tool.write_text(
        '#!/bin/sh\n[ "$*" = "lookup service toolcrib username TOKEN" ] && printf s3cr3t-value && exit 0\n'
        '[ "$5" = BROKEN ] && exit 2\nexit 1\n'
    )
    tool.chmod(0o755)
    source = KeyringSecrets("toolcrib")
    assert source.get("TOKEN") == VALUE
    assert source.get("OTHER") is None
    refused(source, "BROKEN")


def test_a_command_that_does_not_store_in_time_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As while a desktop asks for the keyring's password, and nobody answers."""
    monkeypatch.setitem(sys.modules, "keyring", None)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(command_sources, "_STORE_S", 0.2)
    tool = tmp_path / "secret-tool"
    tool.write_text("#!/bin/sh\nexec sleep 30\n")
    tool.chmod(0o755)
    with pytest.raises(UnreadableError, match=r"longer than 0\.2 s"):
        KeyringSecrets("toolcrib").store("TOKEN", VALUE)


def test_with_neither_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "keyring", None)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "[keyring]" in (refused(KeyringSecrets("toolcrib")).hint or "")


# Several


def test_the_first_that_has_it_gives_it(tmp_path: Path) -> None:
    one, two = EnvironmentSecrets({"A": "1", "B": ""}), EnvironmentSecrets({"A": "2", "B": "2"})
    chain = ChainedSecrets([one, two])
    assert [chain.get(name) for name in "ABC"] == ["1", "2", None]
    assert look_up(chain, "C") == SecretStatus("missing")


def test_a_source_that_cannot_be_read_is_not_passed_over(tmp_path: Path) -> None:
    broken = FolderSecrets(tmp_path / "none")
    chain = ChainedSecrets([EnvironmentSecrets({"A": "1"}), broken, EnvironmentSecrets({"B": "2"})])
    assert chain.get("A") == "1"
    error = refused(chain, "B")
    assert error.details["source"] == broken.label
    found = look_up(chain, "B")
    assert (found.source, found.reason) == (broken.label, "No such file or directory")
    assert stat.S_ISDIR(tmp_path.stat().st_mode)
