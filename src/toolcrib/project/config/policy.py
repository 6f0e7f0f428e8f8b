"""The settings `policy.rules`, `approvals.channels` and `approvals.people`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from toolcrib.errors import DefinitionError, DeniedError
from toolcrib.guard import EFFECTS, HINTS, Rule
from toolcrib.project.config.reader import KeyPath, Read, Reader, choice, items, truth

if TYPE_CHECKING:
    from toolcrib.guard import Condition

CHATS = ("telegram", "discord", "slack", "whatsapp", "webhook")
CHANNELS = ("cli", "elicitation", "page", *CHATS)
"""The channels by which a person may approve a call."""
_CLI = ("terminal", "flag", "program")
"""Ways to decide that `cli` allows: an answer at a terminal, an option, a Python program."""
DEFAULT_TTL_HOURS = 168.0
_MOST_RULES = 1_000
_MOST_PATTERNS = 100
_LONGEST_PATTERN = 256
_LONGEST_REASON = 500
_LONGEST_NAME = 64


def check_channel(channel: str, allowed: Collection[str]) -> None:
    """Raise `DeniedError` if the project accepts no approval by this channel."""
    channel = "cli" if channel in _CLI else channel.partition(":")[0]
    if channel not in allowed:
        raise DeniedError(
            f"this project accepts no approval by {channel!r}; its approvals.channels:"
            f" {', '.join(allowed) or 'none'}",
            hint="Decide by one of these, or change approvals.channels in the project's settings.",
        )


def read_channels(reader: Reader, value: Any, at: KeyPath) -> tuple[str, ...]:
    """Read `approvals.channels`, each once."""
    return tuple(dict.fromkeys(items(choice(CHANNELS), len(CHANNELS))(reader, value, at)))


def read_people(reader: Reader, value: Any, at: KeyPath) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Read `approvals.people`: the accounts of each person, as `CHANNEL:ID`."""
    if not isinstance(value, dict):
        raise reader.misfit(at, "must be a mapping of names to accounts", "such as ada: [telegram:12345]")
    found: dict[str, tuple[str, ...]] = {}
    seen: set[str] = set()
    for name, accounts in value.items():
        here = (*at, name)
        found[reader.line(name, here, _LONGEST_NAME)] = items(_account, _MOST_PATTERNS)(
            reader, accounts, here
        )
        for number, account in enumerate(found[name]):
            if account in seen:
                raise reader.misfit((*here, number), "is there twice")
            seen.add(account)
    return tuple(found.items())


def _account(reader: Reader, value: Any, at: KeyPath) -> str:
    account = reader.line(value, at, _LONGEST_PATTERN)
    channel, _, number = account.partition(":")
    if channel not in CHATS or not number:
        raise reader.misfit(at, "must be CHANNEL:ID", f"channels are {', '.join(CHATS)}")
    return account


def read_rules(reader: Reader, value: Any, at: KeyPath) -> tuple[Rule, ...]:
    """Read `policy.rules`, in the order they are written."""
    rules: dict[str, Rule] = {}
    for number, item in enumerate(reader.items([] if value is None else value, at, _MOST_RULES)):
        rule = _rule(reader, item, (*at, number), number)
        # An approval of a rule is stored by the rule's name: it must not count for a second one.
        if rules.setdefault(rule.name, rule) is not rule:
            raise reader.misfit((*at, number, "name"), "is the name of another rule as well")
    return tuple(rules.values())


def _rule(reader: Reader, value: Any, at: KeyPath, number: int) -> Rule:
    if not isinstance(value, dict):
        raise reader.misfit(at, "must be a mapping", f"known here: {', '.join(_RULE)}", "wrong-type")
    block = reader.mapping(value, at, tuple(_RULE))
    if "effect" not in block:
        raise reader.misfit(at, "has no `effect`", f"write effect: {', '.join(EFFECTS)}", "missing-key")
    found = {key: _RULE[key](reader, one, (*at, key)) for key, one in block.items()}
    return Rule(**{"name": f"#{number + 1}", **found})


def _name(reader: Reader, value: Any, at: KeyPath) -> str:
    name = reader.line(value, at, _LONGEST_NAME)
    if name.startswith("#"):
        raise reader.misfit(at, "begins with `#`, as the numbers of rules without a name do")
    return name


def _patterns(reader: Reader, value: Any, at: KeyPath) -> tuple[str, ...]:
    written = reader.items(value, at, _MOST_PATTERNS)
    # Nobody would notice that a deny rule with an empty list never applies.
    if not written:
        raise reader.misfit(at, "is empty, so the rule would never apply", "leave it out to match all")
    return tuple(reader.line(text, (*at, number), _LONGEST_PATTERN) for number, text in enumerate(written))


def _annotations(reader: Reader, value: Any, at: KeyPath) -> Mapping[str, bool]:
    wanted = reader.mapping(value, at, tuple(HINTS))
    if not wanted:
        raise reader.misfit(at, "is empty", f"known here: {', '.join(HINTS)}")
    return {name: truth(reader, one, (*at, name)) for name, one in wanted.items()}


def _condition(reader: Reader, value: Any, at: KeyPath) -> Condition:
    from toolcrib.guard import Condition

    try:
        return Condition(value)
    except DefinitionError as error:
        place = (*at, *error.details.get("at", ()))
        raise reader.misfit(place, f"cannot be checked: {error.message}") from None


_RULE: Mapping[str, Read] = {
    "name": _name,
    "effect": choice(EFFECTS),
    **dict.fromkeys(("tools", "bundles", "tags", "callers"), _patterns),
    "annotations": _annotations,
    "when": _condition,
    "reason": lambda reader, value, at: reader.line(value, at, _LONGEST_REASON),
}
"""The keys of a rule, each as it is read."""
