"""A metadata store that has lost the id of its cluster, from there to the doctor."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fencelog.api.admin.doctor.findings import FindingKind
from fencelog.ledgers.metastore.instance import INSTANCE_PATH
from tests.api.admin.doctor.provoked import note, provokes
from tests.api.admin.doctor.sick_cluster import sick_cluster
from tests.support.metadata_nodes import remove
from tests.support.network.http_client import http_client
from tests.support.until import until_found


@provokes(FindingKind.NO_INSTANCE)
async def test_a_store_that_has_lost_its_instance(tmp_path: Path) -> None:
    async with sick_cluster(tmp_path) as cluster, http_client(cluster.urls["r1"]) as http:

        async def found() -> dict[str, Any] | None:
            report = (await http.get("/v1/admin/doctor?scan=false")).raise_for_status().json()
            note(report["findings"])
            kinds = {each["kind"]: each for each in report["findings"]}
            assert FindingKind.COOKIE_FOREIGN not in kinds
            return kinds.get(FindingKind.NO_INSTANCE)

        assert await found() is None
        await remove(cluster.store, INSTANCE_PATH)
        finding = await until_found(found)
        assert (finding["subject"], finding["severity"]) == ("metadata", "critical")
        assert finding["details"]["bookies"] == sorted(cluster.bookies)
