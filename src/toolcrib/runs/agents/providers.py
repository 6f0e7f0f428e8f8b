"""The models of providers, over the guarded HTTP client. A key goes to its provider's own address only."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, ClassVar

from toolcrib.egress import Destination, Egress, HostPolicy, HostRule, guarded_transport
from toolcrib.errors import NotFoundError, SecretMissing, UnavailableError
from toolcrib.runs.agents.agent import Agent
from toolcrib.runs.agents.scripted import scripted_model
from toolcrib.spec import SecretSource
from toolcrib.spec.model_provider import MODEL_APIS, ModelApi, ModelProvider, program_models
from toolcrib.spec.naming import suggestion
from toolcrib.state.installation import install_hint

if TYPE_CHECKING:
    import httpx2
    from pydantic_ai.models import Model

_MAX_ANSWER = 64 * 1024 * 1024
_IMPORTS = threading.Lock()
"""Held while the libraries are imported: two threads that do this at once find half of a module."""


_HEADERS: Mapping[ModelApi, tuple[str, str]] = {
    "anthropic": ("x-api-key", "{}"),
    "openai": ("authorization", "Bearer {}"),
    "google": ("x-goog-api-key", "{}"),
}
"""The header in which an API expects its key, and the form of its value."""
PROVIDERS: tuple[ModelProvider, ...] = (
    ModelProvider("anthropic", "anthropic", "https://api.anthropic.com", "ANTHROPIC_API_KEY"),
    ModelProvider("openai", "openai", "https://api.openai.com/v1", "OPENAI_API_KEY"),
    ModelProvider("google", "google", "https://generativelanguage.googleapis.com", "GOOGLE_API_KEY"),
)
"""The providers that need no setting."""


class Models:
    """The models that agents name. `providers` adds to those that need no setting, or replaces them."""

    _loaded: ClassVar[bool] = False

    def __init__(
        self, providers: Iterable[ModelProvider], secrets: SecretSource, egress: Callable[[], Egress]
    ) -> None:
        self._providers = {one.name: one for one in (*PROVIDERS, *providers)}
        self._secrets = secrets
        self._egress = egress
        self._made: dict[tuple[str, str], Model] = {}

    @property
    def usable(self) -> list[str]:
        """The names of the providers whose models this process can use."""
        # Without the libraries this process must not take runs: each step would fail here.
        if not _installed():
            return []
        ready = [name for name, one in self._providers.items() if not one.key or self._secrets.get(one.key)]
        return ["scripted", *ready, *program_models]

    @property
    def keys(self) -> set[str]:
        """The names of the secrets that are keys."""
        return {one.key for one in self._providers.values() if one.key is not None}

    def check(self, agent: Agent) -> None:
        """Raise the reason why the model of an agent cannot be used; nothing is sent.

        `UnavailableError` without the extra `agents`, `NotFoundError` for an unknown provider,
        `SecretMissing` without its key.
        """
        if not _installed():
            raise UnavailableError(
                "agents need the extra `agents`, which is not installed", hint=install_hint("agents")
            )
        if agent.model != "scripted" and agent.provider not in program_models:
            self._key(self._provider(agent.provider))

    @staticmethod
    def are_loaded() -> bool:
        """Return True if the libraries are imported that every model needs, which takes a second or more."""
        return Models._loaded

    @staticmethod
    def load() -> None:
        """Import those libraries, if they are installed."""
        if _installed() and not Models._loaded:
            with _IMPORTS:
                import pydantic_ai.direct
                import pydantic_ai.models.function  # noqa: F401
            Models._loaded = True

    def is_loaded(self, agent: Agent) -> bool:
        """Return True if `get` takes no time."""
        if agent.model == "scripted" or agent.provider in program_models:
            return Models._loaded
        return any(model == agent.model for model, _ in self._made)

    def get(self, agent: Agent, step: int = 0) -> Model:
        """Return the model of an agent; `step` is the number of a scripted answer. Raises as `check` does."""
        self.check(agent)
        self.load()
        if agent.model == "scripted":
            return scripted_model(agent.script, step)
        if agent.provider in program_models:
            own: Model = program_models[agent.provider]
            return own
        provider = self._provider(agent.provider)
        key = self._key(provider)
        # By the key too: after it was changed, the next step must not send the old one.
        made = self._made.get((agent.model, key or ""))
        if made is None:
            name = agent.model.partition(":")[2]
            with _IMPORTS:
                made = self._made[agent.model, key or ""] = _make(provider, name, self._client(provider, key))
        return made

    def api(self, agent: Agent) -> ModelApi:
        """Return the API that the agent's provider speaks."""
        own = program_models.get(agent.provider)
        if own is not None:
            # `google-gla`, `google-vertex`, …; the form for Anthropic is plain JSON Schema.
            system = str(own.system).partition("-")[0]
            return next((api for api in MODEL_APIS if api == system), "anthropic")
        return "anthropic" if agent.model == "scripted" else self._provider(agent.provider).api

    def _provider(self, name: str) -> ModelProvider:
        provider = self._providers.get(name)
        if provider is None:
            known = f"Known: {', '.join(sorted(self._providers))}. Others: models.providers in config.yml."
            hint = suggestion(name, self._providers, known)
            raise NotFoundError(f"there is no model provider {name[:100]!r}", hint=hint)
        return provider

    def _key(self, provider: ModelProvider) -> str | None:
        if provider.key is None:
            return None
        key = self._secrets.get(provider.key)
        if not key:
            raise SecretMissing(
                f"the key of the model provider is not set: {provider.key}",
                hint=f"Set it, for example: export {provider.key}=…",
                details={"secret": provider.key},
            )
        return key

    def _client(self, provider: ModelProvider, key: str | None) -> httpx2.AsyncClient:
        import httpx2

        home = Destination.parse(provider.base_url)
        header, form = _HEADERS[provider.api]
        secrets = {} if key is None else {header: form.format(key)}
        policy = HostPolicy((HostRule.parse(home.authority, home.port),))
        transport = guarded_transport(
            self._egress(), policy, home=home, secrets=secrets, max_bytes=_MAX_ANSWER
        )
        # A step has a limit of its own, which covers the whole answer.
        return httpx2.AsyncClient(transport=transport, timeout=httpx2.Timeout(None), trust_env=False)


def _installed() -> bool:
    return find_spec("pydantic_ai") is not None


def _make(provider: ModelProvider, name: str, client: httpx2.AsyncClient) -> Model:
    """Return a model. The libraries get a stand-in for the key, and never repeat a request by themselves."""
    if provider.api == "anthropic":
        from anthropic import AsyncAnthropic
        from pydantic_ai.models.anthropic import AnthropicModel
        from pydantic_ai.providers.anthropic import AnthropicProvider

        anthropic = AsyncAnthropic(api_key="-", base_url=provider.base_url, http_client=client, max_retries=0)
        return AnthropicModel(name, provider=AnthropicProvider(anthropic_client=anthropic))
    if provider.api == "openai":
        from openai import AsyncOpenAI
        from pydantic_ai.models.openai import OpenAIChatModel
        from pydantic_ai.providers.openai import OpenAIProvider

        openai = AsyncOpenAI(api_key="-", base_url=provider.base_url, http_client=client, max_retries=0)
        return OpenAIChatModel(name, provider=OpenAIProvider(openai_client=openai))
    from pydantic_ai.models.google import GoogleModel
    from pydantic_ai.providers.google import GoogleProvider

    return GoogleModel(
        name, provider=GoogleProvider(api_key="-", base_url=provider.base_url, http_client=client)
    )
