"""The settings that decide: what they give, what is said of wrong ones, and what counts untrusted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from toolcrib.errors import ConfigError
from toolcrib.guard import Condition, Ledger, Rule, Rules
from toolcrib.project import Config, load_config
from toolcrib.project.trust.trust import settings_rows
from toolcrib.spec import Permissions
from toolcrib.state import Vault


def config(tmp_path: Path, text: str) -> Config:
    file = tmp_path / "config.yml"
    file.write_text(text)
    return load_config(file)


def test_every_setting(tmp_path: Path) -> None:
    found = config(
        tmp_path,
        """
policy:
  default: ask
  self_approval: true
  rules:
    - name: no-deletes
      effect: deny
      tools: ["delete_*"]
      bundles: [project]
      tags: [dangerous]
      annotations: {destructive: true}
      callers: ["mcp:*", "token:ci"]
      when: {properties: {path: {pattern: "^/etc"}}, required: [path]}
      reason: >
        they cannot be undone
    - effect: allow
approvals: {channels: [cli, cli, elicitation], ttl_hours: 1}
limits: {calls_per_minute: 60, concurrency: 4}
""",
    )
    assert found.policy == Rules(
        "ask",
        (
            Rule(
                "no-deletes",
                "deny",
                ("delete_*",),
                ("project",),
                ("dangerous",),
                {"destructive": True},
                ("mcp:*", "token:ci"),
                Condition({"properties": {"path": {"pattern": "^/etc"}}, "required": ["path"]}),
                "they cannot be undone",
            ),
            Rule("#2", "allow"),
        ),
        True,
    )
    assert (found.approval_channels, found.approval_ttl_hours) == (("cli", "elicitation"), 1.0)
    assert (found.calls_per_minute, found.concurrency) == (60, 4)


def test_the_defaults(tmp_path: Path) -> None:
    for text in ("", "policy:\napprovals:\nlimits:\n", "policy: {rules: }", "policy: {rules: []}"):
        assert config(tmp_path, text) == Config()
    assert Config().policy == Rules("allow", (), False)
    assert (Config().approval_channels, Config().approval_ttl_hours) == (("cli", "page"), 168.0)


@pytest.mark.parametrize(
    ("text", "place", "told", "hint"),
    [
        ("policy: []", "1:1", "must be a mapping", None),
        ("policy: {rule: []}", "1:10", "`policy.rule` is not a setting", "`rules`"),
        ("policy: {default: denied}", "1:19", "one of: deny, ask, allow", "`deny`"),
        ("policy: {self_approval: yes}", "1:25", "must be true or false", None),
        ("policy: {rules: {}}", "1:10", "must be a list", "- "),
        ("policy:\n  rules:\n    - deny", "3:7", "must be a mapping", "effect"),
        ("policy:\n  rules:\n    - {}", "3:7", "has no `effect`", "deny, ask, allow"),
        ("policy:\n  rules:\n    - effect: no", "3:15", "one of: deny, ask, allow", None),
        ("policy:\n  rules:\n    - efect: deny", "3:7", "is not a setting", "`effect`"),
        ("policy:\n  rules:\n    - effect: deny\n      tools: x", "4:7", "must be a list", None),
        ("policy:\n  rules:\n    - effect: deny\n      tools: []", "4:14", "is empty", "leave it out"),
        ("policy:\n  rules:\n    - effect: deny\n      tools: [5]", "4:15", "must be a text", None),
        ("policy:\n  rules:\n    - effect: deny\n      tags: ['']", "4:14", "must be a text", None),
        ("policy:\n  rules:\n    - effect: deny\n      annotations: {}", "4:20", "is empty", "destructive"),
        (
            "policy:\n  rules:\n    - effect: deny\n      annotations: {readOnly: true}",
            "4:21",
            "is not a setting",
            "`read_only`",
        ),
        (
            "policy:\n  rules:\n    - effect: deny\n      annotations: {read_only: 1}",
            "4:32",
            "must be true or false",
            None,
        ),
        (
            "policy:\n  rules:\n    - effect: deny\n      when: {path: {const: 1}}",
            "4:20",
            "write `properties: {path: …}`",
            None,
        ),
        (
            "policy:\n  rules:\n    - effect: deny\n      when:\n        properties: {a: {pattern: '('}}",
            "5:35",
            "cannot be checked",
            None,
        ),
        ("policy:\n  rules:\n    - effect: deny\n      when: true", "4:13", "a mapping", None),
        ('policy:\n  rules:\n    - effect: deny\n      reason: "a\\nb"', "4:15", "invisible", None),
        ('policy:\n  rules:\n    - effect: deny\n      reason: "a\\u202Eb"', "4:15", "invisible", None),
        ("policy:\n  rules:\n    - {effect: deny, name: '#2'}", "3:28", "begins with `#`", None),
        (
            "policy:\n  rules:\n    - {effect: deny, name: x}\n    - {effect: ask, name: x}",
            "4:27",
            "another rule",
            None,
        ),
        ("approvals: {channels: [cli, email]}", "1:29", "one of: cli, elicitation, page", None),
        ("approvals: {channels: cli}", "1:13", "must be a list", None),
        ("approvals: {people: [ada]}", "1:21", "must be a mapping of names to accounts", None),
        ("approvals: {people: {ada: [email:7]}}", "1:28", "must be CHANNEL:ID", None),
        ("approvals: {people: {ada: ['slack:U1'], bob: ['slack:U1']}}", "1:47", "is there twice", None),
        ("approvals: {ttl_hours: 0}", "1:24", "a number from 0.01 to 8,784", None),
        ("approvals: {ttl_hours: .inf}", "1:24", "", None),
        ("limits: {calls_per_minute: 0}", "1:28", "from 1 to 1,000,000", None),
        ("limits: {concurrency: 1.5}", "1:23", "a whole number", None),
    ],
)
def test_what_is_wrong_is_told_with_its_place(
    tmp_path: Path, text: str, place: str, told: str, hint: str | None
) -> None:
    with pytest.raises(ConfigError) as caught:
        config(tmp_path, text)
    first = caught.value.message.splitlines()[0]
    assert first.startswith(f"{tmp_path / 'config.yml'}:{place}: error[")
    assert told in first
    assert hint is None or hint in (caught.value.hint or "")


def test_there_are_not_endlessly_many_rules(tmp_path: Path) -> None:
    rules = [{"effect": "deny"}] * 1_001
    with pytest.raises(ConfigError, match="more than 1,000 items"):
        config(tmp_path, json.dumps({"policy": {"rules": rules}}))


# -- trust ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "names", "safe"),
    [
        (None, [], None),
        ({}, [], {}),
        ({"limits": {"timeout_ms": 5}}, [], ...),
        ({"policy": {"default": "deny", "rules": [{"effect": "allow"}]}}, [], ...),
        ({"sandbox": {"minimum": "full"}}, [], ...),
        ({"sandbox": {"minimum": "none"}}, ["sandbox.minimum"], {"sandbox": {}}),
        ({"sandbox": {"minimum": "landlock"}}, ["sandbox.minimum"], {"sandbox": {}}),
        (
            {"policy": {"self_approval": True, "default": "ask"}},
            ["policy.self_approval"],
            {"policy": {"default": "ask"}},
        ),
        ({"policy": {"self_approval": False}}, [], ...),
        ({"approvals": {"channels": ["page"]}}, [], ...),
        (
            {"approvals": {"channels": ["page", "elicitation"]}},
            ["approvals.channels"],
            {"approvals": {"channels": ["page"]}},
        ),
        (
            {"approvals": {"channels": ["elicitation"]}},
            ["approvals.channels"],
            {"approvals": {"channels": []}},
        ),
        ({"approvals": {"channels": ["telegram"]}}, [], ...),
        ({"approvals": {"people": {"ada": ["telegram:7"]}}}, ["approvals.people"], {"approvals": {}}),
        ({"approvals": {"people": {}}}, [], ...),
        ({"approvals": {"ttl_hours": 1}}, [], ...),
        ({"approvals": {"ttl_hours": 8000}}, ["approvals.ttl_hours"], {"approvals": {"ttl_hours": 168}}),
        ({"database": "sqlite"}, [], ...),
        ({"database": "postgresql://u@db.example.com/x"}, ["database"], {}),
        ({"security": {"max_permissions": None}}, [], ...),
        ({"security": {"max_permissions": {"network": False, "fs": None, "secrets": []}}}, [], ...),
        (
            {"security": {"max_permissions": {"fs": {"write": ["."]}}, "allowed_hosts": ["x.org"]}},
            ["security.max_permissions"],
            {"security": {"max_permissions": {}, "allowed_hosts": ["x.org"]}},
        ),
        (
            {"security": {"max_permissions": {"network": "host"}}},
            ["security.max_permissions"],
            {"security": {"max_permissions": {}}},
        ),
        (
            {"security": {"max_permissions": {"secrets": ["X"]}}},
            ["security.max_permissions"],
            {"security": {"max_permissions": {}}},
        ),
        ({"secrets": {"sources": [{"env": {}}]}}, [], ...),
        (
            {"secrets": {"sources": [{"env": {}}, {"folder": {"path": "x"}}]}},
            ["secrets.sources"],
            {"secrets": {}},
        ),
        ({"secrets": {"sources": [{"command": {"argv": ["sh"]}}]}}, ["secrets.sources"], {"secrets": {}}),
        ({"mcp_servers": {"a": {"command": "sh"}}}, ["mcp_servers"], {}),
        ({"sources": [{"dir": "tools"}]}, [], ...),
        ({"sources": [{"dir": "a"}, {"file": "../b.yaml"}]}, ["sources"], {"sources": [{"dir": "a"}]}),
        ({"sources": [{"dir": "/a"}]}, ["sources"], {"sources": []}),
    ],
)
def test_what_weakens_and_what_applies_instead(
    tmp_path: Path, settings: Any, names: list[str], safe: Any
) -> None:
    found = config(tmp_path, json.dumps(settings))
    assert [weak.name for weak in found.weakening()] == names
    assert all(weak.allows for weak in found.weakening())
    assert found.narrowed() == (found if safe is ... else config(tmp_path, json.dumps(safe)))


HOSTILE = """
policy:
  default: deny
  self_approval: true
  rules: [{effect: allow, tools: [a]}]
security: {max_permissions: {network: true}, allowed_hosts: [x.org]}
approvals: {channels: [elicitation, page], ttl_hours: 1000}
limits: {timeout_ms: 7}
"""


def test_what_narrows_counts_at_once_and_what_weakens_waits(tmp_path: Path) -> None:
    found = config(tmp_path, HOSTILE)
    assert [weak.name for weak in found.weakening()] == [
        "approvals.channels",
        "approvals.ttl_hours",
        "policy.self_approval",
        "security.max_permissions",
    ]
    safe = found.narrowed()
    assert safe.policy == Rules("deny", (Rule("#1", "allow", ("a",)),), False)
    assert safe.allowed_hosts == ("x.org",)
    assert safe.timeout_ms == 7
    assert safe.max_permissions == Permissions()
    assert (safe.approval_channels, safe.approval_ttl_hours) == (("page",), 168.0)
    # What trust is bound to is the file on disk, not what is left of it.
    assert safe.digest == found.digest
    assert safe.weakening() == found.weakening()


def test_settings_count_once_trusted_and_until_a_byte_changes(tmp_path: Path) -> None:
    ledger = Ledger(Vault(tmp_path, tmp_path / "data"))
    found = config(tmp_path, HOSTILE)
    assert found.effective(ledger) == (found.narrowed(), found.weakening())
    ledger.accept(settings_rows(found), "ann", "terminal")
    assert found.effective(ledger) == (found, [])
    for changed in (HOSTILE + " ", HOSTILE.replace("1000", "2000"), "\ufeff" + HOSTILE, HOSTILE + "#\n"):
        assert config(tmp_path, changed).effective(ledger)[1]
    assert config(tmp_path, HOSTILE).effective(ledger)[1] == []


def test_settings_that_weaken_nothing_ask_nobody(tmp_path: Path) -> None:
    found = config(tmp_path, "policy: {default: deny}")
    data = tmp_path / "data"
    assert found.effective(Ledger(Vault(tmp_path, data))) == (found, [])
    assert not data.exists()


def test_settings_that_a_program_made_are_its_own() -> None:
    own = Config(self_approval=True)
    assert own.weakening() == []
    assert own.narrowed() is own


_BLOCKS = st.fixed_dictionaries(
    {},
    optional={
        "policy": st.fixed_dictionaries(
            {},
            optional={
                "default": st.sampled_from(["allow", "ask", "deny"]),
                "self_approval": st.booleans(),
                "rules": st.lists(
                    st.fixed_dictionaries(
                        {"effect": st.sampled_from(["allow", "ask", "deny"])},
                        optional={"tools": st.lists(st.sampled_from(["a*", "b"]), min_size=1)},
                    ),
                    max_size=3,
                ),
            },
        ),
        "approvals": st.fixed_dictionaries(
            {},
            optional={
                "channels": st.lists(st.sampled_from(["cli", "elicitation", "page"]), max_size=3),
                "ttl_hours": st.integers(1, 500),
            },
        ),
        "security": st.fixed_dictionaries(
            {},
            optional={
                "max_permissions": st.fixed_dictionaries(
                    {},
                    optional={
                        "network": st.sampled_from([True, False, "host", {"allow": ["x.org"]}]),
                        "fs": st.sampled_from([{}, None, {"read": ["."]}, {"write": ["."], "read": []}]),
                        "secrets": st.sampled_from([[], ["A"]]),
                    },
                ),
                "allowed_hosts": st.sampled_from([[], ["x.org"]]),
            },
        ),
        "sandbox": st.just({"minimum": "full"}),
        "limits": st.fixed_dictionaries({}, optional={"concurrency": st.integers(1, 9)}),
    },
)


@pytest.mark.timeout(40)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(_BLOCKS)
def test_untrusted_settings_are_never_weaker_than_none_nor_than_themselves(
    tmp_path: Path, blocks: dict[str, Any]
) -> None:
    found = config(tmp_path, json.dumps(blocks))
    safe = found.narrowed()
    assert set(safe.approval_channels) <= set(found.approval_channels) & {"cli", "page"}
    assert safe.approval_ttl_hours <= min(found.approval_ttl_hours, 168)
    assert not safe.policy.self_approval
    assert safe.max_permissions in (None, Permissions())
    # What narrows is as it is written.
    assert (safe.policy.default, safe.policy.rules) == (found.policy.default, found.policy.rules)
    assert (safe.allowed_hosts, safe.concurrency) == (found.allowed_hosts, found.concurrency)
    assert found.weakening() or safe == found


_WORDS = st.sampled_from(
    [
        *(
            "policy",
            "rules",
            "effect",
            "deny",
            "allow",
            "ask",
            "tools",
            "when",
            "properties",
            "required",
            "name",
        ),
        *(
            "annotations",
            "destructive",
            "approvals",
            "channels",
            "cli",
            "ttl_hours",
            "limits",
        ),
        *(
            "self_approval",
            "default",
            "security",
            "max_permissions",
            "sandbox",
            "minimum",
            "callers",
            "reason",
        ),
    ]
)
_ANY = st.recursive(
    st.one_of(_WORDS, st.none(), st.booleans(), st.integers(-(2**63), 2**63), st.text(max_size=5)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.one_of(_WORDS, st.text(max_size=3)), inner, max_size=4),
    ),
    max_leaves=20,
)


@pytest.mark.timeout(40)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.one_of(_ANY, st.dictionaries(_WORDS, _ANY, max_size=4), st.fixed_dictionaries({"policy": _ANY})))
def test_whatever_is_written_is_read_or_refused_with_its_place(tmp_path: Path, written: Any) -> None:
    found, refused = None, None
    try:
        found = config(tmp_path, json.dumps(written))
    except ConfigError as error:
        refused = error
    if refused is not None:
        assert refused.details["diagnostics"]
        assert all(finding["line"] >= 1 for finding in refused.details["diagnostics"])
    else:
        assert found is not None
        assert found.narrowed().narrowed() == found.narrowed()
