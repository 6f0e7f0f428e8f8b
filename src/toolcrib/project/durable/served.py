"""The tools whose durable calls this process runs, and why it does not run others that it has."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress

from toolcrib.core.bound import BoundTool
from toolcrib.core.toolset import Toolset
from toolcrib.errors import ToolcribError
from toolcrib.manifest import KeptEntry
from toolcrib.runs import Offer
from toolcrib.spec import Tool


class ServedTools:
    """Returns what is served of a toolset. `most` is how many calls of each tool may run at a time.

    `settled` returns those of some tools that run as their manifests say, which are not read for this.
    `why_not` returns why a tool does not run on this machine; `providers` are those of models whose
    runs are advanced; `trusts` changes whenever either may have.
    """

    def __init__(
        self,
        toolset: Toolset,
        most: int | None,
        why_not: Callable[[Tool], str | None] = lambda _: None,
        trusts: Callable[[], object] = int,
        providers: Callable[[], tuple[str, ...]] = tuple,
        settled: Callable[[Iterable[str]], Mapping[str, KeptEntry]] = lambda _: {},
    ) -> None:
        self._toolset, self._most = toolset, most
        self._why_not, self._trusts, self._providers = why_not, trusts, providers
        self._settled = settled
        self._seen: object = None
        self._offer = Offer({})

    def __call__(self) -> Offer:
        """Return the offer; it is another one after the list of tools or the trust in them has changed."""
        # The number too: a tool of a bundle enters the list without a new revision.
        seen = self._toolset.count, self._toolset.revision, self._trusts()
        if seen != self._seen:
            names = self._toolset.names
            tools: dict[str, int | None] = {}
            refused: dict[str, str] = {}
            settled = self._settled(names)
            for name in names:
                if name in settled:
                    tools[name] = self._smaller(settled[name].concurrent)
                    continue
                # A worker asks in a thread, while the event loop may remove tools.
                with suppress(ToolcribError):
                    bound = self._toolset.bound(name)
                    # The description of a registered function is made at first use.
                    why = self._why_not(bound.tool) if isinstance(bound, BoundTool) else None
                    if why is not None:
                        refused[name] = why
                    tools[name] = self._smaller(bound.limits.concurrent_calls)
            self._seen, self._offer = (
                seen,
                Offer(
                    tools, refused, self._providers(), {name: one.manifest for name, one in settled.items()}
                ),
            )
        return self._offer

    def _smaller(self, own: int | None) -> int | None:
        return min((one for one in (own, self._most) if one is not None), default=None)
