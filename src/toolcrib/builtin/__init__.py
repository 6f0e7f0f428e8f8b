"""The tools that come with Toolcrib: off until a project, an agent or a team lists them."""

from toolcrib.builtin.definition import BUILTIN_BUNDLE, Builtin
from toolcrib.builtin.settings import BuiltinSettings, RootFolder, pod_roots
from toolcrib.builtin.site import Site
from toolcrib.builtin.table import NAMES, builtin, define, executor_of

__all__ = [
    "BUILTIN_BUNDLE",
    "NAMES",
    "Builtin",
    "BuiltinSettings",
    "RootFolder",
    "Site",
    "builtin",
    "define",
    "executor_of",
    "pod_roots",
]
