"""The topics in use at a broker, remembered as long as watches confirm them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from fencelog.broker.names import TopicName
from fencelog.broker.registry.topics import TopicInfo, TopicRegistry
from fencelog.ledgers.metastore.port import Watch


class TopicCache:
    """The cache of topics. ``on_change`` is called with a topic that has other settings or more
    partitions, ``on_gone`` with one that was deleted, or whose name another has now."""

    def __init__(
        self,
        topics: TopicRegistry,
        *,
        on_change: Callable[[TopicInfo], None],
        on_gone: Callable[[TopicInfo], None],
    ) -> None:
        self._topics = topics
        self._on_change = on_change
        self._on_gone = on_gone
        self._known: dict[TopicName, tuple[TopicInfo, Watch]] = {}

    def close(self) -> None:
        """End all notifications."""
        for _, watch in self._known.values():
            watch.close()

    def get(self, name: TopicName) -> TopicInfo | None:
        """Return the topic, if it is remembered already."""
        known = self._known.get(name)
        return None if known is None else known[0]

    async def find(self, name: TopicName, partition: int = 0) -> TopicInfo:
        """Return the topic; it is read again if it was not known to have the partition. Raises
        FencelogError: TOPIC_NOT_FOUND, METADATA_…."""
        known = self._known.get(name)
        if known is not None and partition < known[0].config.partitions:
            return known[0]
        info = await self._topics.look_up(name)
        if name not in self._known:
            watch = self._topics.watch(name, partial(self._seen, name, info.topic_id))
            self._known[name] = (info, watch)
        else:
            self.changed(info)
        return self._known[name][0]

    def changed(self, info: TopicInfo) -> None:
        """Record that the registry has, or had, this state of the topic; the state known already
        may be newer."""
        known = self._known.get(info.name)
        if known is None or known[0].topic_id != info.topic_id:
            return
        if known[0].version.number < info.version.number:
            self._replace(info, known[1])

    def _replace(self, info: TopicInfo, watch: Watch) -> None:
        self._known[info.name] = (info, watch)
        self._on_change(info)

    def _seen(self, name: TopicName, topic_id: str, info: TopicInfo | None) -> None:
        known = self._known.get(name)
        if known is None or known[0].topic_id != topic_id:
            return
        if info is not None and info.topic_id == topic_id:
            # The versions are equal: the namespace has changed, which only the watch reports in
            # order.
            if known[0].version.number <= info.version.number and known[0] != info:
                self._replace(info, known[1])
        else:
            del self._known[name]
            known[1].close()
            self._on_gone(known[0])
