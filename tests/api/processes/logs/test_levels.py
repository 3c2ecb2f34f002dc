"""The levels of packages, as a command line gives them."""

from __future__ import annotations

import logging

import pytest

from fencelog.api.processes.logs.levels import parse_levels
from fencelog.ledgers.errors import ErrorCode, FencelogError


@pytest.mark.parametrize(
    ("given", "levels"),
    [
        ("info", {"fencelog": logging.INFO}),
        ("DEBUG", {"fencelog": logging.DEBUG}),
        ("broker=debug", {"fencelog": logging.INFO, "fencelog.broker": logging.DEBUG}),
        (
            "error, bookie.gc=info,api.server.app = warning",
            {
                "fencelog": logging.ERROR,
                "fencelog.bookie.gc": logging.INFO,
                "fencelog.api.server.app": logging.WARNING,
            },
        ),
        ("fencelog.broker=error", {"fencelog": logging.INFO, "fencelog.broker": logging.ERROR}),
    ],
)
def test_levels_of_all_packages_and_of_some(given: str, levels: dict[str, int]) -> None:
    assert parse_levels(given) == levels


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ("", "'' is no level"),
        ("loud", "'loud' is no level; there are debug, info, warning, error"),
        ("info,", "'' is no level"),
        ("broker=", "'' is no level"),
        ("broker=trace", "'trace' is no level"),
        ("=debug", "no package or module ''"),
        ("brokr=debug", "no package or module 'brokr'"),
        ("broker.append.nothing=debug", "no package or module 'broker.append.nothing'"),
        ("broker..append=debug", "no package or module 'broker..append'"),
        ("uvicorn=debug", "no package or module 'uvicorn'"),
        ("info,debug", "the level of all packages is given twice"),
        ("broker=info,broker=debug", "broker is given twice"),
        ("broker=info,fencelog.broker=debug", "fencelog.broker is given twice"),
    ],
)
def test_what_is_wrong_is_named(given: str, named: str) -> None:
    with pytest.raises(FencelogError) as caught:
        parse_levels(given)
    assert caught.value.code is ErrorCode.BAD_REQUEST
    assert named in caught.value.detail
