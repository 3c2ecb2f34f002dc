"""The first contact with a service: which of its servers answers, decided within seconds.

A request waits for a minute, since the service knows more about its outcome than anybody else. But
a server that has never answered is more likely the wrong address.
"""

from __future__ import annotations

from collections.abc import Sequence

import anyio

from fencelog.api.client import FencelogClient
from fencelog.api.client.tasks import task_group
from fencelog.ledgers.errors import ErrorCode, FencelogError

ANSWER_S = 5.0
"""The time for a first answer, whatever the number of servers: with the repetitions of a stream it
stays below 10 s."""

_UNREACHED = (ErrorCode.NO_OWNER, ErrorCode.REQUEST_TIMEOUT, ErrorCode.INTERNAL)
"""The outcomes of a server that was not reached; INTERNAL is also what a proxy says instead of it.
"""


async def servers_that_answer(servers: Sequence[str]) -> tuple[str, ...]:
    """Return the servers, in front of the others the one that answers first. Raises
    FencelogError(NO_OWNER) that names all of them, if none does."""
    failures = {server: f"{server} has not answered within {ANSWER_S:g} s" for server in servers}
    answered: list[str] = []

    async def ask(server: str) -> None:
        async with FencelogClient((server,)) as client:
            try:
                await client.get_object("/healthz")
            except FencelogError as error:
                if error.code in _UNREACHED:
                    failures[server] = str(error.detail)
                    return
        answered.append(server)
        group.cancel_scope.cancel()

    with anyio.move_on_after(ANSWER_S):
        async with task_group() as group:
            for server in dict.fromkeys(servers):
                group.start_soon(ask, server)
    if not answered:
        raise FencelogError(ErrorCode.NO_OWNER, "; ".join(failures.values()))
    first = answered[0]
    return (first, *(server for server in servers if server != first))
