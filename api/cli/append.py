"""``fencelog append``: each line of a file or of stdin becomes a message."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fencelog.api.console import (
    EXIT_ERROR,
    EXIT_INTERRUPTED,
    SERVER,
    ServerOption,
    TopicArgument,
    complain,
    drop_output,
    is_typed_in,
    topic_name,
)

if TYPE_CHECKING:
    from rich.progress import Progress

    from fencelog.api.streams.append_lines import Summary


def add_to(app: typer.Typer) -> None:
    app.command()(append)


def append(
    topic: TopicArgument,
    file: Annotated[
        Path, typer.Argument(metavar="[FILE|-]", help="By default, and for -, stdin.")
    ] = Path("-"),
    key: Annotated[
        str | None, typer.Option(help="Key of every message; it chooses the partition.")
    ] = None,
    partition: Annotated[
        int | None, typer.Option(min=0, help="By default batches go to all in turn.")
    ] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="I am the only producer: after a lost answer look what was written and go on.",
        ),
    ] = False,
    producer_id: Annotated[
        str | None,
        typer.Option(
            help="Append exactly once: lines that this producer's earlier runs wrote are "
            "skipped, and an append whose answer is lost is sent again."
        ),
    ] = None,
    producer_epoch: Annotated[
        int,
        typer.Option(
            min=0, help="Of --producer-id; a higher one fences the lower ones and begins anew."
        ),
    ] = 0,
    server: ServerOption = SERVER,
) -> None:
    """Append each line of a file as a message.

    The bytes stay as they are, without the line ends; all are durable when it returns. Where the
    topic has a rate it waits; over a backlog quota for half a minute, as for any refusal.

    Ctrl-C lets what is in flight end; a second one does not wait for its answer. An
    append whose answer is lost is never simply sent again: the command stops with exit code 3
    and names the lines that may be there or not. With --resume it finds out and goes on; with
    --producer-id the service does, for many producers at a time. Then the input has to be the same
    in every run, or longer.
    """
    from fencelog.api.processes.lifecycle import run_on_uvloop
    from fencelog.api.streams.append_lines import AppendOptions, append_lines

    options = AppendOptions(
        topic_name(topic), server, key, partition, resume, producer_id, producer_epoch
    )
    with _progress(file) as progress:
        task = progress.add_task(file.name, total=None if str(file) == "-" else _size_of(file))
        summary = run_on_uvloop(
            append_lines(
                options, file, on_progress=lambda size: progress.advance(task, float(size))
            )
        )
    _report(summary, options.topic)


def _report(summary: Summary, topic: str) -> None:
    """Print what was appended, and end with EXIT_INTERRUPTED if it is not all. Where stdout does
    not take it, it is said with the error: the messages are there all the same."""
    appended, code = f"appended {summary.appended} to {topic}", 0
    try:
        typer.echo(appended)
    except OSError as error:
        drop_output()
        complain(f"{appended}, but stdout cannot be written: {error.strerror}")
        code = EXIT_ERROR
    if summary.left_out:
        complain(summary.left_out)
    if summary.interrupted:
        code = EXIT_INTERRUPTED
    if code:
        raise typer.Exit(code)


def _size_of(file: Path) -> float | None:
    """Return the bytes of a regular file, or None for a pipe, whose end is unknown."""
    return file.stat().st_size if file.is_file() else None


def _progress(file: Path) -> Progress:
    """Create a progress bar on stderr, shown on a terminal only."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    typed_in = str(file) == "-" and is_typed_in()
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        disable=typed_in or sys.stderr is None or not sys.stderr.isatty(),
        transient=True,
    )
