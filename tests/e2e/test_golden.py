"""Golden snapshots of the command line: what a caller sees today is what it sees tomorrow.

The words of messages may change; codes, keys, types, values and exit codes may not. `TOOLCRIB_GOLDEN=write`
makes the snapshots in tests/data/golden anew.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tests.commands import shared_server
from tests.golden.crib import GoldenCrib
from tests.golden.faults import faulty
from tests.golden.shop import files
from tests.golden.store import golden

# Each test makes many calls one after the other, also on a machine that is busy.
pytestmark = [pytest.mark.usefixtures("kernel"), pytest.mark.timeout(300)]


class Handler(BaseHTTPRequestHandler):
    """Answers by the path that is asked for."""

    ANSWERS: ClassVar = {
        "/answer": (200, b'{"found": [1, 2]}'),
        "/gone": (404, b'{"no": true}'),
        "/busy": (503, b"later"),
    }

    def do_GET(self) -> None:
        status, body = self.ANSWERS[self.path.partition("?")[0]]
        self.send_response(status)
        self.send_header("Content-Type", "application/json" if body.startswith(b"{") else "text/plain")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.server_port
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def empty(tmp_path: Path) -> GoldenCrib:
    return GoldenCrib(tmp_path, shared_server())


@pytest.fixture
def shop(empty: GoldenCrib, port: int) -> GoldenCrib:
    """The project with a tool for each way in which a call can go; its settings are trusted."""
    empty.write(files(port))
    empty.normal.place(f"127.0.0.1:{port}", "127.0.0.1:<port>")
    code, _, err = empty.raw("trust", "--yes")
    assert code == 0, err
    return empty


READS = """
list
list --tag numbers
list --for openai
list --for openai-strict
list --for gemini
list --for anthropic
list --for mcp
show greet
show project/count@1
show pay
show both
show answer
show rows
show gret
show greet@2
show other/greet
list greet
list numbers --kind python
list cuont
list does --limit 2
list zzzz
list nothing_like_it
lint --schema nothing
policy show
policy explain greet
policy explain pay amount:=9
policy explain pay amount:=3
policy explain pay
policy explain closed --as mcp:agent
policy explain asked --as mcp:agent
policy explain gret
policy explain greet --as token:nobody
policy explain greet who:=5
secrets list
secrets check
servers list
servers review nothing
token list
approvals list
approvals grants
approvals show nothing
audit tail
audit search --tool nothing
audit verify
trust --show
trust --check
trust nothing
lint
lits
list --nope
list --root /nowhere
"""


def test_what_only_reads(shop: GoldenCrib) -> None:
    golden("reads", shop.each(READS, "--json"))


RUNS = """
run greet
run greet who=Ann
run project/greet@1
run count n:=3
run describe n:=3
run stock
run note line=milk
run answer q=lathe
run rows name=Ann
run both n:=3
run both n:=1
run both n:=3 --dry-run
run pay amount:=1 --dry-run
run answer q=a --dry-run
run greet --dry-run
run rows name=x --dry-run
run fail
run crash
run promise n:=1
run slow
run greet who=x --timeout-ms 60000 -v
run absent
run function
run broken_step
run gone
run busy
run keyed
run leak
run denied_file path=/etc/hostname
run denied_file path=../x
run closed
run asked
run pay amount:=9
run pay amount:=1
run pay amount:=1 --wait pending
run pay amount:=1 --approve
run greet who:=5
run greet whom=Ann
run count n=3
run count n:=10
run count
run gret
run greet@2
run other/greet
run a/b/c
run greet oops
run greet who=a who=b
run greet @none.json
run
run greet --timeout-ms 0
run greet --wait never
run greet who=Ida --idempotency-key k1
run greet who=Ida --idempotency-key k1
run greet who=Eve --idempotency-key k1
audit tail --lines 3
audit search --tool greet
audit search --event TOOL_REFUSED --limit 2
audit search --code timed_out
audit search --status error --since 1h
audit search --since yesterday
audit verify
"""


def test_runs_and_what_the_log_says_of_them(shop: GoldenCrib) -> None:
    cases = shop.each(RUNS, "--json")
    cases.append(shop.case("run", "greet", "-", "--json", stdin=b'{"who": "Bob"}'))
    cases.append(shop.case("run", "greet", "-", "--json", stdin=b'{"who": 1, "who": 2}'))
    cases.append(shop.case("run", "keyed", "--json", SHOP_KEY="s3cr3t-value"))
    golden("runs", cases)
    golden("runs_events", shop.events())


def test_lint_of_many_faults(empty: GoldenCrib) -> None:
    empty.write(dict(faulty()))
    cases = empty.each("lint --json\nlint --format json\nlint\nlist --json\ntest --json")
    cases.append(empty.case("lint", ".toolcrib/tools/fine/tool.yml", "--json"))
    cases.append(empty.case("lint", ".toolcrib/tools/change00/tool.yml", "gone.yml", "--json"))
    cases += empty.each(
        "run change00 --json\nrun whole0\nshow whole0 --json\ntrust --lock --json\ntrust --json"
    )
    github = empty.raw("lint", "--format", "github")[1].splitlines()
    golden(
        "lint", [*cases, {"github": [empty.normal.scrub(line.rpartition("::")[0]) for line in github[:9]]}]
    )
