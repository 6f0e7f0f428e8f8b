"""The requests of the operator to the API of Kubernetes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import aiohttp
import kopf
import orjson

from toolcrib.errors import ConflictError, UnavailableError
from toolcrib.pods.operator.resources import GROUP, VERSION

_MERGE = "application/merge-patch+json"
_LOG_LINES, _LOG_CHARACTERS = 1_000, 1_000_000
_PATHS = {
    "AgentRun": f"apis/{GROUP}/{VERSION}/namespaces/{{}}/agentruns",
    "SympoziumInstance": f"apis/{GROUP}/{VERSION}/namespaces/{{}}/sympoziuminstances",
    "Pod": "api/v1/namespaces/{}/pods",
    "NetworkPolicy": "apis/networking.k8s.io/v1/namespaces/{}/networkpolicies",
}


class Taken(ConflictError):
    """The name of something that a run needs belongs to something else."""


class Cluster:
    """A connection, as the pod's service account or as the kubeconfig says.

    Its methods raise `kopf.TemporaryError` where another attempt may succeed.
    """

    def __init__(self, settings: kopf.OperatorSettings) -> None:
        self._settings = settings
        self._session: aiohttp.ClientSession | None = None
        self._log_in()

    async def aclose(self) -> None:
        """Close the connection."""
        if self._session is not None:
            await self._session.close()

    async def find(self, kind: str, namespace: str, name: str, uid: str = "") -> dict[str, Any] | None:
        """Return a resource, if there is one of this name, and of this uid if one is given."""
        answer = await self._ask("GET", kind, namespace, name, missing=b"")
        found = orjson.loads(answer) if answer else None
        return found if found and uid in ("", found["metadata"]["uid"]) else None

    async def make(self, manifest: Mapping[str, Any]) -> None:
        """Make a resource, unless it is there; `Taken` if it belongs to something else."""
        kind, meta = manifest["kind"], manifest["metadata"]
        made = await self._ask("POST", kind, meta["namespace"], "", manifest, conflict=b"")
        there = made or await self._ask("GET", kind, meta["namespace"], meta["name"])
        owner = meta["ownerReferences"][0]
        owners = orjson.loads(there)["metadata"].get("ownerReferences", ())
        if any(one["uid"] == owner["uid"] for one in owners):
            return
        if any((one["kind"], one["name"]) == (owner["kind"], owner["name"]) for one in owners):
            reason = f"{kind} {meta['name']} of a deleted run of the same name is still there"
            raise kopf.TemporaryError(reason, delay=5)
        raise Taken(f"{kind} {meta['name']} is there and belongs to something else")

    async def set_status(self, run: Mapping[str, Any], status: Mapping[str, str]) -> None:
        """Change the status of an AgentRun, unless the run was changed since it was read."""
        if any(run.get("status", {}).get(key) != value for key, value in status.items()):
            meta = run["metadata"]
            body = {"metadata": {"resourceVersion": meta["resourceVersion"]}, "status": status}
            rest = f"{meta['name']}/status"
            await self._ask("PATCH", "AgentRun", meta["namespace"], rest, body, missing=b"")

    async def log(self, namespace: str, pod: str) -> str:
        """Return the end of the log of the agent in a pod; no text if there is none any more."""
        query = f"log?container=agent&tailLines={_LOG_LINES}"
        found = await self._ask("GET", "Pod", namespace, f"{pod}/{query}", missing=b"", wrong=b"")
        return found.decode(errors="replace")[-_LOG_CHARACTERS:]

    async def remove_pod(self, namespace: str, pod: str) -> None:
        """Delete a pod, if it is there."""
        await self._ask("DELETE", "Pod", namespace, pod, missing=b"")

    def _log_in(self) -> None:
        found = kopf.login_with_service_account(settings=self._settings)
        found = found or kopf.login_with_kubeconfig(settings=self._settings)
        if found is None:
            raise UnavailableError("there is no cluster", hint="Set KUBECONFIG, or run this in a pod.")
        self._server = str(found.server).rstrip("/")
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=found.as_ssl_context()),
            headers=found.as_http_headers(),
            timeout=aiohttp.ClientTimeout(total=30),
        )

    async def _ask(
        self,
        method: str,
        kind: str,
        namespace: str,
        rest: str,
        body: Mapping[str, Any] | None = None,
        *,
        missing: bytes | None = None,
        conflict: bytes | None = None,
        wrong: bytes | None = None,
    ) -> bytes:
        """Make a request and return the answer. The last three are the answers to 404, 409 and 400."""
        url = f"{self._server}/{_PATHS[kind].format(namespace)}/{rest}".rstrip("/")
        kept = {404: missing, 409: conflict, 400: wrong}
        data = None if body is None else orjson.dumps(body)
        headers = {"content-type": _MERGE if method == "PATCH" else "application/json"}
        session = self._session
        status, text = await self._answer(method, url, data, headers)
        if status == 401:  # The token of a service account is a new one each hour.
            if session is not None and self._session is session:  # Nobody else has done it meanwhile.
                self._log_in()
                await session.close()
            status, text = await self._answer(method, url, data, headers)
        if status < 300:
            return text
        if (instead := kept.get(status)) is not None:
            return instead
        reason = f"Kubernetes answered {status} to {method} {kind}: {text[:300].decode(errors='replace')}"
        # Also where a right is missing: somebody may grant it.
        raise kopf.TemporaryError(reason, delay=5)

    async def _answer(
        self, method: str, url: str, data: bytes | None, headers: Mapping[str, str]
    ) -> tuple[int, bytes]:
        assert self._session is not None
        try:
            async with self._session.request(method, url, data=data, headers=headers) as answer:
                return answer.status, await answer.read()
        except (aiohttp.ClientError, TimeoutError) as error:
            raise kopf.TemporaryError(f"Kubernetes does not answer: {error}", delay=5) from error
