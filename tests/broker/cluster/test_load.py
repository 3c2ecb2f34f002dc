"""Loads: measured as decaying means, published when they have changed, read back."""

from __future__ import annotations

import pytest

from fencelog.broker.cluster.load import (
    MATERIAL_PENDING_BYTES,
    PARTITION_COST,
    WRITE_COST,
    BrokerLoad,
    Meter,
)
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.limits import MIB


def test_a_steady_stream_becomes_its_rate_and_an_ended_one_is_forgotten() -> None:
    meter = Meter()
    for second in range(1, 91):
        meter.sample(second * 1000, second * 500, 1.0)
    assert meter.in_bytes_per_s == pytest.approx(1000, rel=0.01)
    assert meter.out_bytes_per_s == pytest.approx(500, rel=0.01)
    assert meter.score == pytest.approx(1000 * WRITE_COST + 500 + PARTITION_COST, rel=0.01)
    meter.sample(90_000, 45_000, 90.0)
    assert meter.in_bytes_per_s < 5
    meter.sample(90_000, 45_000, 90.0)
    assert (meter.in_bytes_per_s, meter.out_bytes_per_s) == (0, 0)
    meter.restart()
    meter.sample(0, 0, 1.0)
    assert (meter.in_bytes_per_s, meter.out_bytes_per_s) == (0, 0)


def test_the_mean_does_not_depend_on_how_often_it_is_taken() -> None:
    often, seldom = Meter(), Meter()
    for step in range(1, 41):
        often.sample(step * 250, 0, 0.25)
    for step in range(1, 3):
        seldom.sample(step * 5000, 0, 5.0)
    assert often.in_bytes_per_s == pytest.approx(seldom.in_bytes_per_s, rel=0.01)


def test_only_a_material_change_is_told() -> None:
    load = BrokerLoad(partitions=10, in_bytes_per_s=10 * MIB)
    assert not BrokerLoad(partitions=11, in_bytes_per_s=10 * MIB + 1000).differs_from(load)
    assert BrokerLoad(partitions=10, in_bytes_per_s=12 * MIB).differs_from(load)
    assert BrokerLoad(10, 10 * MIB, 0, MATERIAL_PENDING_BYTES).differs_from(load)
    assert BrokerLoad(partitions=1).differs_from(BrokerLoad())
    assert BrokerLoad().differs_from(BrokerLoad(partitions=1))
    assert not BrokerLoad().differs_from(BrokerLoad())


def test_a_load_is_read_as_it_was_written() -> None:
    load = BrokerLoad(3, 400, 500, 600)
    assert BrokerLoad.decode(load.encode()) == load
    assert BrokerLoad.decode(b'{"later":1,' + load.encode()[1:]) == load
    for damaged in (b"", b"[]", b"{}", b'{"partitions":"x"}', b"\xff"):
        with pytest.raises(FencelogError) as raised:
            BrokerLoad.decode(damaged)
        assert raised.value.code is ErrorCode.CORRUPT
