"""The file descriptors of a process, and the connections that they leave space for.

Connections may take none that files and links need: a bookie that cannot open a file for its flush
has to end.
"""

from __future__ import annotations

import contextlib
import logging
import resource
from collections.abc import Sequence
from dataclasses import dataclass

from fencelog.api.server.limits import MAX_CONNECTIONS
from fencelog.ledgers.limits import BOOKIE_MAX_CONNECTIONS

ENOUGH = 65_536
"""The descriptors asked for where the system sets no limit: twice what a standalone service with
three bookies can use."""

KEPT_FOR_PROCESS = 128
"""The descriptors kept for what each process has besides: listeners, probes, the metadata store,
links to brokers and bookies, connections that are being refused."""

KEPT_FOR_SHARD = 384
"""The descriptors kept for each shard of a bookie: 256 files of its index and 64 entry logs at most
(STORAGE.md), the journal, and what garbage collection and the scrubber read."""

LEAST_SHARE = 4
"""The part of all descriptors, one in so many, that is left to connections where the reserve would
leave less: an index has that many files with terabytes only, which need no such small limit."""

WARNED_SHARE = 2
"""The divisor of the documented number of connections below which a process warns that it takes
fewer: few services have half as many."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """The limits of one process: ``http``: of its HTTP server, ``bookie``: of each bookie."""

    http: int = MAX_CONNECTIONS
    bookie: int = BOOKIE_MAX_CONNECTIONS


def raise_descriptor_limit() -> None:
    """Raise the limit of this process to what it may have; never lower it. The usual one, of 1,024,
    is meant for programs that use ``select``."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = ENOUGH if hard == resource.RLIM_INFINITY else hard
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):  # a system with yet another limit
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def connection_limits(shards: Sequence[int] = (), *, http: bool) -> ConnectionLimits:
    """Return the limits that this process can keep: the documented ones, or as much of each as its
    descriptors leave, with a warning if that is few. ``shards``: of each bookie in it; ``http``: it
    serves HTTP."""
    documented = http * MAX_CONNECTIONS + len(shards) * BOOKIE_MAX_CONNECTIONS
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    kept = KEPT_FOR_PROCESS + KEPT_FOR_SHARD * sum(shards)
    left = max(descriptors - kept, descriptors // LEAST_SHARE)
    if descriptors == resource.RLIM_INFINITY or left >= documented:
        return ConnectionLimits()
    limits = ConnectionLimits(
        max(1, MAX_CONNECTIONS * left // documented),
        max(1, BOOKIE_MAX_CONNECTIONS * left // documented),
    )
    if left >= documented // WARNED_SHARE:
        return limits
    taken = [f"{limits.http} connections over HTTP"] if http else []
    if shards:
        taken.append(f"{limits.bookie} connections to each bookie")
    _log.warning(
        "this process may have %d file descriptors (ulimit -n): it takes %s; %d would be enough",
        descriptors,
        " and ".join(taken),
        documented + kept,
    )
    return limits
