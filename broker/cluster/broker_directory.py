"""The brokers of a cluster: this one's registration and load, and a live table of all.

``/brokers/{id}`` holds a broker's address and whether it is draining, ``/loads/{id}`` its load;
both are ephemeral, and hints: a broker may be gone and still be listed.
"""

from __future__ import annotations

import json
import logging
from dataclasses import asdict
from typing import Any

from fencelog.broker.cluster.balance_core import BrokerView
from fencelog.broker.cluster.load import PARTITION_COST, BrokerLoad
from fencelog.broker.config import BrokerConfig
from fencelog.ledgers.errors import FencelogError
from fencelog.ledgers.host import Host
from fencelog.ledgers.metastore.port import MetadataStore
from fencelog.ledgers.metastore.registration import BROKERS_PATH, ChildrenValues, Registration

LOADS_PATH = "/loads"

log = logging.getLogger(__name__)


class BrokerDirectory:
    """The directory. ``start`` it before use."""

    def __init__(self, store: MetadataStore, *, host: Host, config: BrokerConfig) -> None:
        self._store = store
        self._host = host
        self.own_id = config.broker_id
        self._fields: dict[str, Any] = {"broker_id": config.broker_id, "url": config.url}
        self._brokers = ChildrenValues(store, BROKERS_PATH)
        self._loads = ChildrenValues(store, LOADS_PATH, on_change=self._on_loads)
        self._registration: Registration | None = None
        self._load_node: Registration | None = None
        self._published = BrokerLoad()
        self._known_loads: dict[str, tuple[bytes, BrokerLoad]] = {}
        self._own_load = BrokerLoad()
        self._sent: dict[str, float] = {}
        """The score of the partitions that a broker took since its load was last measured, as far
        as known here."""
        self._rounds = 0
        self._forget_after = config.balance.rounds

    async def start(self) -> None:
        """Register, and return when the tables are complete, with this broker in them: one that has
        started is listed by its own answers at once. Raises METADATA_UNAVAILABLE,
        METADATA_UNKNOWN."""
        self._fields["started_us"] = self._host.now_us()
        own = f"{LOADS_PATH}/{self.own_id}"
        try:
            self._load_node = await Registration.start(self._store, own, self._published.encode())
            self._registration = await Registration.start(
                self._store, f"{BROKERS_PATH}/{self.own_id}", self._value()
            )
            await self._brokers.start()
            await self._loads.start()
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Remove the broker from the directory."""
        for registration in (self._registration, self._load_node):
            if registration is not None:
                await registration.close()
        self._brokers.close()
        self._loads.close()

    @property
    def is_draining(self) -> bool:
        return "draining" in self._fields

    def set_draining(self, draining: bool = True) -> None:
        """Announce to the others that they should not send anything here any more, or that they may
        again."""
        if draining:
            self._fields["draining"] = True
        else:
            self._fields.pop("draining", None)
        if self._registration is not None:
            self._registration.update(self._value())

    def measured(self, load: BrokerLoad) -> None:
        """Record the current load of this broker; it is published if it has changed materially."""
        self._own_load = load
        self._sent.pop(self.own_id, None)
        self._rounds += 1
        if self._rounds % self._forget_after == 0:
            self._sent.clear()  # what the loads do not show by now is not material, or gone
        if self._load_node is not None and load.differs_from(self._published):
            self._published = load
            self._load_node.update(load.encode())

    def all(self) -> list[dict[str, Any]]:
        """Return ``broker_id, url, started_us, draining`` and, where it is known, the load of each
        broker, by id."""
        return [
            _described(json.loads(value), self._load_of(broker_id))
            for broker_id, value in sorted(self._brokers.values.items())
        ]

    def own(self) -> dict[str, Any]:
        """Return this broker as ``all`` shows it, with its current load."""
        return _described(self._fields, self._own_load)

    def url_of(self, broker_id: str) -> str | None:
        """Return the URL of a registered broker."""
        value = self._brokers.values.get(broker_id)
        return None if value is None else str(json.loads(value)["url"])

    def is_registered(self, broker_id: str) -> bool:
        """Tell whether a broker is registered, as far as is known here."""
        return broker_id in self._brokers.values

    def id_at(self, url: str) -> str | None:
        """Return the id of the broker that is registered with a URL."""
        for broker_id in self._brokers.values:
            if self.url_of(broker_id) == url:
                return broker_id
        return None

    def views(self) -> list[BrokerView]:
        """Return this broker, and all registered ones whose load is known."""
        own = self._own_load.score + self._sent.get(self.own_id, 0.0)
        views = [BrokerView(self.own_id, own, takes=not self.is_draining)]
        for broker_id, value in self._brokers.values.items():
            load = self._load_of(broker_id)
            if broker_id != self.own_id and load is not None:
                score = load.score + self._sent.get(broker_id, 0.0)
                takes = not json.loads(value).get("draining")
                views.append(BrokerView(broker_id, score, takes=takes))
        return views

    def took(self, broker_id: str, score: float = PARTITION_COST) -> None:
        """Record that a broker has one more partition: count it until its load shows it, or should
        have."""
        self._sent[broker_id] = self._sent.get(broker_id, 0.0) + score

    def _load_of(self, broker_id: str) -> BrokerLoad | None:
        known = self._known_loads.get(broker_id)
        return None if known is None else known[1]

    def _on_loads(self) -> None:
        known = {}
        for broker_id, value in self._loads.values.items():
            before = self._known_loads.get(broker_id)
            if before is not None and before[0] == value:
                known[broker_id] = before
                continue
            if broker_id != self.own_id:
                self._sent.pop(broker_id, None)
            try:
                known[broker_id] = (value, BrokerLoad.decode(value))
            except FencelogError as error:
                log.warning("%s", error, extra={"broker_id": broker_id})
        self._known_loads = known

    def _value(self) -> bytes:
        return json.dumps(self._fields).encode()


def _described(fields: dict[str, Any], load: BrokerLoad | None) -> dict[str, Any]:
    return {"draining": False, **fields, **({} if load is None else asdict(load))}
