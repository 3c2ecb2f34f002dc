"""The options of a query as Spark passes them: text by name, regardless of case."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from typing import Any

from fencelog.ledgers.errors import ErrorCode, FencelogError

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_US_IN_MS = 1000

MAX_TIMESTAMP_MS = 253_402_300_799_999
"""The last millisecond of the year 9999, the latest time that Spark can show."""

MAX_TIMESTAMP_US = MAX_TIMESTAMP_MS * _US_IN_MS


MAX_DIGITS = 100
"""The most digits of a number, more than any option takes: Python converts no more than some
thousand."""


class GivenOptions:
    """The given options by lower-case name. Every method raises FencelogError(BAD_REQUEST), which
    names the option and its value."""

    def __init__(self, options: Mapping[str, str], known: Sequence[str]) -> None:
        """Take the options of a query. Raises for a name that is not ``known``."""
        self._given = {name.lower(): value for name, value in options.items()}
        names = {name.lower(): name for name in known}
        for name in sorted(self._given.keys() - names.keys()):
            close = get_close_matches(name, names, n=1)
            hint = f"; did you mean {names[close[0]]}?" if close else ""
            raise wrong(f"unknown option {name!r}{hint} (options: {', '.join(known)})")

    def text(self, name: str) -> str | None:
        """Return the trimmed value, or None if it is not given or empty."""
        return self._given.get(name.lower(), "").strip() or None

    def required(self, name: str) -> str:
        value = self.text(name)
        if value is None:
            raise wrong(f"option {name!r} is missing")
        return value

    def only_one_of(self, *names: str) -> None:
        """Check that at most one of these is given: together they would contradict each other."""
        given = [name for name in names if self.text(name) is not None]
        if len(given) > 1:
            raise wrong(f"options {given[0]!r} and {given[1]!r} exclude each other")

    def integer(self, name: str, *, low: int, high: int) -> int | None:
        value = self._given.get(name.lower())
        if value is None:
            return None
        number = whole_number(value.strip())
        if number is None or not low <= number <= high:
            raise wrong(f"option {name!r} is no whole number from {low} to {high}: {value!r}")
        return number

    def boolean(self, name: str, *, default: bool) -> bool:
        return self.word(name, ("true", "false"), default=str(default).lower()) == "true"

    def word(self, name: str, words: Sequence[str], *, default: str) -> str:
        """Return the value, which is one of a few words, in lower case."""
        value = self._given.get(name.lower(), default)
        if (word := value.strip().lower()) not in words:
            raise wrong(f"option {name!r} is none of {', '.join(words)}: {value!r}")
        return word


def json_object(name: str, value: str, *, form: str) -> dict[str, Any]:
    """Parse a JSON object without repeated members. ``form`` says what the option should be."""
    try:
        parsed = json.loads(value, object_pairs_hook=_no_repetition)
    except (ValueError, RecursionError) as error:
        raise wrong(f"option {name!r} is not {form}: {value!r} ({error})") from None
    if not isinstance(parsed, dict):
        raise wrong(f"option {name!r} is not {form}: {value!r}")
    return parsed


def _no_repetition(members: list[tuple[str, Any]]) -> dict[str, Any]:
    parsed = dict(members)
    if len(parsed) < len(members):
        raise ValueError("a member is repeated")
    return parsed


def whole_number(text: str) -> int | None:
    """Return the number that decimal digits are; None for any other text."""
    is_number = text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS
    return int(text) if is_number else None


def time_us(value: object) -> int | None:
    """Return the time in µs since 1970 UTC of Kafka's milliseconds, as a number or as text, or of
    an ISO 8601 time that names its offset from UTC; None if it is neither."""
    if isinstance(value, str) and (number := whole_number(value)) is not None:
        value = number
    if isinstance(value, int) and not isinstance(value, bool):
        return value * _US_IN_MS if 0 <= value <= MAX_TIMESTAMP_MS else None
    try:
        moment = datetime.fromisoformat(str(value))
        return microseconds(moment) if moment.tzinfo and moment >= _EPOCH else None
    except ValueError:
        return None


def microseconds(moment: datetime) -> int:
    """Return a moment (with an offset from UTC) in µs since 1970 UTC."""
    return (moment - _EPOCH) // _MICROSECOND


def wrong(detail: str) -> FencelogError:
    """Return the error of an option that is not valid."""
    return FencelogError(ErrorCode.BAD_REQUEST, f"fencelog data source: {detail}")
