"""What the operator asks of the API of Kubernetes."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import Any, TypeVar

import kopf
from kubernetes_asyncio import client, config
from kubernetes_asyncio.client import ApiException

from toolcrib.errors import ConflictError, UnavailableError
from toolcrib.pods.operator.resources import GROUP, VERSION

T = TypeVar("T")
_MISSING, _CONFLICT = 404, 409
_LOG_BYTES = 1_000_000
_MERGE = "application/merge-patch+json"


class Taken(ConflictError):
    """The name of something that a run needs belongs to something else."""


class Cluster:
    """A connection. Its methods raise `kopf.TemporaryError` where another attempt may succeed."""

    def __init__(self, api: client.ApiClient) -> None:
        self._api = api
        self._core, self._custom = client.CoreV1Api(api), client.CustomObjectsApi(api)
        self._networking = client.NetworkingV1Api(api)

    @classmethod
    async def connect(cls) -> Cluster:
        """Connect as the pod's service account, or as the kubeconfig says."""
        try:
            config.load_incluster_config()
        except config.ConfigException:
            try:
                await config.load_kube_config()
            except (config.ConfigException, OSError) as error:
                raise UnavailableError(
                    f"there is no cluster: {error}", hint="Set KUBECONFIG, or run this in a pod."
                ) from None
        return cls(client.ApiClient())

    async def aclose(self) -> None:
        """Close the connection."""
        await self._api.close()

    async def instance(self, namespace: str, name: str) -> dict[str, Any] | None:
        """Return a SympoziumInstance, if there is one."""
        return await self._get(namespace, "sympoziuminstances", name)

    async def run(self, namespace: str, name: str) -> dict[str, Any] | None:
        """Return an AgentRun, if there is one."""
        return await self._get(namespace, "agentruns", name)

    async def make(self, manifest: Mapping[str, Any]) -> None:
        """Make something, unless it is there; `Taken` if something else has its name."""
        meta, is_pod = manifest["metadata"], manifest["kind"] == "Pod"
        make = (
            self._core.create_namespaced_pod if is_pod else self._networking.create_namespaced_network_policy
        )
        try:
            await _asked(make(meta["namespace"], manifest))
        except ApiException as error:
            if error.status != _CONFLICT:
                raise
            kind = (
                self._core.read_namespaced_pod if is_pod else self._networking.read_namespaced_network_policy
            )
            there = await _asked(kind(meta["name"], meta["namespace"]))
            owners = [one.uid for one in there.metadata.owner_references or ()]
            if meta["ownerReferences"][0]["uid"] not in owners:
                raise Taken(
                    f"{manifest['kind']} {meta['name']} is there and belongs to something else"
                ) from None

    async def patch_status(self, namespace: str, name: str, status: Mapping[str, str]) -> None:
        """Change the status of an AgentRun."""
        await _asked(
            self._custom.patch_namespaced_custom_object_status(
                GROUP, VERSION, namespace, "agentruns", name, {"status": status}, _content_type=_MERGE
            )
        )

    async def log(self, namespace: str, pod: str) -> str:
        """Return the log of the agent in a pod; no text if there is none any more."""
        read = self._core.read_namespaced_pod_log
        try:
            # A limit in bytes would keep the beginning.
            found: str = await _asked(read(pod, namespace, container="agent", tail_lines=1_000))
        except ApiException:
            return ""
        return found[-_LOG_BYTES:]

    async def remove_pod(self, namespace: str, pod: str) -> None:
        """Delete a pod, if it is there."""
        try:
            await _asked(self._core.delete_namespaced_pod(pod, namespace))
        except ApiException as error:
            if error.status != _MISSING:
                raise

    async def _get(self, namespace: str, plural: str, name: str) -> dict[str, Any] | None:
        get = self._custom.get_namespaced_custom_object
        try:
            found: dict[str, Any] = await _asked(get(GROUP, VERSION, namespace, plural, name))
        except ApiException as error:
            if error.status != _MISSING:
                raise
            return None
        return found


async def _asked(answer: Awaitable[T]) -> T:
    """Return an answer; a server that is busy or restarting may give one later."""
    try:
        return await answer
    except ApiException as error:
        if error.status == 429 or error.status >= 500:
            raise kopf.TemporaryError(f"Kubernetes answered {error.status}", delay=5) from error
        raise
