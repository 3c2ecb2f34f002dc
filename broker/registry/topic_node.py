"""A topic's metadata node, ``/topics/{namespace}/{topic}``: its value, and its watch.

{"v": 2, "topic_id": "…", "partitions": 4, "settings": {"retention_ms": 86400000},
 "created_us": 17…, "former": [[1, 17…]]}

``former``: the previous numbers of partitions, each with the time at which it ended (not in
topics that have never grown).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from fencelog.broker.limits import LATE_GROWTH_MS, MAX_PARTITIONS, MAX_PREVIOUS_COUNTS
from fencelog.broker.names import TopicName
from fencelog.broker.policy import Overrides, Policy
from fencelog.broker.registry.namespaces import TOPICS_PATH, Namespaces
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.metastore.port import NO_VERSION, MetadataStore, Version, Versioned

log = logging.getLogger(__name__)

FORMAT_VERSION = 2


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """The topic's own settings: its partitions, and the settings that it does not inherit."""

    partitions: int = 1
    overrides: Overrides = field(default_factory=dict)

    def validate(self, inherited: Policy) -> None:
        """Check the settings. Raises FencelogError(BAD_REQUEST)."""
        if not 1 <= self.partitions <= MAX_PARTITIONS:
            raise FencelogError(
                ErrorCode.BAD_REQUEST,
                f"a topic has 1 to {MAX_PARTITIONS} partitions, not {self.partitions}",
                field="partitions",
            )
        inherited.with_overrides(self.overrides)


class PreviousCount(NamedTuple):
    """A number of partitions that a topic had; ``until_us`` since 1970 UTC."""

    partitions: int
    until_us: int


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic as the registry has it. ``created_us``: since 1970 UTC. ``policy``: the effective
    settings, its own and those it inherits. ``version``: that of its node, which counts the changes
    of the topic's own settings. ``previous_counts``: the numbers of partitions before this one, as
    far as appends under idempotency keys depend on them."""

    name: TopicName
    topic_id: str
    config: TopicConfig
    created_us: int
    policy: Policy = field(default_factory=Policy)
    version: Version = NO_VERSION
    previous_counts: tuple[PreviousCount, ...] = ()

    def grown_at(self, now_us: int) -> tuple[PreviousCount, ...]:
        """Return the previous numbers of the topic when it gets more partitions. Raises
        FencelogError(LIMIT_REACHED)."""
        kept = [previous for previous in self.previous_counts if self.matters(previous, now_us)]
        if len(kept) >= MAX_PREVIOUS_COUNTS:
            raise FencelogError(
                ErrorCode.LIMIT_REACHED,
                f"topic {self.name} grew {len(kept)} times within the time for which it "
                "remembers idempotency keys; once more is possible when that is over",
            )
        return (*kept, PreviousCount(self.config.partitions, now_us))

    def matters(self, previous: PreviousCount, now_us: int) -> bool:
        """Tell whether an append that is remembered may have gone to its partition by this
        number."""
        kept_ms = self.policy.idempotency_window_ms + LATE_GROWTH_MS
        return now_us < previous.until_us + kept_ms * 1000


class TopicWatch:
    """A ``Watch`` of a topic's node and of its namespace's settings together."""

    __slots__ = (
        "_callback",
        "_default",
        "_inherited",
        "_name",
        "_namespace",
        "_node",
        "_seen",
        "_topic",
    )

    def __init__(
        self,
        store: MetadataStore,
        namespaces: Namespaces,
        name: TopicName,
        callback: Callable[[TopicInfo | None], None],
    ) -> None:
        self._name = name
        self._default = namespaces.default
        self._callback = callback
        self._inherited: Policy | None = None
        self._node: Versioned | None = None
        self._seen = False
        self._topic = store.watch_value(topic_path(name), self._on_topic)
        self._namespace = namespaces.watch(name.namespace, self._on_namespace)

    def close(self) -> None:
        self._topic.close()
        self._namespace.close()

    def _on_topic(self, node: Versioned | None) -> None:
        self._node, self._seen = node, True
        self._tell()

    def _on_namespace(self, overrides: Overrides) -> None:
        self._inherited = self._default.inherited_by(overrides)
        self._tell()

    def _tell(self) -> None:
        if self._seen and self._node is None:
            self._callback(None)
        elif self._node is not None and self._inherited is not None:
            try:
                info = decode_topic(self._name, self._node, self._inherited)
            except FencelogError as error:
                log.error("%s", error)
            else:
                self._callback(info)


def topic_path(name: TopicName) -> str:
    return f"{TOPICS_PATH}/{name.namespace}/{name.topic}"


def encode_topic(info: TopicInfo) -> bytes:
    fields: dict[str, Any] = {
        "v": FORMAT_VERSION,
        "topic_id": info.topic_id,
        "partitions": info.config.partitions,
        "settings": dict(info.config.overrides),
        "created_us": info.created_us,
    }
    if info.previous_counts:
        fields["former"] = info.previous_counts
    return json.dumps(fields, separators=(",", ":")).encode()


def decode_topic(name: TopicName, node: Versioned, inherited: Policy) -> TopicInfo:
    """Decode a topic's node. Raises FencelogError(CORRUPT)."""
    try:
        fields = json.loads(node.value)
        if fields["v"] != FORMAT_VERSION:
            raise ValueError(f"version {fields['v']}")
        config = TopicConfig(int(fields["partitions"]), dict(fields["settings"]))
        policy = inherited.inherited_by(config.overrides)
        topic_id, created_us = str(fields["topic_id"]), int(fields["created_us"])
        previous = tuple(PreviousCount(int(n), int(until)) for n, until in fields.get("former", ()))
        return TopicInfo(name, topic_id, config, created_us, policy, node.version, previous)
    except (KeyError, TypeError, ValueError) as error:
        raise FencelogError(ErrorCode.CORRUPT, f"topic {name} is not valid: {error}") from error
