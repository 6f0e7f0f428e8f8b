"""Templates: parsed once to a tree, rendered by position; a value never becomes structure."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from toolcrib.template.parser import (
    CONTEXT_NAMES,
    LOOP_NAMES,
    STEPS_NAME,
    escape,
    names_in,
    parse_conditional,
    parse_text,
    problems,
    references,
    step_namespaces,
    steps_used,
)
from toolcrib.template.parser import Namespaces as Namespaces
from toolcrib.template.parser import parse as parse
from toolcrib.template.render import (
    Styles,
    render_argv,
    render_env,
    render_header,
    render_parts,
    render_path,
    render_text,
)
from toolcrib.template.render import render_value as render_value
from toolcrib.template.spellings import TemplateProblem, directive
from toolcrib.template.tree import (
    Constant,
    ListTemplate,
    LiteralText,
    Reference,
    Template,
    Text,
    TextTemplate,
    untied,
)
from toolcrib.template.values import MISSING, Missing, literal_text
from toolcrib.template.values import Values as Values

if TYPE_CHECKING:
    from toolcrib.template.respelling import respell as respell
    from toolcrib.template.respelling import spell as spell
    from toolcrib.template.styles import STYLES as STYLES
    from toolcrib.template.styles import styled_cookies as styled_cookies
    from toolcrib.template.url import UrlTemplate as UrlTemplate
    from toolcrib.template.url import parse_query as parse_query
    from toolcrib.template.url import parse_url as parse_url
    from toolcrib.template.url import render_query as render_query
    from toolcrib.template.url import render_url as render_url

_MODULES = {
    "STYLES": "styles",
    "UrlTemplate": "url",
    "parse_query": "url",
    "parse_url": "url",
    "render_query": "url",
    "render_url": "url",
    "respell": "respelling",
    "spell": "respelling",
    "styled_cookies": "styles",
}
"""Names to their modules, imported on first use: few templates are of requests, fewer are written anew."""


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"toolcrib.template.{_MODULES[name]}"), name)
