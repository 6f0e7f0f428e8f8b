"""The answer to a request as text or a file, and the error of one that does not mean success."""

from __future__ import annotations

import codecs
from http import HTTPStatus
from typing import Any

from toolcrib.egress import EgressResponse
from toolcrib.egress.decoding import text_in
from toolcrib.errors import HttpFailed
from toolcrib.spec.calls.content import UNKNOWN, is_binary, is_garbled

_UNKNOWN = "unknown"
_REPLACED = ("the answer is not valid text in its character set; invalid bytes are replaced",)


def text_of(response: EgressResponse) -> tuple[str, tuple[str, ...]]:
    """Return the body as text, with a warning if some of its bytes had to be replaced.

    Its first bytes name the encoding, else the content type, else a page itself; without any it is UTF-8.
    """
    charset = charset_of(response)
    if charset in (None, _UNKNOWN) and response.content_type.endswith(("html", "xml")):
        charset = _declared(response.body) or charset
    return _decoded(response.body, charset)


def page_text(page: bytes) -> str:
    """Return HTML or XML as text in the encoding that it names itself."""
    return _decoded(page, _declared(page))[0]


def charset_of(response: EgressResponse) -> str | None:
    """Return Python's name of the encoding that the content type names as the web does; None for none.

    `iso-8859-1` means windows-1252 there (Encoding Standard, 4.2).
    """
    header = response.header("content-type") or ""
    if "charset" not in header.lower():
        return None
    from w3lib.encoding import http_content_type_encoding

    return http_content_type_encoding(header) or _UNKNOWN


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
        details["retryAfterS"] = wait
    retryable = status in (408, 429) or status >= 500
    return HttpFailed(f"{begin} {status}{phrase}{end}", details=details, retryable=retryable)


def is_utf8(data: bytes) -> bool:
    """Return True if these bytes are UTF-8."""
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _declared(page: bytes) -> str | None:
    from w3lib.encoding import html_body_declared_encoding

    declared = html_body_declared_encoding(page)
    # A page whose declaration could be read as ASCII is not UTF-16 (HTML Standard, 13.2.3.2).
    return None if declared is not None and declared.startswith("utf-16") else declared


def _decoded(data: bytes, charset: str | None) -> tuple[str, tuple[str, ...]]:
    if data[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        charset = "utf-16-le" if data[:2] == codecs.BOM_UTF16_LE else "utf-16-be"
    elif data.startswith(codecs.BOM_UTF8) or charset is None:
        charset = "utf-8"
    try:
        return text_in(data, charset).removeprefix("\ufeff"), ()
    except UnicodeDecodeError:
        text = text_in(data, charset, "replace")
    except LookupError:
        text = data.decode(errors="replace")
    return text.removeprefix("\ufeff"), _REPLACED
