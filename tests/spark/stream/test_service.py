"""The requests of a stream to the service: for how long they are repeated."""

from __future__ import annotations

from typing import Any

import pytest

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.spark_connector.planning.options import ReadOptions
from fencelog.spark_connector.planning.service import TopicRanges
from fencelog.spark_connector.stream import service as service_module
from fencelog.spark_connector.stream.position_core import StreamPosition
from fencelog.spark_connector.stream.service import TopicFollower

OPTIONS = ReadOptions(("http://127.0.0.1:1",), ("default/t",))


@pytest.mark.parametrize("is_reached", [True, False])
def test_a_start_during_a_takeover_waits_for_its_end(
    monkeypatch: pytest.MonkeyPatch, is_reached: bool
) -> None:
    """A service that cannot be reached is another thing."""
    monkeypatch.setattr(service_module, "FIRST_ANSWER_S", 0.2)
    asked: list[None] = []

    async def answering(servers: Any) -> Any:
        if not is_reached:
            raise FencelogError(ErrorCode.NO_OWNER, "no server answers")
        return tuple(servers)

    async def taken_over(*_: Any) -> TopicRanges:
        asked.append(None)
        if len(asked) < 5:  # 0.75 s later
            raise FencelogError(ErrorCode.NO_OWNER, "the partition is being taken over")
        return TopicRanges([], {})

    monkeypatch.setattr(service_module, "servers_that_answer", answering)
    monkeypatch.setattr(service_module, "fetch_with", taken_over)
    follower = TopicFollower(OPTIONS)
    try:
        if is_reached:
            assert follower.starting() == StreamPosition({}, {})
        else:
            with pytest.raises(FencelogError, match="no server answers"):
                follower.starting()
            assert asked == []
    finally:
        follower.close()
