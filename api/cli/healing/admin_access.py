"""The two ways of a command to self-healing: the metadata store of a cluster, or a service over
HTTP, where that store belongs to one process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar
from urllib.parse import quote

import typer

if TYPE_CHECKING:
    from fencelog.api.admin.autorecovery import AutorecoveryAdmin
    from fencelog.api.client import FencelogClient

T = TypeVar("T")
Json = dict[str, Any]

OUTAGE_S = 60.0
"""The longest outage that ends no command which waits for self-healing."""

OptionalMetadata = Annotated[
    str | None,
    typer.Option("--metadata", metavar="URL", help="Of the cluster; else --server is asked."),
]


class RemoteAdmin:
    """The requests of ``AutorecoveryAdmin`` over HTTP, with the same answers and errors."""

    def __init__(self, client: FencelogClient) -> None:
        self._client = client

    async def status(self) -> Json:
        return await self._ask("GET", "autorecovery")

    async def change(self, changes: Mapping[str, Any]) -> Json:
        return await self._ask("PATCH", "autorecovery", json=dict(changes))

    async def auditor(self) -> Json:
        return await self._ask("GET", "auditor")

    async def checks(self) -> Json:
        return await self._ask("GET", "checks")

    async def audit(self, checks: Collection[str]) -> Json:
        return await self._ask("POST", "checks", json={"checks": list(checks)})

    async def underreplicated(self, *, start_after: int = -1, limit: int = 1000) -> Json:
        query: Json = {"limit": limit}
        if start_after >= 0:
            query["start_after"] = start_after
        return await self._ask("GET", "underreplicated", params=query)

    async def mark(self, ledger_id: int) -> Json:
        return await self._ask("GET", f"underreplicated/{ledger_id}")

    async def replace_bookie(self, ledger_id: int, bookie_id: str) -> Json:
        body = {"bookie_id": bookie_id}
        return await self._ask("POST", f"underreplicated/{ledger_id}:replace-bookie", json=body)

    async def recover(self, bookie_id: str) -> Json:
        return await self._ask("POST", f"bookies/{quote(bookie_id, safe='')}:recover")

    async def decommissions(self) -> Json:
        return await self._ask("GET", "decommissions")

    async def decommission(self, bookie_id: str) -> Json:
        return await self._ask("GET", _decommission(bookie_id))

    async def start_decommission(self, bookie_id: str) -> Json:
        return await self._ask("POST", _decommission(bookie_id))

    async def cancel_decommission(self, bookie_id: str) -> None:
        await self._ask("DELETE", _decommission(bookie_id))

    async def _ask(self, method: str, path: str, **options: Any) -> Json:
        return await self._client.change_object(method, f"/v1/admin/{path}", **options)


async def look(request: Callable[[], Awaitable[T]]) -> T:
    """Return the answer to a request about work that goes on by itself, also while the service or
    the metadata store is away for a moment. Raises FencelogError."""
    from fencelog.api.client.retry import retry_idempotent

    return await retry_idempotent(request, timeout_s=OUTAGE_S)


def with_admin(
    metadata: str | None,
    server: str,
    work: Callable[[AutorecoveryAdmin | RemoteAdmin], Awaitable[T]],
    *,
    secret_file: Path | None = None,
) -> T:
    """Return the result of ``work`` over the metadata store of a URL, else over a service. Raises
    FencelogError."""
    from fencelog.api.processes.lifecycle import run_on_uvloop

    async def main() -> T:
        async with _access(metadata, server, secret_file) as admin:
            return await work(admin)

    return run_on_uvloop(main())


@asynccontextmanager
async def _access(
    metadata: str | None, server: str, secret_file: Path | None
) -> AsyncIterator[AutorecoveryAdmin | RemoteAdmin]:
    if metadata is None:
        from fencelog.api.client import FencelogClient

        async with FencelogClient(server) as client:
            yield RemoteAdmin(client)
        return
    from fencelog.api.admin.autorecovery import AutorecoveryAdmin
    from fencelog.api.local_cluster.cluster_access import cluster_access
    from fencelog.ledgers.host import SystemHost

    async with cluster_access(metadata, secret_file) as cluster:
        yield AutorecoveryAdmin(cluster.store, cluster.bookies, host=SystemHost())


def _decommission(bookie_id: str) -> str:
    return f"decommissions/{quote(bookie_id, safe='')}"
