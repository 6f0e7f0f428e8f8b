"""An emulator of Kubernetes that numbers its objects and their versions, as the real one does."""

from __future__ import annotations

import asyncio
import itertools
import uuid
from collections.abc import AsyncIterator
from typing import Any

import kmock

_GROUP = "apis/sympozium.ai/v1alpha1"
_RUN = {"group": "sympozium.ai", "version": "v1alpha1", "kind": "AgentRun"}


class Emulator(kmock.KubernetesEmulator):
    """An emulated cluster: a change of an old version is refused, and nobody who watches misses an event."""

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        self._versions = itertools.count(1)
        self._writing = asyncio.Lock()
        # kubectl leaves the check of fields to a server that describes this parameter.
        parameter = {"name": "fieldValidation", "in": "query"}
        check = {"patch": {"x-kubernetes-group-version-kind": _RUN, "parameters": [parameter]}}
        paths = {f"/{_GROUP}/namespaces/{{namespace}}/agentruns/{{name}}": check}
        self["get /openapi/v3"] << {"paths": {_GROUP: {"serverRelativeURL": f"/openapi/v3/{_GROUP}"}}}
        self[f"get /openapi/v3/{_GROUP}"] << {"openapi": "3.0.0", "paths": paths}

    async def _handle(self, request: Any) -> Any:
        if request.action not in (kmock.action.CREATE, kmock.action.UPDATE):
            return await super()._handle(request)
        async with self._writing:
            meta = request.data.setdefault("metadata", {})
            if request.action == kmock.action.CREATE:
                meta.setdefault("uid", str(uuid.uuid4()))
            elif "resourceVersion" in meta:
                there = self.objects[request.resource, request.namespace, request.name].raw["metadata"]
                if there["resourceVersion"] != meta["resourceVersion"]:
                    raise kmock.KubernetesError(409, "Conflict", "the object has been modified")
            meta["resourceVersion"] = str(next(self._versions))
            return await super()._handle(request)

    async def _serve_version(self, request: Any) -> Any:
        found: Any = await super()._serve_version(request)
        # The core group has no name, and kubectl finds nothing in a group `/v1`.
        return {**found, "groupVersion": found["groupVersion"].lstrip("/")}

    async def _serve_watch(self, request: Any) -> AsyncIterator[Any]:
        def wanted(raw: Any) -> bool:
            meta = raw["metadata"]
            return request.namespace in (None, meta.get("namespace")) and request.name in (None, meta["name"])

        yield b""  # The answer begins, though nothing happens yet.
        async with self._lock:
            bus = self._buses[request.resource]
            mark = await bus.mark()
            found = [one for (kind, *_), one in self.objects.items() if kind == request.resource]
            there = [one.raw for one in found if not one.deleted]
        for raw in filter(wanted, there):
            yield {"type": "ADDED", "object": raw}
        async for event in bus.stream(since=mark):
            if wanted(event["object"]):
                yield event
