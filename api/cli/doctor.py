"""``fencelog doctor``: what is wrong with a cluster, in words."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fencelog.api.console import SERVER, JsonOption, SecretOption, ServerOption

if TYPE_CHECKING:
    from fencelog.api.admin.doctor.doctor import Doctor

EXIT_WARNING = 4
EXIT_CRITICAL = 5

_EXITS = {"healthy": 0, "notice": 0, "warning": EXIT_WARNING, "critical": EXIT_CRITICAL}

_BROKER_TIMEOUT_S = 5.0


def add_to(app: typer.Typer) -> None:
    app.command()(doctor)


def doctor(
    metadata: Annotated[
        str | None,
        typer.Option(
            "--metadata", metavar="URL", help="Of the cluster, if no broker answers; else --server."
        ),
    ] = None,
    server: ServerOption = SERVER,
    quick: Annotated[
        bool, typer.Option("--quick", help="Do not read the metadata of every ledger.")
    ] = False,
    as_json: JsonOption = False,
    secret_file: SecretOption = None,
) -> None:
    """Say what is wrong with a cluster, since when, how bad it is, and which command helps.

    What does not answer in time is a finding, too. Exit code 0 for none, or notices alone, 4 for a
    warning, 5 for something critical; 1 if nothing could be examined.
    """
    if metadata is None:
        report = _ask(server, quick=quick)
    else:
        report = _examine_here(metadata, secret_file, quick=quick)
    typer.echo(json.dumps(report, indent=2) if as_json else "\n".join(_lines(report)))
    if code := _EXITS[report["severity"]]:
        raise typer.Exit(code)


def _ask(server: str, *, quick: bool) -> dict[str, Any]:
    """Have a broker examine its cluster. Raises FencelogError."""
    from fencelog.api.cli.settings import ask

    path = f"/v1/admin/doctor?scan={'false' if quick else 'true'}"
    return ask(server, lambda client: client.get_object(path))


def _examine_here(metadata: str, secret_file: Path | None, *, quick: bool) -> dict[str, Any]:
    """Examine a cluster from this process, which reaches its metadata store. Raises
    FencelogError."""
    from fencelog.api.processes.lifecycle import run_on_uvloop

    async def main() -> dict[str, Any]:
        async with _doctor_of(metadata, secret_file) as examiner:
            return await examiner.examine(scan=not quick)

    return run_on_uvloop(main())


@asynccontextmanager
async def _doctor_of(metadata: str, secret_file: Path | None) -> AsyncIterator[Doctor]:
    from fencelog.api.admin.autorecovery import AutorecoveryAdmin
    from fencelog.api.admin.doctor.doctor import Doctor
    from fencelog.api.admin.doctor.observe import ClusterUnderObservation
    from fencelog.api.client.http import ServiceHttp, json_object
    from fencelog.api.local_cluster.cluster_access import cluster_access
    from fencelog.api.routing.peers import broker_path
    from fencelog.broker.background.sweep import Sweep
    from fencelog.broker.config import SWEEP_GRACE_S
    from fencelog.broker.registry.topics import TopicRegistry
    from fencelog.ledgers.client import LedgerClient
    from fencelog.ledgers.host import SystemHost

    async def ask_broker(broker_id: str, url: str) -> dict[str, Any]:
        service = ServiceHttp([url], timeout_s=_BROKER_TIMEOUT_S)
        try:
            path = broker_path(broker_id, "/troubles")
            return json_object(await service.request("GET", path))
        finally:
            await service.close()

    # A store that lost its instance id, and nothing else, is one to be examined.
    async with cluster_access(metadata, secret_file, needs_instance=False) as cluster:
        store, host = cluster.store, SystemHost()
        ledgers = LedgerClient(store, cluster.bookies, host=host)
        topics = TopicRegistry(store, host=host, ledgers=ledgers)
        sweep = Sweep(store, topics, ledgers, cluster.ledgers, host=host, grace_s=SWEEP_GRACE_S)
        healing = AutorecoveryAdmin(store, cluster.bookies, host=host)
        yield Doctor(
            ClusterUnderObservation(
                store, cluster.bookies, healing, topics, sweep, host, ask_broker
            )
        )


def _lines(report: dict[str, Any]) -> Iterator[str]:
    """Yield a report for a person."""
    for finding in report["findings"]:
        yield f"{finding['severity'].upper()}  {finding['summary']}"
        if finding["since_us"] is not None:
            yield f"    since {_age(report['examined_us'] - finding['since_us'])}"
        elif finding["seen_since_us"] < report["examined_us"]:
            yield f"    seen since {_age(report['examined_us'] - finding['seen_since_us'])}"
        if finding.get("look_first") is not None:
            yield f"    look first: {finding['look_first']}"
        if finding["command"] is not None:
            yield f"    try: {finding['command']}"
    counted = len(report["findings"])
    looked = "" if report["scanned"] else "; not every ledger was looked at"
    took = f"examined in {report['took_ms'] / 1000:.1f} s{looked}"
    if report["severity"] == "healthy":
        yield f"healthy; {took}"
    else:
        yield f"{counted} finding{'s' * (counted != 1)}; {took}"


def _age(age_us: int) -> str:
    from fencelog.api.cli.healing.progress import duration

    return duration(max(0, age_us) / 1_000_000)
