"""The opening of the metadata store that a URL names, so that callers need not know the
implementations."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.host import Host
from fencelog.ledgers.metastore.memory import MemoryMetadataStore
from fencelog.ledgers.metastore.paths import check_path
from fencelog.ledgers.metastore.port import MetadataStore
from fencelog.ledgers.metastore.sqlite import SqliteMetadataStore
from fencelog.ledgers.metastore.zookeeper import ZooKeeperMetadataStore
from fencelog.ledgers.metastore.zookeeper_credentials import NOBODY, credentials_from
from fencelog.ledgers.metastore.zookeeper_session import SESSION_TIMEOUT_MS
from fencelog.ledgers.metastore.zookeeper_tls import (
    Certificate,
    certificates_of_files,
    tls_context,
)

_FILES = ("credentials", "ca", "certificate", "key")
_OPTIONS = ("session_timeout_ms", *_FILES)
_OPTION = re.compile(rf"\?(?:.*&)?({'|'.join(_OPTIONS)})=")
_SESSION_TIMEOUT_RANGE_MS = range(1_000, 60_001)


def open_metadata_store(url: str, *, host: Host) -> MetadataStore:
    """Return the store that a URL names, not started yet.

    * ``memory:`` — not persistent;
    * ``sqlite:PATH`` — durable, for one process;
    * ``zk://host:port,host:port/root`` — ZooKeeper, everything below ``/root``;
      ``?session_timeout_ms=6000`` (1,000 to 60,000) sets how long a session outlives its process;
      ``?credentials=FILE`` names a file of users (see ``zookeeper_credentials``), and new nodes are
      for them alone; several options are separated by ``&``;
    * ``zks://host:port,host:port/root`` — the same over TLS. ``?ca=FILE``: the certificates to
      trust, in place of the system's; ``certificate=FILE&key=FILE``: the process's own.

    Raises FencelogError(BAD_REQUEST).
    """
    scheme, colon, rest = url.partition(":")
    if scheme in ("memory", "sqlite") and (option := _OPTION.search(rest)) is not None:
        raise _bad(url, f"{option[1]} is an option of ZooKeeper")
    if url == "memory:":
        return MemoryMetadataStore()
    if scheme == "sqlite" and rest:
        return SqliteMetadataStore(Path(rest), host=host)
    if scheme in ("zk", "zks") and colon:
        return _open_zookeeper(url, host)
    raise _bad(url, "use memory:, sqlite:PATH, zk:// or zks://host:port,host:port/root")


def check_metadata_file(url: str) -> None:
    """Check that the file which a URL names is there, before it is opened: that would make it.
    Raises FencelogError(BAD_REQUEST)."""
    scheme, _, rest = url.partition(":")
    if scheme == "sqlite" and rest and not Path(rest).is_file():
        raise FencelogError(ErrorCode.BAD_REQUEST, f"there is no metadata file {rest}")


def certificates_of(store: MetadataStore) -> list[Certificate]:
    """Return the certificates on which the connection to a store depends; none without TLS."""
    return store.certificates() if isinstance(store, ZooKeeperMetadataStore) else []


def _open_zookeeper(url: str, host: Host) -> ZooKeeperMetadataStore:
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise _bad(url, f"no host:port is to be found: {error}") from None
    hosts = parts.netloc.split(",")
    for address in hosts:
        name, _, port = address.rpartition(":")
        if not name or not port.isdecimal() or not 0 < int(port) < 65_536:
            raise _bad(url, f"{address!r} is no host:port")
    root = parts.path.rstrip("/")
    if root:
        check_path(root)
    given = parse_qsl(parts.query.replace("+", "%2B"), keep_blank_values=True)  # no form: + is a +
    options = dict(given)
    known = _OPTIONS if parts.scheme == "zks" else _OPTIONS[:2]
    if parts.fragment or len(options) < len(given) or not options.keys() <= set(known):
        raise _bad(url, f"the options of {parts.scheme}:// are {', '.join(known)}, each once")
    timeout_ms = options.get("session_timeout_ms", str(SESSION_TIMEOUT_MS))
    if not timeout_ms.isdecimal() or int(timeout_ms) not in _SESSION_TIMEOUT_RANGE_MS:
        raise _bad(url, f"session_timeout_ms={timeout_ms} is not within 1000..60000")
    files = {name: Path(path) for name, path in options.items() if name in _FILES}
    if empty := [name for name in files if not options[name]]:
        raise _bad(url, f"{empty[0]} names no file")
    path = files.pop("credentials", None)
    credentials = NOBODY if path is None else credentials_from(path)
    tls = tls_context(**{"ca": None, **files}) if parts.scheme == "zks" else None
    own, ca = files.get("certificate"), files.get("ca")
    found = [] if tls is None else certificates_of_files(tls, ca=ca, certificate=own)
    return ZooKeeperMetadataStore(
        hosts,
        host=host,
        root=root,
        session_timeout_ms=int(timeout_ms),
        credentials=credentials,
        tls=tls,
        certificates=found,
    )


def _bad(url: str, why: str) -> FencelogError:
    return FencelogError(ErrorCode.BAD_REQUEST, f"metadata URL {url!r} is not valid: {why}")
