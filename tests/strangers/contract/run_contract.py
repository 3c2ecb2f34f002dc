"""``make contract``: schemathesis against a real service, in a process of its own.

Requests are made from the OpenAPI document, valid ones and such as break one rule of it, and every
answer is compared with what the document promises. The same number of examples makes the same
requests. The last line is ``N requests, N failures``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from http import HTTPStatus
from pathlib import Path

from fencelog.api.client import FencelogClient
from fencelog.ledgers.record_batch import Message, encode_batch
from tests.strangers.contract.hooks import ANSWERS_FILE, BROKER_ID, CLAIMED, HELD, MARKED
from tests.strangers.service import quiet_service

HERE = Path(__file__).parent
ROOT = HERE.parents[2]

LAST = ("drain", "undrain")
"""The operations after which a broker serves nothing, or serves again: they come last."""

EXAMPLES = 6
"""Random requests to each operation in the suite; those for each rule of the document come first,
and are many more."""

MESSAGES = encode_batch([Message(b"%d" % n, b"key") for n in range(50)])


async def run(examples: int, place: Path) -> tuple[int, list[str]]:
    """The number of requests, and what was wrong."""
    service, log = await quiet_service(place, "--bookies", "4")  # so that one can leave
    url = service.announcement["http"]
    answers = place / "answers.json"
    requests, failures = 0, []
    try:
        broker = await prepare(url)
        for option in ("--exclude-operation-id", "--include-operation-id"):
            failures += await schemathesis(url, examples, option, answers, broker)
            statuses = Counter(json.loads(answers.read_text()))
            requests += statuses.total()
            failures += [f"{name} never succeeded" for name in unsuccessful(statuses)]
        await append(url, broker)
    finally:
        await service.stop()
    if written := log.read_text():
        failures.append(f"the service logged:\n{written}")
    return requests, failures


async def prepare(url: str) -> str:
    """Make what most of the requests are about. Return the id of the broker."""
    async with FencelogClient(url) as client:
        for topic in ("ns/0", "ns/t", "spare/0", "spare/t", "locked/0"):
            await client.create_topic(topic, partitions=2)
            for partition in range(2):
                await client.append_batch(topic, MESSAGES, partition=partition)
            for name in ("0", "s"):
                path = f"/v1/topics/{topic}/subscriptions/{name}"
                await client.change_object("PUT", path, json={"start": "earliest"})
        (broker,) = (await client.get_object("/v1/brokers"))["brokers"]
        os.environ[MARKED] = await prepare_healing(client)
        os.environ[CLAIMED] = json.dumps([await prepare_claim(client)])
        return str(broker["broker_id"])


async def prepare_claim(client: FencelogClient) -> tuple[dict[str, str], int]:
    """Claim a partition. Return the place of the producer, and its epoch."""
    place = {"namespace": HELD, "topic": "t", "partition": "0", "producer": "p"}
    await client.create_topic(f"{HELD}/t", partitions=1)
    path = f"/v1/topics/{HELD}/t/partitions/0/producers/p:claim"
    answer = await client.change_object("POST", path, json={})
    return place, int(answer["epoch"])


async def prepare_healing(client: FencelogClient) -> str:
    """Turn self-healing off, mark a ledger, and begin to take a bookie out. Return the ledger, and
    a bookie of it."""
    await client.change_object("PATCH", "/v1/admin/autorecovery", json={"is_enabled": False})
    path = "/v1/topics/ns/0/partitions/0/segments"
    ledger = (await client.get_object(path))["segments"][0]["ledger"]
    ledger_id, bookie = int(ledger["ledger_id"]), ledger["fragments"][0][1][0]
    marked = f"/v1/admin/underreplicated/{ledger_id}:replace-bookie"
    await client.change_object("POST", marked, json={"bookie_id": bookie})
    await client.change_object("POST", "/v1/admin/decommissions/bookie-4")
    return f"{ledger_id} {bookie}"


async def append(url: str, broker: str) -> None:
    """Append a message and read it: at the end, the service is alive."""
    async with FencelogClient(url) as client:
        await client.change_object("POST", f"/v1/brokers/{broker}:undrain")
        await client.create_topic("end/t", partitions=1)
        appended = await client.append("end/t", b"end")
        page = await client.get_object("/v1/topics/end/t/partitions/0/messages")
        assert [each["offset"] for each in page["messages"]] == [appended.offset]


async def schemathesis(
    url: str, examples: int, option: str, answers: Path, broker: str
) -> list[str]:
    """Result of one run, over the operations that come last or over the others."""
    config = ("--config-file", str(HERE / "schemathesis.toml"))
    filters = [part for name in LAST for part in (option, name)]
    asked = (f"{url}/openapi.json", "--max-examples", str(examples), "--no-color", *filters)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "schemathesis.cli", *config, "run", *asked),
        cwd=answers.parent,  # It keeps a cache there.
        env={**os.environ, "PYTHONPATH": str(ROOT), ANSWERS_FILE: str(answers), BROKER_ID: broker},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    return [output.decode()] if process.returncode else []


def unsuccessful(statuses: Counter[str]) -> list[str]:
    """Return the operations that no request to them has reached, valid as it may be."""
    succeeded: dict[str, bool] = {}
    for answer in statuses:
        name, status = answer.split()
        succeeded[name] = succeeded.get(name, False) or int(status) < HTTPStatus.MULTIPLE_CHOICES
    return sorted(name for name, has in succeeded.items() if not has)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--examples", type=int, default=EXAMPLES)
    asked = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as place:
        requests, failures = asyncio.run(run(asked.examples, Path(place)))
    sys.stdout.write("\n".join((*failures, f"{requests} requests, {len(failures)} failures\n")))
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
