"""Tables of measured rows: each row beside the limit row of the same run, and what was aimed at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Literal

from benchmarks.timing import Samples

Measure = Literal["ratio", "over", "wall"]
_SCALE = {"µs": 1e6, "ms": 1e3, "MB": 1e-6}


@dataclass(frozen=True)
class Target:
    """The most a row should take: times the limit row, or in the table's unit over it, or at all."""

    most: float
    measure: Measure = "ratio"


@dataclass
class Row:
    """One row; `seconds` holds one figure per operation for each round (bytes where the unit is MB)."""

    name: str
    seconds: list[float] = field(default_factory=list)
    target: Target | None = None
    missing: str | None = None
    """Why there are no figures."""
    extra: dict[str, str] = field(default_factory=dict)
    """Further columns."""


@dataclass
class Table:
    """Rows that were measured in the same rounds; the first is the limit."""

    title: str
    unit: Literal["µs", "ms", "MB"]
    rows: list[Row]
    notes: list[str] = field(default_factory=list)
    tells_gap: bool = False
    """Whether what a row takes over the limit row is worth a column."""

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Table:
        """The table that `dataclasses.asdict` took apart."""
        rows = []
        for row in data["rows"]:
            target = Target(**row["target"]) if row["target"] else None
            rows.append(Row(**{**row, "target": target}))
        return cls(**{**data, "rows": rows})

    def take(self, samples: Mapping[str, Samples]) -> None:
        """Fill in what was measured under the rows' names."""
        for row in self.rows:
            measured = samples.get(row.name)
            if measured is not None:
                row.seconds, row.missing = measured.seconds, measured.failure

    def ratio(self, row: Row) -> float | None:
        """Median over the rounds of this row over the limit row of the same round."""
        pairs = self._pairs(row)
        return median(mine / limit for mine, limit in pairs) if pairs else None

    def over(self, row: Row) -> float | None:
        """Median over the rounds of the seconds above the limit row of the same round."""
        pairs = self._pairs(row)
        return median(mine - limit for mine, limit in pairs) if pairs else None

    def times(self, row: Row, other: Row) -> float | None:
        """Median over the rounds of one row over another."""
        pairs = list(zip(row.seconds, other.seconds, strict=False))
        return median(mine / theirs for mine, theirs in pairs) if pairs else None

    def _pairs(self, row: Row) -> list[tuple[float, float]]:
        return list(zip(row.seconds, self.rows[0].seconds, strict=False))

    def reached(self, row: Row) -> float | None:
        """The figure that the row's target speaks of."""
        if row.target is None or not row.seconds:
            return None
        if row.target.measure == "ratio":
            return self.ratio(row)
        seconds = self.over(row) if row.target.measure == "over" else median(row.seconds)
        return None if seconds is None else seconds * _SCALE[self.unit]

    def markdown(self) -> str:
        """The table for people."""
        extras = list(dict.fromkeys(name for row in self.rows for name in row.extra))
        gap = ["over the limit"] if self.tells_gap else []
        head = ["", f"{self.unit} median", "min–max", "× limit", *gap, *extras, "target"]
        lines = [f"### {self.title}", "", _line(head), _line(["---"] * len(head))]
        for index, row in enumerate(self.rows):
            lines.append(_line(self._cells(row, index == 0, extras)))
        return "\n".join([*lines, "", *(f"{note}\n" for note in self.notes)])

    def _cells(self, row: Row, is_limit: bool, extras: list[str]) -> list[str]:
        name = f"limit: {row.name}" if is_limit else row.name
        extra = [row.extra.get(column, "") for column in extras]
        gap = [""] if self.tells_gap else []
        if not row.seconds:
            return [name, row.missing or "not measured", "", "", *gap, *extra, self._target(row)]
        scale = _SCALE[self.unit]
        low, middle, high = (_figure(f(row.seconds) * scale) for f in (min, median, max))
        ratio, over = self.ratio(row), self.over(row)
        if gap and over is not None and not is_limit:
            gap = [f"{_figure(over * scale)} {self.unit}"]
        times = "" if ratio is None else _figure(ratio)
        return [name, middle, f"{low}–{high}", times, *gap, *extra, self._target(row)]

    def _target(self, row: Row) -> str:
        if row.target is None:
            return ""
        sign, after = {
            "ratio": ("×", ""),
            "over": (f" {self.unit}", " over the limit"),
            "wall": (f" {self.unit}", ""),
        }[row.target.measure]
        reached = self.reached(row)
        text = f"target ≤ {row.target.most:g}{sign}{after}"
        if reached is None:
            return f"{text} · not measured"
        missed = "" if reached <= row.target.most else ", **missed**"
        return f"{text} · reached {_figure(reached)}{sign}{missed}"


def _line(cells: list[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"


def _figure(value: float) -> str:
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    return f"{value:,.{digits}f}"
