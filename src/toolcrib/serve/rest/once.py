"""PUT with an idempotency key: repeated, it gets the first answer, and nothing is written again."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps

import msgspec
from msgspec import Raw, Struct

from toolcrib.serve.http import Answer
from toolcrib.serve.rest.services import RestRequest

_CONDITIONS = ("content-type", "if-match", "if-none-match")


class _Recorded(Struct):
    status: int
    value: Raw
    etag: Raw
    """The record that has the ETag of the answer."""


def once(handler: Callable[[RestRequest], Answer]) -> Callable[[RestRequest], Answer]:
    """Have a handler answer requests with one key of one client once. A refusal leaves the key free."""

    @wraps(handler)
    def answered(request: RestRequest) -> Answer:
        headers, http = request.http.headers, request.http
        if (key := headers.get("idempotency-key")) is None:
            return handler(request)
        recorded, caller = request.services.project.recorded, request.client.caller
        asked = b"\0".join([*(headers.get(one, "").encode() for one in _CONDITIONS), request.data])
        what = f"{http.method} {http.scope['path']}"
        earlier = recorded.begin(key, tool=what, caller=caller, arguments=asked, repeatable=True)
        if earlier is not None:
            found = msgspec.json.decode(earlier, type=_Recorded)
            return Answer(found.value, found.status, etag=found.etag)
        try:
            answer = handler(request)
        except BaseException:
            recorded.abandon(key, caller)
            raise
        value, etag = (Raw(msgspec.json.encode(one)) for one in (answer.value, answer.etag))
        recorded.finish(key, caller, msgspec.json.encode(_Recorded(answer.status, value, etag)))
        return answer

    return answered
