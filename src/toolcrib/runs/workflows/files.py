"""Workflows in files: one YAML file for each, checked against the published JSON Schema."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import orjson

from toolcrib.executors.composite.kind import CONDITION
from toolcrib.executors.composite.lint import plan
from toolcrib.manifest import Diagnostic, Document, failure, load
from toolcrib.manifest.lint.checks import input_schema
from toolcrib.manifest.native.schema import inlined
from toolcrib.manifest.yaml.form import Form, Misfit
from toolcrib.runs.workflows.workflow import KINDS, Workflow
from toolcrib.spec.naming import did_you_mean

_KNOWN = (
    Misfit(("name",), rule="name"),
    Misfit(
        ("steps",),
        "oneOf",
        message="a step calls a `tool` or a `workflow` with `args`, or runs an `agent` with a `prompt`",
    ),
    *CONDITION,
)


@cache
def _schema() -> dict[str, Any]:
    found: dict[str, Any] = orjson.loads(Path(__file__).with_name("schema.json").read_bytes())
    return found


@cache
def _form() -> Form:
    return Form(_schema(), _KNOWN)


def step_schema() -> dict[str, Any]:
    """Return the JSON Schema of one step, without references."""
    definitions = _schema()["$defs"]
    found: dict[str, Any] = inlined(definitions["step"], definitions)
    return found


def read_workflow(path: str, raw: bytes) -> tuple[Workflow, Document]:
    """Return the workflow of a file, and the file. Raises `ManifestError` with every misfit."""
    document = load(raw, path)
    found = _form().misfits(document, document.data)
    if not found and document.data["name"] != Path(path).name.removesuffix(".yml"):
        message = f"the name differs from that of the file, {Path(path).name}"
        found.append(document.diagnostic("name-folder", message, ("name",)))
    if not found:
        workflow = Workflow(document.data)
        tool = workflow.as_tool
        found = [*input_schema(tool, document)] or [*plan(tool, document, ())]
        if not found:
            return workflow, document
    raise failure(found)


def check_workflows(
    workflows: Mapping[str, tuple[Workflow, Document]], known: Mapping[str, Collection[str]]
) -> Iterator[Diagnostic]:
    """Yield a finding for each tool, agent and workflow of a step that is not in `known`, by kind."""
    for workflow, document in workflows.values():
        for at, block in enumerate(workflow.document["steps"]):
            for kind in KINDS:
                if kind in block and block[kind] not in known[kind]:
                    hint = did_you_mean(block[kind], known[kind])
                    message = f"there is no {kind} `{block[kind]}`"
                    yield document.diagnostic("step-tool", message, ("steps", at, kind), hint=hint)
