"""Access to append to one partition in its state log, as the next owner would find it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class DurableAccess:
    """The fencing token; the producer that alone may append, with its epoch; the highest epoch that
    was given; and with which epoch each producer may append at least."""

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
        holder may have changed meanwhile."""
        if self.given < previous.given:
            yield f"epoch {previous.given} was given"
        for name, epoch in previous.lowest.items():
            if self.lowest.get(name, 0) < epoch:
                yield f"{name} may not append below epoch {epoch}"

    def _raise_lowest(self, name: str, epoch: int) -> None:
        self.lowest[name] = max(epoch, self.lowest.get(name, 0))
