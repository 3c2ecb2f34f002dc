"""Where a log's ledger ends: never below what was acknowledged in it, whoever has closed it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from fencelog.broker.ledger_list.ledger_steps import LedgerSteps
from fencelog.broker.ledger_list.open_ledger import OpenLedger
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.ledger_metadata.model import LedgerMetadata, new_metadata

LAST = 4


def closed_at(last_entry_id: int) -> LedgerMetadata:
    metadata = new_metadata(7, ensemble=("b1",), write_quorum=1, ack_quorum=1, token="t")
    return metadata.in_recovery().closed(last_entry_id=last_entry_id, length=10)


class Writer:
    """Of a ledger that somebody else has fenced, or, with ``own``, closes itself."""

    ledger_id = 7

    def __init__(self, own: LedgerMetadata | None) -> None:
        self._own = own

    async def close(self) -> LedgerMetadata:
        if self._own is None:
            raise FencelogError(ErrorCode.LEDGER_FENCED, "somebody else recovers it")
        return self._own

    async def abandon(self) -> None:
        pass


def opened(own: LedgerMetadata | None, recovered: LedgerMetadata) -> tuple[LedgerSteps, OpenLedger]:
    async def recover(_ledger_id: int) -> LedgerMetadata:
        return recovered

    async def is_leader() -> bool:
        return True

    ledger = OpenLedger(0.0)
    ledger.writer = Writer(own)  # type: ignore[assignment]  # it is only ended
    ledger.last_confirmed = LAST
    node: Any = SimpleNamespace(path="a log")
    factory: Any = SimpleNamespace(ledgers=SimpleNamespace(recover=recover))
    return LedgerSteps(node, factory, ledger, is_leader), ledger


async def test_a_ledger_is_closed_by_its_writer_or_by_a_recovery() -> None:
    for own in (closed_at(LAST), None):
        steps, ledger = opened(own, closed_at(LAST))
        assert (await steps.close(ledger)).last_entry_id == LAST


async def test_an_end_below_what_was_acknowledged_stops_the_log() -> None:
    """Only a person may have ended it so (``--accept-loss``); nothing goes on then."""
    steps, ledger = opened(None, closed_at(LAST - 1))
    with pytest.raises(AssertionError, match="below an acknowledged entry"):
        await steps.close(ledger)
    with pytest.raises(AssertionError, match="below an acknowledged entry"):
        await steps.recover(ledger)
