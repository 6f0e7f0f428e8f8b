"""A store with real processes: races, kills at any instant, a full disk."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from tests.commands import Forked
from tests.conftest import need
from toolcrib.bundles import BundleBody, Store
from toolcrib.spec.identifier import new_id

BEGIN = textwrap.dedent("""
    import sys
    from pathlib import Path
    from toolcrib.bundles import BundleBody, Store, ToolBody
    from toolcrib.errors import BundleNotEmpty, ConflictError, NotFoundError
    from toolcrib.spec.identifier import new_id

    folder, bundle, name, count = Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4])
    store = Store(folder)
    tool = ToolBody(display_name=name, type="http", impl={"urlTemplate": "https://example.com"})
    print("ready", flush=True)
    sys.stdin.readline()
""")
SAME_PAIRS = """
for number in range(count):
    try:
        store.put_tool(bundle, "same", str(number), tool)
    except ConflictError:
        pass
    else:
        print(number, flush=True)
"""
OWN_BUNDLES = """
for number in range(count):
    own = new_id()
    store.put_bundle(own, BundleBody(slug="mine"))
    store.put_tool(own, "a", "1", tool)
    store.switch_tool(own, "a", "1", enabled=False)
    print(own, flush=True)
"""
CHURN = """
for number in range(count):
    store.put_tool(bundle, f"{name}-{number}", "1", tool)
    print("put", number, flush=True)
    if number % 3 == 0:
        store.switch_tool(bundle, f"{name}-{number}", "1", enabled=False)
        print("off", number, flush=True)
    if number % 5 == 0:
        store.delete_tool(bundle, f"{name}-{number}", "1")
        print("gone", number, flush=True)
"""
DELETE_AND_RESTORE = """
for number in range(count):
    try:
        store.delete_bundle(bundle)
    except (BundleNotEmpty, NotFoundError):
        pass
    else:
        assert not [tool for tool in Path(folder, "bundles", bundle, "tools").glob("[!.]*")]
        store.put_bundle(bundle, BundleBody(slug="x"))
"""
PUT_AND_REMOVE = """
while count:
    try:
        store.put_tool(bundle, name, "1", tool)
    except NotFoundError:
        continue
    store.delete_tool(bundle, name, "1")  # it is never lost with its bundle
    count -= 1
"""


def start(folder: Path, bundle: str, code: str, name: str, count: int) -> Forked:
    command = [sys.executable, "-c", BEGIN + code, str(folder), bundle, name, str(count)]
    worker = Forked(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert worker.stdout is not None
    assert worker.stdout.readline() == "ready\n"
    return worker


def together(workers: list[Forked]) -> list[list[str]]:
    """Let all begin, and give the lines that each printed."""
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("\n")
        worker.stdin.flush()
    lines = [worker.communicate()[0].splitlines() for worker in workers]
    assert [worker.returncode for worker in workers] == [0] * len(workers)
    return lines


@pytest.fixture
def bundle(tmp_path: Path) -> str:
    found = new_id()
    Store(tmp_path).put_bundle(found, BundleBody(slug="x"))
    return found


def test_of_eight_that_put_the_same_pair_exactly_one_succeeds_each_time(tmp_path: Path, bundle: str) -> None:
    won = together([start(tmp_path, bundle, SAME_PAIRS, f"p{one}", 300) for one in range(8)])
    numbers = [int(line) for lines in won for line in lines]
    assert sorted(numbers) == list(range(300))
    stored = {tool.version: tool.display_name for tool in Store(tmp_path).tools(bundle)}
    for one, lines in enumerate(won):
        assert {stored[line] for line in lines} <= {f"p{one}"}


def test_eight_writers_of_different_bundles_lose_nothing(tmp_path: Path, bundle: str) -> None:
    made = together([start(tmp_path, bundle, OWN_BUNDLES, f"p{one}", 20) for one in range(8)])
    store = Store(tmp_path)
    assert {one.id for one in store.bundles()} == {bundle, *(line for lines in made for line in lines)}
    assert all(
        not tool.is_enabled for one in store.bundles() if one.id != bundle for tool in store.tools(one.id)
    )


def test_no_tool_gets_into_a_bundle_that_is_being_deleted(tmp_path: Path, bundle: str) -> None:
    deleting = [start(tmp_path, bundle, DELETE_AND_RESTORE, "x", 200) for _ in range(2)]
    putting = [start(tmp_path, bundle, PUT_AND_REMOVE, f"p{one}", 100) for one in range(2)]
    together([*deleting, *putting])
    assert Store(tmp_path).tools(bundle) == []


@pytest.mark.parametrize("kills", [12, pytest.param(300, marks=pytest.mark.soak)])
def test_a_killed_writer_loses_no_acknowledged_write_and_leaves_no_half_file(
    tmp_path: Path, bundle: str, kills: int
) -> None:
    chance = random.Random(1)
    store = Store(tmp_path)
    expected: dict[str, str] = {}
    acknowledged = 0
    for round_ in range(kills):
        if round_ % 10 == 9:  # One bundle takes 10,000 versions at most.
            bundle, expected = new_id(), {}
            store.put_bundle(bundle, BundleBody(slug="x"))
        worker = start(tmp_path, bundle, CHURN, f"r{round_}", 2_000)
        assert worker.stdin is not None
        assert worker.stdout is not None
        worker.stdin.write("\n")
        worker.stdin.close()
        first = worker.stdout.readline()
        time.sleep(chance.uniform(0.0, 0.3))
        worker.kill()
        for line in (first + worker.stdout.read()).splitlines(keepends=True):
            if line.endswith("\n"):
                did, number = line.split()
                expected[f"r{round_}-{number}"] = did
                acknowledged += 1
        worker.stdout.close()
        assert worker.wait() == -signal.SIGKILL
        assert all(store.snapshot(one.id) for one in store.bundles())
        stored = {tool.slug: tool for tool in store.tools(bundle)}
        for slug, did in expected.items():
            if did == "gone":
                assert slug not in stored
            elif slug not in stored:  # its deletion was not acknowledged yet
                assert int(slug.split("-")[1]) % 5 == 0
                assert slug.startswith(f"r{round_}-")
            elif did == "off":
                assert not stored[slug].is_enabled
        expected = {slug: did for slug, did in expected.items() if slug in stored or did == "gone"}
    assert acknowledged >= kills
    assert store.reap() == []
    assert not [path for path in (tmp_path / "bundles").rglob(".*") if path.is_file()]


FILL = textwrap.dedent("""
    import sys
    from pathlib import Path
    from toolcrib.bundles import BundleBody, Store, ToolBody
    from toolcrib.errors import UnavailableError
    from toolcrib.spec.identifier import new_id

    disk, ballast = Path(sys.argv[1], "store"), Path(sys.argv[1], "ballast")
    disk.mkdir()
    ballast.write_bytes(b"x" * 768 * 1024)
    store, bundle = Store(disk), new_id()
    tool = ToolBody(display_name="x", type="http", impl={"urlTemplate": "https://example.com"})
    store.put_bundle(bundle, BundleBody(slug="x"))
    put = 0

    def refused(change, *arguments):
        try:
            change(*arguments)
        except UnavailableError as error:
            assert "No space left on device" in error.message or "disk is full" in error.hint, error
            return True
        return False

    while not refused(store.put_tool, bundle, "a", str(put), tool):
        put += 1
    assert 0 < put < 10_000
    assert all(store.snapshot(one.id) for one in store.bundles())
    # The one that failed may be there: it was not acknowledged.
    found = {int(tool.version) for tool in store.tools(bundle)}
    assert set(range(put)) <= found <= set(range(put + 1)), (put, found)
    assert refused(store.put_bundle, bundle, BundleBody(slug="x" * 60, description="y" * 100_000))
    assert store.bundle(bundle).slug == "x"
    assert not [path for path in disk.rglob(".*") if path.is_file()]
    ballast.unlink()
    store.delete_tool(bundle, "a", "0")
    store.put_tool(bundle, "a", "0", tool)
    assert {int(tool.version) for tool in store.tools(bundle)} == found
    print("done")
""")


def test_a_full_disk_is_an_error_and_the_store_stays_whole(tmp_path: Path) -> None:
    mount = 'mount -t tmpfs -o size=1m none "$1" && exec "$2" -c "$3" "$1"'
    unshare = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", mount, "sh"]
    command = [*unshare, str(tmp_path), sys.executable]
    tried = subprocess.run([*command, "pass"], capture_output=True, check=False)
    need("mounts in a user namespace", tried.returncode == 0)
    done = subprocess.run([*command, FILL], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("done\n", "")
