"""Damage that the scrubber finds on the disk of a bookie, from there to the doctor."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx

from fencelog.api.admin.doctor.findings import FindingKind
from tests.api.admin.doctor.provoked import note, provokes
from tests.api.admin.doctor.sick_cluster import sick_cluster
from tests.support.network.http_client import http_client
from tests.support.until import until_found

MESSAGE = b"decays" * 1000


async def damage(http: httpx.AsyncClient) -> list[dict[str, Any]]:
    """The findings about damage."""
    report = (await http.get("/v1/admin/doctor?scan=false")).raise_for_status().json()
    note(report["findings"])
    return [each for each in report["findings"] if each["kind"] == FindingKind.BOOKIE_DAMAGED]


async def holders(http: httpx.AsyncClient) -> list[str]:
    """Append the message, and wait until its ledger is closed: copies of an open one are not
    replaced. Returns the bookies that have them."""
    (await http.put("/v1/topics/ns/t", json={"roll_entries": 1})).raise_for_status()
    for _ in range(2):
        (await http.post("/v1/topics/ns/t/messages", content=MESSAGE)).raise_for_status()

    async def closed() -> list[str] | None:
        segments = (await http.get("/v1/topics/ns/t/partitions/0/segments")).json()["segments"]
        ledger = segments[0]["ledger"]
        return ledger["fragments"][0][1] if ledger["state"] == "closed" else None

    bookies: list[str] = await until_found(closed)
    return bookies


def flip_in_message(directory: Path) -> None:
    """Flip a bit of the first message in the entry logs of a stopped bookie."""
    for path in sorted(directory.rglob("entrylog/*")):
        data = bytearray(path.read_bytes())
        if (at := data.find(MESSAGE)) >= 0:
            data[at + 100] ^= 0x10
            path.write_bytes(data)
            return
    raise AssertionError("the message is in no entry log")


@provokes(FindingKind.BOOKIE_DAMAGED)
async def test_a_disk_that_decays_is_found_and_gone_when_its_runs_are_replaced(
    tmp_path: Path,
) -> None:
    """Nothing can be replaced while the bookies that have the other copies are away."""
    async with sick_cluster(tmp_path) as cluster, http_client(cluster.urls["r1"]) as http:
        victim, *others = await holders(http)
        for each in (victim, *others):
            await cluster.stop(each)
        flip_in_message(tmp_path / victim)
        bookie = await cluster.start_bookie(victim)
        await bookie.admin["scrub"]({})
        (finding,) = await until_found(lambda: damage(http))
        assert (finding["subject"], finding["severity"]) == (victim, "warning")
        assert finding["details"]["damaged_runs"] == 1
        assert finding["command"] == f"fencelog bookies integrity {victim} --metadata URL"
        for each in others:
            await cluster.start_bookie(each)

        async def is_replaced() -> bool:
            await bookie.admin["integrity"]({})  # what the command does
            return not await damage(http)

        await until_found(is_replaced)
        answer = await http.get("/v1/topics/ns/t/partitions/0/messages")
        assert answer.json()["messages"][0]["text"] == MESSAGE.decode()
