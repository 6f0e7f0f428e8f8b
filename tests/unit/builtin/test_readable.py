"""HTML as readable text."""

from __future__ import annotations

import time

import pytest

from toolcrib.builtin.web.readable import readable
from toolcrib.errors import ToolFailed

PAGE = """<html><head><title>Title</title><style>p {}</style></head><body>
<script>alert(1)</script><noscript>switch it on</noscript><svg><text>drawn</text></svg>
<h1>Hello   world</h1><p>A <b>bold</b> <a href="/more?x=1">link</a>,
an <a href="#here">anchor</a> and <a href="javascript:alert(1)">a script</a>.</p>
<ul><li>one<li>two</ul>
<table><tr><th>Name</th><th>Size</th></tr><tr><td>a</td><td>1</td></tr></table>
<pre>if x:
    y()</pre>Last<br>line &amp; end</body></html>"""


def test_a_page_is_text_with_its_links_lists_tables_and_code() -> None:
    assert readable(PAGE, "https://example.com/a/b") == (
        "# Hello world\n\nA bold link (https://example.com/more?x=1), an anchor and a script.\n\n"
        "- one\n- two\n\nName | Size\na | 1\n\nif x:\n    y()\n\nLast\nline & end"
    )


def test_a_link_that_shows_its_address_is_not_repeated() -> None:
    assert readable('<a href="https://a.example/">https://a.example/</a>', "https://b.example/") == (
        "https://a.example/"
    )


@pytest.mark.parametrize(
    "page",
    ["<div>" * 100_000, "".join(f"<font size={n}>" for n in range(40)) + "<p>x" * 200_000],
    ids=["deep", "formatting"],
)
def test_a_page_made_to_be_slow_is_refused_at_once(page: str) -> None:
    began = time.process_time()
    with pytest.raises(ToolFailed, match="too deep"):
        readable(page, "https://example.com/")
    assert time.process_time() - began < 5


def test_many_siblings_and_marks_of_ours_do_no_harm() -> None:
    assert readable("<div></div>" * 50_000 + "a\x1eb\x1fc", "https://example.com/") == "a b c"
