"""Names and descriptions of records in other languages, over HTTP at a real server."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.rest.store_rows import BUNDLE, HTTP
from tests.e2e.rest.test_rest_store import MANIFEST, Bundle, bundle, server

__all__ = ["bundle", "server"]
GERMAN = {"de": {"displayName": "Wetter", "description": "Das Wetter von morgen."}}


def test_translations_are_kept_by_lists_exports_imports_and_the_trash(bundle: Bundle) -> None:
    server, zipped = bundle.server, {"Content-Type": "application/zip"}
    about = {"translations": GERMAN}
    assert bundle.send("PUT", BUNDLE | about).json["translations"] == GERMAN
    put = bundle.send_tool("PUT", HTTP | about).json
    native = {"type": "native", "impl": {"manifest": MANIFEST}} | about
    assert bundle.send_tool("PUT", native, "word-count", "1").json["translations"] == GERMAN
    assert bundle.send_tool("PUT", HTTP, "plain", "v1").status == 201

    def shown() -> list[Any]:
        tools = server.send("GET", f"/tools?bundleIDs={bundle.id}&includeDisabled=true").json["tools"]
        return [one.get("translations") for one in sorted(tools, key=lambda one: str(one["slug"]))]

    assert shown() == [None, GERMAN, GERMAN]
    listed = server.send("GET", "/tools/bundles").json["bundles"]
    assert [one["translations"] for one in listed if one["id"] == bundle.id] == [GERMAN]
    archive = server.send("GET", f"{bundle.path}/export").body
    for names in (("weather", "v1"), ("word-count", "1"), ("plain", "v1")):
        assert bundle.send_tool("DELETE", None, *names).status == 204
    assert bundle.send("DELETE").status == 202
    trash = server.send("GET", "/tools/trash").json
    assert [one["translations"] for one in trash["bundles"] if one["id"] == bundle.id] == [GERMAN]
    assert server.send("POST", f"{bundle.path}/restore").json["translations"] == GERMAN
    assert server.send("POST", "/tools/import?enable=true", archive, zipped).status == 200
    assert (shown(), bundle.send_tool("GET").json["impl"]) == ([None, GERMAN, GERMAN], put["impl"])
    assert server.send("GET", f"{bundle.path}/export").body == archive
    # Models get the record's own texts.
    models = server.send("GET", f"/tools?bundleIDs={bundle.id}&for=openai").json["tools"]
    assert all("translations" not in one for one in models)
    assert "translations" not in bundle.send("PUT", BUNDLE).json


def test_a_new_version_from_a_manifest_keeps_the_translations(bundle: Bundle) -> None:
    native = {"type": "native", "impl": {"manifest": MANIFEST}}
    yaml = {"Content-Type": "application/yaml"}
    assert bundle.send_tool("PUT", native | {"translations": GERMAN}, "word-count", "1").status == 201
    path = f"{bundle.path}/tools/word-count/version"
    newer = MANIFEST.replace("version: 1", "version: 2").encode()
    assert bundle.server.send("PUT", f"{path}/2", newer, yaml).json["translations"] == GERMAN
    text = MANIFEST.replace("version: 1", "version: 3")
    assert (
        "translations"
        not in bundle.send_tool("PUT", {**native, "impl": {"manifest": text}}, "word-count", "3").json
    )


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"de_DE": {}}, "'de_DE' in translations is not a language tag"),
        ({"de": {"title": "x"}}, "title"),
    ],
)
def test_translations_of_another_form_are_refused(bundle: Bundle, wrong: Any, message: str) -> None:
    for reply in (
        bundle.send("PUT", {**BUNDLE, "translations": wrong}),
        bundle.send_tool("PUT", {**HTTP, "translations": wrong}),
    ):
        assert (reply.status, reply.code) == (400, "invalid_input")
        assert message in reply.json["error"]["message"]
