"""Imports with real processes: kills at any instant, two at once, a full disk."""

from __future__ import annotations

import json
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
from toolcrib.bundles import BundleBody, Store, ToolBody
from toolcrib.bundles.archive import apply, contents_of, export_bundle, read_zip
from toolcrib.bundles.listing import Listing
from toolcrib.errors import StateUnavailable
from toolcrib.spec.identifier import new_id

IMPORT = textwrap.dedent("""
    import json, sys
    from pathlib import Path
    from toolcrib.bundles import Store
    from toolcrib.bundles.archive import apply, read_zip
    from toolcrib.errors import ToolcribError

    store, data, choice = Store(Path(sys.argv[1])), Path(sys.argv[2]).read_bytes(), sys.argv[3]
    print("ready", flush=True)
    sys.stdin.readline()
    try:
        made = apply(store, read_zip(data), choice)
        print(json.dumps([one.action for one in made.tools]), flush=True)
    except ToolcribError as error:
        print(json.dumps(error.code), flush=True)
""")
TOOLS = 40


def body(text: str) -> ToolBody:
    return ToolBody(description=text, type="http", impl={"urlTemplate": "https://example.com"})


def archive(folder: Path, bundle: str, text: str, slug: str = "many") -> Path:
    """A ZIP file with many tools that all have this description."""
    store = Store(folder / f"source-{text}")
    store.put_bundle(bundle, BundleBody(slug=slug))
    for number in range(TOOLS):
        store.put_tool(bundle, f"t{number}", "1", body(text))
    path = folder / f"{text}.zip"
    path.write_bytes(export_bundle(store, bundle))
    return path


def start(folder: Path, path: Path, choice: str) -> Forked:
    command = [sys.executable, "-c", IMPORT, str(folder), str(path), choice]
    worker = Forked(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert worker.stdout is not None
    assert worker.stdout.readline() == "ready\n"
    return worker


def go(worker: Forked) -> None:
    assert worker.stdin is not None
    worker.stdin.write("\n")
    worker.stdin.flush()


def test_a_kill_at_any_instant_leaves_the_old_bundle_or_the_new_one(tmp_path: Path) -> None:
    bundle, data = new_id(), tmp_path / "data"
    path = archive(tmp_path, bundle, "new")
    worker = start(tmp_path / "timed", path, "refuse")
    took = time.monotonic()
    go(worker)
    worker.communicate()
    assert worker.returncode == 0
    took = time.monotonic() - took
    seen = set()
    for seed in range(25):
        store = Store(data / str(seed))
        listing = Listing(store, tmp_path / "snapshot")
        replaced = seed % 2 == 1
        if replaced:
            store.put_bundle(bundle, BundleBody(slug="many"))
            for number in range(TOOLS + 1):
                store.put_tool(bundle, f"t{number}", "1", body("old"))
        listing.refresh()
        worker = start(data / str(seed), path, "replace")
        go(worker)
        time.sleep(random.Random(seed).uniform(0, took))
        worker.send_signal(signal.SIGKILL)
        worker.communicate()
        there = [one.id for one in store.bundles()]
        assert there in ([], [bundle]), there
        texts = [one.description for one in store.tools(bundle)] if there else []
        listing.refresh()
        assert sorted(one.description for one in listing.tools()) == sorted(texts)
        whole = [["new"] * TOOLS + ["old"], ["old"] * (TOOLS + 1)] if replaced else [[], ["new"] * TOOLS]
        assert sorted(texts) in whole
        assert all(store.snapshot(one.id) for one in store.bundles())
        seen.add((replaced, "new" in texts))
        store.reap()
        assert not list((data / str(seed) / "bundles").rglob(".*"))  # nothing is left behind
        made = apply(store, read_zip(path.read_bytes()), "replace")  # and another try succeeds
        assert made.changes != ("new" in texts)
    assert len(seen) > 1  # some kills came in time


def test_of_two_that_import_at_once_one_adds_each_tool(tmp_path: Path) -> None:
    bundle = new_id()
    path = archive(tmp_path, bundle, "one")
    for choice in ("refuse", "skip", "replace"):
        folder = tmp_path / choice
        workers = [start(folder, path, choice) for _ in range(2)]
        for worker in workers:
            go(worker)
        actions = sorted(json.loads(worker.communicate()[0]) for worker in workers)
        assert actions == [["add"] * TOOLS, ["keep"] * TOOLS]
        assert contents_of(Store(folder), bundle) == contents_of(Store(tmp_path / "source-one"), bundle)


def test_of_two_different_imports_at_once_one_is_refused(tmp_path: Path) -> None:
    bundle = new_id()
    paths = [archive(tmp_path, bundle, text) for text in ("one", "two")]
    for turn in range(5):
        folder = tmp_path / str(turn)
        workers = [start(folder, path, "refuse") for path in paths]
        for worker in workers:
            go(worker)
        outcomes = [json.loads(worker.communicate()[0]) for worker in workers]
        assert outcomes.count("conflict") == 1
        assert outcomes.count(["add"] * TOOLS) == 1
        winner = "one" if outcomes[1] == "conflict" else "two"
        assert {one.description for one in Store(folder).tools(bundle)} == {winner}


def test_writers_beside_imports_lose_nothing(tmp_path: Path) -> None:
    bundle, folder = new_id(), tmp_path / "data"
    path = archive(tmp_path, bundle, "one")
    store = Store(folder)
    store.put_bundle(bundle, BundleBody(slug="many"))
    workers = [start(folder, path, "replace") for _ in range(2)]
    for worker in workers:
        go(worker)
    number = 0
    while any(worker.poll() is None for worker in workers) or number < 20:
        store.put_tool(bundle, f"mine{number}", "1", body("mine"))
        number += 1
    for worker in workers:
        assert json.loads(worker.communicate()[0]) != "internal"
    texts = [one.description for one in store.tools(bundle)]
    assert texts.count("mine") == number


def test_a_full_disk_leaves_the_store_as_it_was(tmp_path: Path) -> None:
    bundle = new_id()
    source = Store(tmp_path / "source")
    source.put_bundle(bundle, BundleBody(slug="large"))
    for number in range(TOOLS):
        source.put_tool(bundle, f"t{number}", "1", body("x" * 40_000))
    zipped = export_bundle(source, bundle)
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", small], capture_output=True, check=False
    )
    need("the right to mount a small disk", mounted.returncode == 0, of_root=True)
    try:
        store = Store(small)
        with pytest.raises(StateUnavailable, match="No space left"):
            apply(store, read_zip(zipped))
        assert store.bundles() == []
        assert not list((small / "bundles").iterdir())
        store.put_bundle(bundle, BundleBody(slug="works"))
    finally:
        subprocess.run(["umount", small], check=True)
