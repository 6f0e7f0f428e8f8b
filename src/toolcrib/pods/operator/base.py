"""The definitions of the resources as a YAML file, for `kubectl apply`."""

from __future__ import annotations

from toolcrib.pods.operator.resources import definitions

_HEAD = "# Written by `toolcrib operator --crds`.\n"


def crd_yaml() -> str:
    """Return the definitions as YAML."""
    from io import StringIO

    from ruamel.yaml import YAML

    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = False
    yaml.sort_base_mapping_type_on_output = False
    yaml.width = 120
    text = StringIO()
    yaml.dump_all(definitions(), text)
    return _HEAD + text.getvalue()
