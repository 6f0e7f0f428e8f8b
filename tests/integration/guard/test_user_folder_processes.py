"""Trust and tokens with several processes at once, and with processes that are killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

from tests.commands import Forked
from toolcrib.errors import InvalidToken
from toolcrib.guard import SETTINGS, Ledger, Tokens
from toolcrib.state import Vault

A, B = "a" * 64, "b" * 64

TRUSTER = textwrap.dedent("""
    import sys
    import time
    from pathlib import Path
    from toolcrib.guard import SETTINGS, Ledger, Trusted
    from toolcrib.state import Vault

    ledger = Ledger(Vault(Path(sys.argv[1]), Path(sys.argv[2])))
    ledger.accept([Trusted(SETTINGS, "a" * 64)], "ann", "terminal")
    print("ready", flush=True)
    while True:
        ledger.accept([Trusted(SETTINGS, "b" * 64)], "ann", "terminal")
        ledger.accept([Trusted(SETTINGS, "a" * 64)], "ann", "terminal")
        time.sleep(0.001)  # SQLite's lock is not fair: on a busy machine nobody else would get it.
""")

CREATOR = textwrap.dedent("""
    import sys
    from pathlib import Path
    from toolcrib.errors import ConflictError
    from toolcrib.guard import Tokens
    from toolcrib.state import Vault

    tokens = Tokens(Vault(Path(sys.argv[1]), Path(sys.argv[2])))
    print("ready", flush=True)
    sys.stdin.readline()
    for number in range(10):
        try:
            print(tokens.create(f"t{number}", ["read"], owner=sys.argv[3]), flush=True)
        except ConflictError:
            pass
""")


def start(code: str, *words: str) -> Forked:
    process = Forked(
        [sys.executable, "-c", code, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def test_trust_is_whole_whenever_its_writer_is_killed(tmp_path: Path) -> None:
    vault = Vault(tmp_path / "project", tmp_path / "data")
    for turn in range(5):
        with start(TRUSTER, str(vault.root), str(tmp_path / "data")) as process:
            seen = set()
            deadline = time.monotonic() + 0.05 * (turn + 1)
            while time.monotonic() < deadline:
                current = Ledger(vault).last(SETTINGS)
                assert current is not None, "a reader never finds it missing or half written"
                seen.add(current.digest)
            os.kill(process.pid, signal.SIGKILL)
        assert seen <= {A, B}
        current = Ledger(vault).last(SETTINGS)
        assert current is not None
        assert current.digest in (A, B)


def test_of_two_processes_one_makes_the_token_of_a_name(tmp_path: Path) -> None:
    vault = Vault(tmp_path / "project", tmp_path / "data")
    makers = [start(CREATOR, str(vault.root), str(tmp_path / "data"), owner) for owner in ("ann", "bob")]
    for maker in makers:
        assert maker.stdin is not None
        maker.stdin.write("\n")
        maker.stdin.flush()
    made = [text for maker in makers for text in maker.communicate()[0].split()]
    assert [maker.returncode for maker in makers] == [0, 0]
    assert len(made) == 10
    tokens = Tokens(vault)
    assert {tokens.verify(text).name for text in made} == {f"t{number}" for number in range(10)}


def test_a_token_revoked_elsewhere_is_refused_at_once(tmp_path: Path) -> None:
    ours, theirs = (Tokens(Vault(tmp_path / "project", tmp_path / "data")) for _ in range(2))
    text = theirs.create("ci", ["read"], owner="ann")
    assert ours.verify(text).name == "ci"
    theirs.revoke("ci")
    with pytest.raises(InvalidToken):
        ours.verify(text)


def test_many_threads_verify_at_once(tmp_path: Path) -> None:
    tokens = Tokens(Vault(tmp_path / "project", tmp_path / "data"))
    texts = [tokens.create(f"t{number}", ["read"], owner="ann") for number in range(8)]
    found: list[str] = []

    def verify(text: str) -> None:
        found.extend(tokens.verify(text).name for _ in range(50))

    threads = [threading.Thread(target=verify, args=(text,)) for text in texts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == sorted(f"t{number}" for number in range(8) for _ in range(50))
