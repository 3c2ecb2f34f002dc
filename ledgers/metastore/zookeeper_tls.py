"""TLS to ZooKeeper: what a process trusts and shows, when that ends, and why a handshake failed."""

from __future__ import annotations

import logging
import re
import ssl
from calendar import timegm
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.metastore.zookeeper_connection import ConnectionLost

_log = logging.getLogger(__name__)

_PEM = re.compile("-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)

_VERSION, _LONG_YEAR = 0xA0, 0x18
"""The tags of the version of a certificate, which may be absent, and of a time whose year has four
digits."""

_US_PER_S = 1_000_000


class CertificateRole(StrEnum):
    """The roles of certificates: that of the process, of authorities that it trusts, of a
    server."""

    OWN = "own"
    AUTHORITY = "authority"
    SERVER = "server"


@dataclass(frozen=True, slots=True, order=True)
class Certificate:
    """A certificate that a connection depends on. ``name``: its file, or the address of the
    server."""

    role: CertificateRole
    name: str
    ends_us: int


def tls_context(
    *, ca: Path | None, certificate: Path | None = None, key: Path | None = None
) -> ssl.SSLContext:
    """Return a context that trusts the certificates in ``ca``, or those that the system trusts, and
    takes a server by the name or address in the URL alone. ``certificate``: the process's own, with
    its ``key``. The files are read once.

    Raises FencelogError(BAD_REQUEST) naming the file.
    """
    if (certificate is None) != (key is None):
        raise FencelogError(ErrorCode.BAD_REQUEST, "certificate and key go together")
    read = ca
    try:
        context = ssl.create_default_context(cafile=ca)
        read = certificate
        if certificate is not None:
            # With a password an encrypted key is refused; without one it would be asked for.
            context.load_cert_chain(certificate, key, password="")
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        files = read if read is ca else f"{certificate} with {key}"
        why = f"{files} cannot be used for TLS: {_reason_of(error)}"
        raise FencelogError(ErrorCode.BAD_REQUEST, why) from error
    return context


def certificates_of_files(
    context: ssl.SSLContext, *, ca: Path | None, certificate: Path | None
) -> list[Certificate]:
    """Return the certificates that a context was made of: of the process's own chain the one that
    ends first, and of the authorities the one that ends last. Those that the system trusts are the
    system's. One whose end cannot be read is left out, with a warning."""
    found = []
    if certificate is not None:
        found += _known(CertificateRole.OWN, str(certificate), lambda: _first_end_s(certificate))
    if ca is not None:
        found += _known(CertificateRole.AUTHORITY, str(ca), lambda: _last_end_s(context))
    return found


def certificate_of_server(address: str, shown: Mapping[str, Any] | None) -> Certificate | None:
    """Return the certificate of a server, as ``ssl`` describes what it has shown; None without
    TLS, and if its end cannot be read."""
    if not shown:
        return None
    known = _known(
        CertificateRole.SERVER, address, lambda: ssl.cert_time_to_seconds(shown["notAfter"])
    )
    return next(iter(known), None)


def _known(role: CertificateRole, name: str, read_end_s: Callable[[], int]) -> list[Certificate]:
    """Return a certificate with its end; nothing if that cannot be read, since no connection
    depends on it."""
    try:
        return [Certificate(role, name, read_end_s() * _US_PER_S)]
    except (OSError, ValueError, LookupError) as error:
        _log.warning("the end of the certificate of %s is not known: %r", name, error)
        return []


def _first_end_s(chain: Path) -> int:
    listed = _PEM.findall(chain.read_text("latin-1"))
    return min(end_s(ssl.PEM_cert_to_DER_cert(each)) for each in listed)


def _last_end_s(context: ssl.SSLContext) -> int:
    authorities = context.get_ca_certs()
    return max(ssl.cert_time_to_seconds(str(each["notAfter"])) for each in authorities)


def end_s(der: bytes) -> int:
    """Return when a certificate ends, in seconds since 1970 (RFC 5280, 4.1)."""
    _, at, _ = _element(der, 0)
    _, at, _ = _element(der, at)
    tag, _, after = _element(der, at)
    at = after if tag == _VERSION else at
    for _ in ("serial number", "algorithm", "issuer"):
        _, _, at = _element(der, at)
    _, at, _ = _element(der, at)
    _, _, at = _element(der, at)  # the beginning
    tag, at, after = _element(der, at)
    digits = der[at:after].decode("ascii").rstrip("Z")
    if tag != _LONG_YEAR:
        digits = f"{20 if digits < '50' else 19}{digits}"
    places = [digits[:4], *(digits[n : n + 2] for n in range(4, 14, 2))]
    return timegm(tuple(map(int, places)))


def _element(der: bytes, at: int) -> tuple[int, int, int]:
    """Return the tag of an element of DER, and where its contents begin and end."""
    tag, length, begin = der[at], der[at + 1], at + 2
    if length & 0x80:
        begin += length & 0x7F
        length = int.from_bytes(der[at + 2 : begin], "big")
    return tag, begin, begin + length


def why_not_trusted(error: ssl.SSLCertVerificationError) -> str:
    """Return why the certificate of a server was not accepted."""
    return f"its certificate is not accepted: {error.verify_message.rstrip('.')}"


def why_lost(error: Exception, *, is_tls: bool) -> str:
    """Return why no connection came about."""
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, ConnectionLost):
        hint = "; if it asks for a certificate, it does not take this process's" if is_tls else ""
        return f"it closed the connection{hint}"
    reason = _reason_of(error)
    if is_tls and isinstance(error, ssl.SSLError | ConnectionResetError | ConnectionAbortedError):
        return f"{reason} in the TLS handshake: does it speak TLS on this port?"
    return reason


def _reason_of(error: Exception) -> str:
    if isinstance(error, ssl.SSLError) and error.reason:
        return error.reason.lower().replace("_", " ")
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__
