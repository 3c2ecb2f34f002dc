"""Access to append to one partition in its state log, as the next owner would find it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from fencelog.broker.append import producer_access


def remembered_claims() -> int:
    """Return the number of producers whose claims a partition remembers."""
    return int(vars(producer_access)["MAX_CLAIMED_PRODUCERS"])


@dataclass(slots=True)
class DurableAccess:
    """The fencing token; the producer that alone may append, with its epoch; the highest epoch that
    was given; and with which epoch each producer may append at least, those that claimed last
    behind the others."""

    token: str | None = None
    holder: tuple[str, int] | None = None
    given: int = 0
    lowest: dict[str, int] = field(default_factory=dict)

    def apply(self, event: list[Any]) -> None:
        match event:
            case ["fencing_token", str() | None as token]:
                self.token = token
            case ["claimed", str(name), int(epoch)]:
                if self.holder is not None and self.holder[0] != name:
                    self._raise_lowest(self.holder[0], self.holder[1] + 1)
                self._raise_lowest(name, epoch)
                self.holder, self.given = (name, epoch), max(self.given, epoch)
            case ["released", *_]:
                self.holder = None
            case ["lowest_epoch", str(name), int(epoch)]:
                self._raise_lowest(name, epoch)
            case ["given_epoch", int(epoch)]:
                self.given = max(self.given, epoch)

    def forgotten(self, previous: DurableAccess) -> Iterator[str]:
        """Yield what was durable in ``previous`` and would have to be here. The token and the
        holder may have changed meanwhile, and later claims taken the place of earlier ones."""
        if self.given < previous.given:
            yield f"epoch {previous.given} was given"
        before = list(previous.lowest)
        for place, name in enumerate(before):
            epoch = previous.lowest[name]
            if name not in self.lowest and self._has_only_later(previous, before[place + 1 :]):
                continue
            if self.lowest.get(name, 0) < epoch:
                yield f"{name} may not append below epoch {epoch}"
        known = [name for name in before if self.lowest.get(name) == previous.lowest[name]]
        if list(self.lowest)[: len(known)] != known:
            yield f"{before} claimed it in this order"

    def _has_only_later(self, previous: DurableAccess, later: list[str]) -> bool:
        """Tell whether it is full of claims that are later than one of ``previous``: of those that
        were ``later`` there, or have claimed it since."""
        return len(self.lowest) >= remembered_claims() and all(
            name in later or epoch > previous.lowest.get(name, 0)
            for name, epoch in self.lowest.items()
        )

    def _raise_lowest(self, name: str, epoch: int) -> None:
        self.lowest[name] = max(epoch, self.lowest.pop(name, 0))
        if len(self.lowest) > remembered_claims():
            del self.lowest[next(iter(self.lowest))]
