"""A bookie that was read-only takes entries again, and what is named is what is meant."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.processes.k8s.cluster import CommandFailed
from tests.processes.k8s.installation import TOPIC
from tests.processes.k8s.scenarios import healing
from tests.processes.k8s.scenarios.healing import closed_ledger, stop_adds
from tests.processes.k8s.scenarios.pods import drain_broker

SWITCH = "fencelog bookies read-only bookie-1 {} --metadata $M"


class Recorded:
    """An installation of three bookies and two brokers that notes what is typed."""

    def __init__(self, *, ready: bool = True, owner: str = "broker-2f-x") -> None:
        self.cluster = self
        self.lines: list[str] = []
        self._ready = "True" if ready else "False"
        self._owner = owner

    def type(self, commands: str, *, timeout_s: float = 0) -> str:
        self.lines += [line.split(" #")[0].rstrip() for line in commands.splitlines()]
        if "bookies list --json" in commands:
            switches = [line for line in self.lines if "read-only bookie-1" in line]
            is_on = switches[-1:] == [SWITCH.format("on")]
            listed = [{"id": f"bookie-{n}", "read_only": is_on and n == 1} for n in range(3)]
            return json.dumps(listed)
        if "ledger show 7" in commands:
            return json.dumps({"fragments": [[0, ["bookie-0"]], [5, ["bookie-4", "bookie-2"]]]})
        return ""

    def fencelog(self, *arguments: str) -> str:
        assert arguments[:3] == ("topic", "internal", TOPIC)
        sealed = {3: True, 7: True, 9: False}
        segments = [{"ledger_id": ledger, "sealed": is_} for ledger, is_ in sealed.items()]
        return json.dumps({"owner": self._owner, "segments": segments})

    def pods(self, role: str) -> list[dict[str, Any]]:
        return [{"status": {"conditions": [{"type": "Ready", "status": self._ready}]}}] * 3


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(healing, "READ_ONLY_S", 0.0)


def test_a_bookie_is_read_only_for_a_while() -> None:
    installed: Any = Recorded()
    stop_adds(installed)
    switches = [line for line in installed.lines if "read-only" in line]
    assert switches == [SWITCH.format("on"), SWITCH.format("off")]
    assert sum("bookies gc bookie-1" in line for line in installed.lines) == 3


def test_a_bookie_that_is_not_ready_takes_entries_again_all_the_same() -> None:
    installed: Any = Recorded(ready=False)
    with pytest.raises(CommandFailed, match="is not ready"):
        stop_adds(installed)
    assert installed.lines[-1] == SWITCH.format("off")


def test_the_latest_closed_ledger_is_taken_and_a_bookie_of_its_end() -> None:
    installed: Any = Recorded()
    assert closed_ledger(installed) == (7, "bookie-4")


def test_the_owner_is_drained_and_its_partition_comes_back() -> None:
    installed: Any = Recorded()
    drain_broker(installed)
    assert installed.lines == [
        "fencelog brokers list",
        "fencelog brokers show broker-2f-x",
        "fencelog brokers drain broker-2f-x",
        "fencelog brokers undrain broker-2f-x",
        f"fencelog brokers unload {TOPIC} 0 --to broker-2f-x",
    ]
