"""A project that mounts one MCP server: `python -m tests.conformance.gateway --root ROOT --data DATA`.

The tools of the server keep their names, so that the suite finds them. As the suite cannot send a token,
every request gets that of the environment.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.conformance.server import serve
from toolcrib import Project
from toolcrib.serve.process import run_until_end


async def main(root: str, data: str) -> int:
    async with Project.open(root, data=Path(data)) as project:
        assert project.servers is not None
        await project.servers.ready(60)
        for mounted in project.servers.mounted.values():
            assert mounted.known, mounted.server.error
            project.trust.accept("ann", more=[mounted.row()])
        await serve(project)
    return 0


if __name__ == "__main__":
    options = dict(zip(sys.argv[1:], sys.argv[2:], strict=False))
    run_until_end(main(options["--root"], options["--data"]))
