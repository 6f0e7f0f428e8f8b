"""A project that mounts one MCP server: `python -m tests.conformance.gateway --root ROOT --data DATA`.

The tools of the server keep their names, so that the suite finds them. As the suite cannot send a token,
every request gets that of the environment.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from tests.conformance.server import with_token
from toolcrib import Project
from toolcrib.serve.http import HttpServer, open_socket
from toolcrib.serve.process import run_until_end
from toolcrib.serve.rest import rest_app


async def main(root: str, data: str) -> int:
    async with Project.open(root, data=Path(data)) as project:
        assert project.servers is not None
        await project.servers.ready(60)
        for mounted in project.servers.mounted.values():
            assert mounted.known, mounted.server.error
            mounted.review()
        listening = open_socket("127.0.0.1", 0)
        closing = asyncio.Event()
        port = listening.getsockname()[1]
        async with rest_app(project, port=port, closing=closing) as (app, _):
            print(f"http://127.0.0.1:{port}/mcp", flush=True)
            served = with_token(app, os.environ["CONFORMANCE_TOKEN"])
            await HttpServer(served, listening, closing).serve()
    return 0


if __name__ == "__main__":
    options = dict(zip(sys.argv[1:], sys.argv[2:], strict=False))
    run_until_end(main(options["--root"], options["--data"]))
