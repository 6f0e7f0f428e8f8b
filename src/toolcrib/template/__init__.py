"""Templates: parsed once to a tree, rendered by position; a value never becomes structure."""

from toolcrib.template.parser import (
    CONTEXT_NAMES,
    Namespaces,
    TemplateProblem,
    parse,
    parse_text,
    problems,
    references,
)
from toolcrib.template.render import (
    Styles,
    render_argv,
    render_env,
    render_header,
    render_path,
    render_path_segment,
    render_query_value,
    render_text,
    render_value,
)
from toolcrib.template.styles import STYLES, styled_cookies
from toolcrib.template.tree import (
    Constant,
    ListTemplate,
    LiteralText,
    Namespace,
    ObjectTemplate,
    Reference,
    Template,
    TextTemplate,
)
from toolcrib.template.url import Query, UrlTemplate, parse_query, parse_url, render_query, render_url
from toolcrib.template.values import MISSING, Missing, Values, literal_text

__all__ = [
    "CONTEXT_NAMES",
    "MISSING",
    "STYLES",
    "Constant",
    "ListTemplate",
    "LiteralText",
    "Missing",
    "Namespace",
    "Namespaces",
    "ObjectTemplate",
    "Query",
    "Reference",
    "Styles",
    "Template",
    "TemplateProblem",
    "TextTemplate",
    "UrlTemplate",
    "Values",
    "literal_text",
    "parse",
    "parse_query",
    "parse_text",
    "parse_url",
    "problems",
    "references",
    "render_argv",
    "render_env",
    "render_header",
    "render_path",
    "render_path_segment",
    "render_query",
    "render_query_value",
    "render_text",
    "render_url",
    "render_value",
    "styled_cookies",
]
