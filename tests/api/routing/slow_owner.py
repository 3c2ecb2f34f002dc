"""A process with a broker that owns everything and answers no append. It writes its URL."""

from __future__ import annotations

import asyncio
import sys

from fencelog.broker.names import TopicName
from fencelog.broker.registry.topics import TopicConfig
from tests.support.fake_broker import FakeBookies, FakeBroker, FakeLog, app_over, serving

TOPIC = TopicName("ns", "t")


async def main() -> None:
    broker = FakeBroker()
    await broker.topics.create(TOPIC, TopicConfig(partitions=1))
    broker.logs[TOPIC, 0] = log = FakeLog(0)
    log.answers_after = asyncio.Event()
    async with serving(app_over(broker, FakeBookies())) as url:
        sys.stdout.write(f"{url}\n")
        sys.stdout.flush()
        await log.answers_after.wait()


if __name__ == "__main__":
    asyncio.run(main())
