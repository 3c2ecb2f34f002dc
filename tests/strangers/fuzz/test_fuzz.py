"""No broken input harms the service, and the fuzzer sees it where one does."""

from __future__ import annotations

import logging
import random  # noqa: TID251 - seeded, so that a failure can be repeated
from pathlib import Path

import pytest

from tests.strangers.fuzz import parsers
from tests.strangers.fuzz.parsers import PARSERS, Parser, fuzz_parsers
from tests.strangers.fuzz.run_fuzz import INPUTS, SERVICE_PART
from tests.strangers.fuzz.strangers import a_link, fuzz_service, some_requests


@pytest.mark.timeout(900)
@pytest.mark.processes
async def test_broken_streams_do_nothing_but_fail(tmp_path: Path) -> None:
    failures, summary = await fuzz_service(INPUTS // SERVICE_PART, 1, tmp_path)
    logging.getLogger(__name__).info(summary)
    assert not failures, "\n".join(failures[:20])


def test_broken_inputs_are_refused() -> None:
    assert fuzz_parsers(INPUTS - INPUTS // SERVICE_PART, 1) == []


@pytest.mark.parametrize("parser", PARSERS, ids=lambda parser: parser.name)
def test_what_mutations_begin_with_is_valid(parser: Parser) -> None:
    for data in parser.valid:
        parser.takes(data)


def test_an_exception_of_a_parser_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(data: bytes) -> None:
        if data != b'{"number": 5}':
            raise IndexError(data)

    monkeypatch.setattr(parsers, "PARSERS", (Parser("broken", broken, [b'{"number": 5}']),))
    assert "broken: IndexError" in fuzz_parsers(20, 1)[0]


def test_a_seed_makes_the_same_streams() -> None:
    for make in (a_link, some_requests):
        first, again, other = (make(random.Random(seed)) for seed in (1, 1, 2))
        assert first == again != other
