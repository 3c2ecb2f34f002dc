"""A connection to ZooKeeper that tests can break."""

from __future__ import annotations

import asyncio


class Proxy:
    """A proxy between a client and ZooKeeper; it can hold answers back, and cut connections."""

    def __init__(self, upstream: str) -> None:
        self._upstream = upstream.split(":")
        self._writers: list[asyncio.StreamWriter] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self.holds_answers = False

    async def start(self) -> str:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def stop(self) -> None:
        self._server.close()
        self.cut()
        await asyncio.gather(*self._tasks)

    def cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._tasks.add(task)
        server_reader, server_writer = await asyncio.open_connection(*self._upstream)
        self._writers += [writer, server_writer]
        await asyncio.gather(
            self._copy(reader, server_writer, answers=False),
            self._copy(server_reader, writer, answers=True),
        )

    async def _copy(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, answers: bool
    ) -> None:
        try:
            while data := await reader.read(65536):
                if not (answers and self.holds_answers):
                    writer.write(data)
        except ConnectionError:
            pass
        writer.close()
