"""An HTTP server that answers as Anthropic, OpenAI and Google do, by a script, and keeps what it was sent."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar


@dataclass
class Turn:
    """One answer: text and calls, an error status, or a stream that breaks after its first part."""

    text: str = ""
    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    status: int = 200
    retry_after: str | None = None
    breaks: bool = False
    gate: threading.Event | None = None
    """The answer begins when this is set."""


@dataclass
class ModelServer:
    """A running server."""

    turns: list[Turn]
    url: str = ""
    requests: list[dict[str, Any]] = field(default_factory=list)
    """Bodies, each with `path` and `headers`."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_of: ModelServer

    def log_message(self, *_: object) -> None:
        """Print nothing."""

    def do_POST(self) -> None:
        server = self.server_of
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        headers = {name.lower(): value for name, value in self.headers.items()}
        server.requests.append({**body, "path": self.path, "headers": headers})
        model = body.get("model") or self.path.rpartition("/")[2].partition(":")[0]
        turn = server.turns.pop(0) if len(server.turns) > 1 else server.turns[0]
        if turn.gate is not None:
            turn.gate.wait(600)
        if turn.status != 200:
            more = {"Retry-After": turn.retry_after} if turn.retry_after else {}
            error = {
                "type": "error",
                "error": {"type": "rate_limit_error", "message": "slow down", "code": turn.status},
            }
            self._send(turn.status, json.dumps(error).encode(), "application/json", more)
            return
        api = _APIS[next(word for word in _APIS if word in self.path)]
        if not (body.get("stream") or "stream" in self.path):
            self._send(200, json.dumps(api.whole(turn, model)).encode(), "application/json", {})
            return
        events = list(api.events(turn, model))
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for name, data in events[: 2 if turn.breaks else None]:
            text = data if isinstance(data, str) else json.dumps(data)
            self._chunk((f"event: {name}\n" if name else "") + f"data: {text}\n\n")
        if turn.breaks:
            self.wfile.flush()
            self.connection.close()
            self.close_connection = True
        else:
            self.wfile.write(b"0\r\n\r\n")

    def _chunk(self, text: str) -> None:
        data = text.encode()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def _send(self, status: int, data: bytes, kind: str, more: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(data)), **more}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)


class _Anthropic:
    @staticmethod
    def whole(turn: Turn, model: str) -> dict[str, Any]:
        content: list[dict[str, Any]] = [{"type": "text", "text": turn.text}] if turn.text else []
        content += [
            {"type": "tool_use", "id": f"toolu_{at}", "name": name, "input": arguments}
            for at, (name, arguments) in enumerate(turn.calls)
        ]
        return {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": model,
            "content": content,
            "stop_reason": "tool_use" if turn.calls else "end_turn",
            "stop_sequence": None,
            "usage": {"input_tokens": 100, "output_tokens": 20},
        }

    @classmethod
    def events(cls, turn: Turn, model: str) -> Iterator[tuple[str, Any]]:
        whole = cls.whole(turn, model)
        start = {**whole, "content": [], "stop_reason": None}
        yield "message_start", {"type": "message_start", "message": start}
        for at, block in enumerate(whole["content"]):
            empty = {**block, "text": ""} if block["type"] == "text" else {**block, "input": {}}
            yield "content_block_start", {"type": "content_block_start", "index": at, "content_block": empty}
            if block["type"] == "text":
                parts = [{"type": "text_delta", "text": word} for word in block["text"].split("|")]
            else:
                parts = [{"type": "input_json_delta", "partial_json": json.dumps(block["input"])}]
            for part in parts:
                yield "content_block_delta", {"type": "content_block_delta", "index": at, "delta": part}
            yield "content_block_stop", {"type": "content_block_stop", "index": at}
        delta = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
        yield "message_delta", {"type": "message_delta", "delta": delta, "usage": {"output_tokens": 20}}
        yield "message_stop", {"type": "message_stop"}


class _OpenAI:
    _BASE: ClassVar = {"id": "c1", "created": 1_700_000_000}
    _USAGE: ClassVar = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}

    @classmethod
    def whole(cls, turn: Turn, model: str) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": turn.text or None}
        if turn.calls:
            message["tool_calls"] = cls._calls(turn)
        reason = "tool_calls" if turn.calls else "stop"
        choice = {"index": 0, "message": message, "finish_reason": reason}
        made = {**cls._BASE, "model": model, "object": "chat.completion"}
        return {**made, "choices": [choice], "usage": cls._USAGE}

    @staticmethod
    def _calls(turn: Turn) -> list[dict[str, Any]]:
        return [
            {
                "index": at,
                "id": f"call_{at}",
                "type": "function",
                "function": {"name": name, "arguments": json.dumps(arguments)},
            }
            for at, (name, arguments) in enumerate(turn.calls)
        ]

    @classmethod
    def events(cls, turn: Turn, model: str) -> Iterator[tuple[str, Any]]:
        base = {**cls._BASE, "model": model, "object": "chat.completion.chunk"}

        def chunk(delta: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
            choice = {"index": 0, "delta": delta, "finish_reason": reason}
            return {**base, "choices": [choice]}

        yield "", chunk({"role": "assistant", "content": ""})
        for word in turn.text.split("|"):
            yield "", chunk({"content": word})
        for call in cls._calls(turn):
            yield "", chunk({"tool_calls": [call]})
        yield "", chunk({}, "tool_calls" if turn.calls else "stop")
        yield "", {**base, "choices": [], "usage": cls._USAGE}
        yield "", "[DONE]"


class _Google:
    _USAGE: ClassVar = {"promptTokenCount": 100, "candidatesTokenCount": 20, "totalTokenCount": 120}

    @classmethod
    def whole(cls, turn: Turn, model: str) -> dict[str, Any]:
        parts: list[dict[str, Any]] = [{"text": turn.text}] if turn.text else []
        parts += [{"functionCall": {"name": name, "args": arguments}} for name, arguments in turn.calls]
        return cls._answer(parts, model)

    @classmethod
    def _answer(cls, parts: list[dict[str, Any]], model: str) -> dict[str, Any]:
        candidate = {"content": {"role": "model", "parts": parts}, "finishReason": "STOP", "index": 0}
        return {"candidates": [candidate], "usageMetadata": cls._USAGE, "modelVersion": model}

    @classmethod
    def events(cls, turn: Turn, model: str) -> Iterator[tuple[str, Any]]:
        for part in cls.whole(turn, model)["candidates"][0]["content"]["parts"]:
            for piece in part["text"].split("|") if "text" in part else [None]:
                yield "", cls._answer([part if piece is None else {"text": piece}], model)


_APIS: dict[str, Any] = {"/messages": _Anthropic, "/chat/completions": _OpenAI, "Content": _Google}


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """Say nothing of clients that went away."""


@contextmanager
def model_server(*turns: Turn) -> Iterator[ModelServer]:
    """Answer by these turns, the last one again and again, until the end of the block."""
    state = ModelServer(list(turns))
    handler = type("Handler", (_Handler,), {"server_of": state})
    server = _Server(("127.0.0.1", 0), handler)
    state.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
