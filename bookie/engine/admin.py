"""Admin requests to a running bookie: ``{"do": verb, …}`` in, an object out.

A verb is a function in ``Bookie.admin``; the parts of a bookie register theirs there. It has to
answer within ADMIN_WAIT_MS: longer work is only started, and a function in ``Bookie.status_parts``
reports on it, under its name in the answer to ``status``. Both take and return JSON values.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from fencelog.bookie.disk.port import DirectorySpace
from fencelog.bookie.disk.space import fullest
from fencelog.bookie.engine.shard import Shard
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.host import Host

Verb = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]
"""A function that takes the arguments, without the verb itself. It raises FencelogError,
BAD_REQUEST for arguments that it does not take (``arguments``)."""

StatusPart = Callable[[], dict[str, Any]]
"""A function that returns one part of the bookie's status."""


class Administered(Protocol):
    """A bookie, as its own verbs use it."""

    bookie_id: str
    incarnation: str
    shards: list[Shard]
    is_read_only: bool
    read_only_for: set[str]
    read_only_since_us: int | None
    host: Host
    status_parts: dict[str, StatusPart]

    async def spaces(self) -> list[DirectorySpace]: ...


async def administer(verbs: Mapping[str, Verb], request: Mapping[str, Any]) -> dict[str, Any]:
    """Carry out a request. Raises FencelogError: BAD_REQUEST that names an unknown verb or
    argument; or as the verb does."""
    rest = dict(request)
    name = rest.pop("do", None)
    verb = verbs.get(name) if isinstance(name, str) else None
    if verb is None:
        raise _bad(f"{name!r} is nothing that this bookie does: {', '.join(sorted(verbs))}")
    return await verb(rest)


def arguments(
    given: Mapping[str, Any],
    required: Mapping[str, type],
    optional: Mapping[str, type] | None = None,
) -> None:
    """Check the names and types of a verb's arguments: ``bool``, ``int``, ``float`` (which takes
    whole numbers as well), ``str``. Raises FencelogError(BAD_REQUEST), which names the argument."""
    known = {**required, **(optional or {})}
    for name, value in given.items():
        kind = known.get(name)
        if kind is None:
            raise _bad(f"{name!r} is no argument of it")
        if type(value) is not kind and not (kind is float and type(value) is int):
            raise _bad(f"{name!r} is to be of type {kind.__name__}, not {value!r}")
    for name in required:
        if name not in given:
            raise _bad(f"the argument {name!r} is missing")


def own_verbs(bookie: Administered) -> dict[str, Verb]:
    """Return the verbs of every bookie."""

    async def status(given: dict[str, Any]) -> dict[str, Any]:
        arguments(given, {})
        states = [shard.states for shard in bookie.shards]
        spaces = await bookie.spaces()
        parts = {name: part() for name, part in bookie.status_parts.items()}
        return {
            "bookie_id": bookie.bookie_id,
            "incarnation": bookie.incarnation,
            "now_us": bookie.host.now_us(),
            "shards": len(bookie.shards),
            "read_only": bookie.is_read_only,
            "read_only_for": sorted(bookie.read_only_for),
            "read_only_since_us": bookie.read_only_since_us,
            "ledgers": sum(known.count for known in states),
            "ledgers_in_limbo": sum(known.lacking for known in states),
            "ledgers_of_others": sum(len(known.strangers) for known in states),
            "free_bytes": fullest(spaces).free_bytes,
            "directories": [each.to_json() for each in spaces],
            **parts,
        }

    async def read_only(given: dict[str, Any]) -> dict[str, Any]:
        arguments(given, {"on": bool})
        bookie.is_read_only = given["on"]
        # There may be other reasons for it, which an operator cannot remove.
        return {
            "read_only": bookie.is_read_only,
            "read_only_for": sorted(bookie.read_only_for),
        }

    return {"status": status, "read_only": read_only}


def _bad(detail: str) -> FencelogError:
    return FencelogError(ErrorCode.BAD_REQUEST, detail)
