"""Artifacts over HTTP: whole, in ranges, and for the client of the call only."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crib import Crib
from tests.e2e.mcp.test_mcp_http import modern
from tests.http_server import http_server
from toolcrib.guard import Tokens
from toolcrib.state import Vault
from toolcrib.state.artifacts import Artifacts


@pytest.mark.usefixtures("kernel")
def test_an_artifact_is_read_by_its_own_client_also_in_ranges(crib: Crib) -> None:
    crib.shell()
    with http_server(crib.root) as server:
        called = server.send("POST", "/tools/invoke/sh", {"args": {"c": "seq 100000"}})
        assert called.status == 200, called.body
        vault = Vault(crib.root, server.data)
        artifacts = Artifacts(vault.folder / "artifacts")
        (found,) = artifacts.all(None)
        path = f"/tools/artifacts/{found.id}"
        whole = server.send("GET", path)
        assert (whole.status, len(whole.body)) == (200, found.size)
        assert whole.body.startswith(b"1\n2\n3\n")
        part = server.send("GET", path, headers={"Range": "bytes=2-5"})
        assert (part.status, part.body) == (206, whole.body[2:6])
        assert part.headers["Content-Range"] == f"bytes 2-5/{found.size}"
        last = server.send("GET", path, headers={"Range": "bytes=-3"})
        assert (last.status, last.body) == (206, whole.body[-3:])
        beyond = server.send("GET", path, headers={"Range": f"bytes={found.size}-"})
        assert (beyond.status, beyond.headers["Content-Range"]) == (416, f"bytes */{found.size}")
        assert beyond.headers["X-Content-Type-Options"] == "nosniff"
        for ignored in ("bytes=5-2", "bytes=-", "bytes", "bytes=a-b", "items=0-5", "bytes=0-1,4-5"):
            answer = server.send("GET", path, headers={"Range": ignored})
            assert (answer.status, answer.body) == (200, whole.body), ignored
        other = Tokens(vault).create("other", ["invoke"], owner="bob")
        assert server.send("GET", path, token=other).code == "not_found"
        uri = f"toolcrib://artifacts/{found.id}"
        refused = modern(server, "resources/read", {"uri": uri}, headers={"Mcp-Name": uri}, token=other)
        assert refused.json["error"]["code"] == -32602
        odd = artifacts.put(b"x", "text/html\r\nA: b", tool="sh", call_id=None, caller="token:other")
        answer = server.send("GET", f"/tools/artifacts/{odd.id}", token=other)
        assert (answer.headers["Content-Type"], answer.body) == ("application/octet-stream", b"x")
        assert server.send("GET", "/tools/artifacts/nothing").code == "not_found"
        Path(found.path).unlink()
        assert server.send("GET", path).code == "not_found"


@pytest.mark.usefixtures("kernel")
def test_a_token_has_no_part_in_what_a_revoked_one_of_its_name_made(crib: Crib) -> None:
    crib.shell()
    crib.shell("other")
    crib.write(
        ".toolcrib/config.yml", "policy: {rules: [{effect: deny, tools: [other], callers: ['token:ci']}]}"
    )
    with http_server(crib.root) as server:
        vault = Vault(crib.root, server.data)
        tokens, artifacts = Tokens(vault), Artifacts(vault.folder / "artifacts")
        for name in ("token:ci", "token:ci#2"):
            token = tokens.create("ci", ["invoke"], owner="bob")
            paths = [f"/tools/artifacts/{found.id}" for found in artifacts.all(None)]
            assert all(server.send("GET", path, token=token).code == "not_found" for path in paths)
            assert server.send("GET", "/tools/calls", token=token).json["calls"] == []
            body, stored = {"args": {"c": "seq 100000"}}, {"Prefer": "respond-async"}
            made = server.send("POST", "/tools/invoke/sh", body, stored, token=token)
            assert len(server.send("GET", "/tools/calls", token=token).json["calls"]) == 1, made.body
            server.send("POST", "/tools/invoke/sh", body, token=token)
            assert len(artifacts.all(name)) > 0
            # A rule for the name is for both.
            assert server.send("POST", "/tools/invoke/other", body, token=token).code == "policy_denied"
            assert crib.last().fields["caller"] == name
            tokens.revoke("ci")
