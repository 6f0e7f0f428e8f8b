"""A dry run says what a call would do, at every interface, and runs nothing."""

from __future__ import annotations

import json

import pytest

from tests.crib import Crib, failed
from toolcrib import Toolset

SECRET = "s3cr3t-value-17"


@pytest.fixture
def planned(crib: Crib) -> Crib:
    crib.secrets |= {"KEY": SECRET, "ID": "id-value-17"}
    crib.shell(
        permissions={"fs": {"write": ["out"]}, "env": ["HOME"], "secrets": {"KEY": {}}},
        config={"env": {"TOKEN": "${KEY}"}, "cwd": "out"},
        approval={"required": True, "reason": "it writes"},
    )
    crib.tool(
        "post",
        "http",
        {
            "method": "POST", "url": "http://127.0.0.1:9/x/${a}", "headers": {"X-Key": "${KEY}"},
            "query": {"q": "${a}"}, "body": {"v": "${a}", "k": "${KEY}"},
        },
        {"a": {"type": "string"}},
        permissions={"network": {"allow": ["127.0.0.1:9"]}, "secrets": {"KEY": {}, "ID": {}}},
        auth={"type": "basic", "username_secret": "ID", "secret": "KEY"},
    )  # fmt: skip
    crib.write("out/.keep", "")
    return crib


def test_a_command(planned: Crib) -> None:
    result = planned.call("sh", {"c": f"touch {planned.root}/out/ran"}, dry_run=True)
    assert result.details == {"dryRun": True}
    plan = result.value
    assert plan["would"]["args"] == ["-c", f"touch {planned.root}/out/ran"]
    assert plan["environment"] == ["HOME", "KEY", "TOKEN"]
    assert plan["cwd"] == "out"
    assert plan["permissions"]["fs"]["write"] == ["out"]
    assert (plan["policy"], plan["approval"]) == ("ask", "it writes")
    assert SECRET not in json.dumps(plan)
    assert [path.name for path in (planned.root / "out").iterdir()] == [".keep"]
    assert "TOOL_EXECUTED" not in (planned.home / "audit/tools.log").read_text()


def test_a_shell_line_of_a_built_in_tool(crib: Crib) -> None:
    crib.write(".toolcrib/config.yml", "builtins: [exec]\n")
    plan = crib.call("exec", {"command": "ls -l", "workdir": "out"}, dry_run=True).unwrap()
    assert (plan["would"]["args"], plan["cwd"]) == (["-c", "ls -l"], "out")


def test_a_shell_line_with_values_is_shown_as_a_shell_would_read_it(crib: Crib) -> None:
    text = "name: find\ndescription: F\nparams: [{name: a, type: string, required: true, description: a}]\n"
    line = """implementation: {type: exec, command: "grep {{a}} '{{a}}' \\"in {{a}}\\" | sort --x={{a}}"}\n"""
    crib.write("find.yaml", text + line)
    crib.write(".toolcrib/config.yml", "sources: [{file: find.yaml}]\n")
    plan = crib.call("find", {"a": "x; $y"}, dry_run=True).unwrap()
    assert plan["would"]["shell"] == "grep 'x; $y' 'x; $y' \"in x; \\$y\" | sort --x='x; $y'"
    assert "option" in failed(crib.call("find", {"a": "-x"}, dry_run=True), "invalid_input")


def test_a_request(planned: Crib) -> None:
    plan = planned.call("post", {"a": "b c"}, dry_run=True).unwrap()
    assert plan["would"] == {
        "method": "POST",
        "url": "http://127.0.0.1:9/x/b%20c",
        "headers": {"X-Key": "<secret KEY>", "Authorization": "Basic <secret ID>"},
        "query": {"q": "b c"},
        "body": {"v": "b c", "k": "<secret KEY>"},
    }
    assert plan["policy"] == "allow"


def test_what_would_be_refused_is_refused(planned: Crib) -> None:
    planned.write(
        ".toolcrib/config.yml", "policy: {rules: [{effect: deny, tools: [post], reason: closed}]}\n"
    )
    assert "closed" in failed(planned.call("post", {"a": "x"}, dry_run=True), "policy_denied")
    assert "$.c" in failed(planned.call("sh", {"c": 5}, dry_run=True), "invalid_input")


def test_a_dry_run_counts_for_nothing(planned: Crib) -> None:
    planned.write(".toolcrib/config.yml", "limits: {calls_per_minute: 1}\n")
    for _ in range(3):
        assert planned.call("post", {"a": "x"}, dry_run=True, idempotency_key="k").ok
    assert planned.call("post", {"a": "x"}).error is not None


async def test_functions_of_a_toolset() -> None:
    tools, ran = Toolset(), list[int]()

    @tools.tool(approval="it costs money")
    def buy(n: int) -> None:
        ran.append(n)

    result = await tools.call("buy", {"n": 3}, dry_run=True)
    assert result.value["arguments"] == {"n": 3}
    assert (result.value["policy"], result.value["approval"]) == ("ask", "it costs money")
    assert ran == []
