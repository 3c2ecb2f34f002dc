"""A reader that follows a topic under load and accounts for every message: read back once."""

from __future__ import annotations

import anyio

from fencelog.api.bench.harness.load import LoadConnection, connected, encode_request, refused
from fencelog.api.bench.http import BATCH_TYPE
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.record_batch import decode_batch, read_frames

NUMBER_BYTES = 8
"""The beginning of each message: its number."""

PAUSE_S = 0.1
"""The time between two reads at the tail. Each gets many messages: the reader must not take much of
a machine that it shares with the service."""


class SoakReader:
    """Reads partition 0 of a topic from the beginning. ``messages``: how many it has read, each of
    them once."""

    def __init__(self, url: str, topic: str) -> None:
        self._url = url
        self._path = f"/v1/topics/{topic}/partitions/0/messages"
        self._seen = bytearray()
        self._offset = 0
        self.messages = 0

    async def follow(self) -> None:
        """Read until cancelled. Raises FencelogError(INTERNAL) for a message that came before."""
        async with connected(self._url) as connection:
            while True:
                if await self._read(connection):
                    await anyio.sleep(PAUSE_S)

    async def check_all(self, acknowledged: int) -> None:
        """Read to the tail. Raises FencelogError(INTERNAL) unless the messages 0 to
        ``acknowledged`` - 1 were there, each once, and no others."""
        async with connected(self._url) as connection:
            while not await self._read(connection):
                pass
        missing = [number for number in range(acknowledged) if not self._is_seen(number)]
        if missing or self.messages != acknowledged:
            raise FencelogError(
                ErrorCode.INTERNAL,
                f"{acknowledged} messages were acknowledged, {self.messages} are there; "
                f"{len(missing)} are missing, the first is {missing[:1]}",
            )

    async def _read(self, connection: LoadConnection) -> bool:
        """Read what is there, up to the limit of an answer. Tell whether that was everything."""
        path = f"{self._path}?from={self._offset}"
        request = encode_request("GET", self._url, path, headers={"Accept": BATCH_TYPE})
        response = await connection.request(request)
        if response.status != 200:
            raise refused(response)
        for frame in read_frames(response.body):
            if frame.base_offset != self._offset:
                raise _wrong(f"a batch begins at {frame.base_offset}, not at {self._offset}")
            for message in decode_batch(frame.batch):
                self._note(int.from_bytes(message.value[:NUMBER_BYTES], "big"))
            self._offset += frame.count
        return response.header("at-tail") == "true"

    def _note(self, number: int) -> None:
        if number >= len(self._seen):
            self._seen.extend(bytes(number + 1 - len(self._seen)))
        if self._seen[number]:
            raise _wrong(f"message {number} is there twice")
        self._seen[number] = 1
        self.messages += 1

    def _is_seen(self, number: int) -> bool:
        return number < len(self._seen) and self._seen[number] == 1


def _wrong(what: str) -> FencelogError:
    return FencelogError(ErrorCode.INTERNAL, what)
