"""TLS to ZooKeeper: what a process trusts and shows, and why a handshake failed."""

from __future__ import annotations

import ssl
from pathlib import Path

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.metastore.zookeeper_connection import ConnectionLost


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
