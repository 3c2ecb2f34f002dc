"""The first sightings of findings, for those of which nobody has noted the time. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fencelog.api.admin.doctor.findings import Finding, FindingKind
from fencelog.api.admin.doctor.limits import FORGOTTEN_MS

_Key = tuple[FindingKind, str, str]

_BY_SCAN = {FindingKind.LEDGER_UNSEALED, FindingKind.ORPHANED}
"""The kinds that only a look at every ledger finds."""


class Sightings:
    """The findings of the examinations by one process, with their first and last sightings."""

    def __init__(self) -> None:
        self._seen_us: dict[_Key, tuple[int, int]] = {}

    def dated(self, findings: Sequence[Finding], now_us: int, *, scanned: bool) -> list[Finding]:
        """Return the findings with their first sightings. What is not found for a while is
        forgotten, unless it was not looked for."""
        seen_us = {
            key: (first_us, last_us)
            for key, (first_us, last_us) in self._seen_us.items()
            if now_us - last_us <= FORGOTTEN_MS * 1000 or (key[0] in _BY_SCAN and not scanned)
        }
        for key in map(_key, findings):
            first_us, _ = self._seen_us.get(key, (now_us, now_us))
            seen_us[key] = first_us, now_us
        self._seen_us = seen_us
        return [replace(each, seen_since_us=seen_us[_key(each)][0]) for each in findings]


def _key(finding: Finding) -> _Key:
    return finding.kind, finding.subject, str(finding.details.get("broker_id", ""))
