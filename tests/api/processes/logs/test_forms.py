"""Lines for people, and lines of JSON."""

from __future__ import annotations

import json
import logging
import sys
from typing import Any

import pytest

from fencelog.api.http.request_ids import CurrentRequest, serving
from fencelog.api.processes.logs.forms import fields_of, human_line, json_line
from fencelog.api.processes.logs.limits import MAX_TEXT_CHARS, MAX_TRACE_CHARS
from fencelog.ledgers.errors import ErrorCode, FencelogError

REFUSED = FencelogError(ErrorCode.OVERLOADED, "too much")


def record(text: str, *args: object, error: BaseException | None = None, **extra: Any) -> Any:
    info: Any = None
    if error is not None:
        try:
            raise error
        except BaseException:
            info = sys.exc_info()
    logger = logging.getLogger("fencelog.broker.log.retention")
    made = logger.makeRecord(
        logger.name, logging.WARNING, "retention.py", 7, text, args, info, extra=extra or None
    )
    made.created = 1_795_439_999.1239
    return made


def human(made: logging.LogRecord) -> str:
    return human_line(made, fields_of(made))


def parsed(made: logging.LogRecord) -> dict[str, Any]:
    line = json_line(made, fields_of(made))
    assert "\n" not in line
    assert line.isascii()
    document: dict[str, Any] = json.loads(line)
    return document


def test_a_line_for_people() -> None:
    made = record("%s: %s", "t/0", REFUSED, topic="ns/t", partition=0)
    assert human(made) == (
        "2026-11-23T13:19:59.123Z WARNING broker.log.retention: t/0: overloaded: too much "
        "topic=ns/t partition=0 code=overloaded"
    )


def test_a_line_of_json() -> None:
    assert parsed(record("%s: %s", "t/0", REFUSED, topic="ns/t", partition=0)) == {
        "time": "2026-11-23T13:19:59.123Z",
        "level": "warning",
        "logger": "fencelog.broker.log.retention",
        "message": "t/0: overloaded: too much",
        "topic": "ns/t",
        "partition": 0,
        "code": "overloaded",
    }


def test_an_exception_is_a_field_and_indented_lines() -> None:
    made = record("failed", error=REFUSED)
    assert parsed(made)["code"] == "overloaded"
    assert parsed(made)["exception"].splitlines()[-1].endswith("too much")
    first, *rest = human(made).splitlines()
    assert first.endswith("failed code=overloaded")
    assert rest
    assert all(line.startswith("    ") for line in rest)


def test_the_request_that_is_served_is_named() -> None:
    with serving(CurrentRequest("abc")) as _:
        assert parsed(record("x"))["request_id"] == "abc"
        assert parsed(record("x", request_id="own"))["request_id"] == "own"
        assert human(record("x")).endswith("x request_id=abc")
    assert "request_id" not in parsed(record("x"))


def test_what_a_request_has_left_running_is_not_the_request() -> None:
    request = CurrentRequest("abc")
    with serving(request):
        request.is_over = True
        assert "request_id" not in parsed(record("x"))


@pytest.mark.parametrize("text", ["a\nb", "a\r\nb", "a\x1b[31mb", "a\u2028b", "a\x85b"])
def test_what_others_have_sent_makes_no_line_of_its_own(text: str) -> None:
    line = human(record("%s", text))
    assert len(line.splitlines()) == 1
    assert "\x1b" not in line
    assert parsed(record("%s", text))["message"] == text


def test_text_that_is_none_is_written_all_the_same() -> None:
    assert parsed(record("%s", "\udcff"))["message"] == "\udcff"


def test_long_lines_are_cut_and_stay_json() -> None:
    made = record("%s", "x" * 100_000, error=ValueError("y" * 100_000))
    assert parsed(made)["message"] == "x" * MAX_TEXT_CHARS
    assert parsed(made)["exception"] == "y" * MAX_TRACE_CHARS
