"""Tables of measured rows: each beside the limit and the best peer of the run, and what it should reach."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any, Literal

from benchmarks.timing import Samples

REASONS = Path(__file__).with_name("reasons.toml")
SCALE = {"µs": 1e6, "ms": 1e3, "s": 1.0, "MB": 1e-6}
LIMIT, PEER, WALL, OVER = "limit", "peer", "wall", "over"


@dataclass(frozen=True)
class Reach:
    """The most that a row should take.

    `of` is `limit` or `peer` (times the first row, times the best peer), the name of another row, `wall` (in
    the table's unit), or `over` (that much more than the limit).
    """

    most: float
    of: str = LIMIT


@dataclass
class Row:
    """One row; `seconds` holds one figure per operation for each round (bytes where the unit is MB)."""

    name: str
    reach: Reach | Sequence[Reach] = ()
    peer: bool = False
    seconds: list[float] = field(default_factory=list)
    missing: str | None = None
    """The reason that there are no figures."""
    extra: dict[str, str] = field(default_factory=dict)
    """Further columns."""
    deferred: str = ""
    """The part of the work that is done at another time."""


@dataclass(frozen=True)
class Verdict:
    """One thing that a row should reach, and the figure that it has."""

    asked: str
    reached: str
    share: float | None = None
    """The figure by what was asked: above 1 it was missed. None if there is nothing to compare with."""

    def __str__(self) -> str:
        said = "" if self.share is None else " · met" if self.share <= 1 else " · **missed**"
        return f"{self.asked}: {self.reached}{said}"


@dataclass
class Table:
    """Rows that were measured in the same rounds; the first is the limit.

    A figure is the least of all rounds, and a ratio that of two such figures.
    """

    title: str
    unit: Literal["µs", "ms", "s", "MB"]
    rows: list[Row]
    notes: list[str] = field(default_factory=list)
    has_limit: bool = True
    """False if the first row is only what the others are compared with."""

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Table:
        """Return the table of its JSON."""
        rows = [Row(**{**row, "reach": [Reach(**one) for one in row["reach"]]}) for row in data["rows"]]
        return cls(**{**data, "rows": rows})

    def json(self) -> dict[str, Any]:
        """Return the table as JSON; of the rounds it keeps the least, the median and the greatest."""
        rows = []
        for row in self.rows:
            kept = [float(f"{f(row.seconds):.4g}") for f in (min, median, max)] if row.seconds else []
            rows.append({**vars(row), "seconds": kept, "reach": [vars(one) for one in _each(row.reach)]})
        return {**vars(self), "rows": rows}

    def take(self, samples: Mapping[str, Samples]) -> None:
        """Fill in what was measured under the rows' names."""
        for row in self.rows:
            measured = samples.get(row.name)
            if measured is not None:
                row.seconds, row.missing = measured.seconds, measured.failure

    def best_peer(self) -> Row | None:
        """Return the fastest peer that was measured."""
        measured = [row for row in self.rows if row.peer and row.seconds]
        return min(measured, key=lambda row: min(row.seconds), default=None)

    def verdicts(self, row: Row) -> list[Verdict]:
        """Return what the row reached of each thing that it should."""
        return [self._verdict(row, reach) for reach in _each(row.reach)]

    def _verdict(self, row: Row, reach: Reach) -> Verdict:
        unit, scale = self.unit, SCALE[self.unit]
        base = "limit" if self.has_limit else self.rows[0].name
        words = {LIMIT: f"× {base}", PEER: "× best peer", WALL: f" {unit}", OVER: f" {unit} over the limit"}
        asked = f"≤ {reach.most:g}{words.get(reach.of, f'× {reach.of}')}"
        named = {one.name: one for one in self.rows}
        other = {LIMIT: self.rows[0], OVER: self.rows[0], PEER: self.best_peer()}.get(
            reach.of, named.get(reach.of)
        )
        if not row.seconds or (reach.of != WALL and (other is None or not any(other.seconds))):
            return Verdict(asked, "not measured")
        mine, theirs = min(row.seconds), min(other.seconds) if other is not None else 0.0
        if reach.of == LIMIT and self.has_limit and mine < theirs:
            return Verdict(asked, "the limit is slower, so it is none")
        value = {WALL: mine * scale, OVER: (mine - theirs) * scale}.get(reach.of)
        value = mine / theirs if value is None else value
        return Verdict(asked, figure(value), value / reach.most)

    def missed(self, row: Row) -> str:
        """Return the reason that a row does not reach what it should; empty if it does, or nobody knows."""
        short = any(one.share is not None and one.share > 1 for one in self.verdicts(row))
        return _reasons().get(self.title, {}).get(row.name, "") if short else ""

    def reached(self, row: Row) -> str:
        """Return all that a row should reach with its figures, and the reason if one was missed."""
        said, why = "; ".join(map(str, self.verdicts(row))), self.missed(row)
        return f"{said}: {why}" if why else said

    def markdown(self) -> str:
        """Return the table for people."""
        extras = list(dict.fromkeys(name for row in self.rows for name in row.extra))
        peers = ["× best peer"] if self.best_peer() else []
        base = "limit" if self.has_limit else self.rows[0].name
        head = ["", self.unit, "median", f"× {base}", *peers, *extras, "reach"]
        lines = [f"### {self.title}", "", line(head), line(["---"] * len(head))]
        lines += [line(self._cells(row, extras)) for row in self.rows]
        return "\n".join([*lines, "", *(f"{note}\n" for note in self.notes)])

    def _cells(self, row: Row, extras: list[str]) -> list[str]:
        limit, peer = self.rows[0], self.best_peer()
        kind = "limit: " if row is limit and self.has_limit else "peer: " if row.peer else ""
        name = kind + row.name + (f" (deferred: {row.deferred})" if row.deferred else "")
        further = [*(row.extra.get(column, "") for column in extras), self.reached(row)]
        if not row.seconds:
            return [name, row.missing or "not measured", "", "", *([""] if peer else []), *further]
        least, middle = (figure(f(row.seconds) * SCALE[self.unit]) for f in (min, median))
        ratios = [self.times(row, limit)]
        ratios += [] if peer is None else [""] if row is limit and self.has_limit else [self.times(row, peer)]
        return [name, least, middle, *ratios, *further]

    def times(self, row: Row, other: Row) -> str:
        """Return the ratio to the limit or a peer. A limit that is slower than our row is none."""
        if not other.seconds or not min(other.seconds) or row is other:
            return ""
        ratio = min(row.seconds) / min(other.seconds)
        is_none = ratio < 1 and other is self.rows[0] and self.has_limit and not row.peer
        return "the limit is slower" if is_none else figure(ratio)


def missed(tables: Sequence[Table]) -> Iterator[str]:
    """Yield a table in Markdown of all that is not reached, the furthest from it first."""
    yield from (line(["row", "should reach", "reached"]), line(["---"] * 3))
    for table, row, one in _furthest(tables):
        if one.share is None or one.share > 1:
            yield line([f"{table.title}: {row.name}", one.asked, one.reached])


def headlines(tables: Sequence[Table], names: Sequence[str]) -> Iterator[str]:
    """Yield a table in Markdown of the first rows of these names, and of the row furthest from its reach."""
    yield from (line(["", "takes", "× limit", "× best peer", "should reach"]), line(["---"] * 5))
    worst, shown = _furthest(tables)[0], list[str]()
    rows = [(table, row) for name in names for table in tables for row in table.rows if row.name == name]
    for table, row in [*rows, worst[:2]]:
        if row.name in shown or not row.seconds:
            continue
        shown.append(row.name)
        takes = f"{figure(min(row.seconds) * SCALE[table.unit])} {table.unit}"
        beside = [table.times(row, one) if one else "" for one in (table.rows[0], table.best_peer())]
        yield line([f"{table.title}: {row.name}", takes, *beside, table.reached(row)])


def _furthest(tables: Sequence[Table]) -> list[tuple[Table, Row, Verdict]]:
    """Return each thing that a row should reach, the one furthest from it first."""
    found = [(table, row, one) for table in tables for row in table.rows for one in table.verdicts(row)]
    return sorted(found, key=lambda one: -(one[2].share or 0))


def line(cells: Sequence[str]) -> str:
    """Return a line of a table in Markdown."""
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"


def figure(value: float) -> str:
    """Return a number with about three digits."""
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    return f"{value:,.{digits}f}"


@cache
def _reasons() -> dict[str, dict[str, str]]:
    """Return by title and row what a profile says of rows that do not reach what they should."""
    return tomllib.loads(REASONS.read_text(encoding="utf-8"))


def _each(reach: Reach | Sequence[Reach]) -> Sequence[Reach]:
    return [reach] if isinstance(reach, Reach) else reach
