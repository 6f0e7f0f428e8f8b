"""Values of the formats that the OpenAPI description names, for schemathesis."""

from __future__ import annotations

import unicodedata

import schemathesis
from hypothesis import strategies as st

_letters = st.characters(whitelist_categories=("Lu", "Ll", "Lo", "Nd"), whitelist_characters="-")
_labels = st.text(_letters, min_size=1, max_size=64).filter(
    lambda text: unicodedata.is_normalized("NFC", text)
)
for _name in ("slug", "version"):
    schemathesis.openapi.format(_name, _labels)
schemathesis.openapi.media_type("application/zip", st.binary(max_size=100))


def _fits(value: object) -> bool:
    """Return False for values with an integer of more than 64 bits, which no schema of free JSON excludes."""
    if isinstance(value, dict):
        return all(map(_fits, value.values()))
    if isinstance(value, list):
        return all(map(_fits, value))
    return not isinstance(value, int) or -(2**63) <= value < 2**63


@schemathesis.hook
def filter_body(context: schemathesis.HookContext, body: object) -> bool:
    """Leave out bodies with long integers."""
    return _fits(body)
