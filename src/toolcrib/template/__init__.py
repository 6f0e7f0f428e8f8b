"""Templates: parsed once to a tree, rendered by position; a value never becomes structure."""

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
