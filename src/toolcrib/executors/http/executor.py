"""The executor of HTTP tools: one request through the guarded client, one value out of its answer."""

from __future__ import annotations

import asyncio
import codecs
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from http import HTTPStatus
from pathlib import Path
from typing import Any

import orjson

from toolcrib.egress import DEFAULT_RESPONSE_BYTES, Egress, EgressRequest, EgressResponse
from toolcrib.egress.decoding import text_in
from toolcrib.errors import DefinitionError, HttpFailed, ManifestError, SecretMissing, TimedOut
from toolcrib.executors.http.answer import charset_of, is_file, is_utf8, status_failure, text_of
from toolcrib.executors.http.binding import (
    bind_auth,
    bind_cookies,
    bind_headers,
    bind_method,
    placed,
    render_cookies,
)
from toolcrib.executors.http.body import ReadFile, bind_body
from toolcrib.executors.http.extraction import compile_response
from toolcrib.executors.http.oauth import AccessTokens, shared_folder
from toolcrib.executors.http.signing import Signer
from toolcrib.executors.output import beginning, redactor_of, uncut
from toolcrib.manifest.requests import bind_policy, bind_url, request_faults
from toolcrib.spec import Call, CallContext, HttpExec, Outcome, Retry, Tool
from toolcrib.spec.calls.content import content_of
from toolcrib.template import Namespaces, Values, render_header
from toolcrib.template.url import parse_query, render_url

_EXCERPT = 1000
"""Characters of a failed answer in `details["body"]`."""
_IN_MESSAGE = 200
_GRACE_S = 0.5
_LARGE = 256 * 1024


class HttpExecutor:
    """The executor of one HTTP tool. Its constructor parses all templates.

    `egress` is shared by all tools of a project. `allowed_hosts` is the project's list, if it has one, and
    applies in addition to the tool's own permission. `retry` is the policy for tools that have none
    (default: one attempt): with `error_mode: empty` only the last failure is empty. `on_check` is called with
    host and port of each request, and True if they may be reached. `token_folder` returns the folder for
    access tokens, which `learn` gets to mask. `now` returns seconds since 1970. Raises ManifestError, with
    `details["path"]`, for a field that cannot be used.
    """

    def __init__(
        self,
        tool: Tool,
        egress: Egress,
        *,
        allowed_hosts: Iterable[str] | None = None,
        retry: Retry | None = None,
        on_check: Callable[[str, int, bool], None] | None = None,
        token_folder: Callable[[], Path] | None = None,
        learn: Callable[[Mapping[str, str]], None] = lambda _: None,
        now: Callable[[], float] = time.time,
        read_file: ReadFile | None = None,
    ) -> None:
        config = tool.config
        if not isinstance(config, HttpExec):
            raise DefinitionError(f"{tool.name} is not an HTTP tool")
        names = Namespaces.of(tool)
        for fault in request_faults(tool, names):
            raise ManifestError(fault.message, hint=fault.hint, details={"path": list(fault.path)})
        headers, query, cookies, self._basic = bind_auth(tool)
        with placed("method"):
            self._method = bind_method(config.method)
        with placed("url"):
            self._url = bind_url(config.url, tool.permissions.network, names)
            hosts = None if allowed_hosts is None else tuple(allowed_hosts)
            self._policy = replace(bind_policy(self._url, tool.permissions.network, hosts), on_check=on_check)
        with placed("query"):
            self._query = parse_query({**config.query, **query}, names)
        self._headers = bind_headers({**config.headers, **headers}, names)
        self._cookies = bind_cookies({**config.cookies, **cookies}, names)
        self._styles = config.styles
        with placed("body"):
            self._body = bind_body(config, self._headers, names, read_file)
        self._reads = read_file is not None
        with placed("response"):
            self._extract, self._project = compile_response(config)
        self._signers = tuple(Signer(auth, now) for auth in tool.auth if auth.type == "hmac")
        hosts = tool.permissions.network.allow
        self._tokens = tuple(
            AccessTokens(auth, egress, self._policy, hosts, token_folder or shared_folder, learn, now)
            for auth in tool.auth
            if auth.type == "oauth2"
        )
        own = frozenset(header.name.lower() for header in self._headers if header.secret)
        self._secret_headers = own.union(*(signer.headers for signer in self._signers))
        self._secret_body = self._body is not None and self._body.secret
        self._typed = any(header.name.lower() == "content-type" for header in self._headers)
        self._required = tuple(secret.name for secret in tool.permissions.secrets if secret.required)
        self._attempts = (tool.retry or retry or Retry()).max_attempts
        self._limit = config.max_response_bytes or DEFAULT_RESPONSE_BYTES
        self._follow = not any(300 <= code < 400 for code in config.success_codes)
        self.grace_s = _GRACE_S if config.error_mode == "empty" else 0.0
        self._tool, self._config, self._egress = tool, config, egress

    async def run(self, call: Call, ctx: CallContext) -> Outcome:
        """Send one request and return the value of its answer.

        Raises HttpFailed (`details`: method, url, status, body, retryAfterS), TimedOut, HostNotAllowed,
        InvalidInput and SecretMissing; secret values are in none of them.
        """
        for name in self._required:
            if name not in ctx.secrets:
                raise SecretMissing(f"the secret {name} is not set", details={"name": name})
        values = Values.of(self._tool, call, ctx)
        # Files are read in a thread.
        request = (
            await asyncio.to_thread(self._request, values, ctx) if self._reads else self._request(values, ctx)
        )
        try:
            return await self._outcome(await self._send(request, ctx), ctx)
        except (HttpFailed, TimedOut) as error:
            self._annotate(error, request, ctx)
            if self._config.error_mode != "empty" or (error.retryable and ctx.attempt < self._attempts):
                raise
            # Retries come first: only the last failure becomes an empty value.
            warning = f"error_mode is empty: {error.message}"
            return Outcome(
                None, (warning,), {"status": error.details.get("status"), "error": error.as_dict()}
            )

    async def log_in(self, secrets: Mapping[str, str], show: Callable[[str, str], None]) -> bool:
        """Let a person log in; `show` gets an address and a code. False if the tool has no such login."""
        devices = [tokens for tokens in self._tokens if tokens.by_device]
        for tokens in devices:
            await tokens.log_in(secrets, show)
        return bool(devices)

    async def _send(self, request: EgressRequest, ctx: CallContext) -> EgressResponse:
        """Send the request with tokens and signatures; with new tokens once if the server refuses them."""
        if not self._tokens and not self._signers:
            return await self._egress.request(request, self._policy)
        refused: list[str | None] = [None] * len(self._tokens)
        while True:
            tokens = [await one.get(ctx.secrets, old) for one, old in zip(self._tokens, refused, strict=True)]
            added = [("Authorization", f"Bearer {token}") for token in tokens]
            sent = replace(request, headers=[*request.headers, *added])
            for signer in self._signers:
                signer.sign(sent, ctx.secrets)
            response = await self._egress.request(sent, self._policy)
            # Once only: a server that refuses fresh tokens as well means it.
            if response.status != HTTPStatus.UNAUTHORIZED or not tokens or refused[0] is not None:
                return response
            refused = list(tokens)

    def _request(self, values: Values, ctx: CallContext) -> EgressRequest:
        styles = self._styles
        rendered = ((header.name, render_header(header.value, values, styles)) for header in self._headers)
        headers = [(name, text) for name, text in rendered if text is not None]
        if self._cookies and (cookie := render_cookies(self._cookies, values, styles)) is not None:
            headers.append(("Cookie", cookie))
        credentials = (basic.header(ctx.secrets) for basic in self._basic)
        headers += [("Authorization", text) for text in credentials if text is not None]
        body, media = (None, None) if self._body is None else self._body.render(values, styles)
        if media is not None and not self._typed:
            headers.append(("Content-Type", media))
        return EgressRequest(
            self._method,
            render_url(self._url, values, self._query, styles),
            headers,
            body,
            timeout_s=self._timeout(ctx),
            max_response_bytes=self._limit,
            follow_redirects=self._follow,
            secret_headers=self._secret_headers,
            secret_body=self._secret_body,
            on_chunk=_live_text(ctx),
        )

    def _timeout(self, ctx: CallContext) -> float | None:
        """Return the seconds for the request. The call path enforces the call's own limit, except where
        exceeding it must become null.
        """
        own = None if not self._config.timeout_ms else self._config.timeout_ms / 1000
        if self._config.error_mode == "empty":
            return ctx.remaining if own is None else min(own, ctx.remaining)
        return own

    async def _outcome(self, response: EgressResponse, ctx: CallContext) -> Outcome:
        status = response.status
        codes = self._config.success_codes
        if not (status in codes if codes else 200 <= status < 300):
            excerpt = _excerpt(response, ctx)
            shown = f": {beginning(ctx, excerpt, _IN_MESSAGE)}" if excerpt else ""
            raise status_failure(response, "answered", shown, body=excerpt)
        details: dict[str, Any] = {"status": status}
        if response.redirects:
            details["redirects"] = response.redirects
        if response.truncated:
            message = f"the answer is larger than {self._limit} bytes"
            raise HttpFailed(
                message, hint="raise exec.http.response.max_bytes", details={**details, "reason": "too_large"}
            )
        if status == HTTPStatus.NO_CONTENT or self._method == "HEAD":
            return Outcome(None, details=details)
        try:
            # An expression with `..` over megabytes takes long enough to hold up all other calls of this
            # loop.
            if len(response.body) > _LARGE and self._config.jsonpath:
                value, warnings = await asyncio.to_thread(self._value, response, ctx)
            else:
                value, warnings = self._value(response, ctx)
        except HttpFailed as error:
            error.details = {**details, **error.details}
            raise
        return Outcome(value, warnings, details)

    def _value(self, response: EgressResponse, ctx: CallContext) -> tuple[Any, tuple[str, ...]]:
        """Return the value of a successful answer, by format, extraction and fields."""
        if self._config.regex is not None and self._extract is not None:
            text, warnings = text_of(response)
            return self._extract(text), warnings
        shaped = self._extract is not None or self._project is not None
        if not shaped and is_file(response):
            return content_of(response.body, response.content_type, response.url.partition("?")[0]), ()
        if self._tool.output.format == "text" and not shaped:
            return text_of(response)
        value = _json(response, ctx, needed=shaped)
        if self._extract is not None:
            value = self._extract(value)
        if self._project is not None:
            value = self._project(value)
        if self._tool.output.format == "text" and not isinstance(value, str):
            value = orjson.dumps(value).decode()
        return value, ()

    def _annotate(self, error: HttpFailed | TimedOut, request: EgressRequest, ctx: CallContext) -> None:
        """Add the failed request to the error, without any secret."""
        error.message = f"{request.method} {request.url}: {error.message}"
        error.args = (error.message,)
        error.details = {"method": request.method, "url": request.url, **error.details}
        if (redactor := redactor_of(ctx)) is not None:
            error.apply_mask(redactor.redact)
        if isinstance(error, TimedOut) and error.details.get("limitMs") == self._config.timeout_ms:
            error.details["limit"] = "exec.http.timeout_ms"


def _live_text(ctx: CallContext) -> Callable[[bytes], None]:
    """Return what passes pieces of a stream on to the caller of the call, as text."""
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def chunk(piece: bytes) -> None:
        if text := decoder.decode(piece):
            ctx.chunk(text)

    return chunk


def _json(response: EgressResponse, ctx: CallContext, *, needed: bool) -> Any:
    """Return the body as JSON. Text of another type stays text, unless it is `needed`."""
    # Some servers send a byte order mark, which JSON does not allow (RFC 8259, 8.1).
    body = response.body.removeprefix(b"\xef\xbb\xbf")
    media = response.content_type
    is_json = media == "application/json" or media.endswith("+json")
    if not body.strip() and not is_json:
        return None
    try:
        charset = charset_of(response)
        # It must be UTF-8 whatever a header says (RFC 8259, 8.1); another encoding is read if it is none.
        return orjson.loads(body if charset is None or is_utf8(body) else text_in(body, charset))
    except (ValueError, LookupError, RecursionError) as error:
        if is_json or needed:
            what = f"the answer is not valid JSON ({media or 'no content type'}): {error}"
            details = {"reason": "bad_json", "body": _excerpt(response, ctx)}
            raise HttpFailed(what, details=details) from None
    return text_of(response)[0]


def _excerpt(response: EgressResponse, ctx: CallContext) -> str:
    """Return the beginning of the body as text for an error."""
    body = response.body[: 4 * _EXCERPT]
    if len(body) < len(response.body):
        body = uncut(ctx, body)
    return beginning(ctx, body.decode("utf-8", errors="replace").strip(), _EXCERPT)
