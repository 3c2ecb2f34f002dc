"""What a request is told that the closing service could not wait for: only an append may not be
repeated as it is."""

from __future__ import annotations

import pytest

from fencelog.api.http.problems import cut_off
from fencelog.ledgers.errors import Effects, ErrorCode

PARTITION = "/v1/topics/ns/t/partitions/0"
SUBSCRIPTION = "/v1/topics/ns/t/subscriptions/s"


@pytest.mark.parametrize(
    ("method", "path", "code"),
    [
        ("POST", "/v1/topics/ns/t/messages", ErrorCode.APPEND_UNKNOWN),
        ("POST", "/v1/topics/ns/t/messages:batch", ErrorCode.APPEND_UNKNOWN),
        ("POST", f"{PARTITION}/messages", ErrorCode.APPEND_UNKNOWN),
        ("POST", f"{PARTITION}/messages:batch", ErrorCode.APPEND_UNKNOWN),
        ("POST", f"{PARTITION}:fence", ErrorCode.STATE_UNKNOWN),
        ("POST", f"{PARTITION}/producers/p:claim", ErrorCode.STATE_UNKNOWN),
        ("DELETE", f"{PARTITION}/producers/p", ErrorCode.STATE_UNKNOWN),
        ("POST", f"{SUBSCRIPTION}:ack", ErrorCode.STATE_UNKNOWN),
        ("POST", f"{SUBSCRIPTION}:seek", ErrorCode.STATE_UNKNOWN),
        ("PUT", SUBSCRIPTION, ErrorCode.METADATA_UNKNOWN),
        ("DELETE", SUBSCRIPTION, ErrorCode.METADATA_UNKNOWN),
        ("POST", f"{PARTITION}/committers/c:commit", ErrorCode.METADATA_UNKNOWN),
        ("POST", f"{PARTITION}/committers/c:abort", ErrorCode.METADATA_UNKNOWN),
        ("POST", f"{PARTITION}:trim", ErrorCode.METADATA_UNKNOWN),
        ("POST", "/v1/topics/ns/t:terminate", ErrorCode.METADATA_UNKNOWN),
        ("PUT", "/v1/topics/ns/t", ErrorCode.METADATA_UNKNOWN),
        ("POST", "/v1/admin/checks", ErrorCode.METADATA_UNKNOWN),
        ("POST", f"{PARTITION}:unload", ErrorCode.REQUEST_TIMEOUT),
        ("POST", "/v1/brokers/b1:drain", ErrorCode.REQUEST_TIMEOUT),
    ],
)
def test_the_code_tells_what_kind_of_request_it_was(
    method: str, path: str, code: ErrorCode
) -> None:
    error = cut_off(method, path)
    assert error.code is code
    assert code.effects is Effects.MAYBE
    assert code.retryable == (code is not ErrorCode.APPEND_UNKNOWN)


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_a_read_has_done_nothing(method: str) -> None:
    error = cut_off(method, f"{PARTITION}/messages")
    assert (error.code, error.code.effects) == (ErrorCode.DRAINING, Effects.NONE)
