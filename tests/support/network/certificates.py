"""Certificates for tests, made by openssl."""

from __future__ import annotations

import ssl
import subprocess
from pathlib import Path

_EC = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")


class Authority:
    """An authority in a folder: ``ca.crt``, and what it signed, ``NAME.crt`` and ``NAME.key``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        _openssl(
            *("req", "-x509", *_EC, "-days", "2", "-subj", "/CN=authority"),
            *("-addext", "keyUsage=critical,keyCertSign"),
            *("-keyout", folder / "ca.key", "-out", self.certificate),
        )

    @property
    def certificate(self) -> Path:
        return self.folder / "ca.crt"

    def sign(self, name: str, *, for_: str, days: int = 2) -> tuple[Path, Path]:
        """Return a certificate and its key. ``for_``: as in ``DNS:localhost,IP:127.0.0.1``; it is
        valid for this time from now on, or expired after a negative one."""
        request, extensions = self.folder / f"{name}.csr", self.folder / f"{name}.cnf"
        certificate, key = self.folder / f"{name}.crt", self.folder / f"{name}.key"
        _openssl("req", *_EC, "-subj", f"/CN={name}", "-keyout", key, "-out", request)
        extensions.write_text(f"subjectAltName={for_}\n", "utf-8")
        _openssl(
            *("x509", "-req", "-in", request, "-CA", self.certificate, "-CAcreateserial"),
            *("-CAkey", self.folder / "ca.key", "-days", str(days)),
            *("-extfile", extensions, "-out", certificate),
        )
        return certificate, key

    def encrypt(self, key: Path) -> Path:
        """Return a key that a password protects."""
        encrypted = key.with_suffix(".encrypted")
        _openssl("pkey", "-in", key, "-aes256", "-passout", "pass:secret", "-out", encrypted)
        return encrypted


def server_context(certificate: Path, key: Path, *, clients: Path | None = None) -> ssl.SSLContext:
    """Return the context of a server. ``clients``: whose clients alone it takes."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    if clients is not None:
        context.load_verify_locations(clients)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def _openssl(*arguments: str | Path) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)
