"""A check of the auditor that ends with an error, from there to the doctor."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fencelog.api.admin.doctor.findings import FindingKind
from fencelog.bookie.auditor.cluster_check import ClusterCheck
from fencelog.ledgers.errors import ErrorCode, FencelogError
from tests.api.admin.doctor.provoked import note, provokes
from tests.api.admin.doctor.sick_cluster import sick_cluster
from tests.support.network.http_client import http_client
from tests.support.until import until_found


@provokes(FindingKind.CHECK_FAILED)
async def test_a_check_that_has_failed_is_found_until_one_is_made(tmp_path: Path) -> None:
    async def fail(_check: ClusterCheck) -> None:
        raise FencelogError(ErrorCode.CORRUPT, "nonsense")

    async with sick_cluster(tmp_path) as cluster, http_client(cluster.urls["r1"]) as http:

        async def failed() -> list[dict[str, Any]]:
            report = (await http.get("/v1/admin/doctor?scan=false")).raise_for_status().json()
            note(report["findings"])
            return [each for each in report["findings"] if each["kind"] == FindingKind.CHECK_FAILED]

        async def is_over() -> bool:
            return not await failed()

        async def ask() -> None:
            wanted = {"checks": ["cluster"]}
            (await http.post("/v1/admin/checks", json=wanted)).raise_for_status()

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(ClusterCheck, "run", fail)
            await ask()
            (finding,) = await until_found(failed)
        assert finding["severity"] == "warning"
        assert finding["details"] == {"errors": {"cluster": "nonsense"}}
        await ask()
        await until_found(is_over)
