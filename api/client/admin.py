"""The client's administrative calls: settings, namespaces, trim, terminate, the sweep."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fencelog.api.client.http import ServiceHttp, json_object, path_part, topic_path
from fencelog.ledgers.errors import ErrorCode

SWEEP_WAIT_S = 600.0
"""The wait for a sweep, which looks at every ledger of the cluster."""


class AdminCalls:
    """The base of ``FencelogClient``. Settings are named as in HTTP.md; None takes one back, so
    that it is inherited again, and ``"unlimited"`` means no bound."""

    _service: ServiceHttp

    # -- topics ----------------------------------------------------------------------------------

    async def update_topic(
        self, topic: str, settings: Mapping[str, Any], *, partitions: int | None = None
    ) -> dict[str, Any]:
        """Change settings of a topic, or raise the number of its partitions; return the topic.

        Raises FencelogError: TOPIC_NOT_FOUND, BAD_REQUEST, ….
        """
        body = dict(settings) | ({} if partitions is None else {"partitions": partitions})
        return json_object(await self._service.request("PATCH", topic_path(topic), json=body))

    async def trim(self, topic: str, partition: int, before: int) -> dict[str, Any]:
        """Remove everything below an offset; return ``earliest_offset`` and ``held_back``, which
        tells whether a subscription has kept some of it. May be repeated. Raises
        OFFSET_BEYOND_TAIL."""
        path = f"{topic_path(topic)}/partitions/{partition}:trim"
        return json_object(await self._change(path, {"before": before}))

    async def terminate(self, topic: str, partition: int | None = None) -> dict[str, Any]:
        """End a topic, or one partition, for good; return the ``end_offset`` of each. May be
        repeated."""
        where = "" if partition is None else f"/partitions/{partition}"
        return json_object(await self._change(f"{topic_path(topic)}{where}:terminate"))

    async def internals(self, topic: str, partition: int) -> dict[str, Any]:
        """Return the internal state of a partition's log, for people."""
        path = f"{topic_path(topic)}/partitions/{partition}/internal"
        return json_object(await self._service.request("GET", path))

    # -- namespaces ------------------------------------------------------------------------------

    async def namespaces(self) -> list[dict[str, Any]]:
        """Return all namespaces, sorted by name."""
        found = json_object(await self._service.request("GET", "/v1/namespaces"))["namespaces"]
        return list(found)

    async def namespace(self, name: str) -> dict[str, Any]:
        """Return a namespace's own settings and those that apply. Raises NAMESPACE_NOT_FOUND."""
        return json_object(await self._service.request("GET", _namespace(name)))

    async def create_namespace(self, name: str, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Create a namespace, or find it with the same settings. Raises ALREADY_EXISTS."""
        answer = await self._service.request("PUT", _namespace(name), json=dict(settings))
        return json_object(answer)

    async def update_namespace(self, name: str, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Change settings of a namespace. Raises NAMESPACE_NOT_FOUND."""
        answer = await self._service.request("PATCH", _namespace(name), json=dict(settings))
        return json_object(answer)

    async def delete_namespace(self, name: str) -> None:
        """Delete an empty namespace. Raises NAMESPACE_NOT_FOUND, NAMESPACE_NOT_EMPTY."""
        await self._service.request("DELETE", _namespace(name))

    # -- the cluster -----------------------------------------------------------------------------

    async def sweep(self, *, dry_run: bool = False) -> dict[str, Any]:
        """Remove ledgers and nodes that belong to nothing any more, or only look for them. Raises
        METADATA_CONFLICT if another sweep is running."""
        answer = await self._service.request(
            "POST",
            "/v1/sweep",
            params={"dry_run": "true"} if dry_run else {},
            lost=ErrorCode.METADATA_UNKNOWN,
            extra_wait_s=SWEEP_WAIT_S,
        )
        return json_object(answer)

    async def _change(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        json = None if body is None else dict(body)
        lost = ErrorCode.METADATA_UNKNOWN
        return await self._service.request("POST", path, lost=lost, json=json)


def _namespace(name: str) -> str:
    return f"/v1/namespaces/{path_part(name)}"
