"""The list of all tools of a store: in step with other processes by the journal, made again when lost."""

from __future__ import annotations

import errno
import os
import random
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from tests.commands import Forked
from tests.conftest import need
from tests.sources import MOMENT, MemorySource
from toolcrib.bundles import BundleBody, ListedTool, Store, ToolBody, ToolRecord
from toolcrib.bundles.journal import Journal
from toolcrib.bundles.listing import Listing, Place, Sort
from toolcrib.errors import StateUnavailable
from toolcrib.spec.identifier import new_id

TOOL = ToolBody(display_name="x", type="http", impl={}, arg_schema={"properties": {"city": {}}})
WRITER = """
import sys
from pathlib import Path
from toolcrib.bundles import Store, ToolBody
store, tool = Store(Path(sys.argv[1])), ToolBody(display_name="x", type="go", impl={})
for number in range(100):
    store.put_tool(sys.argv[2], f"{sys.argv[3]}-{number}", "1", tool)
    if number % 4 == 0:
        store.delete_tool(sys.argv[2], f"{sys.argv[3]}-{number}", "1")
    if number % 4 == 1:
        store.switch_tool(sys.argv[2], f"{sys.argv[3]}-{number}", "1", enabled=False)
"""


SORTS: Sequence[Sort] = ("name", "modifiedAt")


def fifo_at(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def socket_at(path: Path) -> None:
    path.unlink()
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))


def every(tool: ListedTool) -> bool:
    return True


def page(
    listing: Listing,
    count: int | None = None,
    behind: Place | None = None,
    wanted: Callable[[ListedTool], bool] = every,
    bundles: Sequence[str] = (),
    tags: Sequence[str] = (),
) -> list[ListedTool]:
    """The newest tools behind a place."""
    order = listing.ordered("createdAt", bundles, tags)
    tools = ((at, one) for at, one in enumerate(order.tools) if behind is None or one.order < behind)
    return [tool for _, tool in listing.page(tools, count, wanted, bundles, tags)]


def names(listing: Listing) -> list[str]:
    return [tool.slug for tool in page(listing)]


def in_step(store: Store, listing: Listing) -> None:
    """The list is what the files say."""
    listing.refresh()
    stored = {
        (tool.bundle_id, tool.slug, tool.version, tool.is_enabled)
        for bundle in store.bundles()
        if bundle.soft_deleted_at is None
        for tool in store.tools(bundle.id)
    }
    assert {(tool.bundle, tool.slug, tool.version, tool.enabled) for tool in listing.tools()} == stored
    pages, before = [], None
    while found := page(listing, 7, before):
        pages += found
        before = found[-1].order
    assert len(pages) == len(stored)
    assert [tool.order for tool in pages] == sorted((tool.order for tool in pages), reverse=True)
    anew = Listing(store, None)
    anew.refresh()
    for sort in SORTS:
        assert listing.ordered(sort).tools == anew.ordered(sort).tools
        assert listing.ordered(sort, [new_id()]).tools == []
    for bundle in listing.bundles:
        for tags in ((), ("even",), ("even", "third")):
            expected = [
                tool for tool in pages if tool.bundle == bundle and (not tags or {*tags} & {*tool.tags})
            ]
            assert page(listing, bundles=[bundle], tags=tags) == expected
            if expected:
                assert page(listing, 3, expected[0].order, every, [bundle], tags) == expected[1:4]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


@pytest.fixture
def bundle(store: Store) -> str:
    found = new_id()
    store.put_bundle(found, BundleBody(slug="x"))
    return found


def test_changes_are_seen_and_no_change_costs_a_look_at_one_file(
    store: Store, bundle: str, tmp_path: Path
) -> None:
    listing = Listing(store, tmp_path / "listing")
    assert listing.refresh()
    assert not listing.refresh()
    store.put_tool(bundle, "a", "1", TOOL)
    assert listing.refresh()
    (tool,) = listing.tools()
    assert (tool.slug, tool.arguments, tool.enabled) == ("a", ("city",), True)
    store.switch_tool(bundle, "a", "1", enabled=False)
    in_step(store, listing)
    store.delete_tool(bundle, "a", "1")
    in_step(store, listing)
    store.put_tool(bundle, "a", "1", TOOL)
    store.switch_bundle(bundle, enabled=False)
    listing.refresh()
    assert not listing.bundles[bundle].is_enabled


def test_an_order_stays_as_it_was_while_tools_change(store: Store, bundle: str, tmp_path: Path) -> None:
    listing = Listing(store, tmp_path / "listing")
    store.put_tool(bundle, "b", "1", TOOL)
    listing.refresh()
    first = listing.ordered("name").tools
    assert listing.ordered("name").tools is first  # To copy a hundred thousand for each page takes longest.
    store.put_tool(bundle, "a", "1", TOOL)
    listing.refresh()
    assert [tool.slug for tool in first] == ["b"]
    assert [tool.slug for tool in listing.ordered("name").tools] == ["a", "b"]


def test_a_page_of_one_bundle_or_tag_looks_at_no_other_tool(
    store: Store, bundle: str, tmp_path: Path
) -> None:
    listing, other, asked = Listing(store, None), new_id(), []
    store.put_bundle(other, BundleBody(slug="other"))
    for number in range(30):
        tags = (["even"] if number % 2 == 0 else []) + (["third"] if number % 3 == 0 else [])
        body = ToolBody(display_name="x", type="http", impl={}, tags=tuple(tags))
        store.put_tool(bundle if number < 3 else other, f"a{number}", "1", body)
        in_step(store, listing)

    def wanted(tool: ListedTool) -> bool:
        asked.append(tool.slug)
        return True

    assert len(page(listing, 25, None, wanted, [bundle])) == 3
    assert asked == ["a2", "a1", "a0"]
    assert len(page(listing, 25, None, wanted, (), ["third", "even"])) == 20
    assert page(listing, 25, None, wanted, [new_id()], ["even"]) == []
    assert page(listing, 25, None, wanted, [bundle, other], ["never"]) == []
    assert len(asked) == 23
    store.delete_tool(bundle, "a2", "1")
    store.switch_tool(bundle, "a1", "1", enabled=False)
    in_step(store, listing)


def test_a_random_history_of_several_processes_is_followed(store: Store, bundle: str, tmp_path: Path) -> None:
    listing = Listing(store, tmp_path / "listing")
    workers = [Forked([sys.executable, "-c", WRITER, str(tmp_path), bundle, f"p{one}"]) for one in range(3)]
    while any(worker.poll() is None for worker in workers):
        listing.refresh()
    assert [worker.wait() for worker in workers] == [0, 0, 0]
    in_step(store, listing)
    assert len(listing) == 3 * 75


def test_the_snapshot_saves_reading_and_may_be_gone_damaged_or_old(
    store: Store, bundle: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(20):
        store.put_tool(bundle, f"a{number}", "1", TOOL)
    first = Listing(store, tmp_path / "listing")
    first.refresh()
    first.save()
    store.put_tool(bundle, "late", "1", TOOL)
    read: list[str] = []
    real = Store.tool_in

    def tool_in(self: Store, bundle_id: str, file: str) -> ToolRecord | None:
        read.append(file)
        return real(self, bundle_id, file)

    monkeypatch.setattr(Store, "tool_in", tool_in)
    second = Listing(store, tmp_path / "listing")
    second.refresh()
    assert len(read) == 1
    in_step(store, second)
    harms: list[Callable[[Path], object]] = [
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(path.read_bytes().replace(b"a1", b"\xff1")),
        lambda path: path.write_bytes(random.Random(1).randbytes(500)),
        lambda path: path.unlink(),
        fifo_at,
        lambda _: (tmp_path / "journal").unlink(),
    ]
    for harm in harms:
        second.save()
        harm(tmp_path / "listing")
        third = Listing(store, tmp_path / "listing")
        in_step(store, third)
        store.put_tool(bundle, new_id(), "1", TOOL)
        in_step(store, third)
        in_step(store, second)


def test_a_bundle_that_was_copied_by_hand_with_a_new_id_in_each_record_is_listed_beside_the_first(
    store: Store, bundle: str, tmp_path: Path
) -> None:
    listing, other = Listing(store, None), new_id()
    store.put_tool(bundle, "a", "1", TOOL)
    shutil.copytree(tmp_path / "bundles" / bundle, tmp_path / "bundles" / other)
    for record in (tmp_path / "bundles" / other).rglob("*.json"):
        record.write_text(record.read_text().replace(bundle, other))
    in_step(store, listing)
    for one in bundle, other:
        store.switch_tool(one, "a", "1", enabled=False)
        in_step(store, listing)
    store.delete_tool(bundle, "a", "1")
    in_step(store, listing)


def test_a_file_that_is_put_there_or_removed_by_hand_is_seen_without_a_restart(
    store: Store, bundle: str, tmp_path: Path
) -> None:
    listing = Listing(store, None)
    listing.refresh()
    other = new_id()
    store.put_bundle(other, BundleBody(slug="other", display_name="x"))
    made = store.put_tool(other, "by-hand", "1", TOOL)
    (file,) = (tmp_path / f"bundles/{other}/tools").iterdir()
    text = file.read_text().replace(other, bundle).replace(made.id, new_id())
    listing.refresh()
    assert not any(listing.is_behind for _ in range(2))
    copy = tmp_path / f"bundles/{bundle}/tools" / file.name
    copy.write_text(text)
    listing.refresh()
    assert listing.find(bundle, "by-hand", "1")
    copy.unlink()
    listing.refresh()
    assert (listing.find(bundle, "by-hand", "1"), listing.is_behind) == (None, False)


def test_a_line_that_a_full_disk_cut_off_hides_no_later_one(
    store: Store, bundle: str, tmp_path: Path
) -> None:
    listing = Listing(store, tmp_path / "listing")
    listing.refresh()
    with (tmp_path / "journal").open("a") as journal:
        journal.write(f"\n{bundle} 0123")
    Store(tmp_path).put_tool(bundle, "a", "1", TOOL)
    in_step(store, listing)
    assert [tool.slug for tool in listing.tools()] == ["a"]


@pytest.mark.parametrize("special", [fifo_at, socket_at])
def test_a_journal_that_is_no_file_is_an_error_and_no_wait(
    store: Store, bundle: str, tmp_path: Path, special: Callable[[Path], None]
) -> None:
    special(tmp_path / "journal")
    with pytest.raises(StateUnavailable, match="journal cannot be"):
        store.put_tool(bundle, "a", "1", TOOL)
    with suppress(StateUnavailable):
        in_step(store, Listing(store, tmp_path / "listing"))


def test_a_long_journal_is_begun_anew(store: Store, bundle: str, tmp_path: Path) -> None:
    first, second = Listing(store, tmp_path / "first"), Listing(Store(tmp_path), tmp_path / "second")
    for listing in first, second:
        listing.refresh()
    with (tmp_path / "journal").open("r+b") as journal:
        journal.truncate(65 << 20)
    store.put_tool(bundle, "a", "1", TOOL)
    in_step(store, first)
    assert (tmp_path / "journal").stat().st_size < 1000
    store.put_tool(bundle, "b", "1", TOOL)
    in_step(store, first)
    in_step(store, second)


def test_the_tools_of_sources_are_listed_with_their_switches(tmp_path: Path) -> None:
    def tool(number: int) -> ToolRecord:
        facts = {"slug": f"a{number}", "version": "1", "type": "go", "impl": {}, "created_at": MOMENT}
        return ToolRecord(id=new_id(), bundle_id=a, modified_at=MOMENT, **facts)  # type: ignore[arg-type]

    a = new_id()
    source = MemorySource(a, "shop", [tool(0), tool(1)], "project")
    store = Store(tmp_path, sources=[source])
    listing = Listing(store, tmp_path / "listing")
    in_step(store, listing)
    assert not (tmp_path / "bundles").exists()
    store.switch_tool(a, "a1", "1", enabled=False)
    assert listing.is_behind
    in_step(store, listing)
    assert [one.slug for one in listing.tools() if listing.is_on(one)] == ["a0"]
    own = new_id()
    store.put_bundle(own, BundleBody(slug="own"))
    store.put_tool(own, "mine", "1", TOOL)
    in_step(store, listing)
    source.put([tool(2), *source.tools[1:]])
    in_step(store, listing)
    assert {one.slug for one in listing.tools()} == {"a1", "a2", "mine"}
    source.put(map(tool, range(600)))  # So many that the order is made anew.
    in_step(store, listing)
    assert listing.records == 1
    listing.save()
    later = Listing(Store(tmp_path), tmp_path / "listing")
    later.refresh()
    assert [one.slug for one in later.tools()] == ["mine"]  # Of a source nothing is kept.


def test_deleted_bundles_are_hidden(store: Store, bundle: str, tmp_path: Path) -> None:
    listing = Listing(store, tmp_path / "listing")
    store.delete_bundle(bundle)
    listing.refresh()
    assert names(listing) == []
    store.put_bundle(bundle, BundleBody(slug="x"))
    store.put_tool(bundle, "a", "1", TOOL)
    listing.refresh()
    assert names(listing) == ["a"]


def test_the_journal_of_a_store_that_is_read_only_is_an_error_before_the_change(
    store: Store, bundle: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def add(self: Journal, bundle: str, *files: str) -> None:
        raise OSError("full")

    monkeypatch.setattr(Journal, "add", add)
    with pytest.raises(OSError, match="full"):
        store.put_tool(bundle, "a", "1", TOOL)
    assert store.tools(bundle) == []


def test_a_change_is_made_only_once_its_line_is_on_disk(
    store: Store, bundle: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_descriptor: int) -> None:
        raise OSError(errno.EIO, "the disk is broken")

    monkeypatch.setattr("toolcrib.bundles.journal.os.fdatasync", fail)
    with pytest.raises(StateUnavailable, match="journal cannot be"):
        store.put_tool(bundle, "a", "1", TOOL)
    assert store.tools(bundle) == []


def test_a_snapshot_is_written_where_it_saves_time(
    store: Store, bundle: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolcrib.bundles.listing._FEW", 5)
    for number in range(10):
        store.put_tool(bundle, f"a{number}", "1", TOOL)
    Listing(store, tmp_path / "cache" / "listing").refresh()
    monkeypatch.setattr(Store, "tool_in", None)
    again = Listing(store, tmp_path / "cache" / "listing")
    again.refresh()
    assert len(again) == 10


READER = """
import sys
from pathlib import Path
from toolcrib.bundles import Store
from toolcrib.bundles.listing import Listing
data = Path(sys.argv[1])
listing = Listing(Store(data), None)
for _ in range(2):
    listing.refresh()
    print([tool.slug for tool in listing.tools()])
try:
    (data / "new").touch()
except OSError as error:
    print(error.strerror)
"""


def test_a_folder_that_may_only_be_read_is_listed(store: Store, bundle: str, tmp_path: Path) -> None:
    store.put_tool(bundle, "a", "1", TOOL)
    mount = 'mount --bind "$1" "$1" && mount -o remount,ro,bind "$1" && exec "$2" -c "$3" "$1"'
    unshare = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", mount, "sh"]
    command = [*unshare, str(tmp_path), sys.executable]
    tried = subprocess.run([*command, "pass"], capture_output=True, check=False)
    need("mounts in a user namespace", tried.returncode == 0)
    done = subprocess.run([*command, READER], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert done.stdout.splitlines() == ["['a']", "['a']", "Read-only file system"]
