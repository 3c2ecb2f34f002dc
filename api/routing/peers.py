"""The requests of brokers to each other, over the links between them."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import msgspec

from fencelog.api.http.asgi import READING
from fencelog.api.routing.forward import Forwarder
from fencelog.api.routing.link import Links
from fencelog.api.routing.link_answer import OwnerUnreachable
from fencelog.broker.names import TopicName
from fencelog.ledgers.errors import ErrorCode, FencelogError


class LinkPeers:
    """The implementation of ``broker.peers.Peers`` over links."""

    def __init__(self, links: Links) -> None:
        self._forwarder = Forwarder(links)

    async def open(self, url: str, topic: TopicName, partition: int) -> None:
        """Have the broker at ``url`` open a partition: see ``Peers.open``."""
        await self.ask("POST", url, f"/v1/topics/{topic}/partitions/{partition}:open")

    async def ask(
        self, method: str, url: str, path: str, body: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """Return the answer of the broker at ``url``, which does not forward the request.

        Raises FencelogError: NO_OWNER (the address refuses connections), what it reports,
        REQUEST_TIMEOUT (the outcome is unknown), READ_UNKNOWN (of a request that only reads).
        """
        lost = ErrorCode.READ_UNKNOWN if method in READING else ErrorCode.REQUEST_TIMEOUT
        content = b"" if body is None else msgspec.json.encode(body)
        path, _, query = path.partition("?")
        try:
            answer = await self._forwarder.ask(
                method, url, path, query.encode(), content, lost=lost
            )
            return msgspec.json.decode(answer, type=dict[str, Any])
        except OwnerUnreachable as error:
            raise FencelogError(ErrorCode.NO_OWNER, str(error)) from error
        except msgspec.MsgspecError as error:
            raise FencelogError(lost, f"{url} answered no JSON object: {error}") from error


def broker_path(broker_id: str, verb: str = "") -> str:
    """Return ``/v1/brokers/{id}`` with an optional verb."""
    return f"/v1/brokers/{quote(broker_id, safe='')}{verb}"
