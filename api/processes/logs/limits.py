"""The limits of a log, with their reasons."""

from __future__ import annotations

from fencelog.ledgers.limits import KIB

LINES_OF_MESSAGE = 20
"""The lines of one message (its text before numbers and names are put in, and its error code)
within RATE_INTERVAL_S: enough to see who is concerned; a fault that hits ten thousand partitions
would otherwise fill a disk, and hide all other lines."""

RATE_INTERVAL_S = 10.0
"""The interval of LINES_OF_MESSAGE. After it one line says how many were left out."""

MAX_MESSAGES = 1_000
"""The messages that are counted by themselves; beyond them the oldest is forgotten. The code has a
few hundred."""

MAX_TEXT_CHARS = 4 * KIB
"""The text of a line; the rest is cut off. Collectors of logs cut or refuse lines of more than some
16 KiB."""

MAX_TRACE_CHARS = 8 * KIB
"""A traceback; its beginning is cut off, for the end says what was wrong."""

MAX_WAITING_LINES = 2_000
"""The lines that wait for whoever reads stderr. What comes when they are there is dropped and
counted: a service must not stop because its log does."""

FLUSH_S = 2.0
"""The time that a process that ends gives the reader of its log."""
