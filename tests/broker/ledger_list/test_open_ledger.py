"""A ledger that a log writes: what happens before it is used is not lost."""

from __future__ import annotations

from fencelog.broker.ledger_list.open_ledger import OpenLedger
from fencelog.ledgers.errors import ErrorCode, FencelogError


class Listener:
    def __init__(self) -> None:
        self.events: list[int | FencelogError | None] = []

    def on_ack(self, ledger: OpenLedger) -> None:
        self.events.append(ledger.last_confirmed)

    def on_failure(self, ledger: OpenLedger) -> None:
        self.events.append(ledger.failure)


GONE = FencelogError(ErrorCode.LEDGER_FENCED, "it was fenced")


def test_a_listener_learns_at_once_what_has_happened_before() -> None:
    ledger, listener = OpenLedger(0.0), Listener()
    ledger.acknowledged(3)
    ledger.acknowledged(4)
    ledger.failed(GONE)
    ledger.notify(listener)
    assert listener.events == [4, GONE]


def test_a_listener_learns_what_happens_from_then_on() -> None:
    ledger, listener = OpenLedger(0.0), Listener()
    ledger.notify(listener)
    assert listener.events == []
    ledger.acknowledged(0)
    ledger.failed(GONE)
    assert listener.events == [0, GONE]
