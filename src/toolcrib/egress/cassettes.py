"""Cassettes: the answers of HTTP servers, recorded once without secrets and replayed without a network."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from toolcrib.egress.client import RECORDER, Send, destination_of
from toolcrib.egress.message import EgressRequest, EgressResponse
from toolcrib.egress.policy import HostPolicy
from toolcrib.errors import HttpFailed, InvalidInput

Mode = Literal["record", "replay", "auto"]
_KEPT = frozenset(
    ("content-type", "location", "retry-after", "etag", "link", "last-modified", "cache-control")
)
"""Headers of an answer that are recorded; none of a request are."""
_SECRET_PARAMETER = re.compile(
    r"([?&][^=&#]*(?:key|token|secret|password|passwd|signature|sig|auth)[^=&#]*=)[^&#]*", re.IGNORECASE
)
_SECRET_FIELD = re.compile(
    r'("(?!token_type")[^"]*(?:key|token|secret|passw|device_code)[^"]*"\s*:\s*")(?:[^"\\]|\\.)*',
    re.IGNORECASE,
)
"""A field of JSON in the answer to a request with a secret, such as a new token, which nobody knows yet."""
_MASK = "***"


class Cassette:
    """Records and replays the requests of tools. `mask` replaces secrets in a text, such as `project.redact`.

    A request is found by method, URL and body, as they are after masking; equal ones are answered in the
    order of the recording, and the last answer is repeated. Hosts are checked as without a cassette.
    """

    def __init__(
        self, path: Path, mode: Mode = "auto", mask: Callable[[Any], Any] = lambda value: value
    ) -> None:
        self._path = path
        self.mode: Mode = ("replay" if path.exists() else "record") if mode == "auto" else mode
        self._mask = mask
        self._entries: list[dict[str, Any]] = []
        self._next: dict[str, int] = {}
        if self.mode == "replay":
            try:
                self._entries = json.loads(path.read_bytes())["requests"]
            except (ValueError, TypeError, KeyError) as error:
                message = f"{path} is not a cassette: {type(error).__name__}: {error}"
                raise InvalidInput(message, hint="Record it again.") from None

    async def handle(self, request: EgressRequest, policy: HostPolicy, send: Send) -> EgressResponse:
        """Answer a request from the cassette, or send and record it."""
        asked = self._asked(request)
        if self.mode == "replay":
            # A cassette must not make a test pass that the permission would fail.
            policy.check(destination_of(request.url))
            return self._replayed(asked)
        response = await send(request, policy)
        self._entries.append({**asked, "answer": self._answer(request, response)})
        return response

    def save(self) -> None:
        """Write what was recorded."""
        if self.mode == "record":
            self._path.parent.mkdir(parents=True, exist_ok=True)
            text = json.dumps({"requests": self._entries}, indent=2, ensure_ascii=False)
            self._path.write_text(text + "\n")

    def _asked(self, request: EgressRequest) -> dict[str, Any]:
        body = None if request.body is None else _text(request.body)
        url = _SECRET_PARAMETER.sub(rf"\g<1>{_MASK}", self._mask(request.url))
        if request.secret_body:
            body = _MASK
        return {"method": request.method, "url": url, "body": self._mask(body)}

    def _answer(self, request: EgressRequest, response: EgressResponse) -> dict[str, Any]:
        headers = [[n.lower(), self._mask(v)] for n, v in response.headers if n.lower() in _KEPT]
        body = self._mask(_text(response.body))
        if request.secret_body and isinstance(body, str):
            body = _SECRET_FIELD.sub(rf"\g<1>{_MASK}", body)
        return {"status": response.status, "headers": headers, "body": body, "url": self._mask(response.url)}

    def _replayed(self, asked: dict[str, Any]) -> EgressResponse:
        found = [one for one in self._entries if {name: one[name] for name in asked} == asked]
        if not found:
            raise HttpFailed(
                f"{self._path} has no answer for {asked['method']} {asked['url']}",
                hint="Record it again: the request has changed since.",
                details={"reason": "not_recorded"},
            )
        key = json.dumps(asked, sort_keys=True)
        # Equal requests in turn: a poll gets `pending` first and `done` later, as when it was recorded.
        number = self._next.get(key, 0)
        self._next[key] = number + 1
        answer = found[min(number, len(found) - 1)]["answer"]
        headers = tuple((name, value) for name, value in answer["headers"])
        return EgressResponse(answer["status"], headers, _bytes(answer["body"]), answer["url"])


def _text(data: bytes) -> str | dict[str, str]:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def _bytes(body: str | dict[str, str]) -> bytes:
    return body.encode() if isinstance(body, str) else base64.b64decode(body["base64"])


@contextmanager
def cassette(
    path: str | Path, mode: Mode = "auto", mask: Callable[[Any], Any] = lambda value: value
) -> Iterator[Cassette]:
    """Send the requests of all tools that are called in this block to a cassette.

    `auto` replays a cassette that exists and records one that does not. A recording is written at the end.
    """
    made = Cassette(Path(path), mode, mask)
    token = RECORDER.set(made.handle)
    try:
        yield made
    finally:
        RECORDER.reset(token)
    made.save()
