"""The way of lines to stderr."""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Iterator
from queue import Queue
from typing import Any

import pytest

from fencelog.api.processes.logs import output
from fencelog.api.processes.logs.levels import LogFormat, parse_levels
from fencelog.api.processes.logs.limits import LINES_OF_MESSAGE, MAX_WAITING_LINES, RATE_INTERVAL_S
from fencelog.api.processes.logs.output import QueueHandler, log_output, write_all
from fencelog.ledgers.errors import ErrorCode, FencelogError

LOG = logging.getLogger("fencelog.broker.log.retention")
BOOKIE = logging.getLogger("fencelog.bookie.gc.collector")


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def lines() -> Queue[bytes]:
    return Queue(50)


@pytest.fixture
def handler(clock: Clock, lines: Queue[bytes]) -> Iterator[QueueHandler]:
    """The handler of one logger, whose lines nobody writes."""
    made = QueueHandler(LogFormat.JSON, lines, clock)
    LOG.addHandler(made)
    LOG.propagate = False
    LOG.setLevel(logging.DEBUG)
    yield made
    LOG.removeHandler(made)
    LOG.propagate = True
    LOG.setLevel(logging.NOTSET)


def taken(lines: Queue[bytes]) -> list[dict[str, Any]]:
    return [json.loads(lines.get_nowait()) for _ in range(lines.qsize())]


def messages(lines: Queue[bytes]) -> list[str]:
    return [line["message"] for line in taken(lines)]


@pytest.mark.usefixtures("handler")
def test_one_message_gets_so_many_lines_and_then_a_count(clock: Clock, lines: Queue[bytes]) -> None:
    for number in range(LINES_OF_MESSAGE + 7):
        LOG.warning("ledger %d is gone", number)
    LOG.warning("another message")
    assert len(messages(lines)) == LINES_OF_MESSAGE + 1
    clock.now_s = RATE_INTERVAL_S
    LOG.warning("ledger %d is gone", 99)
    summary, line = taken(lines)
    assert summary["message"] == "7 more lines were left out within 10 s: ledger %d is gone"
    assert summary["left_out"] == 7
    assert summary["logger"] == LOG.name
    assert line["message"] == "ledger 99 is gone"


def test_the_count_comes_without_a_further_line(
    handler: QueueHandler, clock: Clock, lines: Queue[bytes]
) -> None:
    for _ in range(LINES_OF_MESSAGE + 1):
        LOG.warning("again")
    taken(lines)
    handler.report()
    assert messages(lines) == []
    clock.now_s = RATE_INTERVAL_S
    handler.report()
    assert messages(lines) == ["1 more lines were left out within 10 s: again"]


@pytest.mark.usefixtures("handler")
def test_codes_of_errors_are_messages_of_their_own(clock: Clock, lines: Queue[bytes]) -> None:
    for code in (ErrorCode.OVERLOADED, ErrorCode.CORRUPT):
        for _ in range(LINES_OF_MESSAGE + 1):
            LOG.warning("failed: %s", FencelogError(code, "x"))
    assert len(messages(lines)) == 2 * LINES_OF_MESSAGE
    clock.now_s = RATE_INTERVAL_S
    LOG.warning("another")
    assert messages(lines)[:2] == [
        "1 more lines were left out within 10 s: failed: %s (overloaded)",
        "1 more lines were left out within 10 s: failed: %s (corrupt)",
    ]


@pytest.mark.usefixtures("handler")
def test_lines_for_debugging_are_all_written(lines: Queue[bytes]) -> None:
    for _ in range(LINES_OF_MESSAGE + 7):
        LOG.debug("again")
    assert len(messages(lines)) == LINES_OF_MESSAGE + 7


def test_lines_that_nobody_takes_are_dropped_and_counted(
    handler: QueueHandler, lines: Queue[bytes]
) -> None:
    for _ in range(60):
        LOG.debug("again")
    assert messages(lines) == ["again"] * 50
    handler.report()
    assert messages(lines) == ["10 lines were dropped: stderr was not read"]
    handler.report()
    assert messages(lines) == []


def test_arguments_that_do_not_fit_their_template_are_told(
    handler: QueueHandler, lines: Queue[bytes]
) -> None:
    made = LOG.makeRecord(LOG.name, logging.WARNING, "retention.py", 7, "%d", ("none",), None)
    handler.handle(made)
    (line,) = messages(lines)
    assert line.startswith("a line of retention.py:7 cannot be written: TypeError")


def read_all(descriptor: int) -> list[str]:
    os.set_blocking(descriptor, False)
    return os.read(descriptor, 1_000_000).decode().splitlines()


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for end in ends:
        os.close(end)


def test_lines_of_the_levels_asked_for_are_written_by_the_end(pipe: tuple[int, int]) -> None:
    root = logging.getLogger()
    before = root.handlers[:]
    with log_output(LogFormat.HUMAN, parse_levels("warning,bookie.gc=debug"), pipe[1]):
        LOG.warning("one")
        LOG.info("nothing")
        BOOKIE.debug("two")
        logging.getLogger("others").warning("three")
        logging.getLogger("others").info("nothing")
    assert [line.partition(": ")[2] for line in read_all(pipe[0])] == ["one", "two", "three"]
    assert root.handlers == before
    assert BOOKIE.level == logging.NOTSET


def test_who_does_not_read_stops_nobody(
    pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pipe takes 64 KiB; a logger that waited for it would wait for ever."""
    monkeypatch.setattr(output, "FLUSH_S", 0.05)
    done: list[float] = []

    def log_much() -> None:
        began = time.monotonic()
        for number in range(MAX_WAITING_LINES + 2000):
            LOG.debug("%d %s", number, "x" * 500)
        done.append(time.monotonic() - began)

    with log_output(LogFormat.HUMAN, parse_levels("debug"), pipe[1]):
        thread = threading.Thread(target=log_much, daemon=True)
        thread.start()
        thread.join(30)
        assert done
        drained = drain(pipe[0], until=b"lines were dropped: stderr was not read")
    assert b"\n" in drained


def drain(descriptor: int, *, until: bytes) -> bytes:
    found = b""
    while until not in found:
        found += os.read(descriptor, 1_000_000)
    return found


def test_a_write_is_repeated_until_all_of_it_is_there(
    pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "_POLL_S", 0.01)
    os.set_blocking(pipe[1], False)
    line = b"x" * 300_000 + b"\n"
    writer = threading.Thread(target=write_all, args=(pipe[1], line))
    writer.start()
    assert drain(pipe[0], until=b"\n") == line
    writer.join()


def test_a_closed_stderr_loses_lines_and_nothing_else() -> None:
    read, write = os.pipe()
    os.close(read)
    handlers = list(logging.getLogger().handlers)
    with log_output(LogFormat.HUMAN, parse_levels("info"), write):
        LOG.warning("one")
        LOG.warning("two")
    # The end did not wait for what cannot be written, and the handler is gone all the same.
    assert logging.getLogger().handlers == handlers
    assert not any(thread.name == "log" and thread.is_alive() for thread in threading.enumerate())
    os.close(write)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.write(write, b"three\n")
    write_all(write, b"three\n")
