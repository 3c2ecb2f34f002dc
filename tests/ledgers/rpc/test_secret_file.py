"""A shared secret from a file: a broker finds bookies that ask for it, others do not."""

from __future__ import annotations

from pathlib import Path

import pytest

from fencelog.api.processes.bookie_main import serving_bookie
from fencelog.bookie.engine.bookie import BookieConfig
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.host import SystemHost
from fencelog.ledgers.metastore.instance import create_instance
from fencelog.ledgers.metastore.memory import MemoryCluster, MemoryMetadataStore
from fencelog.ledgers.rpc.bookie_client import TcpBookieClient
from fencelog.ledgers.rpc.secret_file import secret_from

HOST = SystemHost()


def test_without_a_file_there_is_no_secret() -> None:
    assert secret_from(None, host=HOST) is None


@pytest.mark.parametrize("content", [None, b"", b"short\n", b" " * 100])
def test_a_file_that_holds_no_secret_is_refused(content: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / "secret"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(FencelogError) as caught:
        secret_from(path, host=HOST)
    assert caught.value.code is ErrorCode.BAD_REQUEST


def test_another_secret_is_accepted_beside_an_own_one_only(tmp_path: Path) -> None:
    own, other = tmp_path / "own", tmp_path / "other"
    own.write_text("correct horse battery staple")
    other.write_text("incorrect horse battery staple")
    both, new = secret_from(own, host=HOST, accepted=other), secret_from(other, host=HOST)
    assert both is not None
    assert new is not None
    prove = new.prove("b1")
    verify = both.verify("b1", next(prove))
    with pytest.raises(StopIteration) as accepted:
        verify.send(prove.send(next(verify)))
    with pytest.raises(StopIteration):
        prove.send(accepted.value.value)
    with pytest.raises(FencelogError, match="no secret of its own") as caught:
        secret_from(None, host=HOST, accepted=other)
    assert caught.value.code is ErrorCode.BAD_REQUEST


async def test_a_bookie_serves_those_who_have_the_file(tmp_path: Path) -> None:
    path, other = tmp_path / "secret", tmp_path / "other"
    path.write_text("correct horse battery staple\n")
    other.write_text("incorrect horse battery staple\n")
    store = MemoryMetadataStore(MemoryCluster())
    await store.start()
    await create_instance(store, HOST)
    config = BookieConfig(tmp_path / "data")
    secret = secret_from(path, host=HOST)
    async with serving_bookie(store, config, host=HOST, listen="127.0.0.1:0", secret=secret) as (
        bookie,
        address,
    ):
        codes = []
        for credentials in (None, secret_from(other, host=HOST), secret_from(path, host=HOST)):
            client = TcpBookieClient(bookie.bookie_id, address, credentials=credentials)
            with pytest.raises(FencelogError) as caught:
                await client.read_lac(1)
            codes.append(caught.value.code)
            await client.close()
        assert codes == [
            ErrorCode.UNAUTHORIZED,
            ErrorCode.UNAUTHORIZED,
            ErrorCode.NO_SUCH_LEDGER,  # an answer
        ]
    await store.close()
