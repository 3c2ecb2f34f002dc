"""TLS: which servers are taken, and what is said of the others."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
from calendar import timegm
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from struct import pack

import pytest

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.host import SystemHost
from fencelog.ledgers.metastore import zookeeper_session
from fencelog.ledgers.metastore.zookeeper_session import ZooKeeperSession
from fencelog.ledgers.metastore.zookeeper_tls import (
    Certificate,
    CertificateRole,
    certificate_of_server,
    certificates_of_files,
    end_s,
    tls_context,
)
from tests.support.network.certificates import Authority, server_context

CONNECTED = pack(">iiiqi", 37, 0, 6_000, 5, 16) + bytes(16) + b"\0"
HERE = "DNS:localhost,IP:127.0.0.1"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls") / "authority")


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls") / "stranger")


@pytest.fixture(autouse=True)
def short_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zookeeper_session, "CLOSE_TIMEOUT_MS", 10)


@asynccontextmanager
async def server(tls: ssl.SSLContext | None) -> AsyncIterator[int]:
    """Run a server that greets whoever completes a handshake, and closes a connection that sends it
    a packet which is too long, as ZooKeeper does. Yield its port."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if int.from_bytes(await reader.readexactly(4), "big") < 1 << 20:
                writer.write(CONNECTED)
                while await reader.read(4096):
                    pass
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    async with listening:
        yield listening.sockets[0].getsockname()[1]


def session_at(address: str, context: ssl.SSLContext | None) -> ZooKeeperSession:
    return ZooKeeperSession(
        [address],
        host=SystemHost(),
        timeout_ms=6_000,
        on_state=lambda state: None,
        on_event=lambda path: None,
        tls=context,
    )


async def refusal(address: str, context: ssl.SSLContext | None) -> str:
    with pytest.raises(FencelogError) as caught:
        await session_at(address, context).start()
    assert caught.value.code is ErrorCode.METADATA_UNAVAILABLE
    return caught.value.detail


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1"])
async def test_a_server_is_taken_by_its_name_or_address(authority: Authority, name: str) -> None:
    context = server_context(*authority.sign("server", for_=HERE))
    async with server(context) as port:
        session = session_at(f"{name}:{port}", tls_context(ca=authority.certificate))
        await session.start()
        assert session.session_id == 5
        await session.close()


@pytest.mark.parametrize(
    ("for_", "days", "why"),
    [
        ("DNS:elsewhere", 2, "mismatch, certificate is not valid for '127.0.0.1'"),
        (HERE, -1, "certificate has expired"),
    ],
)
async def test_another_name_and_an_expired_certificate_are_refused_at_once(
    authority: Authority, for_: str, days: int, why: str
) -> None:
    context = server_context(*authority.sign("other", for_=for_, days=days))
    async with server(context) as port:
        began = asyncio.get_running_loop().time()
        said = await refusal(f"127.0.0.1:{port}", tls_context(ca=authority.certificate))
        assert asyncio.get_running_loop().time() - began < zookeeper_session.START_TIMEOUT_MS / 2000
    assert f"ZooKeeper at 127.0.0.1:{port}: its certificate is not accepted: " in said
    assert why in said


async def test_an_authority_that_is_not_trusted_is_refused(
    authority: Authority, stranger: Authority
) -> None:
    async with server(server_context(*authority.sign("server", for_=HERE))) as port:
        for context in (tls_context(ca=stranger.certificate), tls_context(ca=None)):
            assert "unable to get local issuer" in await refusal(f"127.0.0.1:{port}", context)


async def test_a_port_without_tls_and_one_with_it_are_told_apart(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zookeeper_session, "START_TIMEOUT_MS", 2_400)
    async with server(None) as port:
        said = await refusal(f"127.0.0.1:{port}", tls_context(ca=authority.certificate))
        assert "does it speak TLS on this port?" in said
    async with server(server_context(*authority.sign("server", for_=HERE))) as port:
        assert f"no ZooKeeper answers at 127.0.0.1:{port}" in await refusal(
            f"127.0.0.1:{port}", None
        )


async def test_a_process_shows_its_own_certificate(
    authority: Authority, stranger: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    demanding = server_context(*authority.sign("server", for_=HERE), clients=stranger.certificate)
    certificate, key = stranger.sign("process", for_="DNS:process")
    async with server(demanding) as port:
        address = f"localhost:{port}"
        own = tls_context(ca=authority.certificate, certificate=certificate, key=key)
        session = session_at(address, own)
        await session.start()
        await session.close()
        # A sixth of it has to suffice for a handshake, on a busy machine too.
        monkeypatch.setattr(zookeeper_session, "START_TIMEOUT_MS", 4_000)
        said = await refusal(address, tls_context(ca=authority.certificate))
    assert "if it asks for a certificate, it does not take this process's" in said


async def test_the_certificate_of_the_server_is_kept_with_its_end(authority: Authority) -> None:
    certificate, key = authority.sign("server", for_=HERE)
    async with server(server_context(certificate, key)) as port:
        session = session_at(f"localhost:{port}", tls_context(ca=authority.certificate))
        await session.start()
        shown = session.server_certificate
        await session.close()
    end_us = ends_us(certificate)
    assert shown == Certificate(CertificateRole.SERVER, f"localhost:{port}", end_us)
    assert certificate_of_server("localhost:1", None) is None


def ends_us(certificate: Path) -> int:
    """The end of the first certificate in a file, by openssl."""
    command = ["openssl", "x509", "-noout", "-enddate", "-in", str(certificate)]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return ssl.cert_time_to_seconds(said.strip().removeprefix("notAfter=")) * 1_000_000


@pytest.mark.parametrize("days", [-1, 2, 40_000])
def test_when_the_own_certificate_ends(authority: Authority, days: int) -> None:
    """A year from 2050 on is written in another form."""
    certificate, key = authority.sign("own", for_=HERE, days=days)
    context = tls_context(ca=authority.certificate, certificate=certificate, key=key)
    own, trusted = certificates_of_files(context, ca=authority.certificate, certificate=certificate)
    assert own == Certificate(CertificateRole.OWN, str(certificate), ends_us(certificate))
    assert trusted.role is CertificateRole.AUTHORITY
    assert trusted.ends_us == ends_us(authority.certificate)


def test_of_a_chain_the_first_end_counts_and_of_authorities_the_last(
    authority: Authority, stranger: Authority, tmp_path: Path
) -> None:
    leaf, key = authority.sign("leaf", for_=HERE, days=9)
    several, trusted = tmp_path / "chain.pem", tmp_path / "trusted.pem"
    several.write_bytes(
        "# \u00e9\n".encode() + leaf.read_bytes() + authority.certificate.read_bytes()
    )
    trusted.write_bytes(authority.certificate.read_bytes() + stranger.certificate.read_bytes())
    context = tls_context(ca=trusted, certificate=several, key=key)
    own, last = certificates_of_files(context, ca=trusted, certificate=several)
    assert own.ends_us == ends_us(authority.certificate)
    both = (authority.certificate, stranger.certificate)
    assert last.ends_us == max(ends_us(each) for each in both)
    assert certificates_of_files(tls_context(ca=None), ca=None, certificate=None) == []


@pytest.mark.parametrize(
    ("tag", "text", "year"),
    [
        (0x17, b"490101000000Z", 2049),
        (0x17, b"500101000000Z", 1950),
        (0x18, b"20500101000000Z", 2050),
    ],
)
def test_a_year_of_two_digits_is_within_a_hundred_years(tag: int, text: bytes, year: int) -> None:
    """The version may be absent."""
    for version in (b"", element(0xA0, bytes(3))):
        assert end_s(der_that_ends(tag, text, version)) == timegm((year, 1, 1, 0, 0, 0))


def der_that_ends(tag: int, text: bytes, version: bytes = b"") -> bytes:
    """The parts of a certificate up to its end; those before it are of any length."""
    validity = element(0x30, element(0x17, b"000101000000Z") + element(tag, text))
    parts = b"".join(element(each, bytes(200)) for each in (0x02, 0x30, 0x30)) + validity
    return element(0x30, element(0x30, version + parts))


def element(tag: int, content: bytes) -> bytes:
    """An element of DER."""
    size = len(content)
    return bytes([tag, size] if size < 128 else [tag, 0x82, size >> 8, size & 0xFF]) + content


def test_an_end_that_cannot_be_read_keeps_no_process_from_its_connection(
    authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    own = tmp_path / "own.pem"
    for text in (b"4901010000Z", b"", b"491301000000Z"):  # without seconds; nothing; month 13
        own.write_text(ssl.DER_cert_to_PEM_cert(der_that_ends(0x17, text)))
        context = tls_context(ca=authority.certificate)
        (trusted,) = certificates_of_files(context, ca=authority.certificate, certificate=own)
        assert trusted.role is CertificateRole.AUTHORITY
        assert f"the end of the certificate of {own} is not known" in caplog.text
        caplog.clear()
    own.write_text("no certificate")
    assert certificates_of_files(tls_context(ca=None), ca=None, certificate=own) == []
    for shown in ({"notAfter": "Bad time value"}, {"subject": ()}):
        assert certificate_of_server("localhost:1", shown) is None


def test_files_that_cannot_be_used_are_named(authority: Authority, stranger: Authority) -> None:
    certificate, key = authority.sign("process", for_="DNS:process")
    _, other = stranger.sign("process", for_="DNS:process")
    with pytest.raises(FencelogError, match=f"{key} cannot be used for TLS: no certificate"):
        tls_context(ca=key)
    for bad in (other, authority.encrypt(key), Path("/absent")):
        with pytest.raises(FencelogError, match=f"{certificate} with {bad} cannot be") as caught:
            tls_context(ca=authority.certificate, certificate=certificate, key=bad)
        assert caught.value.code is ErrorCode.BAD_REQUEST
    with pytest.raises(FencelogError, match="go together"):
        tls_context(ca=None, certificate=certificate)
