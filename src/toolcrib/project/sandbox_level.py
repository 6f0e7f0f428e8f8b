"""The weakest level of the sandbox that a project's tools may be run at."""

from __future__ import annotations

from dataclasses import dataclass

from toolcrib.project.config.settings import Config
from toolcrib.spec import LEVELS, Level

_ALLOW = "if that is not possible, sandbox.minimum in the project's settings allows a weaker level"


@dataclass(frozen=True, slots=True)
class SandboxLevel:
    """The weakest level that a project allows, and the advice for a caller who is refused because of it."""

    level: Level = "full"
    advice: str = ""

    def lowered(self) -> Level | None:
        """Return the weaker level that tools run at on this machine; None if they run at the usual one.

        If a weaker level is allowed, this may probe the machine, which takes half a second.
        """
        if self.level == "full":
            return None
        from toolcrib.sandbox import in_force

        found = in_force()
        # Below the minimum, tools are refused.
        return found if found != "full" and LEVELS.index(found) <= LEVELS.index(self.level) else None

    def banner(self, found: Level) -> str:
        """Return a line that warns a person of it."""
        means = {
            "landlock": "command and Python tools are confined by Landlock and seccomp alone",
            "none": "command and Python tools are NOT CONFINED: they can do all that you can",
        }.get(found, "")
        if found != self.level:
            means += "; those that it cannot confine are NOT CONFINED"
        return f"sandbox.minimum is {self.level}, and this machine offers level {found}: {means}"


def sandbox_level_of(config: Config, trusted: bool = False) -> SandboxLevel:
    """Return the level that applies: one weaker than `full` needs a trusted project."""
    asked = config.sandbox_minimum
    if asked == "full":
        return SandboxLevel(advice=_ALLOW)
    if trusted:
        return SandboxLevel(asked)
    return SandboxLevel(
        advice=f"the project's sandbox.minimum: {asked} has no effect until you run `toolcrib trust`"
    )
