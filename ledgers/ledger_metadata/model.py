"""Metadata of a ledger: an immutable value, its legal transitions and its encoding.

State goes OPEN -> IN_RECOVERY -> CLOSED or OPEN -> CLOSED, never back; every change is written by
compare-and-set (PROTOCOL.md). The encoding is JSON, so that an operator can read a node with any
ZooKeeper tool; unknown versions and shapes are refused, since metadata is input like any other.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from fencelog.ledgers.errors import ErrorCode, FencelogError, check
from fencelog.ledgers.format.digest import DigestType
from fencelog.ledgers.limits import MAX_FRAGMENTS, MAX_METADATA_BYTES, METADATA_RESERVE_BYTES
from fencelog.ledgers.quorum import validate_quorums

NO_ENTRY = -1
"""The value for "no entry" wherever a last entry id or LAC is expected."""

FORMAT_VERSION = 1


class LedgerState(Enum):
    OPEN = "open"
    IN_RECOVERY = "in_recovery"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class Fragment:
    """A fragment: entries from ``first_entry_id`` to the next fragment lie on these bookies, in
    this order. ``since_us``: when the ensemble was changed for it, 0: not known; it is for people,
    and decides nothing."""

    first_entry_id: int
    bookies: tuple[str, ...]
    since_us: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class LedgerMetadata:
    """The metadata of one ledger. ``last_entry_id`` and ``length`` (payload bytes) hold only when
    CLOSED."""

    ledger_id: int
    ensemble_size: int
    write_quorum: int
    ack_quorum: int
    fragments: tuple[Fragment, ...]
    token: str
    """A random value chosen by the creator, so that it recognises its own create after a lost
    reply."""
    state: LedgerState = LedgerState.OPEN
    last_entry_id: int = NO_ENTRY
    length: int = 0
    digest_type: DigestType = DigestType.CRC32C
    created_us: int = 0
    properties: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_closed(self) -> bool:
        return self.state is LedgerState.CLOSED

    @property
    def last_fragment(self) -> Fragment:
        return self.fragments[-1]

    def fragment_of(self, entry_id: int) -> Fragment:
        """Return the fragment that holds an entry (the last one also for future entries)."""
        for fragment in reversed(self.fragments):
            if fragment.first_entry_id <= entry_id:
                return fragment
        raise ValueError(f"ledger {self.ledger_id} has no entry {entry_id}")

    def in_recovery(self) -> LedgerMetadata:
        """Return the metadata after OPEN -> IN_RECOVERY (rule 4); IN_RECOVERY stays."""
        check(not self.is_closed, f"ledger {self.ledger_id} is closed, cannot be recovered")
        return replace(self, state=LedgerState.IN_RECOVERY)

    def closed(self, *, last_entry_id: int, length: int) -> LedgerMetadata:
        """Return the metadata as CLOSED with the last entry and length, in one step (rules 5 and
        8)."""
        check(not self.is_closed, f"ledger {self.ledger_id} is closed already")
        return replace(self, state=LedgerState.CLOSED, last_entry_id=last_entry_id, length=length)

    def with_ensemble(
        self, first_entry_id: int, bookies: tuple[str, ...], since_us: int = 0
    ) -> LedgerMetadata:
        """Return the metadata with a new fragment, which replaces the last one if that starts at
        the same entry (rule 2)."""
        last = self.last_fragment
        check(
            first_entry_id >= last.first_entry_id and len(bookies) == self.ensemble_size,
            f"ledger {self.ledger_id}: fragment at {first_entry_id} after {last}",
        )
        check(len(set(bookies)) == len(bookies), f"bookie twice in ensemble {bookies}")
        kept = self.fragments[:-1] if last.first_entry_id == first_entry_id else self.fragments
        if len(kept) >= MAX_FRAGMENTS:
            raise FencelogError(
                ErrorCode.BAD_REQUEST, f"ledger {self.ledger_id} has {len(kept)} fragments"
            )
        return replace(self, fragments=(*kept, Fragment(first_entry_id, bookies, since_us)))


def new_metadata(
    ledger_id: int,
    *,
    ensemble: tuple[str, ...],
    write_quorum: int,
    ack_quorum: int,
    token: str,
    digest_type: DigestType = DigestType.CRC32C,
    created_us: int = 0,
    properties: Mapping[str, str] | None = None,
) -> LedgerMetadata:
    """Return the metadata of a ledger to be created. Raises FencelogError(BAD_REQUEST)."""
    validate_quorums(ensemble_size=len(ensemble), write_quorum=write_quorum, ack_quorum=ack_quorum)
    check(len(set(ensemble)) == len(ensemble), f"bookie twice in ensemble {ensemble}")
    return LedgerMetadata(
        ledger_id=ledger_id,
        ensemble_size=len(ensemble),
        write_quorum=write_quorum,
        ack_quorum=ack_quorum,
        fragments=(Fragment(0, ensemble),),
        token=token,
        digest_type=digest_type,
        created_us=created_us,
        properties=dict(properties or {}),
    )


def to_json(metadata: LedgerMetadata) -> dict[str, Any]:
    """Return the metadata as JSON-compatible values (also shown over HTTP). Readers that do not
    know ``fragments_since_us`` read the rest."""
    since_us = [fragment.since_us for fragment in metadata.fragments]
    return {
        "v": FORMAT_VERSION,
        "ledger_id": metadata.ledger_id,
        "ensemble_size": metadata.ensemble_size,
        "write_quorum": metadata.write_quorum,
        "ack_quorum": metadata.ack_quorum,
        "state": metadata.state.value,
        "last_entry_id": metadata.last_entry_id,
        "length": metadata.length,
        "fragments": [[f.first_entry_id, list(f.bookies)] for f in metadata.fragments],
        "digest": metadata.digest_type.name.lower(),
        "token": metadata.token,
        "created_us": metadata.created_us,
        "properties": dict(metadata.properties),
        **({"fragments_since_us": since_us} if any(since_us) else {}),
    }


def from_json(fields: Any) -> LedgerMetadata:
    """Return the metadata of these values: the inverse of ``to_json``. Raises
    FencelogError(CORRUPT) for anything else."""
    try:
        if fields["v"] != FORMAT_VERSION:
            raise ValueError(f"version {fields['v']}")
        listed = fields["fragments"]
        since_us = fields.get("fragments_since_us", [0] * len(listed))
        fragments = tuple(
            Fragment(int(first), tuple(str(b) for b in bookies), int(since))
            for (first, bookies), since in zip(listed, since_us, strict=True)
        )
        metadata = LedgerMetadata(
            ledger_id=int(fields["ledger_id"]),
            ensemble_size=int(fields["ensemble_size"]),
            write_quorum=int(fields["write_quorum"]),
            ack_quorum=int(fields["ack_quorum"]),
            fragments=fragments,
            token=str(fields["token"]),
            state=LedgerState(fields["state"]),
            last_entry_id=int(fields["last_entry_id"]),
            length=int(fields["length"]),
            digest_type=DigestType[str(fields["digest"]).upper()],
            created_us=int(fields["created_us"]),
            properties={str(k): str(v) for k, v in fields["properties"].items()},
        )
        _check_fragments(metadata)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise FencelogError(ErrorCode.CORRUPT, f"ledger metadata is not valid: {error}") from error
    return metadata


def _check_fragments(metadata: LedgerMetadata) -> None:
    firsts = [fragment.first_entry_id for fragment in metadata.fragments]
    if not firsts or firsts[0] != 0 or sorted(set(firsts)) != firsts:
        raise ValueError(f"fragments start at {firsts}")
    for fragment in metadata.fragments:
        if len(set(fragment.bookies)) != metadata.ensemble_size:
            raise ValueError(f"ensemble {fragment.bookies} is not {metadata.ensemble_size} bookies")


def encode_metadata(metadata: LedgerMetadata) -> bytes:
    """Encode metadata, without the times of its fragments where they would make it too large. The
    limit is higher for a ledger that is no longer OPEN. Raises FencelogError(BAD_REQUEST) if it is
    too large."""
    is_open = metadata.state is LedgerState.OPEN
    limit = MAX_METADATA_BYTES - (METADATA_RESERVE_BYTES if is_open else 0)
    fields = to_json(metadata)
    data = _dumped(fields)
    if len(data) > limit and fields.pop("fragments_since_us", None) is not None:
        data = _dumped(fields)
    if len(data) > limit:
        raise FencelogError(
            ErrorCode.BAD_REQUEST,
            f"metadata of ledger {metadata.ledger_id} would take {len(data)} bytes",
        )
    return data


def _dumped(fields: dict[str, Any]) -> bytes:
    return json.dumps(fields, separators=(",", ":"), sort_keys=True).encode()


def decode_metadata(data: bytes) -> LedgerMetadata:
    """Decode metadata. Raises FencelogError(CORRUPT)."""
    try:
        fields = json.loads(data)
    except ValueError as error:
        raise FencelogError(ErrorCode.CORRUPT, f"ledger metadata is no JSON: {error}") from error
    return from_json(fields)
