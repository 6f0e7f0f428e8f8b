"""Manifests: read from disk and checked against the format; every misfit is explained."""

from toolcrib.manifest.dialects.base import Draft as Draft
from toolcrib.manifest.dialects.base import Entry as Entry
from toolcrib.manifest.dialects.base import finish as finish
from toolcrib.manifest.dialects.dialect import Dialect as Dialect
from toolcrib.manifest.dialects.registry import (
    DEFAULT_DIALECT,
    DIALECTS,
    entries,
    folder_dialects,
    load_directory,
    load_file,
    load_folder,
    load_tools,
    read_dialect,
    reread,
)
from toolcrib.manifest.kinds import KINDS, block_of, kind_of
from toolcrib.manifest.kinds import Kind as Kind
from toolcrib.manifest.kinds import Start as Start
from toolcrib.manifest.lint.runner import check_tool, lint_file, lint_tool, lint_tree
from toolcrib.manifest.native.cache import (
    LazyTools,
    ManifestCache,
    mark_of,
    new_mark_of,
    settled_mark_of,
)
from toolcrib.manifest.native.kept import CheckResult, Facts, KeptEntry, KnownFacts, Mark
from toolcrib.manifest.native.reader import (
    FILE_NAME,
    Loaded,
    folders,
    parse_tool,
    read_folder,
    uncollected,
)
from toolcrib.manifest.native.schema import tool_schema as tool_schema
from toolcrib.manifest.starter import Answers as Answers
from toolcrib.manifest.starter import Made as Made
from toolcrib.manifest.starter import Starter as Starter
from toolcrib.manifest.yaml.diagnostics import (
    RULES,
    Diagnostic,
    diagnostics_of,
    failure,
    hide_lines,
    make,
    report,
)
from toolcrib.manifest.yaml.form import Misfit
from toolcrib.manifest.yaml.source import ANY_FILE, MAX_BYTES, SourceFiles, dump, load, read
from toolcrib.manifest.yaml.source import Document as Document
