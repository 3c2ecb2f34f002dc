"""Producers that send again, after a restore, all that they ever sent under a sequence or a key:
what the log has kept is a duplicate, what was lost is appended."""

from __future__ import annotations

import asyncio
from functools import partial
from random import Random  # noqa: TID251 - for its type: the streams are the engine's

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.entry_header import RANGE_KEY
from tests.sim.engine.engine import Engine
from tests.sim.engine.process import Process
from tests.sim.oracle.log_history import LogHistory, Sent
from tests.sim.topics.brokers import Unanswered, Unreached
from tests.sim.topics.clients import RETRY_PAUSE_S, Clients, append_all

AT_ONCE = 20
"""Appends in one request."""

_UNKNOWN = FencelogError(ErrorCode.APPEND_UNKNOWN, "there was no answer")


class Again:
    """The producers of the time before the restore, begun anew."""

    def __init__(self, clients: Clients, chance: Random) -> None:
        self._clients = clients
        self._chance = chance

    def start(self, engine: Engine, logs: list[LogHistory]) -> list[Process]:
        """Start a process for each producer of each log, and one for all keys of a log."""
        processes = []
        for log in logs:
            works = [list(all_sent) for all_sent in log.sequences.values()]
            works.append(_keyed(log))
            for number, all_sent in enumerate(works):
                processes.append(engine.start_process(f"a{log.partition}{number}"))
                processes[-1].spawn(self._repeat(log, all_sent))
        return processes

    async def _repeat(self, log: LogHistory, all_sent: list[Sent]) -> None:
        while all_sent:
            all_sent = await self._send(log, all_sent[:AT_ONCE]) + all_sent[AT_ONCE:]

    async def _send(self, log: LogHistory, some: list[Sent]) -> list[Sent]:
        """Return those that are not known to be in the log yet."""
        machine = self._clients.some_broker(self._chance)
        try:
            errors = await machine.ask(partial(append_all, log, some))
        except (FencelogError, Unreached, Unanswered):
            errors = []
        errors = errors or [_UNKNOWN] * len(some)
        left = [sent for sent, error in zip(some, errors, strict=True) if error]
        if left:
            await asyncio.sleep(self._chance.uniform(0, RETRY_PAUSE_S))
        if left == some and errors[0] and errors[0].code is ErrorCode.SEQUENCE_MISMATCH:
            log.violate(17, f"{some[0].payloads[0]!r} is sent again in its order: {errors[0]}")
        return left


def _keyed(log: LogHistory) -> list[Sent]:
    found = {id(sent): sent for sent in log.sent.values()}.values()
    return [s for s in found if s.conditions.sequences and s.conditions.sequences.kind == RANGE_KEY]
