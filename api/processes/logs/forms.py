"""The forms of a line: for people, or one JSON object."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from fencelog.api.http.request_ids import live_request
from fencelog.api.processes.logs.levels import ROOT
from fencelog.api.processes.logs.limits import MAX_TEXT_CHARS, MAX_TRACE_CHARS
from fencelog.ledgers.errors import FencelogError

FIELDS = (
    "request_id",
    "topic",
    "partition",
    "ledger_id",
    "entry_id",
    "offset",
    "bookie_id",
    "broker_id",
    "code",
    "left_out",
)
"""The fields of a line beside its own, in this order, where they are known: ``extra`` of a call to
``logging`` gives them."""

_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029]")

_traces = logging.Formatter()


def error_code(record: logging.LogRecord) -> str | None:
    """Return the code of the error that a record is about, if it is one of ours."""
    errors: list[object] = [*record.args] if isinstance(record.args, tuple) else []
    if record.exc_info is not None:
        errors.append(record.exc_info[1])
    codes = [error.code.slug for error in errors if isinstance(error, FencelogError)]
    return codes[0] if codes else None


def fields_of(record: logging.LogRecord) -> dict[str, Any]:
    """Return the fields of a record. The request is that of the running task: call it where the
    record was made."""
    fields = {name: value for name in FIELDS if (value := getattr(record, name, None)) is not None}
    if "request_id" not in fields and (request := live_request()) is not None:
        fields = {"request_id": request.request_id, **fields}
    if "code" not in fields and (code := error_code(record)) is not None:
        fields["code"] = code
    return fields


def time_of(record: logging.LogRecord) -> str:
    """Return the time of a record by RFC 3339, in UTC, with milliseconds."""
    time = datetime.fromtimestamp(record.created, UTC)
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def human_line(record: logging.LogRecord, fields: Mapping[str, Any]) -> str:
    """Return a line for people; a traceback follows it, indented. Control characters of what others
    have sent are escaped: they could pass for lines of their own."""
    shown = "".join(f" {name}={value}" for name, value in fields.items())
    text = _escaped(f"{_text_of(record)}{shown}")
    level, name = record.levelname, record.name.removeprefix(f"{ROOT}.")
    line = f"{time_of(record)} {level:<7} {name}: {text}"
    if (trace := _trace_of(record)) is None:
        return line
    return "\n".join([line, *(f"    {_escaped(part)}" for part in trace.splitlines())])


def json_line(record: logging.LogRecord, fields: Mapping[str, Any]) -> str:
    """Return a line of JSON, in ASCII."""
    document = {
        "time": time_of(record),
        "level": record.levelname.lower(),
        "logger": record.name,
        "message": _text_of(record),
        **fields,
    }
    if (trace := _trace_of(record)) is not None:
        document["exception"] = trace
    return json.dumps(document, default=str, separators=(",", ":"))


def _escaped(text: str) -> str:
    return _CONTROL.sub(lambda found: ascii(found.group())[1:-1], text)


def _text_of(record: logging.LogRecord) -> str:
    return record.getMessage()[:MAX_TEXT_CHARS]


def _trace_of(record: logging.LogRecord) -> str | None:
    if not record.exc_info or record.exc_info[1] is None:
        return None
    return _traces.formatException(record.exc_info)[-MAX_TRACE_CHARS:]
