"""The choice of an answer's form by ``Accept``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fencelog.ledgers.errors import ErrorCode, FencelogError

_MAX_SHOWN = 80


def preferred(accept: bytes | None, forms: Sequence[bytes]) -> bytes:
    """Return the media type among ``forms`` that an Accept header prefers; the first one where the
    client has no preference.

    Raises FencelogError(NOT_ACCEPTABLE) if it takes none of them: the client would take another
    form for the one that it asked for.
    """
    if accept is None or accept in (b"*/*", forms[0]):
        return forms[0]
    ranges = list(_ranges(accept))
    refused = {name for name, quality in ranges if quality <= 0}
    best, best_quality = b"", 0.0
    for name, quality in ranges:
        form = next((form for form in forms if form not in refused and _covers(name, form)), b"")
        if form and quality > best_quality:
            best, best_quality = form, quality
    if not best:
        known = ", ".join(form.decode() for form in forms)
        shown = accept[:_MAX_SHOWN].decode("latin-1")
        raise FencelogError(
            ErrorCode.NOT_ACCEPTABLE, f"Accept is {shown!r}; the answer comes as {known}"
        )
    return best


def _ranges(accept: bytes) -> Iterator[tuple[bytes, float]]:
    for item in accept.split(b","):
        name, _, parameters = item.partition(b";")
        yield name.strip().lower(), _quality(parameters)


def _covers(range_: bytes, form: bytes) -> bool:
    if range_.endswith(b"/*"):
        return range_ == b"*/*" or form.startswith(range_[:-1])
    return range_ == form


def _quality(parameters: bytes) -> float:
    for parameter in parameters.split(b";"):
        name, _, value = parameter.partition(b"=")
        if name.strip().lower() == b"q":
            try:
                return float(value)
            except ValueError:
                return 0.0
    return 1.0
