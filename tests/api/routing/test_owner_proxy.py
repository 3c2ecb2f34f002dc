"""The owner of a partition is looked for again only where nothing can have been done."""

from __future__ import annotations

from typing import Any

import pytest

from fencelog.api.routing.owner_proxy import OwnerProxy, TailRead
from fencelog.broker.names import TopicName
from fencelog.broker.registry.topics import TopicConfig
from fencelog.ledgers.errors import ErrorCode, FencelogError
from tests.support.fake_broker import FakeBroker, FakeLog

T = TopicName("ns", "t")


class Request:
    """A request to a partition whose log is lost under it: the log answers ``code`` the first time,
    and the next owner's takes whatever comes."""

    def __init__(self, broker: FakeBroker, code: ErrorCode) -> None:
        self._broker = broker
        self._code = code
        self.served = 0

    async def local(self, log: FakeLog) -> str:
        self.served += 1
        if self.served == 1:
            log.is_serving = False
            self._broker.logs.clear()
            raise FencelogError(self._code, "the log was lost")
        return "served"

    async def remote(self, url: str) -> str:
        raise AssertionError(f"{url} owns nothing")

    async def at_owner(self) -> str:
        nothing: Any = None
        broker: Any = self._broker
        proxy: Any = OwnerProxy(broker, nothing, nothing)
        answer: str = await proxy.at_owner(None, T, 0, self.local, self.remote)
        return answer


@pytest.fixture
async def broker(fake_broker: FakeBroker) -> FakeBroker:
    await fake_broker.topics.create(T, TopicConfig())
    return fake_broker


@pytest.mark.parametrize("unknown", [ErrorCode.APPEND_UNKNOWN, ErrorCode.STATE_UNKNOWN])
async def test_what_a_lost_log_may_have_done_is_not_done_by_the_next_owner(
    broker: FakeBroker, unknown: ErrorCode
) -> None:
    """A message would be there twice; an old change of a cursor would follow newer ones."""
    request = Request(broker, unknown)
    with pytest.raises(FencelogError) as caught:
        await request.at_owner()
    assert caught.value.code is unknown
    assert request.served == 1


@pytest.mark.parametrize("refused", [ErrorCode.DRAINING, ErrorCode.NO_OWNER])
async def test_what_a_lost_log_certainly_did_not_is_done_by_the_next_owner(
    broker: FakeBroker, refused: ErrorCode
) -> None:
    request = Request(broker, refused)
    assert await request.at_owner() == "served"
    assert request.served == 2


def test_what_a_read_tells_is_not_told_to_others() -> None:
    """All that wait for the same opening of a partition get the same error."""
    shared = FencelogError(ErrorCode.NOT_OWNER, "owned by b", url="http://b")
    one, other, new = TailRead(), TailRead(), TailRead()
    one.offset, other.offset = 15, 12
    assert one.told(shared).extra == {"url": "http://b", "start_offset": 15}
    assert new.told(shared) is shared
    assert shared.extra == {"url": "http://b"}
    for read in (new, other):
        read.learn(one.told(shared))
    assert (new.offset, other.offset) == (15, 12)
    assert new.query(b"from=latest&wait=3&as=base64") == b"from=15&wait=3&as=base64"
    gone = FencelogError(ErrorCode.TOPIC_NOT_FOUND, "gone")
    assert one.told(gone) is gone
