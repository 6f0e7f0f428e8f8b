"""From what was seen to the smallest block: real files, made-up calls."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from toolcrib.executors.trace.block import Block, scalar
from toolcrib.executors.trace.observation import Observation
from toolcrib.executors.workspace.workspace import Workspace
from toolcrib.sandbox import Confinement
from toolcrib.sandbox.tracing.watch import Seen
from toolcrib.spec import CommandExec, Network, Permissions, PythonExec, SecretSpec, Source, Tool


class Run:
    """One watched run of a tool in a project of its own."""

    def __init__(self, root: Path, **permissions: Any) -> None:
        self.root = Path(os.path.realpath(root))
        self.config: Any = CommandExec("sh")
        self.permissions = permissions
        self.seen = Observation()
        for folder in (".toolcrib/tools/t", "data", "out", "conf"):
            (self.root / folder).mkdir(parents=True, exist_ok=True)
        for name in (
            "data/a",
            "data/b",
            "conf/x",
            ".env",
            "file",
            ".toolcrib/config.yml",
            ".toolcrib/tools/t/helper",
        ):
            (self.root / name).write_text(name)

    @property
    def tool(self) -> Tool:
        source = Source("native", str(self.root / ".toolcrib/tools/t/tool.yml"), b"", "")
        kind = "python" if isinstance(self.config, PythonExec) else "command"
        return Tool(
            "t", "T.", kind, {}, self.config, permissions=Permissions(**self.permissions), source=source
        )

    def see(self, *acts: str) -> Block:
        """Note acts written `access path`, and give the block."""
        workspace = Workspace(str(self.root), str(self.root / ".toolcrib"))
        grants = workspace.files().grants(self.tool)
        job = Confinement(
            ("sh",),
            str(self.root),
            {},
            grants.read,
            grants.write,
            grants.protect,
            grants.scratch,
            grants.hide,
        )
        self.seen.over(workspace, self.tool, job)
        for act in acts:
            access, _, path = act.partition(" ")
            place = path if not access or access == "network" else str(self.root / path)
            self.seen.see(Seen("call", access, place))  # type: ignore[arg-type]
        return Block.of(self.tool, self.seen)


def lines(found: list[Any]) -> list[tuple[str, str]]:
    return [(line.permission, line.value) for line in found]


def parsed(block: Block) -> Any:
    data = YAML(typ="safe", pure=True).load(io.StringIO(block.text({})))
    assert set(data) == {"permissions"}
    return data["permissions"]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path


def test_what_was_read_is_named_file_by_file(root: Path) -> None:
    block = Run(root, read=("data", "conf")).see("read data/a", "look data/b", "read data/gone")
    assert lines(block.needed) == [("fs.read", "data/a"), ("fs.read", "data/b")]
    assert lines(block.unused) == [("fs.read", "conf")]
    assert parsed(block) == block.permissions() == {"network": False, "fs": {"read": ["data/a", "data/b"]}}


def test_nothing_seen_needs_nothing(root: Path) -> None:
    block = Run(root, read=("data",), write=("out",)).see()
    assert parsed(block) == {"network": False}
    assert lines(block.unused) == [("fs.read", "data"), ("fs.write", "out")]


def test_a_listed_folder_covers_its_files_and_a_written_one_its_reads(root: Path) -> None:
    run = Run(root, read=("data",), write=("out",))
    (run.root / "out/old").write_text("x")
    block = run.see("list data", "read data/a", "create out/new", "read out/old")
    assert block.permissions()["fs"] == {"read": ["data"], "write": ["out"]}
    assert "'new'" in block.of_kind("fs.write")[0].why


def test_many_files_become_their_folder_only_inside_of_a_grant(root: Path) -> None:
    run = Run(root, read=(".",))
    names = [f"data/{n}" for n in range(9)]
    for name in names:
        (run.root / name).write_text("x")
    block = run.see(*(f"read {name}" for name in names))
    assert block.permissions()["fs"]["read"] == ["data"]
    alone = Run(root, read=tuple(names)).see(*(f"read {name}" for name in names))
    assert alone.permissions()["fs"]["read"] == names


@pytest.mark.parametrize(
    ("act", "write"),
    [
        ("write data/a", "data/a"),
        ("create data/a", "data/a"),
        ("create data/new", "data"),
        ("make data/new", "data"),
        ("remove data/a", "data"),
        ("put data/a", "data"),
        ("make data/a", None),
        ("remove data/new", None),
        ("write data/new", None),
    ],
)
def test_what_changes_a_folder_and_what_a_file(root: Path, act: str, write: str | None) -> None:
    granted = Run(root, write=("data",)).see(act)
    assert [line.value for line in granted.of_kind("fs.write")] == ([write] if write else [])
    refused = Run(root, read=("data",)).see(act)
    assert lines(refused.missing) == ([("fs.write", write)] if write else [])


def test_a_read_only_part_of_what_is_written_stays_so(root: Path) -> None:
    run = Run(root, read=("out/fixed",), write=("out",))
    (run.root / "out/fixed").mkdir()
    assert run.see("create out/new").permissions()["fs"] == {"read": ["out/fixed"], "write": ["out"]}


def test_what_is_not_granted_is_only_reported(root: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (root / "link").symlink_to("/etc/hostname")
    block = Run(root).see(
        "read file", "look conf/x", "look conf", "list .", "create new", f"read {elsewhere}"
    )
    assert ("fs.read", "conf") in lines(block.missing)
    assert ("fs.write", ".") in lines(block.missing)
    assert not block.needed
    assert parsed(block) == {"network": False}
    outside = Run(root).see("read /etc/shadow", "read link")
    assert [line.value for line in outside.missing] == [
        name for name in ("/etc/hostname", "/etc/shadow") if Path(name).exists()
    ]
    assert all("outside of the project" in line.why for line in outside.missing)


def test_secrets_and_our_own_files_are_never_suggested(root: Path) -> None:
    block = Run(root, read=(".",)).see("read .env", "write .toolcrib/config.yml", "read data/a")
    assert lines(block.closed) == [("fs.read", ".env"), ("fs.write", ".toolcrib/config.yml")]
    assert block.missing == []
    without = Run(root).see("read .toolcrib/config.yml", "list .toolcrib/tools")
    assert without.missing == []
    assert lines(without.closed) == [("fs.read", ".toolcrib/config.yml"), ("fs.read", ".toolcrib/tools")]


def test_what_every_tool_has_is_not_reported(root: Path) -> None:
    block = Run(root).see(
        "run /bin/sh", "read /usr/lib/os-release", "read /etc/passwd", "read /proc/self/maps",
        "write /dev/null", "create /tmp/x", "make /dev/shm/y", "list /", "list /etc", "look .",
        "read .toolcrib/tools/t/tool.yml", "look .toolcrib", "make data/__pycache__",
        "read /etc/ld.so.preload",
    )  # fmt: skip
    assert (block.needed, block.missing, block.closed) == ([], [], [])


def test_its_own_folder_needs_no_line_whatever_else_is_granted(root: Path) -> None:
    block = Run(root, read=(".",)).see("read .toolcrib/tools/t/helper", "read data/a")
    assert lines(block.needed) == [("fs.read", "data/a")]


def test_the_first_listing_of_a_module_path_is_the_importers(root: Path) -> None:
    run = Run(root)
    run.config = PythonExec("pkg.mod", "run")
    (run.root / "pkg").mkdir()
    assert run.see("list .", "list pkg", "list .toolcrib", "list .toolcrib/tools/t").missing == []
    assert lines(run.see("list .", "list .").missing) == [("fs.read", ".")]


def test_names_that_would_break_out_of_the_block_are_quoted(root: Path) -> None:
    run = Run(root, read=("data",))
    hostile = "data/x\n  write: ['.']  # \x1b[31m\u202e"
    (run.root / hostile).write_text("x")
    (run.root / "data/true").write_text("x")
    (run.root / "data/#- 1").write_text("x")
    block = run.see(*(f"read {name}" for name in (hostile, "data/true", "data/#- 1")), "make out/\nfs: 1")
    assert set(parsed(block)["fs"]["read"]) == {hostile, "data/true", "data/#- 1"}
    assert block.text({}).isascii()
    assert "\x1b" not in block.text({})


@pytest.mark.parametrize(
    "text", ["true", "no", "1e3", "a b", "*", "- x", "~", "0x1", "", "-", "ä", "a: b", "1.2"]
)
def test_a_scalar_is_the_text_and_nothing_else(text: str) -> None:
    assert YAML(typ="safe", pure=True).load(io.StringIO(f"[{scalar(text)}]")) == [text]


@pytest.mark.parametrize("text", ["data/a.csv", ".", "./x", "/etc/hosts", "src", ".github/x-1_2"])
def test_a_plain_path_stays_plain(text: str) -> None:
    assert scalar(text) == text


def test_hosts_that_were_let_through_are_listed_with_their_port(root: Path) -> None:
    run = Run(
        root, network=Network("hosts", ("a.example", "*.b.example", "c.example:8080", "unused.example"))
    )
    for host, port, granted in (
        ("A.example.", 443, True), ("x.b.example", 443, True),
        ("c.example", 8080, True), ("evil.example", 80, False),
    ):  # fmt: skip
        run.seen.record_host(host, port, granted)
    block = run.see()
    allow = ["a.example:443", "c.example:8080", "x.b.example:443"]
    assert parsed(block)["network"] == {"allow": allow}
    assert lines(block.missing) == [("network.allow", "evil.example:80")]
    assert lines(block.unused) == [("network.allow", "unused.example")]


def test_a_network_whose_hosts_were_not_seen_stays_as_declared(root: Path) -> None:
    assert Run(root, network=Network("any")).see("network ").permissions()["network"] is True
    assert Run(root, network=Network("host")).see().permissions()["network"] == "host"
    hosts = Run(root, network=Network("hosts", ("a.example",))).see("network 192.0.2.1:443")
    assert parsed(hosts)["network"] == {"allow": ["a.example"]}
    assert "192.0.2.1:443" in hosts.of_kind("network.allow")[0].why
    assert Run(root, network=Network("any")).see().permissions()["network"] is False


def test_a_refused_socket_is_reported_with_the_host_where_that_is_known(root: Path) -> None:
    assert lines(Run(root).see("network ").missing) == [("network", "allow: [HOST]")]
    run = Run(root)
    run.see("network ")
    run.seen.add_report({"hosts": [["example.org", 80], ["x"], 7], "variables": []})
    run.seen.record_host("example.org", None, False)
    assert lines(run.see("network ").missing) == [("network.allow", "example.org:80")]


def test_variables_are_kept_as_declared_and_reported_where_they_were_seen(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ASKED_FOR", "x")
    given: Any = {"env": ("LANG", "TERM"), "secrets": (SecretSpec("KEY"),)}
    unseen = Run(root, **given).see()
    assert parsed(unseen)["env"] == ["LANG", "TERM"]
    assert parsed(unseen)["secrets"] == {"KEY": {"type": "string"}}
    assert all("cannot be observed" in line.why for line in unseen.needed)
    run = Run(root, **given)
    run.see("run /bin/sh")
    run.seen.add_report({"variables": ["KEY", "ASKED_FOR", "NOT_SET_HERE"]})
    block = Block.of(run.tool, run.seen)
    assert [line.why.partition(";")[0] for line in block.needed] == [
        "read through os.environ", "declared", "declared"
    ]  # fmt: skip
    assert lines(block.missing) == [("env", "ASKED_FOR")]
    # A program that it starts reads its own environment unseen.
    run.see("run /bin/sh", "run /bin/ls")
    run.seen.variables = None
    run.seen.add_report({"variables": ["KEY"]})
    assert run.seen.variables is None


@pytest.mark.parametrize(
    "expected", [None, 1, [], {"hosts": 1, "variables": {}}, {"hosts": [[1, 2], ["a", "b"]]}]
)
def test_what_a_tool_says_of_itself_may_be_anything(root: Path, expected: Any) -> None:
    run = Run(root)
    run.see()
    run.seen.add_report(expected)
    assert all(isinstance(host, str) for host, _ in run.seen.hosts)


def test_names_of_any_kind_are_taken_in(root: Path) -> None:
    odd = ["n" * 300, "a/" * 2_000, "\udcff", "loop/x", "data/a/b"]
    (root / "loop").symlink_to("loop")
    block = Run(root, write=("data",)).see(
        *(f"{act} {name}" for act in ("read", "create", "remove") for name in odd)
    )
    assert block.needed == []


def test_thousands_of_files_are_sorted_at_once(root: Path) -> None:
    run = Run(root, read=("data",))
    block = run.see()
    assert run.seen.reach is not None
    for number in range(20_000):
        run.seen.used["read"][f"{run.root}/data/{number % 40}/{number}"] = {"read": None}
    block = Block.of(run.tool, run.seen)
    assert len(block.needed) == 1


def test_a_place_is_named_by_the_links_that_led_to_it(root: Path) -> None:
    run = Run(root, read=(".",))
    (run.root / "current").symlink_to("data")
    (run.root / "chain").symlink_to("current")
    (run.root / "out/away").symlink_to("/etc/hostname")
    assert run.see("read current/a", "read conf/x").permissions()["fs"]["read"] == ["conf/x", "current/a"]
    assert Run(root, read=(".",)).see("read chain/b").permissions()["fs"]["read"] == ["chain/b"]
    listed = Run(root, read=(".",)).see("list data", "read current/a")
    assert lines(listed.needed) == [("fs.read", "current/a"), ("fs.read", "data")]
    refused = Run(root).see("read current/a", "read out/away")
    assert ("fs.read", "current/a") in lines(refused.missing)
    assert not any("away" in value for _, value in lines(refused.missing))
    seen = Run(root, write=(".",)).see("create current/new")
    assert lines(seen.needed) == [("fs.write", "current")]


def test_links_of_the_system_are_nobody_s_business(root: Path) -> None:
    block = Run(root).see("read /lib/x86_64-linux-gnu/libz.so.1", "read /bin/sh", "create /usr/lib/x")
    assert lines(block.missing) == [("fs.write", "/usr/lib")]


def test_a_file_that_is_replaced_needs_its_folder(root: Path) -> None:
    block = Run(root).see("look data/a", "remove data/a", "put data/b")
    assert lines(block.missing) == [("fs.read", "data/a"), ("fs.write", "data")]
    granted = Run(root, write=("data",)).see("look data/a", "remove data/a", "put data/b")
    assert lines(granted.needed) == [("fs.write", "data")]


def test_a_repository_is_named_as_a_whole_and_its_settings_never(root: Path) -> None:
    (root / ".git/objects").mkdir(parents=True)
    (root / ".git/config").write_text("")
    block = Run(root, write=(".",)).see("make .git/objects/x", "write .git/config")
    assert lines(block.missing) == [("fs.write", ".git")]
    assert lines(block.closed) == [("fs.write", ".git/config")]
    granted = Run(root, write=(".git",)).see("make .git/index.lock")
    assert lines(granted.needed) == [("fs.write", ".git")]


def test_a_name_that_no_manifest_can_hold_is_reported_by_its_folder(root: Path) -> None:
    odd = os.fsdecode(b"data/b\xff")
    run = Run(root)
    (run.root / odd).write_text("x")
    assert lines(run.see(f"read {odd}").missing) == [("fs.read", "data")]


def test_unix_sockets_count_where_the_network_is_the_machines(root: Path) -> None:
    for mode, found in (("host", [("fs.write", "data")]), ("none", [])):
        run = Run(root, network=Network(mode), write=("data",))  # type: ignore[arg-type]
        run.see()
        run.seen.see(Seen("bind", "make", str(run.root / "data/sock")))
        assert lines(Block.of(run.tool, run.seen).of_kind("fs.write")) == found


@pytest.mark.parametrize(
    "text", [".inf", ".NaN", ".5", ".1e3", "\U0001f4c4 x", "\x85", "\u2028", '"', "\\", "\ufeff"]
)
def test_what_reads_as_something_else_is_quoted(text: str) -> None:
    assert YAML(typ="safe", pure=True).load(io.StringIO(f"[{scalar(text)}]")) == [text]
    assert scalar(text) != text
