"""Recording and replaying the requests of HTTP tools."""

from __future__ import annotations

from pathlib import Path

from aiohttp import web

from tests.crib import Crib
from toolcrib import Project
from toolcrib.guard import EnvironmentSecrets
from toolcrib.testing import cassette

KEY = "very-secret-key-4711"


async def serve(seen: list[web.Request]) -> tuple[web.AppRunner, int]:
    async def answer(request: web.Request) -> web.Response:
        seen.append(request)
        return web.json_response({"n": len(seen), "echo": request.query.get("api_key")})

    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    listener = web.TCPSite(runner, "127.0.0.1", 0)
    await listener.start()
    return runner, listener._server.sockets[0].getsockname()[1]  # type: ignore[union-attr]


async def test_what_was_recorded_is_replayed_without_a_server_and_holds_no_secret(
    crib: Crib, tmp_path: Path
) -> None:
    seen: list[web.Request] = []
    runner, port = await serve(seen)
    config = {
        "method": "GET",
        "url": f"http://127.0.0.1:{port}/x",
        "query": {"q": "${q}", "api_key": "${secret:KEY}"},
        "headers": {"Authorization": "Bearer ${secret:KEY}"},
    }
    permissions = {"network": {"allow": [f"127.0.0.1:{port}"]}, "secrets": {"KEY": {"type": "string"}}}
    crib.tool("get", "http", config, {"q": {"type": "string"}}, permissions=permissions)
    file = tmp_path / "cassettes" / "get.json"
    secrets = EnvironmentSecrets({"KEY": KEY})
    async with Project.open(crib.root, accept="all", secrets=secrets) as project:
        with cassette(file, mask=project.redact) as recording:
            assert recording.mode == "record"
            first = [(await project.call("get", {"q": "a"})).unwrap()["n"] for _ in range(2)]
        assert first == [1, 2]
        assert KEY not in file.read_text()
        await runner.cleanup()
        with cassette(file, mask=project.redact) as replayed:
            assert replayed.mode == "replay"
            again = [(await project.call("get", {"q": "a"})).unwrap()["n"] for _ in range(3)]
            other = await project.call("get", {"q": "b"})
        assert again == [1, 2, 2]
        assert other.error is not None
        assert other.error.details["reason"] == "not_recorded"
        outside = await project.call("get", {"q": "a"})
        assert outside.error is not None
    assert len(seen) == 2
