"""Make the pictures of the console anew, at a real cluster: ``make pictures``.

A broker was killed and a bookie has stopped, one subscription holds back space, and another bookie
was set read-only. Whoever makes them looks at them.
"""

from __future__ import annotations

import asyncio
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from playwright.async_api import Page, async_playwright

from fencelog.api.client import FencelogClient
from fencelog.api.local_cluster.cluster import Cluster, ClusterConfig, running_cluster
from fencelog.ledgers.errors import FencelogError
from fencelog.ledgers.record_batch import Message, encode_batch
from tests.support.fencelog_cli import fencelog
from tests.support.network.browser import ARGUMENTS, browser_path

PICTURES = Path(__file__).parents[2] / "api" / "web_console" / "pictures"
TOPIC = "shop/orders"
BATCH = 20
ENTRIES = 25
"""The entries of a ledger: so many batches."""

READ_ONLY = "bookie-2"
VALUE = b'{"order": 17, "lines": ["' + b"x" * 8000 + b'"]}'
WIDTH, HEIGHT = 1200, 900
TRICKLE_S = 60
"""The time of little traffic after the faults, of which the curves tell."""


async def append(client: FencelogClient, batches: int) -> None:
    for _ in range(batches):
        await once_taken(client, BATCH)


async def once_taken(client: FencelogClient, messages: int) -> None:
    """Append until it is acknowledged: the owner may have just been killed."""
    batch = encode_batch([Message(VALUE)] * messages)
    while True:
        try:
            await client.append_batch(TOPIC, batch, partition=0)
            return
        except FencelogError as error:
            if not error.code.retryable:
                raise
            await asyncio.sleep(0.2)


async def begin(client: FencelogClient) -> None:
    await client.create_topic(TOPIC, roll_entries=ENTRIES, retention_bytes=3_000_000)
    for name in ("reports", "search-index", "billing"):
        await client.create_subscription(TOPIC, name, start="earliest")


async def break_things(cluster: Cluster, client: FencelogClient) -> None:
    """Kill the owner amid a ledger, and a bookie amid the next one."""
    await append(client, ENTRIES + 12)
    (owner,) = await client.owners(TOPIC)
    await cluster.broker_at(owner["url"]).kill()
    await append(client, ENTRIES // 2)
    members = set((await segments(client))[-1]["ledger"]["fragments"][-1]["bookies"])
    await next(
        each for each in cluster.bookies if each.name in members and each.name != READ_ONLY
    ).kill()
    await append(client, ENTRIES // 2 + ENTRIES)
    for name, offset in (("reports", 60), ("search-index", 700), ("billing", 1100)):
        await client.seek(TOPIC, name, offsets={0: offset})
    for _ in range(TRICKLE_S):
        await once_taken(client, 1)
        await asyncio.sleep(1)


async def take(page: Page, url: str, name: str, query: str, shown: str) -> None:
    await page.goto(f"{url}/console/{query}")
    await page.wait_for_selector(shown)
    await page.wait_for_selector("[data-picture=loading]", state="detached")
    await asyncio.sleep(2)  # one more poll: curves and findings are there
    await page.screenshot(path=PICTURES / f"{name}.png", full_page=True)


async def replaced_in(client: FencelogClient) -> int:
    """Return the ledger in which a bookie was replaced."""
    changed = [s for s in await segments(client) if len(s["ledger"]["fragments"]) > 1]
    return int(changed[0]["ledger_id"])


async def segments(client: FencelogClient) -> list[dict[str, Any]]:
    shown = await client.get_object(f"/v1/topics/{TOPIC}/partitions/0/chain")
    return list(shown["segments"])


async def pictures(cluster: Cluster, client: FencelogClient) -> None:
    url = next(cluster.url_of(each) for each in cluster.brokers if each.is_running)
    async with async_playwright() as play:
        browser = await play.chromium.launch(executable_path=browser_path(), args=ARGUMENTS)
        size = {"width": WIDTH, "height": HEIGHT}
        page = await browser.new_page(
            viewport=size,  # type: ignore[arg-type]  # a typed dict of the same members
            reduced_motion="reduce",
            timezone_id="UTC",
        )
        place = f"topic={TOPIC}&partition=0&ledger={await replaced_in(client)}"
        await take(page, url, "partition", f"?screen=partition&{place}", "[role=region] tbody tr")
        subscription = f"?screen=subscription&topic={TOPIC}&subscription=reports"
        await take(page, url, "subscription", subscription, "[aria-label=Partitions] tbody tr")
        command = ("bookies", "read-only", READ_ONLY, "on", "--metadata", cluster.metadata)
        loop = asyncio.get_running_loop()
        done = await loop.run_in_executor(None, partial(fencelog, *command, timeout_s=60))
        assert done.returncode == 0, done.stderr.decode()
        await take(page, url, "overview", "", ".finding.critical")
        await browser.close()


async def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        config = ClusterConfig(Path(directory), bookies=4, brokers=2, http_port=0, autorecovery=())
        async with running_cluster(config) as cluster, FencelogClient(cluster.urls) as client:
            await begin(client)
            await break_things(cluster, client)
            await pictures(cluster, client)


if __name__ == "__main__":
    asyncio.run(main())
