"""The client's commits: ledgers that are written straight to bookies join a partition's log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fencelog.api.client.http import path_part, topic_path
from fencelog.ledgers.errors import ErrorCode

if TYPE_CHECKING:
    from fencelog.api.client.client import FencelogClient


class PartitionCommits:
    """The commits of one committer to one partition: each batch is in the log once or not at
    all."""

    def __init__(self, client: FencelogClient, topic: str, partition: int, committer: str) -> None:
        self._client = client
        self._path = f"{topic_path(topic)}/partitions/{partition}/committers/{path_part(committer)}"

    async def last(self) -> dict[str, Any] | None:
        """Return the last commit that the partition knows of this committer: ``batch``, ``offset``,
        ``messages``, ``committed_us``, ``partitions``, ``ends``, ``by_appends``."""
        found: dict[str, Any] | None = (await self._client.get_object(self._path))["commit"]
        return found

    async def create_ledger(self) -> dict[str, Any]:
        """Have a ledger made for this committer to write; return its metadata ``ledger``, the
        ``incarnations`` of its ensemble, and the addresses of ``bookies``."""
        return await self._change("create-ledger", {})

    async def commit(
        self,
        batch: int,
        ledgers: Sequence[tuple[int, int]],
        *,
        partitions: int = 0,
        ends: bool = False,
        by_appends: bool = False,
    ) -> dict[str, Any]:
        """Add ledgers, each with its number of messages, to the log as this batch; return what
        ``last`` does, and whether it was there before (``duplicate``).

        ``partitions``: the number that the batch is spread over; ``ends``: this committer commits
        nothing after it; ``by_appends``: it appends the batch instead, and names no ledgers. Raises
        FencelogError; after METADATA_UNKNOWN (it may be in the log) repeat it.
        """
        written = [{"ledger_id": id_, "messages": messages} for id_, messages in ledgers]
        body = {"batch": batch, "ledgers": written, "partitions": partitions}
        flags = {"ends": ends, "by_appends": by_appends}
        return await self._change("commit", body | flags)

    async def abort(self, batch: int, ledgers: Sequence[int]) -> dict[str, Any] | None:
        """Withdraw ledgers for good, unless the batch is committed: return its commit then."""
        answer = await self._change("abort", {"batch": batch, "ledgers": list(ledgers)})
        found: dict[str, Any] | None = answer["commit"]
        return found

    async def _change(self, verb: str, body: Mapping[str, Any]) -> dict[str, Any]:
        return await self._client.change_object(
            "POST", f"{self._path}:{verb}", lost=ErrorCode.METADATA_UNKNOWN, json=dict(body)
        )
