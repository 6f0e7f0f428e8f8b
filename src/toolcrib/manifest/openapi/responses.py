"""The answer of an operation: its form, its schema, and the content type to ask for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from toolcrib.manifest.openapi.bodies import media_kind
from toolcrib.manifest.openapi.document import Document, Node, RefProblem
from toolcrib.manifest.openapi.schemas import Schemas
from toolcrib.manifest.openapi.translation import Schema
from toolcrib.spec import Output

__all__ = ["Answer", "answer"]


@dataclass(frozen=True, slots=True)
class Answer:
    """What a success looks like."""

    output: Output
    accept: str | None = None


def answer(operation: Node, produces: Any, schemas: Schemas, document: Document) -> Answer:
    """The answer by the responses of status 2xx, or by `default` without one."""
    found: dict[str, Node] = {}
    for status, node in operation.at("responses").entries():
        try:
            found[status.upper()] = document.follow(node)
        except RefProblem:
            continue
    good = {status: node for status, node in found.items() if status[:1] == "2"}
    if not good and "DEFAULT" in found:
        good = {"DEFAULT": found["DEFAULT"]}
    jsons: list[tuple[str, Node]] = []
    others: list[str] = []
    empty = any(status in ("204", "205") for status in good)
    for node in good.values():
        medias = _medias(node, produces, document)
        ours = [(media, inner) for media, inner in medias.items() if media_kind(media) == "json"]
        others += [media for media, inner in medias.items() if media_kind(media) != "json"]
        jsons += ours[:1]
        empty = empty or not medias
    if not jsons:
        kinds = {media_kind(media) for media in others}
        plain = Output("text") if others and kinds <= {"text", "binary"} else Output()
        return Answer(plain, others[0] if len(others) == 1 and "*" not in others[0] else None)
    accept = jsons[0][0]
    return Answer(
        Output("json", _schema([node for _, node in jsons], schemas, empty=empty)),
        accept if "*" not in accept and accept else None,
    )


def _medias(response: Node, produces: Any, document: Document) -> dict[str, Node]:
    """The schemas of a response by content type."""
    if document.version != "2.0":
        return {
            media: inner.at("schema")
            for media, inner in response.at("content").entries()
            if isinstance(inner.value, dict)
        }
    if "schema" not in response.object:
        return {}
    schema = response.at("schema")
    if schema.object.get("type") == "file":
        return {"application/octet-stream": schema}
    medias = [media for media in produces if isinstance(media, str)] if isinstance(produces, list) else []
    return dict.fromkeys(medias or ["application/json"], schema)


def _schema(nodes: list[Node], schemas: Schemas, *, empty: bool) -> Schema | None:
    """One schema for all successes, closed; None when there is nothing to hold an answer to."""
    unique: list[Schema | bool] = []
    needs: set[str] = set()
    for node in nodes:
        if node.value is None:
            return None
        schema, own = schemas.use(node)
        needs |= own
        if schema not in unique:
            unique.append(schema)
    if any(schema in (True, {}) for schema in unique):
        return None
    if empty:
        unique.append({"type": "null"})
    only = unique[0]
    schema = {"anyOf": unique} if len(unique) > 1 else dict(only) if isinstance(only, dict) else {"not": {}}
    definitions = schemas.closure(needs)
    return {**schema, "$defs": definitions} if definitions else schema
