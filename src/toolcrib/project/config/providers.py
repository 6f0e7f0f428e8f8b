"""`models.providers` in a project's settings: servers of models, by name."""

from __future__ import annotations

import re
from typing import Any, cast

from toolcrib.project.config.reader import KeyPath, Reader, choice
from toolcrib.spec.model_provider import MODEL_APIS, ModelApi, ModelProvider

_KEYS = ("api", "base_url", "key")
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_SECRET = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")


def read_providers(reader: Reader, value: Any, at: KeyPath) -> tuple[ModelProvider, ...]:
    """Read a mapping of names to `api`, `base_url` and `key`."""
    if not isinstance(value, dict):
        raise reader.misfit(at, "must be a mapping: name, then `api` and `base_url`", None, "wrong-type")
    return tuple(_provider(reader, name, entry, (*at, str(name))) for name, entry in value.items())


def _provider(reader: Reader, name: str, entry: Any, at: KeyPath) -> ModelProvider:
    from toolcrib.egress import Destination

    # `scripted` is a model without a provider, which answers by the agent's own script.
    if not _NAME.fullmatch(name) or name == "scripted":
        raise reader.misfit(at, "is no name for a provider", "use letters, digits, `_` and `-`")
    block = reader.mapping(entry, at, _KEYS)
    for key in _KEYS[:2]:
        if key not in block:
            raise reader.misfit(at, f"needs `{key}`", "`api: openai` is that of most local servers")
    api = cast("ModelApi", choice(MODEL_APIS)(reader, block["api"], (*at, "api")))
    base_url, secret = block["base_url"], block.get("key")
    try:
        Destination.parse(base_url)
    except (ValueError, TypeError, AttributeError) as error:
        raise reader.misfit((*at, "base_url"), f"is no address: {error}") from None
    if secret is not None and (not isinstance(secret, str) or not _SECRET.fullmatch(secret)):
        raise reader.misfit((*at, "key"), "must be the name of a secret", "such as MY_PROVIDER_KEY")
    return ModelProvider(name, api, base_url, secret)
