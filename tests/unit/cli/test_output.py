"""What commands say on standard error."""

from __future__ import annotations

import pytest

from toolcrib.cli.output import print_error
from toolcrib.errors import ToolFailed


def test_no_line_of_a_tool_s_message_looks_like_one_of_ours(capsys: pytest.CaptureFixture[str]) -> None:
    print_error(ToolFailed("why\r\nerror[fake]: x\n\n  hint: y\nerror[fake]: z", hint="Mend it."))
    told = capsys.readouterr().err.splitlines()
    assert [line for line in told if line.startswith("error[")] == [told[0]]
    assert told[0].startswith("error[tool_failed]: why")
