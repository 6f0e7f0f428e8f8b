"""The weakest level of the sandbox that a project's tools may be run at."""

from __future__ import annotations

from dataclasses import dataclass

from toolcrib.project.config.settings import Config
from toolcrib.spec import LEVELS, Level

__all__ = ["Minimum", "minimum_of"]

ALLOW = "where that cannot be, sandbox.minimum in the project's settings allows a weaker level"


@dataclass(frozen=True, slots=True)
class Minimum:
    """What counts, and what to tell whoever is refused for it."""

    level: Level = "full"
    advice: str = ""

    def lowered(self) -> Level | None:
        """The weaker level that this machine offers and that counts; None where nothing is weaker than usual.

        Where a weaker level is allowed, this may try the machine's mechanisms, which takes half a second.
        """
        if self.level == "full":
            return None
        from toolcrib.sandbox import in_force

        found = in_force()
        # Where not even the minimum can be had, tools are refused.
        return found if found != "full" and LEVELS.index(found) <= LEVELS.index(self.level) else None

    def banner(self, found: Level) -> str:
        """What a person is told of it, in a line."""
        told = {
            "landlock": "command and Python tools are held by Landlock and seccomp alone",
            "none": "command and Python tools are NOT CONFINED: they can do all that you can",
        }.get(found, "")
        if found != self.level:
            told += "; those that it cannot hold are NOT CONFINED"
        return f"sandbox.minimum is {self.level}, and this machine offers level {found}: {told}"


def minimum_of(config: Config, trusted: bool = False) -> Minimum:
    """The minimum that is in force: a weaker one than `full` counts in a trusted project only."""
    asked = config.sandbox_minimum
    if asked == "full":
        return Minimum(advice=ALLOW)
    if trusted:
        return Minimum(asked)
    return Minimum(
        advice=f"the project asks for sandbox.minimum: {asked}, which counts once it is trusted: "
        "run `toolcrib trust`"
    )
