"""schemathesis finds nothing in the service that its OpenAPI document does not say."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.strangers.contract.run_contract import EXAMPLES, run

pytestmark = [pytest.mark.thorough, pytest.mark.processes, pytest.mark.timeout(900)]


async def test_requests_and_answers_are_those_of_the_document(tmp_path: Path) -> None:
    requests, failures = await run(EXAMPLES, tmp_path)
    assert not failures, "\n".join(failures)
    assert requests > 2000
