"""What `toolcrib new` makes of a person's choices."""

from __future__ import annotations

import ast

import pytest

from toolcrib.errors import UsageError
from toolcrib.manifest.starter import Answers
from toolcrib.project.authoring.scaffold import begin


@pytest.mark.parametrize(
    ("kind", "runs", "arguments", "message"),
    [
        ("http", "https://[api", {}, "needs a URL"),
        ("python", "", {"class": "string"}, "`class` is a keyword of Python"),
        ("sql", "SELECT * FROM t WHERE a = '${a}'", {}, r"\$\{a\} in quotes is not a value"),
    ],
)
def test_what_could_never_run_is_refused(
    kind: str, runs: str, arguments: dict[str, str], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        begin(kind, Answers("x", "About.", runs, arguments))


def test_any_description_is_the_docstring_of_the_code() -> None:
    about = 'Find "\\d+" and """'
    code = begin("python", Answers("x", about)).files["x.py"]
    assert ast.get_docstring(ast.parse(code)) == f"{about}."
