"""Broken requests and frames over real connections, to a real service in a process of its own.

After each broken stream a stranger asks for an append of a number, which nobody else appends. Many
of these are taken for a part of what came before; those that are acknowledged have to be in the
log, once, at the offset they were told.
"""

from __future__ import annotations

import asyncio
import random  # noqa: TID251 - seeded, so that a failure can be repeated
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import psutil

from fencelog.api.client import FencelogClient
from fencelog.ledgers.record_batch import encode_batch
from tests.strangers.fuzz.corpus import (
    HELLO,
    LINK_FRAMES,
    MESSAGES,
    NAMESPACE,
    REQUESTS,
    UPGRADES,
    request,
)
from tests.strangers.fuzz.mutate import mutated
from tests.strangers.service import quiet_service
from tests.support.frames import cut

AT_ONCE = 12
"""The connections of strangers at a time."""

QUIET_S = 0.15
"""The time without a byte of an answer after which a stranger hangs up: what it sent is not
complete, or asks to wait."""

HANG_S = 20.0
"""The time after which a connection hangs: it is not closed although the stranger has hung up."""

MIB = 1 << 20
MAX_GROWTH_BYTES = 48 * MIB
"""The growth of the process's memory in the second half, most of it messages in caches."""

ACKS = f"{NAMESPACE}/acks"
PARTITION = 7
"""The partition of the numbers: its receipts answer no other request."""

UNAVAILABLE = re.compile(rb'"code":"not_enough_bookies"')
"""The one refusal with 5xx that a stranger may bring about: settings that need more bookies."""

STATUS = re.compile(rb"HTTP/1\.1 (\d\d\d) ")
RECEIPT = re.compile(rb'HTTP/1\.1 201 [^{]*{"partition":7,"offset":(\d+),"publish_time":\d+}$')
EXPECTED_LOG = re.compile(r"a link of another broker is closed: ")


class Strangers:
    """The strangers of one run, and what they found."""

    def __init__(self, url: str, seed: int) -> None:
        address = urlsplit(url)
        self.place = (address.hostname, address.port)
        self.seed = seed
        self.failures: list[str] = []
        self.acknowledged: dict[int, int] = {}
        self.statuses: dict[int, int] = {}

    async def meet(self, numbers: Iterator[int]) -> None:
        """Take number after number, each for one stream."""
        for number in numbers:
            chance = random.Random(f"{self.seed}/{number}")  # whatever the others do meanwhile
            data = a_link(chance) if number % 6 == 0 else some_requests(chance)
            pieces = cut(data, chance) if len(data) < 5000 else [data]
            try:
                async with asyncio.timeout(HANG_S):
                    answer = await self._exchange([*pieces, append_of(number)])
            except TimeoutError:
                self.failures.append(f"the connection of {number} hangs after {data!r}")
            else:
                self._judge(number, data, answer)

    async def _exchange(self, pieces: list[bytes]) -> bytes:
        """Send pieces; return all that comes until the service hangs up, or nothing more comes."""
        reader, writer = await asyncio.open_connection(*self.place)
        answer = b""
        try:
            with suppress(ConnectionError):
                for piece in (*pieces[:30], b"".join(pieces[30:])):
                    if writer.transport.is_closing():
                        break
                    writer.write(piece)
                    await asyncio.sleep(0)
                await writer.drain()
                with suppress(TimeoutError):
                    while data := await asyncio.wait_for(reader.read(MIB), QUIET_S):
                        answer += data
                    return answer
                if writer.can_write_eof():
                    writer.write_eof()
                while data := await reader.read(MIB):
                    answer += data
        finally:
            writer.transport.abort()
        return answer

    def _judge(self, number: int, data: bytes, answer: bytes) -> None:
        for status in map(int, STATUS.findall(answer)):
            self.statuses[status] = self.statuses.get(status, 0) + 1
            if status >= 500 and not UNAVAILABLE.search(answer):
                self.failures.append(f"{status} for {number}, {data!r}: {answer[-1500:]!r}")
        if receipt := RECEIPT.search(answer):
            self.acknowledged[number] = int(receipt[1])


def some_requests(chance: random.Random) -> bytes:
    """One to three requests in a row, at least one of them broken."""
    found = [chance.choice(REQUESTS) for _ in range(chance.choice((1, 1, 2, 3)))]
    at = chance.randrange(len(found))
    found[at] = mutated(found[at], REQUESTS, chance)
    return b"".join(found)


def a_link(chance: random.Random) -> bytes:
    """A link with broken frames; its handshake is mostly whole."""
    frames = b"".join(chance.choices(LINK_FRAMES, k=chance.randrange(1, 5)))
    if chance.random() < 0.7:
        return UPGRADES + HELLO + mutated(frames, LINK_FRAMES, chance)
    return UPGRADES + mutated(HELLO + frames, LINK_FRAMES, chance)


def append_of(number: int) -> bytes:
    """The request after which the connection ends."""
    path = f"/v1/topics/{ACKS}/messages?partition={PARTITION}"
    return request(f"POST {path}", "Connection: close", body=b"number %d" % number)


async def fuzz_service(inputs: int, seed: int, place: Path) -> tuple[list[str], str]:
    """Send so many streams to a service; return the failures, and a summary."""
    service, log = await quiet_service(place)
    url = service.announcement["http"]
    process = psutil.Process(service.pid)
    strangers = Strangers(url, seed)
    try:
        await prepare(url)
        await together(strangers, iter(range(inputs // 2)))
        half_bytes = process.memory_info().rss
        await together(strangers, iter(range(inputs // 2, inputs)))
        growth = process.memory_info().rss - half_bytes
        failures = [*strangers.failures, *await lost(url, strangers.acknowledged)]
        if growth > MAX_GROWTH_BYTES:
            failures.append(f"memory grew by {growth / MIB:.0f} MiB in the second half")
        if left := await connections_left(process):
            failures.append(f"{left} connections are left")
    finally:
        await service.stop()
    lines = [line for line in log.read_text().splitlines() if not EXPECTED_LOG.search(line)]
    failures += [f"the service logged: {line}" for line in lines[:40]]
    statuses = ", ".join(f"{n} x {status}" for status, n in sorted(strangers.statuses.items()))
    return failures, (
        f"{inputs} streams: {statuses}; {len(strangers.acknowledged)} acknowledged; memory "
        f"{growth / MIB:+.0f} MiB"
    )


async def prepare(url: str) -> None:
    """Make what the valid requests are about."""
    async with FencelogClient(url) as client:
        await client.create_topic(ACKS, partitions=PARTITION + 1)
        for topic in (f"{NAMESPACE}/t", f"{NAMESPACE}/locked"):
            await client.create_topic(topic, partitions=1)
        await client.append_batch(f"{NAMESPACE}/t", encode_batch(MESSAGES), partition=0)
        await client.change_object("PUT", f"/v1/topics/{NAMESPACE}/t/subscriptions/s", json={})


async def together(strangers: Strangers, numbers: Iterator[int]) -> None:
    async with asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(strangers.meet(numbers))


async def lost(url: str, acknowledged: dict[int, int]) -> list[str]:
    """Return what is wrong with the log of the numbers: lost, moved, or there twice."""
    found: dict[int, int] = {}
    failures = []
    async with FencelogClient(url) as client:
        last = await client.append(ACKS, b"number -1", partition=PARTITION)
        position = 0
        while position <= last.offset:
            page = await client.get_object(
                f"/v1/topics/{ACKS}/partitions/{PARTITION}/messages", params={"from": position}
            )
            for message in page["messages"]:
                number = int(message["text"].removeprefix("number "))
                if number in found:
                    failures.append(f"number {number} is there twice")
                found[number] = message["offset"]
            position = page["next_offset"]
    wrong = {number for number, offset in acknowledged.items() if found.get(number) != offset}
    if wrong:
        failures.append(f"acknowledged and not there: {sorted(wrong)[:20]}")
    if not acknowledged:
        failures.append("nothing was acknowledged")
    return failures


async def connections_left(process: psutil.Process) -> int:
    """Wait until connections have gone; return how many have not."""
    for _ in range(50):
        found = process.net_connections("tcp")
        left = sum(each.status != psutil.CONN_LISTEN for each in found)
        if not left:
            break
        await asyncio.sleep(0.1)
    return left
