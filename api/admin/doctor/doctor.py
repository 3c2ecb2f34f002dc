"""The doctor of a cluster: observes it, and says what is wrong. One examination at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from fencelog.api.admin.doctor.core import diagnose, worst
from fencelog.api.admin.doctor.limits import FRESH_MS, TOPICS_FRESH_MS
from fencelog.api.admin.doctor.observations import NotAnswered
from fencelog.api.admin.doctor.observe import ClusterUnderObservation, observe, read_topics
from fencelog.broker.registry.topics import TopicInfo

Json = dict[str, Any]

_Topics = Sequence[TopicInfo] | NotAnswered


class Doctor:
    """Examinations of one cluster, by one process. Each costs every process a request, so those who
    ask at the same time get the same one."""

    def __init__(self, cluster: ClusterUnderObservation) -> None:
        self._cluster = cluster
        self._turn = asyncio.Lock()
        self._last: dict[bool, tuple[float, Json]] = {}
        self._topics: tuple[float, _Topics] | None = None

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

    async def _examine(self, scan: bool) -> Json:
        began_s = _now_s()
        topics = await self._read_topics(may_be_old=not scan)
        seen = await observe(self._cluster, topics, scan=scan)
        findings = diagnose(seen)
        severity = worst(findings)
        return {
            "severity": "healthy" if severity is None else severity.name.lower(),
            "findings": [finding.to_json() for finding in findings],
            "examined_us": seen.now_us,
            "took_ms": round((_now_s() - began_s) * 1000),
            "scanned": scan,
        }

    async def _read_topics(self, *, may_be_old: bool) -> _Topics:
        """Return all topics, which are one read each."""
        if may_be_old and self._topics is not None:
            read_s, topics = self._topics
            if _now_s() - read_s < TOPICS_FRESH_MS / 1000:
                return topics
        topics = await read_topics(self._cluster)
        if not isinstance(topics, NotAnswered):
            self._topics = _now_s(), topics
        return topics


def _now_s() -> float:
    return asyncio.get_running_loop().time()
