"""Secrets: each tool gets those that it declares, and none is shown in what comes out."""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Mapping
from typing import Any

from toolcrib.core.context import Context
from toolcrib.core.controls import Proceed
from toolcrib.errors import SecretMissing
from toolcrib.guard import MaskingFilter, Redactor, resolve
from toolcrib.spec import Result, SecretSource, Tool

_REMEMBERED = 4
"""Values of one secret that are masked: the present one and those before it."""


class SecretsStep:
    """Resolves the secrets of a call, and masks every secret that this project has seen."""

    def __init__(self, source: SecretSource) -> None:
        self._source = source
        self._known: dict[str, tuple[str, ...]] = {}
        self.redactor: Redactor | None = None
        """Masks every known secret; None while none is known."""
        self._logs = MaskingFilter(self.mask)

    def __call__(self, proceed: Proceed) -> Proceed:
        """Put this step before the rest of the path. A missing secret stops the call: `SecretMissing`."""

        def step(ctx: Context) -> Awaitable[Result]:
            permissions = ctx.bound.tool.permissions
            if permissions.secrets:
                ctx.secrets = resolve(permissions, self._source)
                self.learn(ctx.secrets)
            # After `learn`, so that it masks the secrets of this very call too.
            ctx.redactor = self.redactor
            return proceed(ctx)

        return step

    def know(self, tools: Iterable[Tool]) -> None:
        """Mask the secrets that these tools declare from now on, whichever tool prints them."""
        self.know_names({secret.name for tool in tools for secret in tool.permissions.secrets})

    def know_names(self, names: Iterable[str]) -> None:
        """Mask these secrets from now on."""
        for name in names:
            try:
                value = self._source.get(name)
            except SecretMissing:  # Reported when the tool is called.
                continue
            if value:
                self.learn({name: value})

    def mask(self, value: Any) -> Any:
        """Return a JSON value with every known secret masked."""
        return value if self.redactor is None else self.redactor.redact(value)

    def close(self) -> None:
        """Leave the loggers as they were."""
        self._logs.remove()

    def learn(self, secrets: Mapping[str, str]) -> None:
        """Mask these values from now on."""
        new = {name: value for name, value in secrets.items() if value not in self._known.get(name, ())}
        if new:
            for name, value in new.items():  # The value before it may still turn up.
                self._known[name] = (value, *self._known.get(name, ()))[:_REMEMBERED]
            self.redactor = Redactor(self._known)
            # Logs of Toolcrib are masked from the first secret on, and cost nothing before.
            self._logs.install()
