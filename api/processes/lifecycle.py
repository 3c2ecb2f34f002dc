"""The life of a fencelog process: it starts, announces that it is ready, and ends on request.

Every service (standalone, bookie, broker, ZooKeeper, cluster) is an async context manager; this
module runs it on uvloop and ends it on SIGINT, SIGTERM, on a failure it reports itself, or, as a
child process, when its parent is gone. Ending means leaving the context manager, so accepted
requests are written, and everything is closed in reverse order of opening.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import uvloop

from fencelog.api.processes.descriptors import raise_descriptor_limit
from fencelog.api.processes.garbage import GarbageCollection
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.host import keep_freed_memory
from fencelog.ledgers.limits import KEPT_FREE_BYTES

T = TypeVar("T")
ServiceT = TypeVar("ServiceT", bound="Service")


class Service(Protocol):
    """A service that is currently serving."""

    @property
    def announcement(self) -> Mapping[str, Any]:
        """The addresses and ids that a parent or a person needs, as JSON."""

    async def wait_failed(self) -> None:
        """Raise FencelogError when it can no longer do its work; else never return."""


@dataclass(frozen=True, slots=True)
class Running:
    """The usual Service. ``failures`` are futures of its parts, resolved when one can no longer do
    its work, with the error as their result or exception."""

    announcement: Mapping[str, Any]
    failures: tuple[asyncio.Future[Any], ...] = ()

    async def wait_failed(self) -> None:
        """Raise the first failure; without one never return."""
        if not self.failures:
            await asyncio.get_running_loop().create_future()
        done, _ = await asyncio.wait(self.failures, return_when=asyncio.FIRST_COMPLETED)
        for failure in done:
            error = failure.result()
            if isinstance(error, BaseException):
                raise error
        raise FencelogError(ErrorCode.INTERNAL, "a part of the service ended without a reason")


def run_on_uvloop(main: Coroutine[Any, Any, T]) -> T:
    """Run a command's coroutine to its end on a new event loop."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)


async def run_service(
    service: AbstractAsyncContextManager[ServiceT],
    *,
    print_addresses: Callable[[ServiceT], None],
    child: bool = False,
) -> None:
    """Run a service until it is told to stop; return when it has ended cleanly.

    ``print_addresses`` prints its addresses for a person. A ``child`` prints them as one line of
    JSON on stdout instead, and stops when its stdin ends: the kernel closes the parent's end of
    that pipe however the parent dies. Raises FencelogError from the start or from a failure.
    """
    keep_freed_memory(KEPT_FREE_BYTES)
    raise_descriptor_limit()
    with contextlib.suppress(asyncio.CancelledError), _cancelled_by_signals() as stop:
        async with contextlib.AsyncExitStack() as stack:
            if child:
                stack.callback((await _watch_stdin(stop)).close)
            garbage = GarbageCollection(asyncio.get_running_loop().call_soon_threadsafe)
            stack.callback(garbage.stop)
            running = await stack.enter_async_context(service)
            garbage.start()
            if child:
                announce(running.announcement)
            else:
                print_addresses(running)
            await running.wait_failed()


def announce(fields: Mapping[str, object]) -> None:
    """Tell the parent process that this one serves now."""
    sys.stdout.write(json.dumps({"ready": True, **fields}) + "\n")
    sys.stdout.flush()


@contextlib.contextmanager
def _cancelled_by_signals() -> Iterator[Callable[[], None]]:
    """Cancel the current task at the first SIGINT or SIGTERM; a second one ends at once."""
    task = asyncio.current_task()
    if task is None:
        raise RuntimeError("a service runs in a task")
    loop = asyncio.get_running_loop()
    signals = (signal.SIGINT, signal.SIGTERM)

    def restore() -> None:
        for number in signals:
            loop.remove_signal_handler(number)

    def stop() -> None:
        restore()
        task.cancel()

    for number in signals:
        loop.add_signal_handler(number, stop)
    try:
        yield stop
    finally:
        restore()


class _EndOfPipe(asyncio.Protocol):
    def __init__(self, on_end: Callable[[], None]) -> None:
        self._on_end = on_end

    def eof_received(self) -> None:
        self._on_end()


async def _watch_stdin(on_end: Callable[[], None]) -> asyncio.BaseTransport:
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(lambda: _EndOfPipe(on_end), sys.stdin)
    return transport
