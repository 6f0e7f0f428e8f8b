"""The setting of a part of the benchmarks, and the peers and projects that it measures."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.timing import Effort


class Missing(Exception):
    """Something to be measured is not there; the row says so and the others go on."""


@dataclass(frozen=True)
class Setting:
    """The thoroughness of a run, its subjects, and the folder in which files may be made."""

    quick: bool
    peers: bool
    folder: Path
    """Empty at first, and removed by the caller."""

    def effort(self, rounds: int, seconds: float = 0.02) -> Effort:
        """The effort of a table; only a trace of it when it must be quick."""
        return Effort(2, 0.001) if self.quick else Effort(rounds, seconds)


def reason_of(error: Exception) -> str:
    """Return the reason that a row has no figures."""
    if isinstance(error, Missing):
        return str(error)
    return textwrap.shorten(f"failed: {type(error).__name__}: {error}", 200, placeholder=" …")


def find(module: str, name: str) -> Any:
    """A name of a module, both of which may be missing here."""
    try:
        return getattr(import_module(module), name)
    except ImportError as error:
        raise Missing(f"skipped: {module} cannot be imported ({error})") from error
    except AttributeError as error:
        raise Missing(f"skipped: {module} has no {name}") from error
