"""A network for a drill: a bridge for each kind of traffic, and for each broker a namespace of its
own with a cable to each bridge. A cut pulls a cable: packets are lost in both directions, no
connection is reset, and no end is notified."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from fencelog.api.drills.harness.namespace import run
from fencelog.api.local_cluster.cluster import ProcessPlacement

_NAMESPACES = "/run/netns"


class Cable(Enum):
    """A kind of traffic; the value is the third byte of its addresses."""

    METADATA = 1
    STORAGE = 2
    CLIENTS = 3
    """The traffic of clients and of the other brokers."""


def hub(cable: Cable) -> str:
    """Return the address, on that bridge, of every process without a namespace of its own."""
    return f"10.77.{cable.value}.1"


class Network:
    """The bridges, made in the network namespace of this process, where it has all rights."""

    def __init__(self) -> None:
        """Set up the bridges. Raises FencelogError(BAD_REQUEST) with the reason where this machine
        cannot do it."""
        run(["mount", "-t", "tmpfs", "fencelog-drill", "/run"], "mount a tmpfs on /run")
        _ip("link", "set", "lo", "up")
        for cable in Cable:
            _ip("link", "add", _bridge(cable), "type", "bridge")
            _ip("addr", "add", f"{hub(cable)}/24", "dev", _bridge(cable))
            _ip("link", "set", _bridge(cable), "up")

    def connect(self, number: int) -> ProcessPlacement:
        """Create a namespace with a cable to each bridge; it listens to clients. Raises
        FencelogError."""
        namespace = f"host-{number}"
        _ip("netns", "add", namespace)
        inside = ("-netns", namespace)
        _ip(*inside, "link", "set", "lo", "up")
        for cable in Cable:
            near, far = _near_end(cable, number), f"far-{cable.value}"
            peer = ("peer", "name", far, "netns", namespace)
            _ip("link", "add", near, "type", "veth", *peer)
            _ip("link", "set", near, "master", _bridge(cable), "up")
            _ip(*inside, "addr", "add", f"{_address(cable, number)}/24", "dev", far)
            _ip(*inside, "link", "set", far, "up")
        enter = ("nsenter", f"--net={_NAMESPACES}/{namespace}", "--")
        return ProcessPlacement(_address(Cable.CLIENTS, number), enter)

    def cut(self, number: int, cables: Sequence[Cable]) -> None:
        """Pull cables of a namespace."""
        for cable in cables:
            _ip("link", "set", _near_end(cable, number), "down")

    def heal(self, number: int, cables: Sequence[Cable]) -> None:
        """Put cables of a namespace back."""
        for cable in cables:
            _ip("link", "set", _near_end(cable, number), "up")


def _address(cable: Cable, number: int) -> str:
    return f"10.77.{cable.value}.{number + 10}"


def _bridge(cable: Cable) -> str:
    return f"bridge-{cable.value}"


def _near_end(cable: Cable, number: int) -> str:
    return f"near-{cable.value}-{number}"


def _ip(*arguments: str) -> None:
    run(["ip", *arguments], "make a network")
