"""The verified ledgers in the metadata store, so that the next auditor need not look at all again.

One node for each directory of 65,536 ledgers, ``/auditor/verified/HI``: a bit for each ledger. Bits
are only ever added, so it does not matter which of two auditors writes last, and a bit that is
missing costs a look.
"""

from __future__ import annotations

import base64
import json
import logging
import zlib

from fencelog.bookie.auditor.election import AUDITOR_PATH
from fencelog.bookie.recent.core import VerifiedLedgers
from fencelog.bookie.replication.store import OVERTAKEN
from fencelog.ledgers.errors import FencelogError
from fencelog.ledgers.metastore.port import MetadataStore, Versioned
from fencelog.ledgers.metastore.until_known import until_known
from fencelog.ledgers.metastore.watch import value_or_none

VERIFIED_PATH = f"{AUDITOR_PATH}/verified"

_FORMAT_VERSION = 1

_log = logging.getLogger(__name__)


class VerifiedStore:
    """The bits of verified ledgers in one metadata store. Raises FencelogError:
    METADATA_UNAVAILABLE, METADATA_UNKNOWN (safe to repeat)."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store

    async def load(self, verified: VerifiedLedgers, directory: int) -> None:
        """Add the bits that are stored of a directory. A node that cannot be read counts as
        empty."""
        verified.merge(directory, _decode(await value_or_none(self._store.get(_path(directory)))))

    async def save(self, verified: VerifiedLedgers, directory: int) -> None:
        """Add the bits of a directory to those that are stored."""

        async def write() -> None:
            while True:
                old = await value_or_none(self._store.get(_path(directory)))
                verified.merge(directory, _decode(old))
                value = _encode(verified.directory(directory))
                try:
                    if old is None:
                        await self._store.create(_path(directory), value)
                    else:
                        await self._store.set(_path(directory), value, old.version)
                except FencelogError as error:
                    if error.code not in OVERTAKEN:
                        raise
                else:
                    return

        await until_known(write)


def _path(directory: int) -> str:
    return f"{VERIFIED_PATH}/{directory:x}"


def _encode(bits: bytes) -> bytes:
    fields = {"v": _FORMAT_VERSION, "bits": base64.b64encode(zlib.compress(bits)).decode()}
    return json.dumps(fields).encode()


def _decode(node: Versioned | None) -> bytes:
    if node is None:
        return bytes(VerifiedLedgers.SIZE)
    try:
        fields = json.loads(node.value)
        if fields["v"] != _FORMAT_VERSION:
            raise ValueError("another version")
        unpacked = zlib.decompressobj()
        bits = unpacked.decompress(base64.b64decode(fields["bits"]), VerifiedLedgers.SIZE)
        if len(bits) != VerifiedLedgers.SIZE:
            raise ValueError(f"{len(bits)} bytes")
    except (KeyError, TypeError, ValueError, zlib.error) as error:
        _log.error("the verified ledgers are not known, and are looked at again: %s", error)
        return bytes(VerifiedLedgers.SIZE)
    return bits
