"""Score the product and two other sandboxes by the same probes: `python -m tests.escape.score [WORD]`.

A cell is `held/tried`, then what got out (`!`), what does not work any more (`x`), what the sandbox itself
says it does not hold (`~`) and what could not be run (`?`). WORD keeps to the probes whose name holds it,
`--ours` to the product, `-v` shows the evidence.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from tests.escape.contestants import installed
from tests.escape.probe import GROUPS, Found, Probe, Verdict, judge
from tests.escape.staging import Stage, kinds
from tests.escape.suite import probes

TITLES = {
    "ours": "Toolcrib",
    "bubblewrap": "bubblewrap, ordinary configuration",
    "landlock": "Landlock alone",
}


class Row(NamedTuple):
    """One sandbox as one user: each probe with its outcome."""

    title: str
    verdicts: dict[Probe, tuple[Verdict, Found | None]]

    def cell(self, group: str) -> str:
        """What came of a group's probes."""
        count = Counter(verdict for probe, (verdict, _) in self.verdicts.items() if probe.group == group)
        tried = sum(count.values()) - count[Verdict.NOT_FIT]
        if not tried:
            return "–"
        signs = (
            (Verdict.ESCAPE, "!"),
            (Verdict.BROKEN, "x"),
            (Verdict.NOT_HELD, "~"),
            (Verdict.NOT_RUN, "?"),
        )
        return f"{count[Verdict.HELD]}/{tried}" + "".join(f" {count[v]}{s}" for v, s in signs if count[v])


def score(stage: Stage, contestant: str, kind: str, chosen: list[Probe]) -> Row:
    """Run the probes against one sandbox as one user."""
    verdicts: dict[Probe, tuple[Verdict, Found | None]] = {}
    for probe in chosen:
        if not probe.fits(contestant):
            verdicts[probe] = (Verdict.NOT_FIT, None)
        elif probe.compiled and stage.attacks is None:
            verdicts[probe] = (Verdict.NOT_RUN, None)
        else:
            found = stage.run(probe, kind, contestant)
            verdicts[probe] = (judge(probe, found), found)
    return Row(f"{TITLES[contestant]} ({kind})", verdicts)


def table(rows: list[Row], absent: list[str]) -> str:
    """The comparison as Markdown."""
    groups = [group for group in GROUPS if any(row.cell(group) != "–" for row in rows)]
    lines = ["| sandbox | " + " | ".join(groups) + " | all |", "|---" * (len(groups) + 2) + "|"]
    for row in rows:
        count = Counter(verdict for verdict, _ in row.verdicts.values())
        tried = sum(count.values()) - count[Verdict.NOT_FIT]
        whole = f"{count[Verdict.HELD]}/{tried}"
        whole += f", {count[Verdict.ESCAPE]} escapes, {count[Verdict.NOT_RUN]} not run"
        lines.append(f"| {row.title} | " + " | ".join(row.cell(group) for group in groups) + f" | {whole} |")
    lines += [f"| {TITLES[name]} |" + " not installed |" + " |" * len(groups) for name in absent]
    return "\n".join(lines)


def notes(row: Row, verbose: bool) -> list[str]:
    """A line for each probe that was not held, of ours; of all in a verbose report."""
    lines = []
    for probe, (verdict, found) in row.verdicts.items():
        shown = verdict not in (Verdict.HELD, Verdict.NOT_FIT) and row.title.startswith(TITLES["ours"])
        if shown or (verbose and found is not None):
            said = f"{found.outcome.value}: {found.evidence}" if found is not None else "no C compiler"
            lines.append(f"{row.title}: {probe.name}: {verdict.value}: {' '.join(said.split())[:400]}")
    return lines


def main(arguments: list[str]) -> int:
    """Print the table; the exit status is 1 if ours lets anything out or leaves anything untried."""
    verbose = "-v" in arguments
    wanted = [word for word in arguments if not word.startswith("-")]
    chosen = [probe for probe in probes() if all(word in probe.name for word in wanted)]
    names = ["ours"] if "--ours" in arguments else list(TITLES)
    jobs = [(name, kind) for name in names if installed(name) for kind in kinds()]
    stages = [Stage() for _ in jobs]
    try:
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            rows = list(pool.map(lambda stage, job: score(stage, job[0], job[1], chosen), stages, jobs))
    finally:
        for stage in stages:
            stage.close()
    print(table(rows, [name for name in names if not installed(name)]))
    print(
        "\nheld/tried, ! got out, x does not work, ~ not held and said so in the enforcement report, ? not "
        "run\n"
    )
    for row in rows:
        for line in notes(row, verbose):
            print(line)
    ours = [
        verdict
        for row in rows
        if row.title.startswith(TITLES["ours"])
        for verdict, _ in row.verdicts.values()
    ]
    return int(not set(ours) <= {Verdict.HELD, Verdict.NOT_HELD})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
