"""The doctor over HTTP, and what each broker tells it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from fastapi import APIRouter, Request
from pydantic import BaseModel

from fencelog.api.admin.broker_admin import elsewhere
from fencelog.api.admin.doctor.doctor import Doctor
from fencelog.api.admin.doctor.findings import FindingKind
from fencelog.api.admin.doctor.observe import ClusterUnderObservation
from fencelog.api.http.queries import refuse_query
from fencelog.api.routing.peers import LinkPeers, broker_path
from fencelog.ledgers.metastore.open import certificates_of
from fencelog.ledgers.metastore.zookeeper_tls import Certificate, CertificateRole

if TYPE_CHECKING:
    from fencelog.api.admin.autorecovery import AutorecoveryAdmin
    from fencelog.broker.broker import Broker
    from fencelog.ledgers.metastore.port import MetadataStore
    from fencelog.ledgers.rpc.bookie_port import BookieDirectory

Json = dict[str, Any]


class ShownFinding(BaseModel):
    """A finding: in words, since when (null: nobody has noted it), when this broker has found it
    first, how bad, and the command that helps, with the one that shows first whether it fits. Words
    in capitals in a command are for you to fill in."""

    kind: FindingKind
    severity: Literal["notice", "warning", "critical"]
    subject: str
    summary: str
    command: str | None
    look_first: str | None
    since_us: int | None
    seen_since_us: int
    details: Json


class DoctorReport(BaseModel):
    """An examination of the cluster. ``findings``: the worst first; ``severity``: that of the
    worst."""

    severity: Literal["healthy", "notice", "warning", "critical"]
    findings: list[ShownFinding]
    examined_us: int
    took_ms: int
    scanned: bool


class ShownCertificate(BaseModel):
    """A certificate on which the connection of a process to ZooKeeper depends: its own, that of an
    authority that it trusts, or of a server. ``name``: its file, or the address of the server."""

    role: CertificateRole
    name: str
    ends_us: int


class BrokerTroubles(BaseModel):
    """The partitions in trouble at one broker: the first ones, see ``more`` in ``troubles``; the
    certificates that it needs."""

    broker_id: str
    now_us: int
    draining: bool
    troubles: Json
    certificates: list[ShownCertificate] = []


def service_doctor(
    broker: Broker,
    store: MetadataStore,
    bookies: BookieDirectory,
    healing: AutorecoveryAdmin,
    peers: LinkPeers,
) -> Doctor:
    """Return the doctor of a broker's process."""

    async def ask_broker(broker_id: str, url: str) -> Json:
        if broker_id == broker.config.broker_id:
            return await own_troubles(broker, certificates_of(store))
        return await peers.ask("GET", url, broker_path(broker_id, "/troubles"))

    return Doctor(
        ClusterUnderObservation(
            store, bookies, healing, broker.topics, broker.sweep, broker.host, ask_broker
        )
    )


async def own_troubles(broker: Broker, certificates: Sequence[Certificate]) -> Json:
    """Return what a broker tells a doctor. Raises METADATA_UNAVAILABLE."""
    return {
        "broker_id": broker.config.broker_id,
        "now_us": broker.host.now_us(),
        "draining": broker.is_draining,
        "troubles": msgspec.to_builtins(await broker.troubles()),
        "certificates": msgspec.to_builtins(certificates),
    }


def add_doctor_routes(router: APIRouter, broker: Broker, peers: LinkPeers, doctor: Doctor) -> None:
    """Add the routes to ``router``, which has the prefix ``/v1``; handlers raise FencelogError."""

    @router.get("/admin/doctor", tags=["cluster"])
    async def examine(request: Request, scan: bool = True) -> DoctorReport:
        """Examine the cluster. Findings say what is wrong, since when, how bad, and what helps;
        what does not answer in time is one. Without `scan` not every ledger is looked at."""
        refuse_query(request, "scan")
        return DoctorReport.model_validate(await doctor.examine(scan=scan))

    @router.get("/brokers/{broker_id}/troubles", tags=["cluster"])
    async def get_troubles(broker_id: str, request: Request) -> BrokerTroubles:
        """Return the partitions in trouble at a broker. Those are openings and rolls that do not
        succeed, and subscriptions that hold back retention."""
        refuse_query(request)
        url = elsewhere(broker, broker_id, request)
        if url is not None:
            path = broker_path(broker_id, "/troubles")
            return BrokerTroubles.model_validate(await peers.ask("GET", url, path))
        own = await own_troubles(broker, doctor.certificates())
        return BrokerTroubles.model_validate(own)
