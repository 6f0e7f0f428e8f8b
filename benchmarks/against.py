"""A gate: parts of the benchmarks with the source of another commit and with this one, in turn."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.table import Table, figure, line

ROOT = Path(__file__).resolve().parent.parent
BEFORE = "main"
MOST = 1.25
"""Times the commit that a row may take."""
TURNS, MOST_TURNS = 3, 9
"""Turns that are taken, and as many at most while a row is slower."""

Least = dict[str, float]


def against(
    commit: str, parts: Sequence[str], measured: Callable[..., tuple[list[Table], str | None]], *, quick: bool
) -> int:
    """Print a row for each row of these parts, the least time of all turns. Return 1 if one is slower."""
    commit = _before(commit)
    then, now, failures = Least(), Least(), list[str]()
    with _source_of(commit) as source:
        for name in parts:
            before, after = Least(), Least()
            for turn in range(1 if quick else MOST_TURNS):
                # Other work slows down one turn: what is slower only then is not so after some more.
                if turn >= TURNS and not any(_is_slower(row, before, after) for row in after):
                    break
                for folder, least in ((source, before), (ROOT / "src", after)):
                    tables, failure = measured(name, None, quick=quick, source=folder)
                    failures += [f"{name}: {failure}"] if failure else []
                    _keep(tables, least)
            then |= before
            now |= after
    print(f"## Beside {commit[:12]}\n")
    print(line(["row", "times that commit", ""]))
    print(line(["---"] * 3))
    slower = 0
    for row in dict.fromkeys([*then, *now]):
        ratio = now[row] / then[row] if row in now and row in then else None
        is_slower = _is_slower(row, then, now)
        slower += is_slower
        text = "only one of the two has it" if ratio is None else figure(ratio)
        print(line([row, text, f"**above {MOST:g}**" if is_slower else ""]))
    print("\n".join(failures))
    return 1 if slower or failures else 0


def _is_slower(row: str, then: Least, now: Least) -> bool:
    return row in then and row in now and now[row] > MOST * then[row]


def _keep(tables: Sequence[Table], least: Least) -> None:
    """Keep the least figure of each row that should reach something: the others are not ours."""
    for table in tables:
        for row in table.rows:
            if row.seconds and row.reach:
                name = f"{table.title}: {row.name}"
                least[name] = min(least.get(name, row.seconds[0]), *row.seconds)


def _before(commit: str) -> str:
    """Return the id of a commit; of `main` the one that this work began at, or the one before it."""
    if commit != BEFORE:
        return _git("rev-parse", commit)
    found = _git("merge-base", commit, "HEAD")
    return _git("rev-parse", f"{found}~1") if found == _git("rev-parse", "HEAD") else found


@contextmanager
def _source_of(commit: str) -> Iterator[Path]:
    """Yield the folder of the package as it was in a commit."""
    with tempfile.TemporaryDirectory(prefix="toolcrib-bench-") as folder:
        tree = Path(folder, "tree")
        _git("worktree", "add", "--detach", str(tree), commit)
        try:
            yield tree / "src"
        finally:
            _git("worktree", "remove", "--force", str(tree))


def _git(*words: str) -> str:
    return subprocess.run(
        ["git", *words], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.strip()
