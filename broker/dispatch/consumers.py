"""The consumers of a subscription in one partition, in order of arrival. Pure; times in seconds.

No connection shows the presence of a consumer: it is present for the length of the lease that its
last request asked for, and while it waits for messages.
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
    """The number of its current waits for messages."""

    def is_there(self, now: float) -> bool:
        return self.waits > 0 or now < self.until


class ConsumerTable:
    """The names of consumers and the known facts about them."""

    def __init__(self) -> None:
        self.by_name: dict[str, ConsumerState] = {}

    def arrive(self, name: str, now: float, until: float) -> None:
        """Record a consumer's request for messages. Raises FencelogError(LIMIT_REACHED)."""
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
        """Record activity of a consumer, if it is known."""
        consumer = self.by_name.get(name)
        if consumer is not None:
            consumer.seen = now
            consumer.until = max(consumer.until, until)

    def waits(self, name: str, by: int) -> None:
        """Record the beginning (1) or the end (-1) of a consumer's wait, if it is known."""
        consumer = self.by_name.get(name)
        if consumer is not None:
            consumer.waits = max(0, consumer.waits + by)

    def first(self, now: float) -> str | None:
        """Return the present consumer that arrived first."""
        for name, consumer in self.by_name.items():
            if consumer.is_there(now):
                return name
        return None

    def there(self, now: float) -> dict[str, ConsumerState]:
        return {name: found for name, found in self.by_name.items() if found.is_there(now)}

    def forget_gone_first(self, now: float) -> None:
        """Forget absent consumers at the front: one that comes back is placed at the end."""
        while self.by_name:
            name, consumer = next(iter(self.by_name.items()))
            if consumer.is_there(now):
                return
            del self.by_name[name]

    def _forget_gone(self, now: float) -> None:
        self.by_name = self.there(now)
