"""The answer to a request as text or a file, and the error of one that does not mean success."""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import Any

from toolcrib.egress import EgressResponse
from toolcrib.egress.decoding import text_in
from toolcrib.errors import HttpFailed
from toolcrib.spec.calls.content import UNKNOWN, is_binary, is_garbled

_REPLACED = ("the answer is not valid text in its character set; invalid bytes are replaced",)
_CHARSET = re.compile(r";\s*charset\s*=\s*[\"']?([^\s\"',;]*)", re.IGNORECASE)
_DECLARED = re.compile(r"<(?:meta|\?xml)[^>]*\b(?:charset|encoding)\s*=\s*[\"']?([\w-]+)", re.IGNORECASE)


def text_of(response: EgressResponse) -> tuple[str, tuple[str, ...]]:
    """Return the body as text, with a warning if some of its bytes had to be replaced.

    The content type names the character set, or else a page does itself; without either it is UTF-8.
    """
    charset = charset_of(response)
    if charset is None and response.content_type.endswith(("html", "xml")):
        charset = _declared(response.body)
    return _decoded(response.body, charset)


def page_text(page: bytes) -> str:
    """Return HTML or XML as text in the character set that it names itself."""
    return _decoded(page, _declared(page))[0]


def charset_of(response: EgressResponse) -> str | None:
    """Return the character set of the content type, `utf-8` for all that it contains; None for none."""
    found = _CHARSET.search(response.header("content-type") or "")
    charset = "" if found is None else found[1].lower()
    return "utf-8" if charset in ("utf8", "us-ascii") else charset or None


def is_file(response: EgressResponse) -> bool:
    """Return True if the body is not text. A type that says nothing is decided by the body."""
    body, media = response.body, response.content_type
    if media == UNKNOWN:  # All of it counts: an installer is a script with an archive after it.
        return b"\0" in body or bool(_decoded(body, None)[1])
    # Text of another character set is no UTF-8 either, but has no NUL.
    return is_binary(body if b"\0" in body or is_garbled(body) else b"", media)


def status_failure(response: EgressResponse, begin: str, end: str, **details: Any) -> HttpFailed:
    """Return the error of an answer that is a failure; its message begins and ends with these texts."""
    status = response.status
    phrase = f" {HTTPStatus(status).phrase}" if status in HTTPStatus._value2member_map_ else ""
    details = {"status": status, **details}
    if (wait := response.retry_after_s) is not None:
        details["retry_after_s"] = wait
    retryable = status in (408, 429) or status >= 500
    return HttpFailed(f"{begin} {status}{phrase}{end}", details=details, retryable=retryable)


def _declared(page: bytes) -> str | None:
    # The HTML standard wants the declaration within the first 1,024 bytes.
    found = _DECLARED.search(page[:1024].decode("latin-1"))
    return None if found is None else found[1]


def _decoded(data: bytes, charset: str | None) -> tuple[str, tuple[str, ...]]:
    try:
        return text_in(data, charset or "utf-8").removeprefix("\ufeff"), ()
    except UnicodeDecodeError:
        text = text_in(data, charset or "utf-8", "replace")
    except LookupError:
        text = data.decode(errors="replace")
    return text.removeprefix("\ufeff"), _REPLACED
