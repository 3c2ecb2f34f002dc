"""``fencelog read``: messages to stdout."""

from __future__ import annotations

import os
import sys
from enum import Enum
from typing import Annotated

import typer

from fencelog.api.cli_common import EXIT_BROKEN_PIPE, SERVER, ServerOption, topic_name
from fencelog.api.cli_topic import TopicArgument


class Output(Enum):
    """``text``: a message's bytes and a newline. ``json``: a message object a line."""

    TEXT = "text"
    JSON = "json"


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
    follow: Annotated[bool, typer.Option("--follow", help="Wait for more at the end.")] = False,
    limit: Annotated[int | None, typer.Option(min=1, help="End after so many messages.")] = None,
    output: Annotated[
        Output, typer.Option(help="Bytes and a newline, or JSON lines.")
    ] = Output.TEXT,
    server: ServerOption = SERVER,
) -> None:
    """Print messages.

    Text is their bytes as they are, each followed by a newline."""
    from fencelog.api.lifecycle import run_on_uvloop
    from fencelog.api.read_lines import ReadOptions, read_lines
    from fencelog.ledgers.errors import ErrorCode, FencelogError

    if start not in ("earliest", "latest") and not (start.isascii() and start.isdigit()):
        raise FencelogError(
            ErrorCode.BAD_REQUEST, f"--from is earliest, latest or an offset, not {start!r}"
        )
    options = ReadOptions(
        topic_name(topic), server, partition, start, follow, limit, as_json=output is Output.JSON
    )
    try:
        run_on_uvloop(read_lines(options, sys.stdout.buffer))
    except BrokenPipeError:
        # Whoever read our output has enough; Python's own flush at exit must not complain either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(EXIT_BROKEN_PIPE) from None
