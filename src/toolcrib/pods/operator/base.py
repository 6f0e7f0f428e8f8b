"""The definitions of the resources as a YAML file, for `kubectl apply`."""

from __future__ import annotations

from io import StringIO

from ruamel.yaml import YAML

from toolcrib.pods.operator.resources import definitions

_HEAD = "# Written by `toolcrib operator --crds`.\n"


def crd_yaml() -> str:
    """Return the definitions as YAML."""
    yaml, text = YAML(), StringIO()
    yaml.width = 120
    yaml.dump_all(definitions(), text)
    return _HEAD + text.getvalue()
