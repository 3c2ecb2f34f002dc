"""The settings of self-healing that the whole cluster shares, and that change while it runs."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

from fencelog.bookie.replication.store import OVERTAKEN
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.ledger_metadata.ledger_nodes import UNDERREPLICATION_PATH
from fencelog.ledgers.ledger_metadata.update import retry_pauses
from fencelog.ledgers.metastore.port import MetadataStore, Versioned, Watch
from fencelog.ledgers.metastore.until_known import until_known
from fencelog.ledgers.metastore.watch import value_or_none

SETTINGS_PATH = f"{UNDERREPLICATION_PATH}/settings"

_FORMAT_VERSION = 1

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class AutorecoverySettings:
    """The settings; None: each process uses its own, unless stated otherwise."""

    is_disabled: bool = False
    """Tells whether auditor and workers are to do nothing."""
    lost_bookie_grace_ms: int | None = None
    """The time for which a bookie may be away before it counts as lost."""
    copy_bytes_per_s: int | None = None
    """The rate at which each worker copies."""
    balance_bytes_per_s: int | None = None
    """The rate at which each worker moves copies from full bookies to empty ones; None: no copy is
    moved for that."""


DEFAULTS = AutorecoverySettings()


async def read_settings(store: MetadataStore) -> AutorecoverySettings:
    """Return the settings; they may be slightly stale. Raises FencelogError: METADATA_UNAVAILABLE,
    CORRUPT."""
    return _decode(await _node(store))


async def settings_now(store: MetadataStore) -> AutorecoverySettings:
    """Return the settings; those that cannot be read turn self-healing off, see ``watch_settings``.
    Raises FencelogError(METADATA_UNAVAILABLE)."""
    return _decoded_or_off(await _node(store))


async def change_settings(store: MetadataStore, **changes: Any) -> AutorecoverySettings:
    """Change the named fields, by compare-and-set, and return the settings. It is safe to repeat.
    Raises FencelogError: BAD_REQUEST, METADATA_UNAVAILABLE, METADATA_UNKNOWN, CORRUPT (there are
    others that cannot be read, which stay)."""

    async def change() -> AutorecoverySettings:
        pauses = retry_pauses()
        while True:
            node = await _node(store)
            wanted = replace(_decode(node), **changes)
            _validate(wanted)
            if await _written(store, wanted, node):
                return wanted
            await asyncio.sleep(next(pauses))

    return await until_known(change)


def watch_settings(store: MetadataStore, callback: Callable[[AutorecoverySettings], None]) -> Watch:
    """Call back on the event loop with the settings now and after changes. Settings that cannot be
    read are those of a cluster whose autorecovery was turned off: nothing is copied by mistake."""
    return store.watch_value(SETTINGS_PATH, lambda node: callback(_decoded_or_off(node)))


async def _node(store: MetadataStore) -> Versioned | None:
    return await value_or_none(store.get(SETTINGS_PATH))


async def _written(
    store: MetadataStore, settings: AutorecoverySettings, old: Versioned | None
) -> bool:
    """Write the settings in place of the old node; False: another process was faster."""
    value = json.dumps({"v": _FORMAT_VERSION, **asdict(settings)}).encode()
    try:
        if old is None:
            await store.create(SETTINGS_PATH, value)
        else:
            await store.set(SETTINGS_PATH, value, old.version)
    except FencelogError as error:
        if error.code not in OVERTAKEN:
            raise
        return False
    return True


def _validate(settings: AutorecoverySettings) -> None:
    """Check settings that a person gave. Raises FencelogError(BAD_REQUEST)."""
    for name in ("lost_bookie_grace_ms", "copy_bytes_per_s", "balance_bytes_per_s"):
        value = getattr(settings, name)
        least = 0 if name == "lost_bookie_grace_ms" else 1
        if value is not None and value < least:
            raise FencelogError(
                ErrorCode.BAD_REQUEST, f"{name} is to be at least {least}, not {value}"
            )


def _decoded_or_off(node: Versioned | None) -> AutorecoverySettings:
    try:
        return _decode(node)
    except FencelogError as error:
        _log.error("self-healing is off: %s", error.detail)
        return AutorecoverySettings(is_disabled=True)


def _decode(node: Versioned | None) -> AutorecoverySettings:
    if node is None:
        return DEFAULTS
    try:
        fields = json.loads(node.value)
        if fields.pop("v") != _FORMAT_VERSION:
            raise ValueError("another version")
        settings = AutorecoverySettings(**fields)
        _validate(settings)
    except (AttributeError, KeyError, TypeError, ValueError, FencelogError) as error:
        raise FencelogError(ErrorCode.CORRUPT, f"{SETTINGS_PATH} is not valid: {error}") from error
    return settings
