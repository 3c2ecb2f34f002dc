"""The configuration of a subscription, and the ids that its messages are acknowledged by."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from fencelog.broker.registry.subscription_config import (
    SubscriptionConfig,
    SubscriptionInfo,
    check_consumer,
    check_consumer_is_named,
    check_delay,
    check_lease,
    check_start,
)
from fencelog.broker.subscriptions.ack_id import (
    AckId,
    ack_id_maker,
    parse_ack_ids,
    partition_of_ack_id,
)
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.digest import crc32c


def field_of(error: pytest.ExceptionInfo[FencelogError]) -> str:
    assert error.value.code is ErrorCode.BAD_REQUEST
    return str(error.value.extra["field"])


@pytest.mark.parametrize("start", ["earliest", "latest", {"offset": 5}, {"time_us": 0}])
def test_a_subscription_is_the_same_after_json(start: Any) -> None:
    config = SubscriptionConfig(
        type="failover", max_deliveries=3, dead_letter_topic="a/b", durable=False
    )
    info = SubscriptionInfo("s", "x1", config, start)
    assert SubscriptionInfo.from_json(json.loads(json.dumps(info.to_json()))) == info
    assert SubscriptionConfig.from_json({}) == SubscriptionConfig()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("type", "other"),
        ("type", None),
        ("lease_ms", 0),
        ("lease_ms", 1.5),
        ("lease_ms", True),
        ("max_deliveries", 0),
        ("dead_letter_topic", "no-slash"),
        ("dead_letter_topic", 7),
        ("backoff_min_ms", -1),
        ("backoff_max_ms", 10),
        ("max_outstanding", 10_000_000),
        ("durable", "yes"),
        ("colour", "red"),
    ],
)
def test_a_setting_that_cannot_be_is_named(field: str, value: object) -> None:
    with pytest.raises(FencelogError) as caught:
        SubscriptionConfig.from_json({field: value})
    assert field_of(caught) == field


def test_a_dead_letter_topic_needs_a_number_of_deliveries() -> None:
    with pytest.raises(FencelogError) as caught:
        SubscriptionConfig(dead_letter_topic="a/b")
    assert field_of(caught) == "max_deliveries"


@pytest.mark.parametrize(
    "start", ["", None, {"offset": -1}, {"offset": "1"}, {"at": 1}, {}, {"offset": 1, "time_us": 2}]
)
def test_a_start_that_cannot_be(start: object) -> None:
    with pytest.raises(FencelogError) as caught:
        check_start(start)
    assert field_of(caught) == "start"


def test_what_a_consumer_says_of_itself() -> None:
    assert check_consumer("") == ""
    assert check_lease(5) == 5
    assert check_delay(0) == 0
    wrong: list[tuple[Callable[[Any], Any], Any, str]] = [
        (check_consumer, "é" * 65, "consumer"),
        (check_lease, 0, "lease_ms"),
        (check_delay, -1, "delay_ms"),
    ]
    for check, value, field in wrong:
        with pytest.raises(FencelogError) as caught:
            check(value)
        assert field_of(caught) == field


def test_an_ack_id_says_what_was_handed_out_when() -> None:
    make = ack_id_maker("s1", partition=3, epoch=7, generation=2, delivery=9)
    ids = [make(offset) for offset in (0, 123_456_789)]
    assert parse_ack_ids(ids, "s1") == [AckId(3, 7, 2, 0, 9), AckId(3, 7, 2, 123_456_789, 9)]
    assert [partition_of_ack_id(text) for text in ids] == [3, 3]


def test_an_ack_id_is_its_own_subscriptions() -> None:
    text = ack_id_maker("s1", partition=3, epoch=7, generation=2, delivery=9)(44)
    for wrong in (text.replace("-44-", "-45-"), text[:-1]):
        with pytest.raises(FencelogError) as caught:
            parse_ack_ids([wrong], "s1")
        assert field_of(caught) == "ack_ids"
    with pytest.raises(FencelogError) as caught:
        parse_ack_ids([text], "s2")
    assert field_of(caught) == "ack_ids"


@pytest.mark.parametrize("text", ["", "3", "a-1-2-3-4-00000000", "-1-1-2-3-4-5", "٣-1-1-1-1-0"])
def test_text_that_is_no_ack_id(text: str) -> None:
    for read in (partition_of_ack_id, lambda text: parse_ack_ids([text], "s1")):
        with pytest.raises(FencelogError) as caught:
            read(text)
        assert field_of(caught) == "ack_ids"


def test_any_text_may_come_as_an_ack_id() -> None:
    forged = f"1-2-{crc32c(b'1-2', crc32c(b's1')):08x}"
    for text in (forged, "\ud800-1", "9" * 10_000):
        with pytest.raises(FencelogError) as caught:
            parse_ack_ids([text], "s1")
        assert field_of(caught) == "ack_ids"
        caught.value.detail.encode()
    assert partition_of_ack_id("9" * 10_000 + "-1-1-1-1-1") == 999_999_999


def test_a_pull_needs_a_name_where_consumers_are_told_apart() -> None:
    check_consumer_is_named("shared", "")
    for type_ in ("exclusive", "key_shared"):
        check_consumer_is_named(type_, "c1")
        with pytest.raises(FencelogError) as caught:
            check_consumer_is_named(type_, "")
        assert field_of(caught) == "consumer"
