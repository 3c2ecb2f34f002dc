"""Requests about subscriptions as brokers send them to each other."""

from __future__ import annotations

import msgspec

from fencelog.api.subscriptions.requests import NackRequest


def test_a_broker_that_does_not_know_unused_messages_yet_takes_every_failure() -> None:
    assert msgspec.json.encode(NackRequest(["a"])) == b'{"ack_ids":["a"]}'
    unused = msgspec.json.encode(NackRequest(["a"], failed=False))
    assert unused == b'{"ack_ids":["a"],"failed":false}'
    assert msgspec.json.decode(unused, type=NackRequest) == NackRequest(["a"], failed=False)
