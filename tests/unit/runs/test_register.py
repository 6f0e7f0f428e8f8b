"""The register of workers: what a beat costs a worker of many tools."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from toolcrib.runs.register import Register, live_workers
from toolcrib.state import LEASE_S, PROJECT, SqliteDatabase


class Served(list[str]):
    """Tools that count how often somebody goes through them."""

    walks = 0

    def __iter__(self) -> Iterator[str]:
        self.walks += 1
        return super().__iter__()


def test_a_beat_goes_through_the_tools_once_and_again_when_they_are_others(tmp_path: Path) -> None:
    database = SqliteDatabase(tmp_path / "data.db", PROJECT)
    stays, here = Register(database, "stays", "worker"), Register(database, "here", "embedded")
    tools, refused = Served(["one", "two"]), {"two": "it waits"}
    for _ in range(3):
        assert stays.beat(tools, refused, 0) == (frozenset[str](), [])
        assert here.beat((), {}, 0) == (frozenset({"one"}), [])
    assert tools.walks == 1
    stays.beat(["three"], {}, 0)
    assert here.beat((), {}, 0) == (frozenset({"three"}), [])
    assert {one.name: one.tools for one in live_workers(database, LEASE_S)} == {
        "stays": {"three"}, "here": set(),
    }  # fmt: skip
