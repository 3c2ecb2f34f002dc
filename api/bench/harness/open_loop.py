"""A load that does not wait for its answers: each request is due at a time of its own.

A closed loop sends less while a service is slow, and so measures few of the latencies that its
clients would have seen (coordinated omission). Here a request that finds no free connection is sent
late, and its latency still counts from the time at which it was due.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from time import perf_counter

import anyio

from fencelog.api.bench.harness.load import LoadConnection, Response, refused
from fencelog.ledgers.errors import ErrorCode, FencelogError

TICK_S = 0.001
"""The time between two looks at the clock; a request is sent at most so much late, if the machine
has time."""

MAX_LATE_S = 60.0
"""The time by which requests may be late before the load ends: a service that is slower than the
load only becomes later."""


class OpenLoop:
    """Requests at a rate, over a few connections.

    ``request_of(number)`` makes the requests 0, 1, 2, …; ``on_answer(latency_s)`` gets the time
    from when a request was due until it was acknowledged.
    """

    def __init__(
        self,
        connections: Sequence[LoadConnection],
        request_of: Callable[[int], bytes],
        *,
        per_s: float,
        on_answer: Callable[[float], None],
    ) -> None:
        self._idle = list(connections)
        self._request_of = request_of
        self._per_s = per_s
        self._on_answer = on_answer
        self._begin = 0.0
        self._due = 0
        self._has_ended = False
        self._finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.sent = 0
        self.answered = 0

    async def run(self, seconds: float) -> None:
        """Send for so long, and return when everything is acknowledged. Raises FencelogError at the
        first other answer, a lost connection, or a load that is MAX_LATE_S late."""
        self._begin = perf_counter()
        wanted = int(seconds * self._per_s)
        try:
            while self._due < wanted and not self._finished.done():
                self._due = min(wanted, int((perf_counter() - self._begin) * self._per_s) + 1)
                self._send_due()
                await anyio.sleep(TICK_S)
            self._has_ended = True
            self._check_finished()
            await self._finished
        finally:
            self._finished.cancel()

    def _send_due(self) -> None:
        while self._idle and self.sent < self._due:
            self._send(self._idle.pop())
        late_s = (self._due - self.sent) / self._per_s
        if late_s > MAX_LATE_S:
            error = f"{self._due - self.sent} requests wait: the load is {late_s:.0f} s late"
            self._fail(FencelogError(ErrorCode.OVERLOADED, error))

    def _send(self, connection: LoadConnection) -> None:
        number, self.sent = self.sent, self.sent + 1
        due_s = self._begin + number / self._per_s

        def answered(response: Response) -> None:
            self.answered += 1
            if response.status != 201:
                self._fail(refused(response))
                return
            self._on_answer(perf_counter() - due_s)
            if self.sent < self._due and not self._finished.done():
                self._send(connection)
            else:
                self._idle.append(connection)
                self._check_finished()

        connection.send(self._request_of(number), answered, self._fail)

    def _check_finished(self) -> None:
        if self._has_ended and self.answered == self._due and not self._finished.done():
            self._finished.set_result(None)

    def _fail(self, error: FencelogError) -> None:
        if not self._finished.done():
            self._finished.set_exception(error)
