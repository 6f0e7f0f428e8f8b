"""The web page where it is not built."""

from __future__ import annotations

from pathlib import Path

from toolcrib.serve.rest.ui.page import page_or_nothing


def test_without_a_built_page_the_server_says_how_to_get_it(tmp_path: Path) -> None:
    reply = page_or_nothing(tmp_path)
    assert (reply.status_code, b"make setup" in bytes(reply.body)) == (503, True)
    (tmp_path / "index.html").write_text("built")
    assert page_or_nothing(tmp_path).status_code == 200
