"""Metadata URLs name a store, or are refused with the reason."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import pytest

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.host import Host
from fencelog.ledgers.metastore.memory import MemoryMetadataStore
from fencelog.ledgers.metastore.open import check_metadata_file, open_metadata_store
from fencelog.ledgers.metastore.sqlite import SqliteMetadataStore
from fencelog.ledgers.metastore.zookeeper import ZooKeeperMetadataStore


async def test_each_scheme_opens_its_store(host: Host, tmp_path: Path) -> None:
    assert isinstance(open_metadata_store("memory:", host=host), MemoryMetadataStore)
    sqlite = open_metadata_store(f"sqlite:{tmp_path}/m.sqlite", host=host)
    assert isinstance(sqlite, SqliteMetadataStore)
    await sqlite.start()
    await sqlite.close()
    assert (tmp_path / "m.sqlite").exists()
    file = tmp_path / "users+1"
    file.write_text("ann:her-password-is-long")
    for url in (
        "zk://localhost:2181",
        "zk://a:2181,b:2182/",
        "zk://a:2181,b:2182/fence/log",
        "zk://[::1]:2181/x?session_timeout_ms=1000",
        "zks://a:1/x",
        f"zks://a:1/x?credentials={file}",
        f"zk://a:1/x?credentials={file}",
        f"zk://a:1/x?credentials={quote(str(file))}&session_timeout_ms=2000",
    ):
        assert isinstance(open_metadata_store(url, host=host), ZooKeeperMetadataStore)


async def test_a_file_that_has_to_be_there_is_not_made(host: Host, tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path}/nowhere/m.sqlite"
    with pytest.raises(FencelogError, match="there is no metadata file") as raised:
        check_metadata_file(url)
    assert raised.value.code is ErrorCode.BAD_REQUEST
    assert list(tmp_path.iterdir()) == []
    made = open_metadata_store(url, host=host)
    await made.start()
    await made.close()
    for there in (url, "memory:", "zk://a:1/x", "sqlite:"):
        check_metadata_file(there)


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("", "use memory:"),
        ("memory", "use memory:"),
        ("memory:x", "use memory:"),
        ("sqlite:", "use memory:"),
        ("etcd://x", "use memory:"),
        ("zk://", "no host:port"),
        ("zk://host", "no host:port"),
        ("zk://host:0/x", "no host:port"),
        ("zk://host:99999/x", "no host:port"),
        ("zk://a:1,,b:2/x", "no host:port"),
        ("zk://[::1:2181/x", "no host:port"),
        ("zk://a:²/x", "no host:port"),
        ("zk://a:1/x y", "no valid metadata path"),
        ("zk://a:1/x?timeout=3", "session_timeout_ms"),
        ("zk://a:1/x?session_timeout_ms=", "not within"),
        ("zk://a:1/x?session_timeout_ms=999", "not within"),
        ("zk://a:1/x#y", "session_timeout_ms"),
        ("zk://a:1/x?credentials=", "names no file"),
        ("zk://a:1/x?credentials=/absent", "/absent, the credentials for ZooKeeper, cannot be"),
        ("zk://a:1/x?credentials=/a&credentials=/b", "each once"),
        ("zk://a:1/x?ca=/absent", "the options of zk:// are session_timeout_ms, credentials, each"),
        ("zks://a:1/x?ca=", "ca names no file"),
        ("zks://a:1/x?ca=/absent", "/absent cannot be used for TLS: No such file"),
        ("zks://a:1/x?key=/absent", "certificate and key go together"),
        ("memory:?ca=/a", "ca is an option of ZooKeeper"),
        ("memory:?credentials=/a", "credentials is an option of ZooKeeper"),
        ("sqlite:/a?credentials=/b", "credentials is an option of ZooKeeper"),
        ("sqlite:/a?x=1&session_timeout_ms=1", "session_timeout_ms is an option of ZooKeeper"),
    ],
)
def test_bad_urls_are_refused_with_the_reason(host: Host, url: str, why: str) -> None:
    with pytest.raises(FencelogError, match=why) as caught:
        open_metadata_store(url, host=host)
    assert caught.value.code is ErrorCode.BAD_REQUEST
