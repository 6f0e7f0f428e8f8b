"""The rules for manifests: a stable id, a severity, and a meaning."""

from __future__ import annotations

from typing import Literal, NamedTuple

Severity = Literal["error", "warning"]


class LintRule(NamedTuple):
    """One rule. A tool with an `error` cannot be used; a `warning` is only reported."""

    severity: Severity
    meaning: str


RULES: dict[str, LintRule] = {
    # The file
    "unreadable": LintRule("error", "The manifest cannot be opened, or is not a regular file."),
    "too-large": LintRule(
        "error", "The manifest is larger than 1 MiB, or grows too large through its aliases."
    ),
    "encoding": LintRule("error", "The file is not UTF-8."),
    "file-name": LintRule("warning", "The manifest is called `tool.yaml` instead of `tool.yml`."),
    # YAML
    "yaml-syntax": LintRule(
        "error", "The file is not YAML: half-written, badly indented, a quote or bracket not closed."
    ),
    "yaml-tab": LintRule("error", "A tab indents a line; YAML takes spaces only."),
    "yaml-character": LintRule(
        "error", "The file contains a control character or a line break that editors do not show."
    ),
    "yaml-depth": LintRule(
        "error", "Lists and mappings are nested too deep, or there are too many brackets."
    ),
    "yaml-documents": LintRule("error", "The file contains more than one YAML document."),
    "yaml-directive": LintRule("error", "The file contains a `%` directive."),
    "yaml-tag": LintRule("error", "A value has a YAML tag (`!name`, `!!python/…`)."),
    "yaml-alias": LintRule("error", "An alias (`*name`) refers to itself, or to nothing."),
    "yaml-merge-key": LintRule("error", "A mapping has the merge key `<<`."),
    "yaml-key": LintRule("error", "A key is not text."),
    "yaml-duplicate-key": LintRule("error", "A mapping has the same key twice."),
    "yaml-number": LintRule("error", "A number that JSON does not have: `.nan`, `.inf`, or beyond 64 bits."),
    # JSON
    "json-syntax": LintRule(
        "error", "The file is not JSON: half-written, or a character in the wrong place."
    ),
    # Other formats
    "dialect": LintRule(
        "error", "The format of the file is unknown, or the file breaks the rules of its format."
    ),
    "unmapped": LintRule("warning", "A part of another format is kept, but has no meaning here."),
    "disabled": LintRule("warning", "The file disables its tool, so it is not loaded."),
    # The form
    "not-a-mapping": LintRule(
        "error", "The manifest is empty, a list or a single value instead of a mapping."
    ),
    "unknown-key": LintRule("error", "The format does not have this key."),
    "missing-key": LintRule("error", "A required key is missing."),
    "wrong-type": LintRule("error", "A value has the wrong type."),
    "wrong-value": LintRule("error", "The format does not allow this value."),
    "name": LintRule("error", "`name` is missing or not usable as a folder name."),
    "name-folder": LintRule("error", "`name` differs from the folder's name."),
    "description": LintRule("error", "`description` is missing or empty."),
    "version": LintRule("error", "`version` is neither a whole number from 1 up nor text."),
    "exec-kind": LintRule("error", "`exec` does not have exactly one kind, or its kind differs from `kind`."),
    "exit-codes": LintRule("error", "`exit_codes_ok` is empty, so that no run could succeed."),
    "approval-reason": LintRule("error", "`approval.required` is true without a reason."),
    # What it says
    "input-schema": LintRule("error", "`inputs.schema` is not a valid JSON Schema 2020-12 of an object."),
    "output-schema": LintRule(
        "error", "`outputs.schema` is not a valid JSON Schema 2020-12, or is used with format text."
    ),
    "default-value": LintRule("error", "A property's default does not fit the property's own schema."),
    "example": LintRule("error", "An example's params do not fit `inputs.schema`."),
    "example-output": LintRule("warning", "An example's expected_output does not match the outputs block."),
    "command-words": LintRule(
        "warning",
        "A word of a command or a path is written for a shell or another format; it is taken as it is.",
    ),
    "program": LintRule("warning", "The program of a command is not installed, or its file is missing."),
    "module": LintRule(
        "warning", "The module of a Python tool is in none of the folders where it is searched."
    ),
    "unused-argument": LintRule("warning", "A property of `inputs.schema` is used nowhere in the tool."),
    "secret-argument": LintRule(
        "error", "A secret is used in `args`, where any user of the machine can read it while the tool runs."
    ),
    "placeholder": LintRule("error", "A `${…}` is not declared, ambiguous, not closed, or used in a key."),
    "condition": LintRule(
        "error", "A control line (`{{if}}`, `{{else}}`, `{{end}}`) has no partner, or is in the wrong place."
    ),
    "shell": LintRule("error", "A shell line has a placeholder where no value is allowed."),
    "agent": LintRule("warning", "An agent lists a tool or an agent that is in no file of the project."),
    "team": LintRule("error", "A member of a team lists a tool that does not exist."),
    "network": LintRule("error", "An http tool has no permission for the network, or not for its own host."),
    "url": LintRule("error", "`exec.http.url` is not an address the tool may have."),
    "response": LintRule(
        "error", "`response` has two ways of extraction, an empty or repeated field name, or a bad pattern."
    ),
    "style": LintRule(
        "error", "A style is for no argument, or for one not used alone, or does not match the place."
    ),
    "body": LintRule("error", "Body, `body_format`, `parts` and `cookies` do not match."),
    "auth": LintRule(
        "error", "`auth` lacks a key, names an undeclared secret, or sets what the request sets."
    ),
    "step": LintRule(
        "error",
        "A step of a composite tool names a missing step, is part of a circle, or repeats an id.",
    ),
    "step-tool": LintRule("warning", "A step calls a tool that has no manifest in this project."),
    "retry": LintRule("warning", "A POST or PATCH that is not marked idempotent is retried."),
    "program-network": LintRule(
        "warning", "A command that speaks neither HTTP nor SOCKS has a list of hosts, or `network: true`."
    ),
    "grant": LintRule(
        "warning",
        "A permission covers `/`, a folder above the project root, or for a program this machine's network.",
    ),
    "code": LintRule(
        "warning", "A program takes a value of the call as code. Calls of such a tool need approval."
    ),
    "code-shape": LintRule("warning", "An option of an unknown program seems to take a value as code."),
    "property-description": LintRule("warning", "A property of `inputs.schema` has no description."),
    "default-untold": LintRule("warning", "A property's default is not mentioned in its description."),
    "hidden-characters": LintRule(
        "warning", "A text shown to the model contains hidden or bidirectional characters."
    ),
    "instruction-text": LintRule("warning", "A description reads like an instruction to the model."),
}
"""Every rule by its id, in the order of the documentation."""
