"""What waits for trust, as a few lines in groups."""

from __future__ import annotations

from typing import Any

from toolcrib.guard import ToolDigest, Trusted
from toolcrib.project.integrity.fingerprints import FileUse
from toolcrib.project.trust.sheets import TrustSheet, cut, folded, lines_of
from toolcrib.spec import Annotations, CommandExec, HttpExec, Tool

COMMAND = CommandExec("sh")


def sheet(name: str, *reasons: str, config: Any = COMMAND, kind: str = "command", **more: Any) -> TrustSheet:
    tool = Tool(name, "D.", kind, {"type": "object"}, config, annotations=more.pop("hints", Annotations()))
    last: Trusted | None = more.pop("last", None)
    digest = ToolDigest("1" * 64, more.pop("parts", {"manifest": "now"}))
    status: Any = "new" if last is None else "changed"
    maker = more.pop("maker", None)
    return TrustSheet(tool, f"tool:{name}", digest, status, last, list(reasons), reasons, maker, waits=True)


def http(name: str, method: str, *more: str, host: str = "api.example.com", **options: Any) -> TrustSheet:
    config = HttpExec(method, f"https://{host}/v1/{name}")
    return sheet(name, f"network: {host}", *more, config=config, kind="http", **options)


def test_nothing_that_waits_is_no_line() -> None:
    assert list(lines_of([])) == []


def test_http_tools_are_one_line_for_each_host_with_their_secrets() -> None:
    sheets = [http(f"get{number}", "GET") for number in range(25)]
    sheets += [http(f"put{number}", "POST", "secret API_KEY") for number in range(15)]
    (line,) = lines_of(sheets)
    count, names = "25 read, 15 write; secret API_KEY", "get0, get1, get2, get3, get4, and 35 more"
    assert line == f"40 HTTP tools of api.example.com: {count}: {names}"
    two = list(lines_of([http("one", "GET"), http("other", "DELETE", host="b.example.com")]))
    assert two == [
        "1 HTTP tool of api.example.com: 1 read: one",
        "1 HTTP tool of b.example.com: 1 write: other",
    ]


def test_a_tool_that_says_that_it_only_reads_counts_so() -> None:
    query = http("query", "POST", hints=Annotations(read_only=True))
    assert list(lines_of([query])) == ["1 HTTP tool of api.example.com: 1 read: query"]


def test_tools_are_grouped_by_what_they_may_touch_and_those_that_act_come_first() -> None:
    sheets = [
        sheet("look"),
        sheet("fill", "write out"),
        sheet("pack", "write out"),
        sheet("send", "network: example.com", "secret TOKEN"),
    ]
    assert list(lines_of(sheets)) == [
        "2 command tools may write out: fill, pack",
        "1 command tool may reach example.com; take the secret TOKEN: send",
        "1 command tool only reads in the project: look",
    ]


def test_many_groups_are_told_by_the_kind_of_what_they_may_touch() -> None:
    sheets = [sheet(f"t{number}", f"write out{number}", f"secret S{number}") for number in range(12)]
    (line,) = lines_of(sheets)
    assert line.startswith(
        "12 command tools may write files, take secrets (write out0, secret S0, write out1,"
    )
    assert "and 19 more" in line


def test_agents_and_workflows_are_named_as_such() -> None:
    use = FileUse(("look",), ())
    agents = [sheet(f"agent:{name}", "run wipe", config=use, kind="agent") for name in ("a", "b")]
    assert list(lines_of(agents)) == ["2 agents may run wipe: agent:a, agent:b"]


def test_what_has_changed_and_what_an_agent_made_is_named() -> None:
    last = Trusted("tool:old", "0" * 64, shown={"parts": {"manifest": "then"}}, by="ann")
    sheets = [sheet("old", "write .", last=last), sheet("new", "write .", maker="robot")]
    assert list(lines_of(sheets)) == [
        "2 command tools may write .: old, new (1 changed: manifest) (made by an agent: new)"
    ]
    assert list(lines_of(sheets[:1])) == ["1 command tool may write .: old (changed: manifest)"]


def test_names_are_folded_above_five() -> None:
    assert folded("abc") == "a, b, c"
    assert folded("abcdef") == "a, b, c, d, e, f", "one more is as short as its name"
    assert folded("abcdefg") == "a, b, c, d, e, and 2 more"
    assert folded("aabba") == "a, b"


def test_a_line_fits_on_two_lines_of_a_terminal_and_hides_nothing_in_it() -> None:
    assert cut("short") == "short"
    assert len(cut("x" * 1_000)) == 180
    assert cut("x" * 1_000).endswith("…")
    (line,) = lines_of([sheet("t", "write a\nTrusted.\x1b[2J")])
    assert "\n" not in line
    assert "\x1b" not in line
