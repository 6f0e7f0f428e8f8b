"""The routes that keep a project going, over HTTP: MCP servers, secrets, rules on past calls, usage."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests import mcp_servers
from tests.crib import Crib
from tests.http_server import HttpServerProcess, http_server
from tests.patience import wait_for
from toolcrib.guard import Ledger
from toolcrib.project import load_config
from toolcrib.project.trust.trust import settings_rows
from toolcrib.state import Vault

pytestmark = pytest.mark.usefixtures("kernel")
VALUE = "drill-press-4711"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServerProcess]:
    crib = Crib(tmp_path_factory.mktemp("operations") / "project")
    crib.shell("keyed", permissions={"secrets": {"SHOP_KEY": {"type": "string"}}})
    crib.shell("greet")
    crib.shell("idle")
    mcp_servers.mount(crib, "calculator", mcp_servers.GOOD)
    mcp_servers.mount(crib, "broken", "import sys\nsys.exit('no such luck')\n")
    data = crib.root.with_name(f"{crib.root.name}-data")
    written = json.loads((crib.home / "config.yml").read_text())
    crib.write(".toolcrib/config.yml", f"mcp_servers: {json.dumps(written['mcp_servers'])}\n")
    config = load_config(crib.home / "config.yml", crib.root)
    Ledger(Vault(crib.root, data)).accept(settings_rows(config), "ann", "program")
    with http_server(crib.root, env={"SHOP_KEY": ""}) as running:
        yield running


@pytest.fixture(scope="module")
def session(server: HttpServerProcess) -> dict[str, str]:
    """The headers of the person's browser."""
    return server.log_in(server.login)


def state(server: HttpServerProcess, name: str) -> dict[str, Any]:
    listed = server.send("GET", "/servers").json["servers"]
    return next(one for one in listed if one["name"] == name)


def test_servers_are_listed_and_restarted(server: HttpServerProcess) -> None:
    started = server.send("POST", "/servers/calculator/restart")
    assert (started.status, started.json["state"]) == (200, "starting")
    wait_for(lambda: state(server, "calculator")["state"] == "ready", "the state")
    ready = state(server, "calculator")
    assert "calculator__add" in ready["tools"]
    starts = ready["starts"]
    server.send("POST", "/servers/calculator/restart")
    wait_for(lambda: state(server, "calculator")["state"] == "ready", "the state")
    assert state(server, "calculator")["starts"] > starts  # One that is slow to start is started again.
    assert server.send("POST", "/servers/none/restart").status == 404


def test_a_server_that_fails_says_why(server: HttpServerProcess) -> None:
    server.send("POST", "/servers/broken/restart")
    wait_for(lambda: state(server, "broken")["error"] is not None, "the state")
    assert "no such luck" in state(server, "broken")["stderr"]
    assert sys.executable in state(server, "broken")["where"]


def test_only_a_person_logs_in_and_only_to_a_remote_server(
    server: HttpServerProcess, session: dict[str, str]
) -> None:
    path = "/servers/calculator/login"
    assert (server.send("POST", path, {}).status, server.send("POST", path, {}).code) == (403, "denied")
    refused = server.send("POST", path, {}, session, token=None)
    assert "local program" in refused.json["error"]["message"]
    assert server.send("DELETE", path).status == 403
    assert server.send("DELETE", path, None, session, token=None).json == {"loggedOut": False}
    # It still runs: nothing was begun or ended.
    wait_for(lambda: state(server, "calculator")["state"] == "ready", "the state")


def test_a_person_adds_a_server_after_a_look_at_what_it_may_use(
    server: HttpServerProcess, session: dict[str, str]
) -> None:
    (server.root / "hello.py").write_text(f"{mcp_servers.RAW}\nmain()")
    body = {"name": "hello", "command": [sys.executable, "hello.py"]}
    assert server.send("POST", "/servers", body).status == 403
    plan = server.send("POST", "/servers", body, session, token=None)
    assert plan.status == 200, plan.body
    assert "  may read hello.py" in plan.json["lines"]
    assert not (server.root / ".mcp.json").exists()
    other = {**body, "command": ["cat"], "trust": plan.json["digest"]}
    assert server.send("POST", "/servers", other, session, token=None).status == 409
    added = server.send("POST", "/servers", {**body, "trust": plan.json["digest"]}, session, token=None)
    assert (added.status, added.json["tools"], added.json["waiting"]) == (201, ["hello__hello"], {}), (
        added.body
    )
    assert server.send("GET", added.headers["location"]).json == added.json
    ran = server.send("POST", "/tools/invoke/hello__hello", {"args": {}})
    assert ran.json["value"] == "hello", ran.body
    assert "hello__hello" in json.dumps(server.send("GET", "/tools").json)
    taken = server.send("POST", "/servers", body, session, token=None)
    assert (taken.status, taken.code) == (409, "conflict")


def test_one_session_of_a_server_is_watched_before_it_is_added(
    server: HttpServerProcess, session: dict[str, str]
) -> None:
    for name in ("seen.txt", "asked.txt"):
        (server.root / name).write_text("x")
    reads = 'for name in ("seen.txt", "asked.txt"):\n    try: open(name).read()\n    except OSError: pass\n'
    (server.root / "reader.py").write_text(f"{mcp_servers.RAW}\n{reads}main()")
    before = (server.root / ".mcp.json").read_bytes() if (server.root / ".mcp.json").exists() else None
    entry: Any = {"name": "reader", "command": [sys.executable, "reader.py"], "read": ["seen.txt", "conf"]}
    (server.root / "conf").mkdir()

    def send(path: str, **more: Any) -> Any:
        return server.send("POST", path, {**entry, **more}, session, token=None)

    assert send("/servers/watch").code == "approval_required"
    digest = send("/servers").json["digest"]
    assert server.send("POST", "/servers/watch", {**entry, "trust": digest}).status == 403
    reply = send("/servers/watch", trust=digest)
    assert (reply.status, reply.json["tools"], reply.json["error"]) == (200, ["hello"], None), reply.body
    watched = reply.json["watched"]
    assert "seen.txt" in [one["value"] for one in watched["needed"]]
    missing = [(one["permission"], one["value"]) for one in watched["missing"]]
    # Python's own look for modules in the folder of the script is none of its requests.
    assert ("fs.read", "asked.txt") in missing
    assert ("fs.read", ".") not in missing
    assert [one["value"] for one in watched["unused"]] == ["conf"]
    assert any("python" in one for one in watched["observed"]["programs"])
    after = (server.root / ".mcp.json").read_bytes() if (server.root / ".mcp.json").exists() else None
    assert after == before
    assert "reader" not in {one["name"] for one in server.send("GET", "/servers").json["servers"]}


def secret(server: HttpServerProcess) -> dict[str, Any]:
    (found,) = server.send("GET", "/secrets").json["secrets"]
    return dict(found)


def test_a_person_sets_and_removes_a_secret(server: HttpServerProcess, session: dict[str, str]) -> None:
    assert (secret(server)["state"], secret(server)["own"]) == ("missing", False)
    path = "/secrets/SHOP_KEY"
    assert server.send("PUT", path, {"value": VALUE}).status == 403
    assert server.send("PUT", path, {"value": VALUE}, session, token=None).status == 204
    found = secret(server)
    assert (found["state"], found["own"]) == ("resolved", True)
    ran = server.send("POST", "/tools/invoke/keyed", {"args": {"c": 'echo "$SHOP_KEY"'}})
    assert ran.json["value"] == "***SHOP_KEY***\n"
    assert server.send("DELETE", path).status == 403
    assert server.send("DELETE", path, None, session, token=None).status == 204
    assert secret(server)["state"] == "missing"
    lines = server.send("GET", "/audit?text=SHOP_KEY").json["lines"]
    kinds = {one["event"]: one["fields"] for one in lines}
    assert kinds["SECRET_SET"]["channel"] == kinds["SECRET_REMOVED"]["channel"] == "page"
    assert VALUE not in json.dumps(lines)


@pytest.mark.parametrize("name", ["with space", "-x"])
def test_what_is_no_name_of_a_secret_is_refused(
    server: HttpServerProcess, session: dict[str, str], name: str
) -> None:
    path = f"/secrets/{name.replace(' ', '%20')}"
    assert server.send("PUT", path, {"value": VALUE}, session, token=None).status == 400


def test_a_rule_is_tried_on_past_calls(server: HttpServerProcess) -> None:
    for word in ("one", "one", "two"):
        server.send("POST", "/tools/invoke/greet", {"args": {"c": f"echo {word}"}})
    condition = {"properties": {"c": {"const": "echo one"}}}
    rule = {"effect": "ask", "tools": ["greet"], "when": condition}
    found = server.send("POST", "/policy/try", {"rule": rule}).json
    (call,) = found["matching"]
    assert (call["tool"], call["times"], call["arguments"]) == ("greet", 2, {"c": "echo one"})
    assert (call["now"], call["then"]) == ("allow", "ask")
    assert found["now"]["ask"] + 2 == found["then"]["ask"]
    assert found["calls"] == sum(found["now"].values()) + found["gone"]
    # Nothing has changed.
    assert server.send("GET", "/policy").json["rules"] == []
    wrong = server.send("POST", "/policy/try", {"rule": {"effect": "maybe"}})
    assert (wrong.status, wrong.code) == (400, "invalid_config"), wrong.body
    assert "deny, ask, allow" in wrong.json["error"]["message"] + str(wrong.json["error"]["hint"])


def test_a_person_adds_a_rule_that_counts_at_once(server: HttpServerProcess, session: dict[str, str]) -> None:
    rule = {"name": "still", "effect": "deny", "tools": ["idle"], "reason": "Not today."}
    assert server.send("POST", "/policy/rules", {"rule": rule}).status == 403
    wrong = server.send("POST", "/policy/rules", {"rule": {"effect": "maybe"}}, session, token=None)
    assert (wrong.status, wrong.code) == (400, "invalid_config")
    assert server.send("GET", "/policy").json["rules"] == []
    added = server.send("POST", "/policy/rules", {"rule": rule}, session, token=None)
    assert (added.status, added.json["inForce"]) == (201, True), added.body
    assert server.send("GET", "/policy").json["rules"] == [rule]
    refused = server.send("POST", "/tools/invoke/idle", {"args": {"c": "true"}})
    assert (refused.status, refused.code) == (403, "policy_denied"), refused.body
    (line,) = server.send("GET", "/audit?event=POLICY_CHANGED").json["lines"]
    assert (line["fields"]["channel"], line["fields"]["rule"]) == ("page", rule)


def test_usage_has_tokens_and_what_is_not_used(server: HttpServerProcess) -> None:
    server.send("POST", "/tools/invoke/greet", {"args": {"c": "printf %0400d 1"}})
    named = {one["name"]: one for one in server.send("GET", "/tools/usage").json["tools"]}
    (day,) = named["greet"]["days"]
    assert day["resultTokens"] >= 100
    assert named["greet"]["schemaTokens"] > 5
    assert "idle" not in named
    named = {one["name"]: one for one in server.send("GET", "/tools/usage?unused=true").json["tools"]}
    assert named["idle"]["days"] == []
    assert named["idle"]["schemaTokens"] > 5
