"""``host:port`` as people write it."""

from __future__ import annotations

import ipaddress

from fencelog.ledgers.errors import ErrorCode, FencelogError

_MAX_PORT = 65_535
_ALL_ADDRESSES = ("0.0.0.0", "::")

HTTP_RISK = "read, append and delete everything: there are no tokens yet"
BOOKIE_RISK = (
    "read, write and delete every entry: without --secret-file it asks nobody who they are"
)
"""The powers of whoever reaches a listener."""


def parse_address(text: str) -> tuple[str, int]:
    """Parse ``host:port`` or ``[ipv6]:port``. Raises FencelogError(BAD_REQUEST)."""
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        colon = ""  # an IPv6 address needs its brackets, else the port is ambiguous
    if not (host and colon and port.isascii() and port.isdigit() and int(port) <= _MAX_PORT):
        raise FencelogError(
            ErrorCode.BAD_REQUEST, f"{text!r} is no HOST:PORT, for example 127.0.0.1:8080"
        )
    return host, int(port)


def check_advertised(listen: str, advertise: str | None) -> None:
    """Check that a process that listens on all addresses has an address under which it is reached.

    Raises FencelogError(BAD_REQUEST).
    """
    if advertise is None and parse_address(listen)[0] in _ALL_ADDRESSES:
        raise FencelogError(
            ErrorCode.BAD_REQUEST,
            f"{listen} is no address that others can connect to: name one with --advertise",
        )


def check_listener(listen: str, *, insecure: bool, risk: str = HTTP_RISK) -> None:
    """Check that others than this machine can only reach a listener that was meant for them, since
    it asks nobody who they are, which is the ``risk``.

    Raises FencelogError(BAD_REQUEST).
    """
    if not insecure and not is_loopback(parse_address(listen)[0]):
        raise FencelogError(
            ErrorCode.BAD_REQUEST,
            f"whoever reaches {listen} could {risk}. If only the right ones reach it, say "
            "--insecure",
        )


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def format_address(host: str, port: int) -> str:
    """Format an address: the inverse of ``parse_address``."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
