"""Requests that several partitions take part in, and fail after the first step: they are not told
that nothing was done, and may be repeated."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from fencelog.api.admin.partition_admin import PartitionAdmin
from fencelog.api.subscriptions.owners import SubscriptionOwners
from fencelog.ledgers.errors import ErrorCode, FencelogError
from tests.support.network.http_client import http_client

pytestmark = pytest.mark.asyncio(loop_scope="module")

TWO = {"partitions": 2}


def check(answer: httpx.Response, *, done: str, code: str) -> None:
    problem = answer.json()
    assert (answer.status_code, problem["code"]) == (503, "metadata_unknown")
    assert (problem["side_effects"], problem["retryable"]) == ("maybe", True)
    assert done in problem["detail"]
    assert problem["last_code"] == code


async def test_a_termination_that_stops_at_the_second_partition(
    real: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminate = PartitionAdmin._terminate

    async def refused(self: Any, exchange: Any, target: Any, partition: int) -> bytes:
        if partition >= fails_from:
            raise FencelogError(ErrorCode.NO_OWNER, "nobody owns it now")
        return await terminate(self, exchange, target, partition)

    async with http_client(real) as http:
        assert (await http.put("/v1/topics/default/two", json=TWO)).status_code == 201
        with monkeypatch.context() as patch:
            patch.setattr(PartitionAdmin, "_terminate", refused)
            fails_from = 0
            answer = await http.post("/v1/topics/default/two:terminate")
            assert answer.json()["side_effects"] == "none"
            fails_from = 1
            answer = await http.post("/v1/topics/default/two:terminate")
        check(answer, done="1 of 2 partitions are terminated", code="no_owner")
        again = await http.post("/v1/topics/default/two:terminate")
        assert [end["partition"] for end in again.json()["partitions"]] == [0, 1]


async def test_a_subscription_that_one_partition_has_not(
    real: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = "/v1/topics/default/subs/subscriptions/s"
    open_cursor = SubscriptionOwners.open_cursor

    async def refused(self: Any, log: Any, topic: Any, subscription: Any) -> None:
        if log.partition == 1:
            raise FencelogError(ErrorCode.NOT_ENOUGH_BOOKIES, "two are away")
        await open_cursor(self, log, topic, subscription)

    async with http_client(real) as http:
        assert (await http.put("/v1/topics/default/subs", json=TWO)).status_code == 201
        with monkeypatch.context() as patch:
            patch.setattr(SubscriptionOwners, "open_cursor", refused)
            answer = await http.put(path, json={})
            check(answer, done="subscription s is there", code="not_enough_bookies")
            answer = await http.put(path, json={})
            assert answer.json()["code"] == "not_enough_bookies"
        assert (await http.put(path, json={})).status_code == 200
