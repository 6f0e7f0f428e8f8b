"""No secret in what is logged."""

from __future__ import annotations

import io
import logging
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from pgqueuer.core.logconfig import logger as queue

from toolcrib.guard import MaskingFilter, Redactor
from toolcrib.guard.secrets.masking import LOGGERS

SECRET = "hunter22"


@pytest.fixture
def written() -> Iterator[io.StringIO]:
    """Collect the output of a handler on the loggers, with the filter on them."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter("%(name)s %(message)s %(extra)s", defaults={"extra": ""}))
    mask = MaskingFilter(Redactor({"TOKEN": SECRET}).redact)
    roots = [logging.getLogger("toolcrib"), queue]
    for root in roots:
        root.addHandler(handler)
    mask.install()
    yield stream
    mask.remove()
    for root in roots:
        root.removeHandler(handler)


@pytest.mark.parametrize("name", LOGGERS)
def test_messages_arguments_and_extras_are_masked(written: io.StringIO, name: str) -> None:
    log = logging.getLogger(name)
    log.warning("plain hunter22")
    log.warning("%s: %r", "tool", {"key": SECRET})
    log.warning("with extra", extra={"extra": ["x", SECRET]})
    text = written.getvalue()
    assert SECRET not in text
    assert text.count("***TOKEN***") == 3
    assert f"{name} tool: " in text


def test_exceptions_and_stacks_are_masked(written: io.StringIO) -> None:
    log = logging.getLogger("toolcrib.tools")
    try:
        raise ValueError(f"no such key: {SECRET}")
    except ValueError:
        log.exception("failed", stack_info=True)
    text = written.getvalue()
    assert SECRET not in text
    assert "ValueError: no such key: ***TOKEN***" in text
    assert "Traceback" in text


def test_a_record_that_cannot_be_written_is_no_error(written: io.StringIO) -> None:
    message = "%s %s hunter22"
    logging.getLogger("toolcrib.tools").warning(message, SECRET)
    assert SECRET not in written.getvalue()
    assert "%s %s" in written.getvalue()


def test_a_handler_can_have_the_filter_for_everything() -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.addFilter(MaskingFilter(Redactor([SECRET]).redact))
    log = logging.getLogger("somebody.else")
    log.addHandler(handler)
    log.warning("hunter22")
    log.removeHandler(handler)
    assert stream.getvalue() == "***\n"


def test_every_logger_of_toolcrib_is_known() -> None:
    source = Path(__file__).parents[4] / "src" / "toolcrib"
    named = set()
    for path in source.rglob("*.py"):
        for found in re.findall(r"getLogger\(([^)]*)\)", path.read_text()):
            module = ".".join(path.relative_to(source.parent).with_suffix("").parts)
            named.add(module if found == "__name__" else found.strip("\"'"))
    assert {name for name in named if name.startswith("toolcrib")} | {queue.name} == set(LOGGERS)
