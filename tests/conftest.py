"""What every test shares."""

from __future__ import annotations

import atexit
import gc
import os
import shutil
import signal
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
import pytest_timeout
from hypothesis import HealthCheck, settings

from tests.commands import SHARED, shared_server
from tests.databases import close_databases
from tests.patience import patient
from tests.postgres import PostgresProcess

# What a project's user keeps (anchors of audit logs, grants, settings) goes to a folder of this run's own.
os.environ.pop("TOOLCRIB_DATA", None)
os.environ.pop("DATABASE_URL", None)
os.environ["XDG_DATA_HOME"] = tempfile.mkdtemp(prefix="toolcrib-tests-")
atexit.register(shutil.rmtree, os.environ["XDG_DATA_HOME"], ignore_errors=True)
_settings = Path(os.environ["XDG_DATA_HOME"], "config.yml")
_settings.touch()
os.environ["TOOLCRIB_CONFIG"] = str(_settings)

# A shell starts background jobs with both ignored, and every child inherits that: tests of signals need them.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)

gc.set_threshold(20_000, 20, 10)

_SHARING = ("test_mcp_hostile", "test_mcp_http", "test_mcp_oauth", "test_plugins")
"""Modules whose tests share a server or an installation, as in the folders `conformance` and `rest`."""

ON_CI = bool(os.environ.get("CI"))


def pytest_configure(config: pytest.Config) -> None:
    """Have the test processes share what takes each seconds: the server of commands, compiled modules."""
    process = getattr(config, "workerinput", None)
    if process is None:
        if getattr(config.option, "numprocesses", None):
            os.environ[SHARED] = str(shared_server().folder)
    elif config.args == config.getini("testpaths"):
        # Each begins to collect elsewhere; what it comes to later the others have compiled meanwhile.
        modules = sorted(str(path) for path in Path(__file__).parent.glob("*/**/test_*.py"))
        first = len(modules) * int(process["workerid"][2:]) // process["workercount"]
        config.args[:] = modules[first:] + modules[:first]


@pytest.hookimpl(tryfirst=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> bool | None:
    """Give each test its time on a busy machine: the limit is for what hangs."""
    if settings.method != "signal":
        return None
    began = time.monotonic()

    def ring(_: int, __: object) -> None:
        left = began + patient(settings.timeout) - time.monotonic()
        if left > 0:
            signal.setitimer(signal.ITIMER_REAL, left)
        else:
            pytest_timeout.timeout_sigalrm(item, settings)

    def cancel() -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)

    item.cancel_timeout = cancel  # type: ignore[attr-defined]  # where pytest-timeout looks for it
    signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, settings.timeout)
    return True


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the tests in one order, which the test processes must have in common.

    Modules that wait are mixed with others that compute; the short unit tests come last, so that all
    processes end together. Tests that share a server go to one process, which starts it once; so do all
    tests of the page, as one browser keeps this machine busy enough.
    """

    def place(item: pytest.Item) -> tuple[bool, int, str]:
        module = item.nodeid.partition("::")[0]
        return module.startswith("tests/unit/"), crc32(module.encode()), module

    items.sort(key=place)
    for item in items:
        folder = item.path.parent.name
        if folder in ("conformance", "rest") or item.path.stem in _SHARING:
            item.add_marker(pytest.mark.xdist_group(item.path.stem))
        elif folder == "page":
            item.add_marker(pytest.mark.xdist_group(folder))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Freeze all tests: each full collection would look through them (0.2 s)."""
    for item in session.items if hasattr(session.config, "workerinput") else ():
        # pytest-xdist 3.8 writes the group to an attribute that pytest 9.2 no longer reads.
        group = item.get_closest_marker("xdist_group")
        if group is not None and not item.nodeid.endswith(f"@{group.args[0]}"):
            item._id = type(item._id).parse(f"{item.nodeid}@{group.args[0]}")
    gc.freeze()


def pytest_sessionfinish() -> None:
    """Collect once: pytest does so up to five times at the end, to report what nobody closed."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="module")
def only_own_bundles() -> Iterator[None]:
    """Remove the bundles that tests have left in the folder of all tests: they are in every project."""
    yield
    data = Path(os.environ["XDG_DATA_HOME"], "toolcrib")
    if (data / "bundles").exists():
        for entry in data.iterdir():
            if entry.name != "projects":
                shutil.rmtree(entry) if entry.is_dir() else entry.unlink()


# Only the time limit of a whole test counts: one slow example on a busy machine is no failure. The examples
# are the same in every run, so that a failure can be repeated. `--hypothesis-profile long` looks further.
settings.register_profile(
    "toolcrib",
    deadline=None,
    derandomize=True,
    max_examples=20,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("long", settings.get_profile("toolcrib"), derandomize=False, max_examples=1_000)
settings.load_profile("toolcrib")


def need(feature: str, present: bool, *, of_root: bool = False) -> None:
    """Skip the test where `feature` is missing; on CI, where everything must be there, fail instead.

    What only root has (`of_root`) is skipped for an ordinary user on CI too: root runs the same tests there.
    """
    if present:
        return
    if ON_CI and not (of_root and os.geteuid() != 0):
        pytest.fail(f"this machine lacks {feature}", pytrace=False)
    pytest.skip(f"this machine lacks {feature}")


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresProcess]:
    """A server for all tests of this process."""
    server = PostgresProcess()
    yield server
    server.remove()


@pytest.fixture(params=["sqlite", "postgres"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path | str]:
    """A place for databases of this test's own, on each driver (`tests.databases`)."""
    if request.param == "sqlite":
        yield tmp_path
    else:
        yield request.getfixturevalue("postgres").url(f"test_{uuid.uuid4().hex}")
    close_databases()
