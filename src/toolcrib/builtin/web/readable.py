"""HTML as readable text: blocks as lines, links with their addresses, tables as rows of cells."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import urljoin

from toolcrib.builtin.definition import missing_extra
from toolcrib.errors import ToolFailed

if TYPE_CHECKING:
    from selectolax.lexbor import LexborHTMLParser

_GONE = "script, style, head, noscript, svg, template"
_LINES = "div, br, li, dt, dd, tr, figcaption, summary, address, header, footer, nav, main, aside"
_PARAGRAPHS = (
    "p, h1, h2, h3, h4, h5, h6, ul, ol, dl, table, blockquote, pre, section, article, figure, details,"
    " form, hr"
)
_BREAK, _GAP, _KEPT = "\x1e", "\x1f", "\x1d"
"""Stand for our own line break, an empty line, and a space of code. Those of the source are spaces."""
_OURS = str.maketrans(dict.fromkeys((_BREAK, _GAP, _KEPT), " "))
_CODE = str.maketrans({"\n": _BREAK, " ": _KEPT, "\t": _KEPT * 4})
_SPACES = re.compile(r"[ \t\n\r\f\v\u00a0]+")
_MARKS = re.compile(r"[\x1e\x1f ]+")
_TAGS = re.compile(r"<(/?)([a-zA-Z][a-zA-Z0-9]*)")
# Elements whose end tag may be left out or that have none: counted, each long list would seem deep.
_CLOSED_BY_OTHERS = re.compile(
    "p|li|t[dhr]|d[td]|option|thead|tbody|[bh]r|wbr|img|input|meta|link|area|base|col|embed|source|track"
)
_FORMATTING = frozenset(
    ("a", "b", "big", "code", "em", "font", "i", "nobr", "s", "small", "strike", "strong", "tt", "u")
)
_DEEPEST, _MOST_COPIES = 1_000, 5_000_000


def _parsed(html: str, tool: str) -> LexborHTMLParser:
    try:
        from selectolax.lexbor import LexborHTMLParser
    except ImportError:
        raise missing_extra(tool, "web") from None
    # A parser cannot be interrupted, so the page is looked at before.
    _require_parsable(html)
    return LexborHTMLParser(html.translate(_OURS))


def _require_parsable(html: str) -> None:
    """Refuse pages that make every HTML parser slow, or huge in memory: a parser follows the standard.

    It looks through all open elements at each tag, and opens formatting elements again in each paragraph.
    """
    deep = deepest = open_formatting = most_formatting = tags = 0
    for match in _TAGS.finditer(html):
        tags += 1
        name = match[2].lower()
        if _CLOSED_BY_OTHERS.fullmatch(name):
            continue
        step = -1 if match[1] else 1
        deep = max(0, deep + step)
        deepest = max(deepest, deep)
        if name in _FORMATTING:
            open_formatting = max(0, open_formatting + step)
            most_formatting = max(most_formatting, open_formatting)
    if deepest > _DEEPEST or most_formatting * tags > _MOST_COPIES:
        raise ToolFailed(f"the page nests its elements too deep to be read ({deepest:,})")


def readable(html: str, base: str, tool: str = "fetch_url") -> str:
    """Return the text of a page at the address `base`, without scripts, styles and its head.

    Raises ToolUnavailable if the extra `web` is not installed.
    """
    page = _parsed(html, tool)
    for node in page.css(_GONE):
        node.decompose()
    body = page.body
    if body is None:
        return ""
    for link in body.css("a[href]"):
        target = (link.attributes.get("href") or "").strip()
        if target and not target.startswith("#") and not target.lower().startswith("javascript:"):
            address = _joined(base, target)
            if address != link.text(deep=True).strip():
                link.insert_after(f" ({address})")
    for cell in body.css("td + td, td + th, th + td, th + th"):
        cell.insert_before(" | ")
    for code in body.css("pre"):
        code.replace_with(_GAP + code.text(deep=True).translate(_CODE) + _GAP)
    for blocks, mark in ((_LINES, _BREAK), (_PARAGRAPHS, _GAP)):
        for node in body.css(blocks):
            tag = node.tag or ""
            lead = "- " if tag == "li" else "#" * int(tag[1]) + " " if re.fullmatch("h[1-6]", tag) else ""
            node.insert_before(mark)
            node.insert_after(mark)
            if lead:
                node.insert_before(lead)
    text = _MARKS.sub(_mark, _SPACES.sub(" ", body.text(deep=True)))
    return text.replace(_KEPT, " ").strip()


def _mark(match: re.Match[str]) -> str:
    """Return what one run of spaces and marks stands for."""
    run = match[0]
    return "\n\n" if _GAP in run else "\n" if _BREAK in run else " "


def title_of(html: str, tool: str) -> str:
    """Return the title of a page, or no text."""
    node = _parsed(html, tool).css_first("title")
    return "" if node is None else _SPACES.sub(" ", node.text(deep=True)).strip()


def _joined(base: str, target: str) -> str:
    try:
        return urljoin(base, target)
    except ValueError:
        return target
