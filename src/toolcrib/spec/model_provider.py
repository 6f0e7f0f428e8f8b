"""A server of models, as settings name it. Pure data."""

from __future__ import annotations

from typing import Any, Literal, get_args

from toolcrib.spec.record import record

ModelApi = Literal["anthropic", "openai", "google"]
"""The API of a server; most local servers have that of `openai`."""
MODEL_APIS: tuple[ModelApi, ...] = get_args(ModelApi)
program_models: dict[str, Any] = {}
"""Models that are objects of this program, by the provider that stands for each: `python.AGENT`."""


@record
class ModelProvider:
    """A server of models."""

    name: str
    """The name as models use it: the part of `NAME:MODEL` before the colon."""
    api: ModelApi
    base_url: str
    key: str | None = None
    """The name of the secret that is its API key; None: it needs none."""
