"""``fencelog read``: messages to stdout."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Annotated

import typer

from fencelog.api.console import (
    SERVER,
    FollowOption,
    LimitOption,
    ServerOption,
    TopicArgument,
    bytes_out,
    ending_with_its_reader,
    is_number,
    topic_name,
)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Output(Enum):
    """The form of the output. ``text``: a message's bytes and a newline. ``json``: one message
    object for each line."""

    TEXT = "text"
    JSON = "json"


class View(Enum):
    """The view to read. ``log``: all messages. ``compacted``: the newest message of every key, as
    far as the log is compacted."""

    LOG = "log"
    COMPACTED = "compacted"


def add_to(app: typer.Typer) -> None:
    app.command()(read)


def read(
    topic: TopicArgument,
    partition: Annotated[
        int | None,
        typer.Option(
            min=0, help="By default all, one after the other; with --follow as they come."
        ),
    ] = None,
    start: Annotated[
        str, typer.Option("--from", metavar="earliest|latest|OFFSET", help="Where to begin.")
    ] = "earliest",
    from_time: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="Begin at a time: ISO 8601 (UTC unless said), or µs since 1970."
        ),
    ] = None,
    view: Annotated[
        View, typer.Option(help="All messages, or the newest of every key where compacted.")
    ] = View.LOG,
    follow: FollowOption = False,
    limit: LimitOption = None,
    output: Annotated[
        Output, typer.Option(help="Bytes and a newline, or JSON lines.")
    ] = Output.TEXT,
    server: ServerOption = SERVER,
) -> None:
    """Print messages.

    Text is their bytes as they are, each followed by a newline."""
    from fencelog.api.processes.lifecycle import run_on_uvloop
    from fencelog.api.streams.read_lines import ReadLinesOptions, read_lines
    from fencelog.ledgers.errors import ErrorCode, FencelogError

    if start not in ("earliest", "latest") and not is_number(start):
        raise FencelogError(
            ErrorCode.BAD_REQUEST, f"--from is earliest, latest or an offset, not {start!r}"
        )
    options = ReadLinesOptions(
        topic_name(topic),
        server,
        partition,
        start,
        follow,
        limit,
        as_json=output is Output.JSON,
        from_time_us=None if from_time is None else time_us(from_time),
        view=view.value,
    )
    with ending_with_its_reader():
        run_on_uvloop(read_lines(options, bytes_out()))


def time_us(text: str, option: str = "--from-time") -> int:
    """Return the µs since 1970 UTC of a time as users write it, as the value of an option. Raises
    FencelogError(BAD_REQUEST)."""
    from fencelog.ledgers.errors import ErrorCode, FencelogError

    if is_number(text):
        return int(text)
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise FencelogError(
            ErrorCode.BAD_REQUEST, f"{option} is ISO 8601 or µs since 1970, not {text[:40]!r}"
        ) from None
    if time.tzinfo is None:
        time = time.replace(tzinfo=UTC)
    return max(0, (time - _EPOCH) // timedelta(microseconds=1))
