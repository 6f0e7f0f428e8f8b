"""The rules for manifests: a stable id, a severity, and a meaning."""

from __future__ import annotations

from functools import partial
from typing import Literal, NamedTuple

Severity = Literal["error", "warning"]


class LintRule(NamedTuple):
    """One rule. A tool with an `error` cannot be used; a `warning` is only reported."""

    severity: Severity
    meaning: str


_error, _warning = partial(LintRule, "error"), partial(LintRule, "warning")
RULES: dict[str, LintRule] = {
    # The file
    "unreadable": _error("The manifest cannot be opened, or is not a regular file."),
    "too-large": _error("The manifest is larger than 1 MiB, or grows too large through its aliases."),
    "encoding": _error("The file is not UTF-8."),
    "file-name": _warning("The manifest is called `tool.yaml` instead of `tool.yml`."),
    "file-place": _error(
        "Only `config.yml`, and `NAME/tool.yml` in the folder of tools, are read: not this file."
    ),
    # YAML
    "yaml-syntax": _error("The file is not YAML: half-written, badly indented, or a quote is not closed."),
    "yaml-tab": _error("A tab indents a line; YAML takes spaces only."),
    "yaml-character": _error("The file has a control character or a line break that editors do not show."),
    "yaml-depth": _error("Lists and mappings are nested too deep, or there are too many brackets."),
    "yaml-documents": _error("The file contains more than one YAML document."),
    "yaml-directive": _error("The file contains a `%` directive."),
    "yaml-tag": _error("A value has a YAML tag (`!name`, `!!python/…`)."),
    "yaml-alias": _error("An alias (`*name`) refers to itself, or to nothing."),
    "yaml-merge-key": _error("A mapping has the merge key `<<`."),
    "yaml-key": _error("A key is not text."),
    "yaml-duplicate-key": _error("A mapping has the same key twice."),
    "yaml-number": _error("A number that JSON does not have: `.nan`, `.inf`, or beyond 64 bits."),
    # JSON
    "json-syntax": _error("The file is not JSON: half-written, or a character in the wrong place."),
    # Other formats
    "dialect": _error("The format of the file is unknown, or the file breaks the rules of its format."),
    "unmapped": _warning("A part of another format is kept, but has no meaning here."),
    "disabled": _warning("The file disables its tool, so it is not loaded."),
    # The form
    "not-a-mapping": _error("The manifest is empty, a list or a single value instead of a mapping."),
    "unknown-key": _error("The format does not have this key."),
    "missing-key": _error("A required key is missing."),
    "wrong-type": _error("A value has the wrong type."),
    "wrong-value": _error("The format does not allow this value."),
    "name": _error("`name` is missing or not usable as a folder name."),
    "name-folder": _error("`name` differs from the folder's name."),
    "description": _error("`description` is missing or empty."),
    "version": _error("`version` is neither a whole number from 1 up nor text."),
    "exec-kind": _error("`exec` does not have exactly one kind, or its kind differs from `kind`."),
    "exit-codes": _error("`exit_codes_ok` is empty, so that no run could succeed."),
    "approval-reason": _error("`approval.required` is true without a reason."),
    # What it says
    "input-schema": _error("`inputs.schema` is not a valid JSON Schema 2020-12 of an object."),
    "output-schema": _error(
        "`outputs.schema` is not a valid JSON Schema 2020-12, or stands with format text."
    ),
    "default-value": _error("A property's default does not fit the property's own schema."),
    "example": _error("An example's params do not fit `inputs.schema`."),
    "example-output": _warning("An example's expected_output does not match the outputs block."),
    "command-words": _warning("A word is written for a shell or another format; it is taken as it is."),
    "program": _warning("The program of a command is not installed, or its file is missing."),
    "module": _warning("The module of a Python tool is in none of the folders where it is searched."),
    "unused-argument": _warning("A property of `inputs.schema` is used nowhere in the tool."),
    "secret-argument": _error(
        "A secret is in `args`, where any user of the machine can read it during the call."
    ),
    "placeholder": _error("A `${…}` is not declared, ambiguous, not closed, or used in a key."),
    "condition": _error("A control line (`{{if}}`, `{{end}}`) has no partner, or is in the wrong place."),
    "shell": _error("A shell line has a placeholder where no value is allowed."),
    "agent": _warning("An agent lists a tool or an agent that is in no file of the project."),
    "team": _error("A member of a team lists a tool that does not exist."),
    "network": _error("An http tool has no permission for the network, or not for its own host."),
    "url": _error("`exec.http.url` is not an address the tool may have."),
    "response": _error("`response` extracts in two ways, repeats a field name, or has a bad pattern."),
    "style": _error("A style is for no argument, or for one not used alone, or does not match the place."),
    "body": _error("Body, `body_format`, `parts` and `cookies` do not match."),
    "auth": _error("`auth` lacks a key, names an undeclared secret, or sets what the request sets."),
    "step": _error("A step of a composite tool names a missing step, is part of a circle, or repeats an id."),
    "step-tool": _warning("A step calls a tool that has no manifest in this project."),
    "retry": _warning("A POST or PATCH that is not marked idempotent is retried."),
    "program-network": _warning("A command without HTTP and SOCKS has a list of hosts, or `network: true`."),
    "grant": _warning("A permission covers `/`, a folder above the project, or the machine's network."),
    "code": _warning("A program takes a value of the call as code. Calls of such a tool need approval."),
    "code-shape": _warning("An option of an unknown program seems to take a value as code."),
    "property-description": _warning("A property of `inputs.schema` has no description."),
    "default-untold": _warning("A property's default is not mentioned in its description."),
    "hidden-characters": _warning("A text shown to the model contains hidden or bidirectional characters."),
    "instruction-text": _warning("A description reads like an instruction to the model."),
}
"""Every rule by its id, in the order of the documentation."""
