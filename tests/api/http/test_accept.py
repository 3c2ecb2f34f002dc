"""The form of an answer, by ``Accept``."""

from __future__ import annotations

import pytest

from fencelog.api.http.accept import preferred
from fencelog.ledgers.errors import ErrorCode, FencelogError

FORMS = (b"application/json", b"application/x-ndjson", b"application/b", b"text/event-stream")


@pytest.mark.parametrize(
    ("accept", "form"),
    [
        (None, b"application/json"),
        (b"*/*", b"application/json"),
        (b"Text/Event-Stream", b"text/event-stream"),
        (b"text/*", b"text/event-stream"),
        (b"application/*", b"application/json"),
        (b"application/json;q=0, */*", b"application/x-ndjson"),
        (b"application/x-ndjson;q=0.2, application/b;q=0.3", b"application/b"),
        (b"application/x-ndjson;q=0, */*;q=0.1", b"application/json"),
        (b"text/html;level=1, text/event-stream;q=1.0", b"text/event-stream"),
        (b"text/html,application/xhtml+xml,*/*;q=0.8", b"application/json"),
    ],
)
def test_the_best_form_wins(accept: bytes | None, form: bytes) -> None:
    assert preferred(accept, FORMS) == form


@pytest.mark.parametrize("accept", [b"", b"text/html", b"application/json;q=0", b"*/*;q=x"])
def test_none_of_ours_is_refused(accept: bytes) -> None:
    with pytest.raises(FencelogError, match="the answer comes as application/json, ") as caught:
        preferred(accept, FORMS)
    assert caught.value.code is ErrorCode.NOT_ACCEPTABLE
