"""The same question to every broker: what one does not answer in time is named."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from fencelog.api.routing.peers import LinkPeers, broker_path
from fencelog.broker.limits import ADMIN_ANSWER_S
from fencelog.ledgers.errors import FencelogError

if TYPE_CHECKING:
    from fencelog.broker.broker import Broker

T = TypeVar("T")


async def ask_brokers(
    broker: Broker,
    peers: LinkPeers,
    own: T,
    verb: str,
    read: Callable[[dict[str, Any]], T],
    body: dict[str, Any] | None = None,
) -> tuple[dict[str, T], list[str]]:
    """Return the answers of all brokers by their ids, and the brokers that do not answer within
    ADMIN_ANSWER_S. ``own``: that of ``broker``, which is not asked; ``verb``: of the others' path;
    ``read``: what makes a value of an answer, or raises ValueError; ``body``: None: a GET."""
    own_id = broker.config.broker_id
    found = {own_id: own}
    unanswered: list[str] = []
    method = "GET" if body is None else "POST"

    async def ask(broker_id: str, url: str) -> None:
        try:
            async with asyncio.timeout(ADMIN_ANSWER_S):
                answer = await peers.ask(method, url, broker_path(broker_id, verb), body)
            found[broker_id] = read(answer)
        except (FencelogError, TimeoutError, ValueError):
            unanswered.append(broker_id)

    async with asyncio.TaskGroup() as group:
        for each in broker.brokers():
            if each["broker_id"] != own_id:
                group.create_task(ask(each["broker_id"], each["url"]))
    return found, sorted(unanswered)
