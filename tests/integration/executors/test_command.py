"""Command tools from manifests, through the whole call path and the real sandbox."""

from __future__ import annotations

import json
import os
from functools import partial
from typing import Any

import pytest

from tests.crib import SH, Crib, failed
from tests.integration.sandbox.ground import eventually, processes_with
from tests.patience import GROWING_MS
from toolcrib.sandbox import level

pytestmark = pytest.mark.usefixtures("kernel")


# --- values


def test_text_and_json_come_back_as_such(crib: Crib) -> None:
    crib.shell()
    crib.shell("js", outputs={"format": "json"})
    crib.shell("split", config={"stdout": {"format": "text"}}, outputs={"format": "json"})
    assert crib.call("sh", {"c": "printf '{\"a\": 1}'"}).value == '{"a": 1}'
    assert crib.call("js", {"c": "echo '{\"a\": [1, 2.5, null]}'"}).value == {"a": [1, 2.5, None]}
    assert crib.call("split", {"c": "echo no json"}).value == "no json\n"
    message = failed(crib.call("js", {"c": "echo no json"}), "tool_failed")
    assert "wrote invalid JSON" in message
    assert "no json" in message


def test_output_that_is_not_utf8_is_replaced_and_flagged(crib: Crib) -> None:
    crib.shell()
    result = crib.call("sh", {"c": r"printf 'a\377b'"})
    assert result.value == "a\ufffdb"
    assert "not UTF-8 (byte 1)" in result.warnings[0]


def test_an_exit_code_that_is_not_listed_fails_with_stderr(crib: Crib) -> None:
    crib.shell()
    crib.shell("lax", config={"exit_codes_ok": [0, 3]})
    result = crib.call("sh", {"c": "echo out; echo why >&2; exit 3"})
    assert failed(result, "command_failed") == "sh ended with exit code 3: why"
    assert result.error is not None
    assert result.error.details["exitCode"] == 3
    assert result.error.details["stderr"] == "why"
    assert crib.last().event == "TOOL_EXECUTED"
    assert crib.last().fields["status"] == "error"
    assert crib.last().fields["sandbox"] in ("full", "full+cgroup")
    lax = crib.call("lax", {"c": "echo fine; exit 3"})
    assert lax.value == "fine\n"
    assert lax.details is not None
    assert lax.details["exitCode"] == 3


def test_an_exit_code_of_124_is_no_timeout_and_a_signal_is_named(crib: Crib) -> None:
    crib.shell()
    assert "exit code 124" in failed(crib.call("sh", {"c": "exit 124"}), "command_failed")
    assert "SIGSEGV" in failed(crib.call("sh", {"c": "kill -SEGV $$"}), "command_failed")
    assert "signal 40" in failed(crib.call("sh", {"c": "kill -40 $$"}), "command_failed")


def test_standard_input_is_text_or_json_or_nothing(crib: Crib) -> None:
    any_value: dict[str, Any] = {"v": {}}
    for name, stdin in (
        ("text", "<${v}>"),
        ("whole", "${v}"),
        ("made", {"k": "${v}", "n": [1]}),
        ("none", None),
    ):
        config: dict[str, Any] = {"entrypoint": "cat"}
        if stdin is not None:
            config["stdin"] = stdin
        crib.tool(name, "command", config, any_value, outputs={"format": "text"})
    assert crib.call("text", {"v": "a\nb"}).value == "<a\nb>"
    assert json.loads(crib.call("whole", {"v": {"a": [1]}}).unwrap()) == {"a": [1]}
    assert crib.call("whole", {"v": "ünï"}).value == "ünï"
    assert crib.call("whole", {}).value == ""
    assert json.loads(crib.call("made", {"v": 5}).unwrap()) == {"k": 5, "n": [1]}
    assert crib.call("none", {}).value == ""
    failed(crib.call("whole", {"v": "\ud800"}), "invalid_input")


# --- arguments


@pytest.mark.parametrize(
    "value", ["; rm -rf /", "$(id)", "`id`", "a b\n c\t'\"\\", "${X}", "$X", "*", "", "ünï 💥", "--x"]
)
def test_a_value_is_one_argument_whatever_it_holds(crib: Crib, value: str) -> None:
    config = {"entrypoint": "printf", "args": ["[%s]", "--", "${v}", "x${v}y"]}
    crib.tool("args", "command", config, {"v": {"type": "string"}}, outputs={"format": "text"})
    # printf repeats its format for every argument it gets.
    assert crib.call("args", {"v": value}).value == f"[--][{value}][x{value}y]"


def test_a_value_can_be_neither_an_option_nor_hold_nul(crib: Crib) -> None:
    crib.tool("ls", "command", {"entrypoint": "ls", "args": ["${v}"]}, {"v": {}}, outputs={"format": "text"})
    for value in ("-rf", "--help", "-", "a\0b", [1], {"a": 1}):
        result = crib.call("ls", {"v": value})
        assert failed(result, "invalid_input").startswith("$.v")
        assert crib.last().event == "TOOL_REFUSED"
        assert crib.last().fields["code"] == "invalid_input"


def test_an_absent_optional_argument_is_no_argument(crib: Crib) -> None:
    config = {"entrypoint": "sh", "args": ["-c", "echo $#", "sh", "${v}", "end"]}
    crib.tool("count", "command", config, {"v": {"type": "string"}}, outputs={"format": "text"})
    assert crib.call("count", {}).value == "1\n"
    assert crib.call("count", {"v": ""}).value == "2\n"


# --- what is missing


def test_what_does_not_exist_is_named_and_nothing_runs(crib: Crib) -> None:
    text = {"format": "text"}
    crib.tool("name", "command", {"entrypoint": "no-such-program"}, outputs=text)
    crib.tool("file", "command", {"entrypoint": "./gone.sh"}, outputs=text)
    crib.tool("cwd", "command", {"entrypoint": "true", "cwd": "gone"}, outputs=text)
    crib.tool(
        "grant", "command", {"entrypoint": "true"}, outputs=text, permissions={"fs": {"read": ["gone"]}}
    )
    crib.write("plain.sh", "#!/bin/sh\n")
    crib.tool("plain", "command", {"entrypoint": "./plain.sh"}, outputs=text)
    crib.tool("inside", "command", {"entrypoint": "true", "cwd": "plain.sh"}, outputs=text)
    crib.write("odd.sh", "#!/no/such/interpreter\n", 0o755)
    crib.tool("odd", "command", {"entrypoint": "./odd.sh"}, outputs=text)
    for name, expected in (
        ("name", "no-such-program"),
        ("file", "gone.sh"),
        ("cwd", "gone"),
        ("grant", "'gone'"),
        ("plain", "not executable"),
        ("inside", "'plain.sh' of inside is not a folder"),
        ("odd", "interpreter"),
    ):
        result = crib.call(name)
        assert expected in failed(result, "tool_unavailable")
        assert result.error is not None
        assert result.error.hint
        assert crib.last().event == "TOOL_REFUSED"
        assert crib.last().fields["name"] == name


@pytest.mark.parametrize("config", [{"entrypoint": "${v}"}, {"entrypoint": "true", "cwd": "${v}"}])
def test_neither_program_nor_folder_are_chosen_by_an_argument(crib: Crib, config: dict[str, Any]) -> None:
    crib.tool("any", "command", config, {"v": {"type": "string"}}, outputs={"format": "text"})
    assert "placeholder" in failed(crib.call("any", {"v": "id"}), "invalid_manifest")


# --- time and amount


def gone(marker: str) -> bool:
    return not processes_with(marker)


def test_the_limit_that_binds_is_named_and_the_whole_tree_dies(crib: Crib) -> None:
    crib.shell("own", config={"timeout_ms": 400})
    crib.shell("project")
    for name, limit, whose, options in (
        ("own", 400, "tool", {}),
        ("own", 200, "call", {"timeout_ms": 200}),
        *(("project", limit_ms, "project", {}) for limit_ms in GROWING_MS),
    ):
        crib.write(".toolcrib/config.yml", f"limits: {{timeout_ms: {max(limit, 500)}}}")
        marker = f"9{os.getpid()}{limit}"
        script = (
            f"trap '' TERM; (setsid sleep {marker} &); sleep {marker} & echo begun >&2; wait; sleep {marker}"
        )
        result = crib.call(name, {"c": script}, **options)
        message = failed(result, "timed_out")
        assert f"{limit} ms" in message
        assert whose in message
        assert result.error is not None
        assert result.error.exit_code == 6
        assert eventually(partial(gone, marker))
        assert crib.last().event == "TOOL_EXECUTED"
        assert crib.last().fields["code"] == "timed_out"
        if name == "project" and result.error.details["stderr"] == "begun":
            break
    else:
        raise AssertionError("no limit is long enough")


@pytest.mark.parametrize(("limits", "own"), [(300, 9000), (9000, 300)])
def test_the_smaller_of_two_limits_of_a_tool_binds(crib: Crib, limits: int, own: int) -> None:
    crib.shell(limits={"timeout_ms": limits}, config={"timeout_ms": own})
    assert "300 ms (the tool's limit)" in failed(crib.call("sh", {"c": "sleep 9"}), "timed_out")


def test_a_flood_is_cut_and_says_so(crib: Crib) -> None:
    crib.shell(limits={"output_bytes": 1000})
    crib.shell("js", outputs={"format": "json"}, limits={"output_bytes": 1000})
    flood = "head -c 50000000 /dev/zero | tr '\\0' x"
    result = crib.call("sh", {"c": flood})
    assert result.value == "x" * 1000
    assert result.warnings[0] == (
        "the output is cut at the tool's limit: 1,000 of 50,000,000 bytes are kept;"
        " ask for less, or raise limits.output_bytes in the manifest"
    )
    assert result.details is not None
    assert result.details["truncated"] == {"keptBytes": 1000, "totalBytes": 50_000_000}
    assert "50,000,000 bytes" in failed(crib.call("js", {"c": flood}), "tool_failed")
    # Standard error floods as well, and the command does not block on it.
    long = crib.call("sh", {"c": f"{flood} >&2; exit 1"})
    assert len(failed(long, "command_failed")) < 5000


# --- confinement


def test_a_tool_that_declares_nothing_gets_nothing(crib: Crib, monkeypatch: pytest.MonkeyPatch) -> None:
    crib.write("file", "content")
    monkeypatch.setenv("CANARY_VARIABLE", "canary")
    crib.shell()
    expected = crib.sh(
        "cat file; ls -A .; cat /etc/shadow; env; ls /root /home; cat /proc/1/environ;"
        "touch x; touch /usr/x; touch ../x; kill -0 1 2 && ls /proc | grep -c '^[0-9]*$'; ls /sys/class/net"
    )
    assert "content" not in expected
    assert "canary" not in expected.lower()
    assert "root:" not in expected
    assert not (crib.root / "x").exists()
    names = {line.split("=")[0] for line in crib.sh("env").splitlines()}
    assert names <= {"PATH", "HOME", "LANG", "TMPDIR", "PWD", "OLDPWD", "SHLVL", "_"}


def test_no_socket_leads_anywhere(crib: Crib) -> None:
    crib.shell()
    expected = crib.sh("cat /proc/net/dev; cat /proc/net/route")
    assert "eth" not in expected
    assert "00000000\t" not in expected


def test_reading_is_not_writing(crib: Crib) -> None:
    crib.write("file", "content")
    crib.shell(permissions={"fs": {"read": ["."]}})
    expected = crib.sh(
        "cat file; touch new; echo x >file; rm file; mkdir d; chmod 777 file; mv file g; ln file h"
    )
    assert expected.startswith("content")
    assert sorted(path.name for path in crib.root.iterdir()) == [".toolcrib", "file"]
    assert (crib.root / "file").read_text() == "content"


def test_secret_files_are_never_read_and_special_places_never_written(crib: Crib) -> None:
    crib.write(".env", "PASSWORD=canary")
    for suffix in ("", "-wal", "-shm"):
        crib.write(f".toolcrib/state.db{suffix}", "canary")
    crib.write(".git/config", "[core]")
    crib.write(".git/hooks/pre-commit.sample", "")
    crib.write(".glee-not", "")
    crib.shell(permissions={"fs": {"write": ["."]}})
    expected = crib.sh(
        "cat .env .toolcrib/state.db*; cp .env copy; ln .env link; mv .env moved; cat copy link moved;"
        "for f in .env .toolcrib/config.yml .toolcrib/tools/sh/tool.yml .toolcrib/tools/new"
        " .toolcrib/audit/tools.log .git/config .git/hooks/pre-commit; do echo bad >>$f; done;"
        "rm -rf .toolcrib .git; mv .toolcrib t; mv .git g; touch ok"
    )
    assert "canary" not in expected
    assert (crib.root / ".env").read_text() == "PASSWORD=canary"
    assert (crib.root / ".git/config").read_text() == "[core]"
    assert not (crib.root / ".git/hooks/pre-commit").exists()
    assert not (crib.home / "tools/new").exists()
    assert not (crib.home / "config.yml").exists()
    assert "bad" not in (crib.home / "tools/sh/tool.yml").read_text()
    assert [entry.event for entry in crib.audit()] == ["TOOL_EXECUTED"]
    assert (crib.root / "ok").exists()


def test_the_git_file_of_a_worktree_is_protected(crib: Crib) -> None:
    crib.write(".git", "gitdir: /elsewhere")
    crib.shell(permissions={"fs": {"write": ["."]}})
    crib.sh("echo 'gitdir: evil' >.git; rm .git; mv .git g")
    assert (crib.root / ".git").read_text() == "gitdir: /elsewhere"


def test_scratch_is_writable_when_granted(crib: Crib) -> None:
    for name, grant in (("all", "."), ("only", ".toolcrib/scratch")):
        crib.shell(name, permissions={"fs": {"write": [grant]}})
        crib.sh(f"echo {name} >.toolcrib/scratch/{name}; touch .toolcrib/scratch/../x", name)
        assert (crib.home / "scratch" / name).read_text() == f"{name}\n"
        assert not (crib.home / "x").exists()
    crib.shell("deep", permissions={"fs": {"write": [".toolcrib/scratch/deep"]}})
    (crib.home / "scratch/deep").mkdir()
    crib.sh("touch .toolcrib/scratch/deep/f .toolcrib/scratch/f", "deep")
    assert (crib.home / "scratch/deep/f").exists()
    assert not (crib.home / "scratch/f").exists()


def test_a_scratch_folder_that_leads_elsewhere_is_refused(crib: Crib) -> None:
    (crib.root.parent / "victim").mkdir()
    (crib.home / "scratch").symlink_to(crib.root.parent / "victim")
    for name, grant in (("all", "."), ("only", ".toolcrib/scratch")):
        crib.shell(name, permissions={"fs": {"write": [grant]}})
        failed(crib.call(name, {"c": "touch .toolcrib/scratch/x"}), "permission_denied")


def test_grants_by_links_and_by_dots(crib: Crib) -> None:
    outside = crib.root.parent / "outside"
    outside.mkdir()
    (outside / "f").write_text("outside")
    crib.write("real/f", "inside")
    (crib.root / "inward").symlink_to("real")
    (crib.root / "outward").symlink_to(outside)
    crib.shell("inward", permissions={"fs": {"read": ["inward"]}})
    crib.shell("outward", permissions={"fs": {"read": ["outward"]}})
    crib.shell("through", permissions={"fs": {"read": ["real/../../project/real"]}})
    crib.shell("absolute", permissions={"fs": {"read": [str(outside)]}})
    crib.trust_tools("inward")
    assert crib.call("inward", {"c": "cat inward/f real/f"}).value == "insideinside"
    result = crib.call("outward", {"c": "cat outward/f"})
    assert "symbolic link out of the project" in failed(result, "permission_denied")
    assert result.error is not None
    assert str(outside) in (result.error.hint or "")
    assert crib.call("through", {"c": "cat real/f"}, approved_by="me").value == "inside"
    assert crib.call("absolute", {"c": f"cat {outside}/f"}).value == "outside"


def test_what_no_tool_may_have(crib: Crib) -> None:
    for grant in ("/", "/proc", "/proc/self", "/sys", "/dev"):
        crib.shell(
            "wide", permissions={"fs": {"read": [grant]}}, approval={"required": True, "reason": "it is wide"}
        )
        failed(crib.call("wide", {"c": "true"}, approved_by="me"), "permission_denied")


def test_a_grant_above_the_project_asks_a_person(crib: Crib) -> None:
    crib.shell(permissions={"fs": {"read": [".."]}})
    assert "above the project root" in failed(crib.call("sh", {"c": "true"}), "approval_required")
    assert crib.call("sh", {"c": "echo ran"}, approved_by="me").value == "ran\n"


# --- secrets


def test_declared_secrets_are_there_and_are_masked_everywhere(
    crib: Crib, caplog: pytest.LogCaptureFixture
) -> None:
    crib.secrets = {"TOKEN": "s3cr3t-value", "OTHER": "another-value"}
    crib.shell(permissions={"secrets": {"TOKEN": {"type": "string"}}})
    caplog.set_level("INFO", "toolcrib.tools")
    assert crib.call("sh", {"c": 'test "$TOKEN" = s3cr"3t"-value && echo ok; env'}).unwrap().startswith("ok")
    assert "another-value" not in crib.sh("env")
    result = crib.call("sh", {"c": "echo $TOKEN; echo $TOKEN >&2"})
    assert result.value == "***TOKEN***\n"
    assert "s3cr3t-value" not in caplog.text
    assert "wrote to stderr" in caplog.text
    result = crib.call("sh", {"c": "echo $TOKEN >&2; exit 1 # s3cr3t-value"})
    assert "s3cr3t-value" not in json.dumps(result.as_dict())
    slow = crib.call("sh", {"c": "echo $TOKEN >&2; sleep 9"}, timeout_ms=300)
    assert "s3cr3t-value" not in json.dumps(slow.as_dict())
    assert "s3cr3t-value" not in (crib.home / "audit/tools.log").read_text()
    assert "***TOKEN***" in crib.audit()[3].fields["params"]["c"]


LONG = "sk-live-4711-abcdefghijklmnopqrstuvwxyz"


async def test_output_that_is_cut_within_a_secret_shows_no_part_of_it(crib: Crib) -> None:
    crib.secrets = {"TOKEN": LONG}
    cuts = range(1, 60, 3)
    for kept in cuts:
        crib.shell(f"sh{kept}", permissions={"secrets": {"TOKEN": {}}}, limits={"output_bytes": kept})
    async with crib.open() as project:
        for form in ("%s", "%s|base64 -w0", "%s|od -An -tx1 -v|tr -d ' \\n'"):
            encode = form % 'printf "%s" "$TOKEN"'
            good = f'printf "before "; {encode}; printf "%0100d" 0; {encode} >&2; exit 0'
            bad = f'printf "before " >&2; {encode} >&2; printf "%0100d" 0 >&2; exit 3'
            for kept in cuts:
                result = await project.call(f"sh{kept}", {"c": good})
                failing = await project.call(f"sh{kept}", {"c": bad})

                assert result.unwrap()[:7] == "before "[:kept]
                assert result.value[7:].replace("***TOKEN***", "").strip("0") == "", (form, kept)
                assert failing.error is not None
                expected = failing.error.details["stderr"]
                rest = expected[7:].replace("***TOKEN***", "").strip("0")
                assert expected == "before"[:kept] or rest == "", (form, kept)


def test_the_end_of_standard_error_and_the_beginning_of_no_json_are_masked_before_they_are_cut(
    crib: Crib,
) -> None:
    crib.secrets = {"TOKEN": LONG}
    secret: dict[str, Any] = {"secrets": {"TOKEN": {}}}
    crib.shell(permissions=secret)
    crib.shell("js", permissions=secret, outputs={"format": "json"})
    crib.python(
        'import os\ndef run():\n    raise KeyError("x" * 990 + os.environ["TOKEN"])', permissions=secret
    )
    crib.python(
        'import os, sys\ndef run():\n    open("/etc/shadow" + "x" * 950 + os.environ["TOKEN"])',
        "denied",
        permissions=secret,
    )
    after = 'head -c 3981 /dev/zero | tr "\\0" z'
    expected = [
        crib.call("sh", {"c": f"echo $TOKEN >&2; {after} >&2; exit 3"}),
        crib.call("sh", {"c": f"echo $TOKEN >&2; {after} >&2; sleep 9"}, timeout_ms=500),
        crib.call("sh", {"c": f"echo cat: $TOKEN.key: Permission denied >&2; {after} >&2; exit 3"}),
        crib.call("js", {"c": "head -c 180 /dev/zero | tr '\\0' z; echo $TOKEN"}),
        crib.call("py"),
        crib.call("denied"),
    ]

    for result in expected:
        assert result.error is not None
        shown = json.dumps(result.as_dict())
        assert not [n for n in range(len(LONG) - 5) if LONG[n : n + 6] in shown], shown


def test_a_cut_shows_no_part_of_another_tools_secret(crib: Crib) -> None:
    crib.secrets = {"TOKEN": LONG}
    crib.write("note", f"{LONG} is what it is")
    crib.shell("owner", permissions={"secrets": {"TOKEN": {}}})
    crib.shell(permissions={"fs": {"read": ["note"]}}, limits={"output_bytes": 20})

    assert crib.sh("cat note") == ""


def test_a_secret_is_no_argument(crib: Crib) -> None:
    crib.secrets = {"TOKEN": "s3cr3t-value"}
    crib.tool(
        "t",
        "command",
        {
            "entrypoint": "sh",
            "args": ["-c", 'test "$W" = s3cr3t-value && echo "$V"'],
            "env": {"V": "<${c}>", "W": "${secret:TOKEN}"},
        },
        SH,
        outputs={"format": "text"},
        permissions={"secrets": {"TOKEN": {}}},
    )
    assert crib.call("t", {"c": "${TOKEN} $TOKEN"}).value == "<${TOKEN} $TOKEN>\n"
    for name, spelling in (("short", "${TOKEN}"), ("long", "x${secret:TOKEN}")):
        config = {"entrypoint": "echo", "args": [spelling]}
        crib.tool(name, "command", config, SH, permissions={"secrets": {"TOKEN": {}}})
        assert "cannot be an argument" in failed(crib.call(name, {"c": ""}), "invalid_manifest")


def test_a_missing_secret_stops_the_call(crib: Crib) -> None:
    crib.shell(permissions={"secrets": {"TOKEN": {"type": "string", "required": True}}})
    result = crib.call("sh", {"c": "true"})
    assert "TOKEN" in failed(result, "secret_missing")
    assert result.error is not None
    assert "export TOKEN" in (result.error.hint or "")
    assert crib.last().event == "TOOL_REFUSED"
    crib.shell("lax", permissions={"secrets": {"TOKEN": {"required": False}}})
    assert crib.call("lax", {"c": "echo ${TOKEN-unset}"}).value == "unset\n"


def test_named_variables_are_handed_on(crib: Crib, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLOUR", "green")
    monkeypatch.setenv("SHAPE", "round")
    crib.shell(permissions={"env": ["COLOUR", "ABSENT"]})
    assert crib.call("sh", {"c": "echo $COLOUR-$SHAPE-$ABSENT"}).value == "green--\n"


def test_limits_that_the_manifest_states_hold_or_refuse_the_tool(crib: Crib) -> None:
    crib.shell("plain", limits={"open_files": 99, "cpu_ms": 1500})
    assert crib.call("plain", {"c": "ulimit -n; ulimit -t"}).value == "99\n2\n"
    crib.shell(limits={"processes": 5})
    result = crib.call("sh", {"c": "for n in 1 2 3 4 5 6 7 8 9; do sleep 1 & done; echo all"})
    if level()["limits"]["processes"] == "not enforced":
        assert "cgroup" in failed(result, "sandbox_unavailable")
        return
    assert "fork" in failed(result, "command_failed").lower()
    assert result.error is not None
    if level()["limits"]["processes"].startswith("cgroup"):  # the kernel counts no refusals of an rlimit
        assert result.error.details["enforcement"]["exceeded"] == ["processes"]
        assert "limit of processes" in result.error.message


def test_a_command_that_falls_silent_is_ended(crib: Crib) -> None:
    crib.shell(limits={"idle_ms": 300, "timeout_ms": 100_000})
    silent = failed(crib.call("sh", {"c": "echo begun; sleep 600.123"}), "timed_out")
    assert silent == "sh reported nothing for 300 ms (limits.idle_ms)"
    assert eventually(lambda: not processes_with("600.123"))
    crib.shell(name="talks", limits={"idle_ms": 4_000, "timeout_ms": 100_000})
    result = crib.call("talks", {"c": "for i in 1 2 3 4 5 6 7 8 9; do sleep 0.5; echo $i; done"})
    assert result.value == "1\n2\n3\n4\n5\n6\n7\n8\n9\n"
