"""The way of lines to stderr: formatted where they are logged, written by a thread.

Whoever reads stderr may stop (a full pipe, a terminal with Ctrl-S): a write would then block the
event loop, and with it the service. So lines wait in a bounded queue, and those for which it has no
space are dropped and counted.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from queue import Empty, Full, Queue
from threading import Event, Thread

from fencelog.api.processes.logs.forms import (
    error_code,
    fields_of,
    human_line,
    json_line,
)
from fencelog.api.processes.logs.levels import ROOT, LogFormat
from fencelog.api.processes.logs.limits import (
    FLUSH_S,
    LINES_OF_MESSAGE,
    MAX_MESSAGES,
    MAX_WAITING_LINES,
    RATE_INTERVAL_S,
)
from fencelog.api.processes.logs.rate_limit_core import LeftOut, RateLimit

_POLL_S = 0.5
"""The time within which a message is noticed whose interval has ended, and a stderr that takes no
more without blocking is tried again."""

STDERR = 2

_NAME = f"{ROOT}.api.processes.logs"

Message = tuple[str, str, str | None]
"""Logger, template and error code of a line."""


class QueueHandler(logging.Handler):
    """The handler of all loggers of a process."""

    def __init__(
        self, form: LogFormat, lines: Queue[bytes], now_s: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__()
        self._line = json_line if form is LogFormat.JSON else human_line
        self._lines = lines
        self._now_s = now_s
        self._dropped = 0
        self._limit: RateLimit[Message] = RateLimit(
            lines=LINES_OF_MESSAGE, interval_s=RATE_INTERVAL_S, max_messages=MAX_MESSAGES
        )

    def emit(self, record: logging.LogRecord) -> None:
        """Queue the line of a record; never wait. Lines for debugging, which were asked for, are
        limited by the queue alone."""
        self._report()
        message = record.name, str(record.msg), error_code(record)
        if record.levelno < logging.INFO or self._limit.admit(message, self._now_s()):
            self._put(record)

    def report(self) -> None:
        """Say what was left out or dropped, if that is due."""
        self.acquire()
        try:
            self._report()
        finally:
            self.release()

    def _report(self) -> None:
        for each in self._limit.end_intervals(self._now_s()):
            self._put(_left_out(each))
        if self._dropped and not self._lines.full():
            dropped, self._dropped = self._dropped, 0
            self._put(
                _record(_NAME, "%d lines were dropped: stderr was not read", dropped, dropped)
            )

    def _put(self, record: logging.LogRecord) -> None:
        try:
            line = self._line(record, fields_of(record))
        except Exception as error:  # arguments that do not fit their template, a broken __str__
            text = f"a line of {record.pathname}:{record.lineno} cannot be written: {error!r}"
            line = self._line(_record(_NAME, "%s", 0, text), {})
        try:
            self._lines.put_nowait(line.encode("utf-8", "backslashreplace") + b"\n")
        except Full:
            self._dropped += 1


def _left_out(each: LeftOut[Message]) -> logging.LogRecord:
    name, template, code = each.message
    cause = f" ({code})" if code else ""
    text = "%d more lines were left out within %g s: %s%s"
    return _record(name, text, each.count, each.count, RATE_INTERVAL_S, template, cause)


def _record(name: str, template: str, left_out: int, *args: object) -> logging.LogRecord:
    record = logging.LogRecord(name, logging.WARNING, "", 0, template, args, None)
    if left_out:
        record.left_out = left_out
    return record


@contextmanager
def log_output(
    form: LogFormat, levels: Mapping[str, int], descriptor: int = STDERR
) -> Iterator[None]:
    """Write what is logged within the context. At its end the lines that wait are written, as far
    as they are read within FLUSH_S."""
    lines: Queue[bytes] = Queue(MAX_WAITING_LINES)
    handler = QueueHandler(form, lines)
    ending = Event()
    # A thread that stderr blocks must not keep the process from ending.
    arguments = handler, lines, ending, descriptor
    writer = Thread(target=_write, args=arguments, name="log", daemon=True)
    root = logging.getLogger()
    before = {name: logging.getLogger(name).level for name in levels}
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)
    root.addHandler(handler)
    writer.start()
    try:
        yield
    finally:
        root.removeHandler(handler)
        for name, level in before.items():
            logging.getLogger(name).setLevel(level)
        ending.set()
        with suppress(Full):
            lines.put_nowait(b"")  # wakes it
        writer.join(FLUSH_S)


def _write(handler: QueueHandler, lines: Queue[bytes], ending: Event, descriptor: int) -> None:
    while True:
        try:
            line = lines.get(timeout=0.0 if ending.is_set() else _POLL_S)
        except Empty:
            handler.report()
            if ending.is_set() and lines.empty():
                return
            continue
        write_all(descriptor, line)


def write_all(descriptor: int, line: bytes) -> None:
    """Write a line. One that cannot be written, for stderr is closed, is lost."""
    left = memoryview(line)
    while left:
        try:
            left = left[os.write(descriptor, left) :]
        except BlockingIOError:
            time.sleep(_POLL_S)
        except OSError:
            return
