"""Golden snapshots of what several commands do together, as test_golden.py has them of single ones."""

from __future__ import annotations

import json
import re
import shutil
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest

from tests.commands import shared_server
from tests.golden.crib import ROOT, GoldenCrib, mcp
from tests.golden.documents import OPENAPI, SERVER
from tests.golden.shop import files, tool
from tests.golden.store import golden

# Each test makes many calls one after the other, also on a machine that is busy.
pytestmark = [pytest.mark.usefixtures("kernel"), pytest.mark.timeout(300)]

DATA = ROOT / "tests" / "data"


@pytest.fixture
def empty(tmp_path: Path) -> GoldenCrib:
    return GoldenCrib(tmp_path, shared_server())


@pytest.fixture
def shop(empty: GoldenCrib) -> GoldenCrib:
    empty.write(files())
    return empty


def waiting(crib: GoldenCrib, *words: str) -> str:
    """Make a call that waits for a person, and give the approval's id."""
    found: str = crib.json("run", *words)["error"]["details"]["approval"]
    return found


def changed(crib: GoldenCrib, name: str, old: str, new: str) -> None:
    """Change a tool's manifest."""
    path = f".toolcrib/tools/{name}/tool.yml"
    crib.write({path: (crib.root / path).read_text(encoding="utf-8").replace(old, new)})


def test_approvals(shop: GoldenCrib) -> None:
    pay = "pay", "amount:=1"
    one, two = waiting(shop, *pay), waiting(shop, "pay", "amount:=2")
    cases = shop.each(
        f"""
        approvals list --json
        approvals list --limit 1 --json
        approvals list --before {two} --json
        approvals list --status nothing --json
        approvals show {one} --json
        approvals show {one}
        approvals approve {one}
        approvals approve {one} --yes --edit amount:=11
        approvals approve {one} --yes --edit oops
        approvals approve {one} --yes --scope ever
        approvals approve {one} --yes --arguments @none
        approvals approve {one} --yes --edit amount:=3 --scope rule
        approvals approve {one} --yes --reason fine
        approvals approve {one} --yes
        approvals deny {two}
        approvals deny {two} --yes --reason no
        approvals list --status all --json
        approvals show {two} --json
        run pay amount:=1 --json
        run pay amount:=1 --json
        run pay amount:=2 --json
        approvals show {one} --json
        approvals list --status used --json
        approvals revoke {one}
        approvals revoke nothing
        approvals approve nothing --yes
        approvals deny nothing --yes
        """
    )
    three = waiting(shop, "pay", "amount:=3")
    cases += shop.each(
        f"""
        approvals approve {three} --yes --scope session
        approvals approve {three} --yes --scope arguments
        approvals grants --json
        approvals show {three} --json
        run pay amount:=3 --json
        run pay amount:=3 --json
        approvals revoke {three}
        approvals grants --json
        """
    )
    four, five = waiting(shop, "pay", "amount:=4"), waiting(shop, "asked")
    cases += shop.each(
        f"""
        approvals approve {four} --yes --scope rule
        approvals approve {five} --yes --scope rule
        run pay amount:=5 --json
        approvals grants --json
        """
    )
    six = waiting_edited(shop)
    cases += shop.each(f"approvals show {six} --json\nrun asked --json")
    golden("approvals", cases)
    golden("approvals_events", shop.events())


def waiting_edited(shop: GoldenCrib) -> str:
    """Have a call approved with other arguments, after its tool has changed once."""
    changed(shop, "pay", "It is dear", "It is very dear")
    first = waiting(shop, "pay", "amount:=6")
    changed(shop, "pay", "It is very dear", "It is dear")
    assert shop.raw("approvals", "approve", first, "--yes")[0] == 7
    again = waiting(shop, "pay", "amount:=6")
    assert shop.raw("approvals", "approve", again, "--yes", "--edit", "amount:=7")[0] == 0
    assert shop.raw("run", "pay", "amount:=6")[0] == 0
    return again


FAR = tool("command", {"entrypoint": "true"}, {}, permissions={"env": ["LANG"]}, outputs={"format": "text"})


def test_trust_locks_and_tests(empty: GoldenCrib) -> None:
    empty.write(
        {
            ".toolcrib/tools/far/tool.yml": json.dumps({"name": "far", **FAR}),
            **{path: text for path, text in files().items() if "/greet/" in path or "/count/" in path},
        }
    )
    cases = empty.each(
        """
        test --json
        test
        test count --json
        test nothing --json
        test --live --json
        trust --show --json
        trust --check
        trust far --show
        run far --json
        trust --lock --json
        trust far --yes --json
        trust far --json
        trust --check --json
        trust --lock --json
        """
    )
    lock = json.loads((empty.root / "toolcrib.lock").read_text(encoding="utf-8"))
    changed(empty, "far", "LANG", "TERM")
    empty.write({".toolcrib/tools/greet/more.txt": "x"})
    shutil.rmtree(empty.root / ".toolcrib/tools/count")
    cases += empty.each(
        """
        trust --show --json
        trust --check
        trust far --show --json
        run far --json
        run greet --json
        run count n:=1 --json
        trust --lock --json
        trust --yes --json
        trust --lock --json
        run greet --json
        """
    )
    empty.write({"toolcrib.lock": "{"})
    cases += empty.each("run greet --json\ntrust --locked 00 --json")
    for one in lock["tools"].values():  # Programs lie elsewhere on each machine.
        one["parts"] = {
            re.sub(r"^(venv|entrypoint)//.*", r"\1//", name): part for name, part in one["parts"].items()
        }
    golden("trust_lock_test", {"cases": cases, "lock": empty.normal(lock)})
    golden("trust_lock_test_events", empty.events())


WEAK = "sandbox: {minimum: none}\npolicy:\n  self_approval: true\napprovals: {channels: [cli, elicitation]}\n"
WRONG = {
    "unknown": "limits:\n  timeout: 5\n",
    "type": "limits: {timeout_ms: soon}\n",
    "value": "policy: {default: maybe}\ndatabase: 5\n",
    "rule": "policy: {rules: [{effect: denny}, {tools: [a]}, {effect: deny, when: {format: x}}]}\n",
    "syntax": "limits: [\n",
    "list": "- a\n",
    "sources": "sources: [{dir: gone}, {file: a, dialect: b}]\nsecrets: {sources: [{nothing: {}}]}\n",
    "sandbox": "sandbox: {minimum: some}\nmcp: {max_listed: -1}\nretry: {max_attempts: 0}\n",
}


def test_trust_tokens_and_settings(shop: GoldenCrib) -> None:
    settings = (shop.root / ".toolcrib/config.yml").read_text(encoding="utf-8")
    shop.write({".toolcrib/config.yml": WEAK})
    cases = shop.each(
        """
        trust --show --json
        trust --json
        trust
        trust --yes --show --json
        trust --yes --json
        trust --show --json
        trust --revoke --json
        trust --revoke --json
        """
    )
    shop.write({".toolcrib/config.yml": settings})
    cases += shop.each(
        """
        token create ci --scope invoke --scope read --tool gr* --expires 30d --owner ann --json
        token create ci --scope read --json
        token create looks --scope read --owner bob --json
        token create a/b --scope read --json
        token create x --scope root --json
        token create x --json
        token create x --scope read --expires soon --json
        token list --json
        policy explain greet --as token:ci --json
        policy explain count n:=1 --as token:ci --json
        policy explain greet --as token:looks --json
        token revoke ci --json
        token revoke ci --json
        token list --json
        serve --stdio
        serve
        """
    )
    cases.append(shop.case("serve", "--stdio", TOOLCRIB_TOKEN="tcr_wrong"))
    for name, text in WRONG.items():
        shop.write({".toolcrib/config.yml": text})
        cases.append({"settings": name, **shop.case("lint", "--json")})
        cases.append({"settings": name, **shop.case("list", "--json")})
        cases.append({"settings": name, **shop.case("run", "greet")})
    golden("trust_tokens_settings", cases)


def test_a_token_at_the_mcp_server(shop: GoldenCrib) -> None:
    token = shop.json("token", "create", "bot", "--scope", "invoke", "--tool", "greet", "--tool", "pay")
    begin = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "a", "version": "0"}}
    with mcp(
        shop, TOOLCRIB_TOKEN=next(text for text in token.values() if text.startswith("tcr_"))
    ) as session:
        session.ask("initialize", begin)
        session.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        cases = [
            session.case("tools/list"),
            session.case("tools/call", {"name": "greet", "arguments": {}}),
            session.case("tools/call", {"name": "count", "arguments": {"n": 1}}),
            session.case("tools/call", {"name": "pay", "arguments": {"amount": 1}}),
        ]
    golden("mcp_token", {"calls": cases, "events": shop.events()})


READER = tool(
    "command",
    {"entrypoint": "cat", "args": ["stock.txt", "notes/one.txt"]},
    {},
    outputs={"format": "text"},
    permissions={"fs": {"read": ["stock.txt"]}, "env": ["LANG"]},
)


def test_traces_and_secrets(shop: GoldenCrib) -> None:
    shop.write(
        {".toolcrib/tools/reader/tool.yml": json.dumps({"name": "reader", **READER}), "notes/one.txt": "1"}
    )
    cases = shop.each(
        """
        trace reader --json
        trace reader --allow-read notes/one.txt --json
        trace greet who=Ann --json
        trace greet who:=5 --json
        trace pay amount:=1 --json
        trace pay amount:=1 --approve --json
        trace stock --json
        trace gret --json
        trace closed --json
        """
    )
    assert shop.raw("trust", "--yes")[0] == 0
    for text in ("", "SHOP_KEY=s3cr3t-value\n", "SHOP_KEY='open\n"):
        shop.write({".env": text})
        cases += shop.each("secrets list --json\nsecrets check --json\nrun keyed --json\nsecrets check")
    cases.append(shop.case("secrets", "list", "--json", SHOP_KEY="s3cr3t-value"))
    golden("traces_secrets", cases)


def test_conversions(shop: GoldenCrib) -> None:
    shutil.copytree(DATA / "vega", shop.root / "vega")
    shutil.copytree(DATA / "dialects", shop.root / "dialects")
    lines = [
        f"import convert .toolcrib/tools/{name}/tool.yml --to {form} --json"
        for name in ("greet", "answer", "rows")
        for form in ("vega", "flexigpt", "sympozium")
    ]
    lines += [
        f"import convert vega/{path.name} --to native --json"
        for path in sorted((shop.root / "vega").iterdir())
    ]
    cases = shop.each("\n".join(lines))
    cases += shop.each(
        """
        import convert dialects/tool.json --to native --json
        import convert dialects/tool.json --to vega --json
        import convert dialects/skillpack.yaml --to native --only list_pods --json
        import convert dialects/skillpack.yaml --to native
        import convert dialects/skillpack.yaml --to native --json
        import convert dialects/pdf-forms/SKILL.md --to native --json
        import convert dialects/tool.json --from vega --to native --json
        import convert dialects/tool.json --to natve --json
        import convert dialects/tool.json --to skill --json
        import convert gone.json --to native --json
        import convert dialects/skillpack.yaml --to native --output made --json
        import convert dialects/skillpack.yaml --to native --output made --json
        lint dialects/tool.json dialects/skillpack.yaml --json
        """
    )
    named = "{dir: vega}, {file: dialects/skillpack.yaml}, {file: gone.yaml}"
    shop.write({".toolcrib/config.yml": f"sources: [{named}]\n"})
    cases += shop.each("list --json\nlint --json\nshow list_pods --json")
    written = sorted(str(path.relative_to(shop.root)) for path in (shop.root / "made").rglob("*"))
    golden("convert", {"cases": cases, "written": written})


def test_an_import_and_new_projects(empty: GoldenCrib) -> None:
    empty.write(
        {"api.json": json.dumps(OPENAPI), "bad.json": "{}", "none.json": json.dumps(OPENAPI | {"paths": {}})}
    )
    cases = empty.each(
        """
        list --json
        init --json
        init --json
        init --examples --json
        init other --json
        list --json
        import openapi api.json --list --json
        import openapi api.json --only find* --prefix shop_ --json
        import openapi api.json --json
        import openapi api.json --json
        import openapi api.json --replace --secret key=SHOP_KEY --server https://two.example.com --json
        import openapi api.json --only nothing --json
        import openapi bad.json --json
        import openapi none.json --json
        import openapi gone.json --json
        import openapi api.json --secret oops --json
        list --json
        show find --json
        show add --json
        run find ids:=["a"] --dry-run --json
        run add --json
        lint --json
        secrets list --json
        """
    )
    golden("import_init", cases)


def test_servers_of_others(empty: GoldenCrib) -> None:
    places = sorted({sys.prefix, sys.base_prefix, sysconfig.get_paths()["purelib"]}, reverse=True)
    for place in [sys.executable, *places]:
        empty.normal.place(place, "<python>")
    entry = {"command": sys.executable, "permissions": {"fs": {"read": [".", *places]}}}

    def settings(name: str) -> dict[str, str]:
        document = {"mcp_servers": {name: {**entry, "args": [f"{name}.py"]}}}
        return {".toolcrib/config.yml": json.dumps(document)}

    empty.write({"raw.py": SERVER, "bad.py": "import sys; sys.exit('no licence')", **settings("raw")})
    cases = empty.each(
        """
        servers list --json
        trust --yes --json
        list --json
        servers list --json
        list --json
        servers review raw --json
        servers review raww --json
        run raw__hello --json
        servers review raw --yes --json
        run raw__hello --json
        run raw__fail --json
        servers list --json
        servers login raw
        servers logout raw
        show raw__hello --json
        """
    )
    events = empty.events()
    empty.write(settings("bad"))
    cases += empty.each("trust --yes --json\nservers review bad --json")
    for one in events:  # How many lines there are hangs on when a server is seen to have ended.
        del one["fields"]["seq"]
    golden("servers", {"cases": cases, "events": [one for one in events if "ENDED" not in one["event"]]})


def shape(value: Any) -> Any:
    """Give the keys and types of a value, and of a list those of its first item."""
    if isinstance(value, dict):
        return {key: shape(one) for key, one in value.items()}
    if isinstance(value, list):
        return [shape(one) for one in value[:1]]
    return type(value).__name__


def test_the_doctor(empty: GoldenCrib) -> None:
    code, out, _ = empty.raw("doctor", "--json")
    document = json.loads(out)
    assert code == (0 if document["level"].startswith("full") else 1)
    document["enforcement"] = empty.normal(document["enforcement"], "enforcement")
    golden("doctor", {**shape(document), "names": [one["name"] for one in document["mechanisms"]]})


def test_what_people_read_and_shells_ask(shop: GoldenCrib) -> None:
    cases = [
        shop.case("run", "greet", "who=Ann", keep=True),
        shop.case("run", "count", "n:=2", keep=True),
        shop.case("run", "note", "line=x", keep=True),
        shop.case("run", "stock", keep=True),
        shop.case(
            keep=True, _TOOLCRIB_COMPLETE="bash_complete", COMP_WORDS="toolcrib run gr", COMP_CWORD="2"
        ),
    ]
    cases += shop.each(
        """
        --version
        --help
        run --help
        approvals
        nothing
        list
        list --for openai
        show greet
        show gret
        list greet
        list zzzz
        lint --schema manifest
        policy show
        policy explain greet
        run greet who:=5
        run count n=x
        run fail
        run closed
        run pay amount:=1
        run pay amount:=1 --wait pending
        run keyed
        run gret
        run greet oops
        audit tail
        audit tail --follow --nope
        audit verify
        doctor --nope
        servers list
        secrets list
        token list
        approvals list
        """
    )
    log = shop.root / ".toolcrib/audit/tools.log"
    log.write_text(log.read_text(encoding="utf-8").replace('"line":"x"', '"line":"y"'), encoding="utf-8")
    cases += shop.each("audit verify --json\naudit verify\naudit tail --lines 1 --json\nrun stock --json")
    log.unlink()
    cases += shop.each("audit verify --json\nrun stock --json\naudit tail --json")
    golden("plain", cases)
