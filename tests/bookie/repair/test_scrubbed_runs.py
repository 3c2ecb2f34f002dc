"""The runs that the scrubber reads together."""

from __future__ import annotations

from pathlib import Path

from fencelog.bookie.disk.posix import PosixDisk
from fencelog.bookie.repair.scrubber import Scrubber
from tests.support.bookie_stage import OpenBookie, Requests


async def test_all_damage_that_is_read_at_a_time_is_found(
    open_bookie: OpenBookie, requests: Requests, tmp_path: Path
) -> None:
    bookie = await open_bookie()
    for entry_id in (0, 2, 4):  # apart, so that each is a run
        await requests.add(bookie, requests.run(1, entry_id))
    await bookie.close()
    (log,) = tmp_path.rglob("*.entrylog")
    content = bytearray(log.read_bytes())
    for entry_id in (0, 4):
        content[content.index(b"1/%d|" % entry_id)] ^= 1
    log.write_bytes(content)
    bookie = await open_bookie()
    found: list[int] = []
    scrubber = Scrubber(
        bookie, disk=PosixDisk(), on_damage=lambda run, _error: found.append(run.first_entry_id)
    )
    await scrubber.scrub()
    await scrubber.close()
    assert found == [0, 4]
