"""The policy: deny beats ask beats allow, whoever calls by whatever name."""

from __future__ import annotations

import gc
import timeit
import unicodedata
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.guard.policy.policed import policed
from toolcrib import Toolset
from toolcrib.errors import InvalidToken, PolicyDenied
from toolcrib.guard import Condition, Effect, Policy, Rule, Rules
from toolcrib.guard.policy import policy as module
from toolcrib.spec import Annotations, ApprovalRule, Caller, FunctionExec, Tool

ETC = Condition({"properties": {"path": {"pattern": "^/etc"}}, "required": ["path"]})


def tool(name: str = "scan", **more: Any) -> Tool:
    return Tool(name, "D.", "function", {"type": "object"}, FunctionExec("m:f"), **more)


def policy(*rules: Rule, default: Effect = "allow") -> Policy:
    return Policy(Rules(default, rules))


def test_without_rules_everything_is_allowed() -> None:
    decision = Policy().decide(tool(), "cli", {})
    assert (decision.effect, decision.rule) == ("allow", None)
    assert Policy().visible(tool(), "cli")


@pytest.mark.parametrize("default", ["allow", "ask", "deny"])
def test_the_default_is_for_calls_that_no_rule_speaks_of(default: Effect) -> None:
    found = policy(Rule("r", "allow", tools=("other",)), default=default)
    assert found.decide(tool(), "cli", {}).effect == default
    assert f"the default is {default}" in found.decide(tool(), "cli", {}).why
    assert found.decide(tool("other"), "cli", {}).effect == "allow"
    assert found.visible(tool(), "cli") is (default != "deny")


@pytest.mark.parametrize(
    ("rule", "speaks"),
    [
        (Rule("r", "deny"), True),
        (Rule("r", "deny", tools=("sc*",)), True),
        (Rule("r", "deny", tools=("x", "scan")), True),
        (Rule("r", "deny", tools=("SCAN",)), False),
        (Rule("r", "deny", bundles=("project",)), True),
        (Rule("r", "deny", bundles=("pro",)), False),
        (Rule("r", "deny", tags=("x", "dang*")), True),
        (Rule("r", "deny", tags=("x",)), False),
        (Rule("r", "deny", callers=("mcp:*",)), True),
        (Rule("r", "deny", callers=("mcp",)), False),
        (Rule("r", "deny", tools=("scan",), callers=("cli",)), False),
        (Rule("r", "deny", annotations={"idempotent": True}), True),
        (Rule("r", "deny", annotations={"idempotent": True, "read_only": True}), False),
    ],
)
def test_whom_a_rule_speaks_of(rule: Rule, speaks: bool) -> None:
    found = tool(tags=("dangerous",), annotations=Annotations(idempotent=True))
    assert (policy(rule).decide(found, "mcp:agent", {}).effect == "deny") is speaks


@pytest.mark.parametrize("caller", ["mcp", "mcp:", "mcp:x", "mcp:x:y", "mcp:\n"])
def test_no_client_escapes_a_rule_by_its_name_or_by_having_none(caller: str) -> None:
    assert policy(Rule("r", "deny", callers=("mcp:*",))).decide(tool(), caller, {}).effect == "deny"
    for other in ("cli", "local", "token:mcp", "mcpx", "MCP:x"):
        assert policy(Rule("r", "deny", callers=("mcp:*",))).decide(tool(), other, {}).effect == "allow"


@pytest.mark.parametrize(
    ("said", "wanted", "holds"),
    [
        (Annotations(), {"read_only": True}, False),
        (Annotations(), {"read_only": False}, True),
        (Annotations(), {"destructive": True}, True),
        (Annotations(read_only=True), {"destructive": True}, False),
        (Annotations(read_only=True, destructive=True), {"destructive": True}, True),
        (Annotations(destructive=False), {"destructive": False}, True),
        (Annotations(), {"idempotent": True}, False),
        (Annotations(), {"open_world": True}, True),
    ],
)
def test_what_a_tool_does_not_say_counts_as_the_worse(
    said: Annotations, wanted: dict[str, bool], holds: bool
) -> None:
    found = policy(Rule("r", "deny", annotations=wanted)).decide(tool(annotations=said), "cli", {})
    assert (found.effect == "deny") is holds


@pytest.mark.parametrize("default", ["allow", "ask", "deny"])
def test_no_rule_takes_back_what_the_tool_itself_asks_for(default: Effect) -> None:
    asks = tool(approval=ApprovalRule(True, "it is dear"))
    allowed = policy(Rule("r", "allow"), default=default).decide(asks, "cli", {})
    assert (allowed.effect, "it is dear" in allowed.why) == ("ask", True)
    assert policy(default=default).decide(asks, "cli", {}).effect == ("deny" if default == "deny" else "ask")
    both = policy(Rule("r", "ask", reason="new here")).decide(asks, "cli", {}).why
    assert "new here" in both
    assert "it is dear" in both


def test_what_is_settled_before_the_arguments_are_known() -> None:
    rules = (Rule("no", "deny", tools=("a",)), Rule("etc", "deny", tools=("a", "b"), when=ETC))
    found = policy(*rules)
    before = found.before(tool("a"), "cli")
    assert before is not None
    assert before.effect == "deny"
    assert found.before(tool("b"), "cli") is None
    assert found.before(tool("c"), "cli") == found.decide(tool("c"), "cli", None)
    assert (found.visible(tool("a"), "cli"), found.visible(tool("b"), "cli")) == (False, True)
    # A condition that cannot change the outcome leaves nothing open.
    assert policy(Rule("etc", "deny", when=ETC), default="deny").before(tool(), "cli") is not None
    assert policy(Rule("x", "ask"), Rule("etc", "allow", when=ETC)).before(tool(), "cli") is not None


def test_arguments_that_are_not_known_are_never_allowed_by_a_rule() -> None:
    unknown: Any
    for unknown in (None, {"path": {1, 2}}):
        assert policy(Rule("r", "deny", when=ETC)).decide(tool(), "cli", unknown).effect == "deny"
        assert policy(Rule("r", "ask", when=ETC)).decide(tool(), "cli", unknown).effect == "ask"
        for effect in ("allow", "ask"):
            held = policy(Rule("r", effect, when=ETC), default="deny")
            assert held.decide(tool(), "cli", unknown).effect == "deny"


def test_a_refusal_names_the_rule_and_can_be_pasted_into_a_shell() -> None:
    found = policy(Rule("no-deletes", "deny", reason="they cannot be undone"))
    with pytest.raises(PolicyDenied, match=r"no-deletes.*they cannot be undone") as caught:
        found.judge(tool("a b"), "mcp:x; rm -rf ~", {})
    assert caught.value.details["rule"] == "no-deletes"
    assert "explain 'a b' … --as 'mcp:x; rm -rf ~'" in (caught.value.hint or "")
    with pytest.raises(PolicyDenied):
        found.admit(tool(), "cli")


def test_a_token_sees_and_calls_what_its_scopes_and_filter_hold() -> None:
    found = Policy()
    reads = Caller("r", frozenset({"read"}))
    invokes = Caller("i", frozenset({"invoke"}), ("scan",))
    approves = Caller("p", frozenset({"approve"}))
    assert found.visible(tool(), "token:r", reads)
    with pytest.raises(InvalidToken, match="scope invoke"):
        found.admit(tool(), "token:r", reads)
    assert found.admit(tool(), "token:i", invokes) is not None
    assert not found.visible(tool("other"), "token:i", invokes)
    with pytest.raises(InvalidToken, match="does not cover other"):
        found.admit(tool("other"), "token:i", invokes)
    assert not found.visible(tool(), "token:p", approves)


def test_an_explanation_says_of_each_rule_why() -> None:
    rules = (
        Rule("#1", "allow", tools=("x",)),
        Rule("#2", "deny", when=ETC),
        Rule("#3", "ask", callers=("cli",)),
    )
    found = policy(*rules)
    steps = found.explain(tool(), "cli", {"path": "src"})
    assert [(step.matched, step.condition) for step in steps] == [
        (False, "tools"),
        (False, "when"),
        (True, None),
    ]
    assert steps[0].why == "x does not match scan"
    assert "$.path" in steps[1].why
    assert [step.matched for step in found.explain(tool(), "cli", None)] == [False, None, True]


# -- deny > ask > allow, held against the plainest way to say it ---------------------------------

_EFFECTS = st.sampled_from(["deny", "ask", "allow"])
_WHENS = st.sampled_from(
    [None, None, ETC, Condition({"required": ["force"]}), Condition({"not": {"required": ["force"]}})]
)
_RULES = st.lists(
    st.builds(
        Rule,
        name=st.just("r"),
        effect=_EFFECTS,
        tools=st.sampled_from([None, ("scan",), ("s*", "z"), ("other",)]),
        tags=st.sampled_from([None, ("t",), ("u",)]),
        callers=st.sampled_from([None, ("mcp:*",), ("cli",)]),
        when=_WHENS,
    ),
    max_size=8,
)
_ARGUMENTS = st.fixed_dictionaries(
    {}, optional={"path": st.sampled_from(["/etc/x", "src", 5]), "force": st.booleans()}
)
_RANK = {"deny": 2, "ask": 1, "allow": 0}


def test_a_rule_matches_a_caller_by_its_token_or_by_its_clients_name() -> None:
    held = policy(
        Rule("no-ci", "deny", tools=("scan",), callers=("token:ci",)),
        Rule("no-editor", "ask", callers=("mcp:editor",)),
    )
    for client, effect in (("mcp:editor", "ask"), ("mcp:other", "allow"), ("", "allow")):
        identity = Caller("ci", frozenset({"invoke"}), client=client)
        assert held.decide(tool("list"), "token:ci", {}, identity).effect == effect
        assert not held.visible(tool(), "token:ci", identity)
        steps = held.explain(tool("list"), "token:ci", {}, identity)
        assert [step.matched for step in steps] == [False, effect == "ask"]
        # A run that it began is its own doing.
        assert held.decide(tool("scan"), "agent:ops", {}, identity).effect == "deny"


def _plainly(rules: list[Rule], default: str, found: Tool, caller: str, arguments: Any) -> str:
    effects = [
        rule.effect
        for rule in rules
        if rule.mismatch(found, caller) is None and (rule.when is None or rule.when.is_met(arguments))
    ]
    strongest = max(effects, key=_RANK.__getitem__) if effects else default
    return "ask" if strongest == "allow" and found.approval.required else strongest


@pytest.mark.timeout(60)
@given(_RULES, _EFFECTS, st.booleans(), st.sampled_from(["cli", "mcp:a"]), _ARGUMENTS)
def test_the_strongest_of_all_rules_that_speak_decides(
    rules: list[Rule], default: Effect, asks: bool, caller: str, arguments: dict[str, Any]
) -> None:
    found = tool(tags=("t",), approval=ApprovalRule(asks, "x" * asks))
    held = policy(*rules, default=default)
    decision = held.decide(found, caller, arguments)
    assert decision.effect == _plainly(rules, default, found, caller, arguments)
    if decision.rule is not None:
        assert decision.rule.effect == decision.effect
        matched = [step.rule for step in held.explain(found, caller, arguments) if step.matched]
        assert any(decision.rule is rule for rule in matched)
    # What is said beforehand is what is said at the end; what is denied anyway is not listed.
    before = held.before(found, caller)
    assert before is None or before.effect == decision.effect
    assert held.visible(found, caller) or decision.effect == "deny"
    # What is not known makes no call freer.
    assert _RANK[held.decide(found, caller, None).effect] >= _RANK[decision.effect]


@pytest.mark.timeout(60)
@given(_RULES, _EFFECTS, st.sampled_from(["deny", "ask"]), _ARGUMENTS)
def test_one_more_deny_or_ask_never_allows_more(
    rules: list[Rule], default: Effect, effect: Effect, arguments: dict[str, Any]
) -> None:
    speaking = any(
        rule.mismatch(tool(), "cli") is None and (rule.when is None or rule.when.is_met(arguments))
        for rule in rules
    )
    less = policy(*rules, Rule("more", effect), default=default).decide(tool(), "cli", arguments).effect
    before = policy(*rules, default=default).decide(tool(), "cli", arguments).effect
    assert _RANK[less] >= (_RANK[before] if speaking else _RANK[effect])


# -- names ---------------------------------------------------------------------------------------


def test_no_alias_of_a_name_dodges_a_deny() -> None:
    ran: list[str] = []
    tools = Toolset(controls=policed(policy(Rule("no", "deny", tools=("delete_é",)))))

    @tools.tool("delete_é")
    def delete() -> None:
        ran.append("delete")

    @tools.tool("other")
    def other() -> None:
        ran.append("other")

    names = ["delete_é", unicodedata.normalize("NFD", "delete_é"), "DELETE_É", "\uff44elete_é", "delete_e"]
    names += [
        " delete_é",
        "delete_é ",
        "delete_é\0",
        "project/delete_é",
        "delete__",
        "delete-é",
        "",
        "\ud800",
    ]
    codes = {}
    for name in names:
        error = tools.call_sync(name).error
        assert error is not None
        codes[name] = error.code
    assert set(codes.values()) == {"policy_denied", "tool_not_found"}
    assert codes["delete_é"] == "policy_denied"
    assert ran == []
    assert tools.call_sync("other").ok


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"path": "/etc/x"}, "policy_denied"),
        ('{"path": "/etc/x"}', "policy_denied"),
        (b'{"path": "\\u002fetc/x"}', "policy_denied"),
        ('{"path": "src", "path": "/etc/x"}', "invalid_input"),
        ('{"path": "src", "\\u0070ath": "/etc/x"}', "invalid_input"),
        ({}, "policy_denied"),
        ({"path": "src", "count": "7"}, "invalid_input"),
        ({"path": "src", "count": 7}, "policy_denied"),
        ('{"path": "src", "count": 7.0}', "policy_denied"),
        ('{"path": "src", "count": 7e0}', "policy_denied"),
        ({"path": "src", "count": True}, "invalid_input"),
        ({"path": "src", "count": 2**70}, "invalid_input"),
        ({"path": "src", "count": 8}, None),
    ],
)
def test_a_condition_sees_the_arguments_that_run(arguments: Any, code: str | None) -> None:
    seven = Condition({"properties": {"count": {"const": 7}}, "required": ["count"]})
    ran: list[Any] = []
    tools = Toolset(
        controls=policed(policy(Rule("etc", "deny", when=ETC), Rule("seven", "deny", when=seven)))
    )

    @tools.tool
    def scan(path: str = "/etc", count: int = 1) -> None:
        ran.append((path, count))

    error = tools.call_sync("scan", arguments).error
    assert (error.code if error is not None else None) == code
    assert ran == ([("src", 8)] if code is None else [])


_JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(), inner, max_size=3)),
    max_leaves=8,
)


@pytest.mark.timeout(60)
@given(st.one_of(_JSON, st.text(), st.binary(), st.fixed_dictionaries({"path": _JSON})))
def test_no_arguments_whatever_reach_a_tool_that_its_condition_denies(arguments: Any) -> None:
    tools = Toolset(controls=policed(policy(Rule("only", "allow", when=ETC), default="deny")))

    @tools.tool
    def scan(path: Any = None) -> Any:
        return path

    result = tools.call_sync("scan", arguments)
    assert not result.ok or str(result.value).startswith("/etc") or not isinstance(result.value, str)


# -- cost and memory -----------------------------------------------------------------------------


def test_a_hundred_rules_cost_what_one_costs() -> None:
    def decider(count: int) -> Callable[[], object]:
        held, found = policy(*(Rule(f"#{n}", "deny", tools=(f"x{n}*",)) for n in range(count))), tool()
        return lambda: held.decide(found, "cli", {})

    one, hundred = decider(1), decider(100)
    times: dict[str, list[float]] = {"one": [], "hundred": []}
    for _ in range(20):
        times["one"].append(timeit.timeit(one, number=500))
        times["hundred"].append(timeit.timeit(hundred, number=500))
    assert min(times["hundred"]) < 3 * min(times["one"])


def test_callers_that_name_themselves_anew_each_time_fill_no_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_MOST_PLANS", 50)
    held, found = policy(Rule("r", "deny", callers=("mcp:bad*",))), tool()
    for number in range(500):
        assert held.decide(found, f"mcp:{number}", {}).effect == "allow"
    assert len(held._plans) <= 50
    assert held.decide(found, "mcp:bad" + "x" * 10_000, {}).effect == "deny"
    assert not any(len(key[1]) > 200 for key in held._plans)
    assert held.decide(found, "mcp:bad", {}).effect == "deny"


def test_a_tool_that_replaces_another_is_judged_for_itself() -> None:
    held = policy(Rule("r", "deny", tags=("bad",)))
    good = tool()
    for number in range(200):
        assert held.decide(good, "cli", {}).effect == "allow"
        bad = replace(good, tags=("bad",))
        assert held.decide(bad, "cli", {}).effect == "deny"
        good = replace(bad, tags=(), version=number + 2)
        del bad
        gc.collect(0)
