"""The doctor of a cluster: observes it, and says what is wrong. One examination at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from fencelog.api.admin.doctor.core import diagnose, worst
from fencelog.api.admin.doctor.limits import FRESH_MS, NAMES_FRESH_MS, TOPICS_FRESH_MS
from fencelog.api.admin.doctor.observations import NotAnswered
from fencelog.api.admin.doctor.observe import ClusterUnderObservation, observe, read_topics
from fencelog.api.admin.doctor.sightings import Sightings
from fencelog.broker.registry.topics import TopicInfo
from fencelog.ledgers.metastore.open import certificates_of
from fencelog.ledgers.metastore.zookeeper_tls import Certificate

Json = dict[str, Any]

_Topics = Sequence[TopicInfo] | NotAnswered


class Doctor:
    """Examinations of one cluster, by one process. Each costs every process a request, so those who
    ask at the same time get the same one."""

    def __init__(self, cluster: ClusterUnderObservation) -> None:
        self._cluster = cluster
        self._turn = asyncio.Lock()
        self._last: dict[bool, tuple[float, Json]] = {}
        self._topics: tuple[float, Sequence[TopicInfo]] | None = None
        self._names_s = float("-inf")
        self._sightings = Sightings()

    async def examine(self, *, scan: bool = True) -> Json:
        """Return the report, JSON-compatible: ``findings``, the worst first, the ``severity`` of
        the worst, ``examined_us``, ``took_ms``, and whether every ledger was looked at
        (``scanned``). Never raises FencelogError."""
        async with self._turn:
            made_s, report = self._last.get(scan, (float("-inf"), {}))
            if _now_s() - made_s > FRESH_MS / 1000:
                report = await self._examine(scan)
                self._last[scan] = _now_s(), report
            return report

    def certificates(self) -> list[Certificate]:
        """Return those on which the connection of this process to the metadata store depends."""
        return certificates_of(self._cluster.store)

    async def _examine(self, scan: bool) -> Json:
        began_s = _now_s()
        topics = await self._read_topics(may_be_old=not scan)
        seen = await observe(self._cluster, topics, scan=scan)
        findings = self._sightings.dated(diagnose(seen), seen.now_us, scanned=scan)
        severity = worst(findings)
        return {
            "severity": "healthy" if severity is None else severity.name.lower(),
            "findings": [finding.to_json() for finding in findings],
            "examined_us": seen.now_us,
            "took_ms": round((_now_s() - began_s) * 1000),
            "scanned": scan,
        }

    async def _read_topics(self, *, may_be_old: bool) -> _Topics:
        """Return all topics, which are one read each; those that are known need not be read
        again."""
        known: Sequence[TopicInfo] = ()
        read_s = _now_s()
        if (
            may_be_old
            and self._topics is not None
            and read_s - self._topics[0] < TOPICS_FRESH_MS / 1000
        ):
            read_s, known = self._topics
            if _now_s() - self._names_s < NAMES_FRESH_MS / 1000:
                return known
        topics = await read_topics(self._cluster, known)
        if not isinstance(topics, NotAnswered):
            self._topics = read_s, topics
            self._names_s = _now_s()
        return topics


def _now_s() -> float:
    return asyncio.get_running_loop().time()
