"""The consumers of a subscription in one partition, in order of arrival. Pure; times in seconds.

There is no connection to tell by: a consumer is there as long as the lease that its last request
asked for lasts, and while it waits for messages.
"""

from __future__ import annotations

from dataclasses import dataclass

from fencelog.broker.limits import MAX_CONSUMERS
from fencelog.ledgers.errors import ErrorCode, FencelogError


@dataclass(slots=True, eq=False)
class ConsumerState:
    since: float
    seen: float
    until: float
    waits: int = 0
    """Its waits for messages that are under way."""

    def is_there(self, now: float) -> bool:
        return self.waits > 0 or now < self.until


class ConsumerTable:
    """Names of consumers and what is known of them."""

    def __init__(self) -> None:
        self.by_name: dict[str, ConsumerState] = {}

    def arrive(self, name: str, now: float, until: float) -> None:
        """It asks for messages. Raises FencelogError(LIMIT_REACHED)."""
        if name in self.by_name:
            self.touch(name, now, until)
            return
        if len(self.by_name) >= MAX_CONSUMERS:
            self._forget_gone(now)
        if len(self.by_name) >= MAX_CONSUMERS:
            raise FencelogError(
                ErrorCode.LIMIT_REACHED, f"{MAX_CONSUMERS} consumers pull from the partition"
            )
        self.by_name[name] = ConsumerState(now, now, until)

    def touch(self, name: str, now: float, until: float) -> None:
        """It was heard of, if it is known."""
        consumer = self.by_name.get(name)
        if consumer is not None:
            consumer.seen = now
            consumer.until = max(consumer.until, until)

    def waits(self, name: str, by: int) -> None:
        """It begins (1) or ends (-1) a wait, if it is known."""
        consumer = self.by_name.get(name)
        if consumer is not None:
            consumer.waits = max(0, consumer.waits + by)

    def first(self, now: float) -> str | None:
        """Who came first of those that are there."""
        for name, consumer in self.by_name.items():
            if consumer.is_there(now):
                return name
        return None

    def there(self, now: float) -> dict[str, ConsumerState]:
        return {name: found for name, found in self.by_name.items() if found.is_there(now)}

    def forget_gone_first(self, now: float) -> None:
        """Whoever comes back takes a place at the end: those in front that are gone lose theirs."""
        while self.by_name:
            name, consumer = next(iter(self.by_name.items()))
            if consumer.is_there(now):
                return
            del self.by_name[name]

    def _forget_gone(self, now: float) -> None:
        self.by_name = self.there(now)
