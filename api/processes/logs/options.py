"""The options of a process for its log: ``--log-format`` and ``--log-level``."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from inspect import Parameter, signature
from typing import Annotated, Any

import typer

from fencelog.api.console import EXIT_ERROR, complain
from fencelog.api.processes.logs.levels import DEFAULT, LogFormat, parse_levels
from fencelog.ledgers.errors import FencelogError

FORMAT_VARIABLE = "FENCELOG_LOG_FORMAT"
LEVEL_VARIABLE = "FENCELOG_LOG_LEVEL"

_log = logging.getLogger(__name__)


def _checked(given: str) -> str:
    try:
        parse_levels(given)
    except FencelogError as error:
        raise typer.BadParameter(error.detail) from None
    return given


LogFormatOption = Annotated[
    LogFormat,
    typer.Option(envvar=FORMAT_VARIABLE, help="Of the lines on stderr; json: for collectors."),
]

LogLevelOption = Annotated[
    str,
    typer.Option(
        envvar=LEVEL_VARIABLE,
        metavar="LEVELS",
        callback=_checked,
        help="debug, info, warning, error; of packages too: info,broker=debug,bookie.gc=error.",
    ),
]

_OPTIONS = {
    "log_format": Parameter(
        "log_format",
        Parameter.KEYWORD_ONLY,
        default=LogFormat.HUMAN,
        annotation=LogFormatOption,
    ),
    "log_level": Parameter(
        "log_level", Parameter.KEYWORD_ONLY, default=DEFAULT, annotation=LogLevelOption
    ),
}


def with_log_options(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command that runs a process, with the options for its log. Any FencelogError that
    it raises is exit code 1: the process is over, so the outcome of what failed does not matter."""

    @wraps(command)
    def run(*arguments: Any, log_format: LogFormat, log_level: str, **options: Any) -> None:
        context = options.get("context")
        if context is not None and context.invoked_subcommand is not None:
            command(*arguments, **options)
            return
        with logging_as(log_format, log_level):
            command(*arguments, **options)

    given = signature(command, eval_str=True)
    parameters = [*given.parameters.values(), *_OPTIONS.values()]
    run.__signature__ = given.replace(parameters=parameters)  # type: ignore[attr-defined]  # PEP 362
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    return run


@contextmanager
def logging_as(form: LogFormat, levels: str) -> Iterator[None]:
    """Log in this form and by these levels within the context, and so do the processes that are
    started there."""
    from fencelog.api.processes.logs.output import log_output

    os.environ |= {FORMAT_VARIABLE: form.value, LEVEL_VARIABLE: levels}
    try:
        with log_output(form, parse_levels(levels)):
            try:
                yield
            except FencelogError as error:
                if form is LogFormat.JSON:
                    _log.critical("%s", error.detail, extra={"code": error.code.slug})
                raise
    except FencelogError as error:
        if form is not LogFormat.JSON:
            complain(error.detail)
        raise typer.Exit(EXIT_ERROR) from None
