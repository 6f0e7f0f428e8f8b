"""Docstrings of the three common styles."""

from __future__ import annotations

import pytest

from toolcrib.schema.docstring import parse_docstring

GOOGLE = """Search the web.

    Goes on
    for two lines.

    Args:
        query: What to look for.
        limit (int, optional): How many,
            at most.

    Returns:
        The pages.

    Raises:
        ValueError: Never.
    """
NUMPY = """Search the web.

    Goes on
    for two lines.

    Parameters
    ----------
    query : str
        What to look for.
    limit : int
        How many,
        at most.

    Returns
    -------
    list
        The pages.
    """
SPHINX = """Search the web.

    Goes on
    for two lines.

    :param query: What to look for.
    :param int limit: How many,
        at most.
    :returns: The pages.
    """


@pytest.mark.parametrize("text", [GOOGLE, NUMPY, SPHINX], ids=["google", "numpy", "sphinx"])
def test_the_three_styles(text: str) -> None:
    docs = parse_docstring(text)

    assert docs.description == "Search the web.\n\nGoes on\nfor two lines."
    assert docs.parameters["query"] == "What to look for."
    assert docs.parameters["limit"].split() == ["How", "many,", "at", "most."]


@pytest.mark.parametrize("text", [None, "", "  \n "])
def test_no_docstring(text: str | None) -> None:
    assert parse_docstring(text) == ("", {})


def test_a_single_line_is_all_description() -> None:
    assert parse_docstring("  Add: two numbers. ").description == "Add: two numbers."


def test_attributes_of_a_class() -> None:
    assert parse_docstring("A.\n\nAttributes:\n    x: Where.").parameters == {"x": "Where."}
