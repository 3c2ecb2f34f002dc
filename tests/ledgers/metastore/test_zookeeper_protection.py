"""The walk that sets access lists, over a tree that changes as the test says."""

from __future__ import annotations

from struct import unpack_from
from typing import Any, cast

import pytest

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.metastore import zookeeper_wire as wire
from fencelog.ledgers.metastore.paths import unauthorized, unknown
from fencelog.ledgers.metastore.zookeeper_incarnations import (
    GUARDS_PATH,
    UNGUARDED,
    guard_path,
    with_trailer,
)
from fencelog.ledgers.metastore.zookeeper_protection import SetAccess, set_access_of_all
from fencelog.ledgers.metastore.zookeeper_session import ZooKeeperSession

ROOT = "/fencelog"
OPEN = frozenset({(31, "world", "anyone")})
MINE = frozenset({(31, "digest", "ann:hash")})


class Tree:
    """A session over a tree: contents and access lists by path. It answers at once."""

    def __init__(self) -> None:
        self.nodes: dict[str, tuple[bytes, frozenset[tuple[int, str, str]]]] = {}
        self.writes: list[str] = []
        self.errors: list[Exception] = []

    def add(self, path: str, data: bytes = b"", access: object = OPEN) -> None:
        self.nodes[path] = (data, cast("frozenset[tuple[int, str, str]]", access))

    async def read(self, what: str, request: wire.Request) -> Any:
        path = path_of(request)
        if path not in self.nodes:
            raise wire.NoNodeError
        data, access = self.nodes[path]
        if request.kind == wire.get_access(path).kind:
            return access
        if request.kind == wire.get(path).kind:
            return data, wire.Stat(0, 0)
        assert request == wire.get_children(path)
        return [node[len(path) + 1 :] for node in self.nodes if node.rpartition("/")[0] == path]

    async def write(self, what: str, request: wire.Request) -> None:
        path = path_of(request)
        if self.errors:
            raise self.errors.pop()
        if path not in self.nodes:
            raise wire.NoNodeError
        wanted = MINE if request == wire.set_access(path, wire.CREATORS_ALONE) else OPEN
        assert request == wire.set_access(
            path, wire.CREATORS_ALONE if wanted is MINE else wire.OPEN_TO_ALL
        )
        self.writes.append(path)
        self.nodes[path] = (self.nodes[path][0], wanted)

    async def protect(self, access: bytes = wire.CREATORS_ALONE) -> SetAccess:
        return await set_access_of_all(cast("ZooKeeperSession", self), ROOT, access)


def path_of(request: wire.Request) -> str:
    (length,) = unpack_from(">i", request.body)
    return request.body[4 : 4 + length].decode()


@pytest.fixture
def tree() -> Tree:
    found = Tree()
    for path in ("/other", ROOT, ROOT + GUARDS_PATH, f"{ROOT}/a"):
        found.add(path)
    for number in range(100):
        found.add(f"{ROOT}/a/{number}", with_trailer(b"value", 1 + number))
        found.add(guard_path(ROOT, 1 + number))
    found.add(f"{ROOT}/a/0/once", with_trailer(b"", UNGUARDED))
    return found


async def test_every_node_and_guard_below_the_root_is_set_and_no_other(tree: Tree) -> None:
    assert await tree.protect() == SetAccess(nodes=204, changed=204)
    assert {path for path, (_, access) in tree.nodes.items() if access != MINE} == {"/other"}


async def test_a_node_is_set_before_its_children_are_read(tree: Tree) -> None:
    """What a stranger creates until then is found; later it creates nothing."""
    set_before: set[str] = set()
    read = tree.read

    async def recorded(what: str, request: wire.Request) -> Any:
        path = path_of(request)
        if request == wire.get_children(path):
            assert tree.nodes[path][1] == MINE
            set_before.add(path)
        return await read(what, request)

    tree.read = recorded  # type: ignore[method-assign]  # the test looks at each request
    await tree.protect()
    assert set_before == {p for p in tree.nodes if p.startswith(ROOT) and GUARDS_PATH not in p}


async def test_guards_are_never_listed(tree: Tree) -> None:
    """There may be more than fit into one answer; one of a deleted node need not be found."""
    tree.add(guard_path(ROOT, 9_999))
    await tree.protect()
    assert guard_path(ROOT, 9_999) not in tree.writes
    assert guard_path(ROOT, 50) in tree.writes


async def test_a_second_walk_changes_nothing_and_an_opposite_one_everything(tree: Tree) -> None:
    await tree.protect()
    tree.writes.clear()
    assert await tree.protect() == SetAccess(nodes=204, changed=0)
    assert tree.writes == [ROOT]  # which tells what the server makes of the list
    assert await tree.protect(wire.OPEN_TO_ALL) == SetAccess(nodes=204, changed=204)


async def test_what_is_deleted_meanwhile_is_passed_over(tree: Tree) -> None:
    tree.add(f"{ROOT}/b", with_trailer(b"", 77_777))  # its guard is gone
    tree.add(f"{ROOT}/b/c")
    write = tree.write

    async def deleting(what: str, request: wire.Request) -> None:
        tree.nodes.pop(f"{ROOT}/a/5", None)
        await write(what, request)

    tree.write = deleting  # type: ignore[method-assign]  # the tree changes under the walk
    assert await tree.protect() == SetAccess(nodes=204, changed=204)
    assert tree.nodes[f"{ROOT}/b/c"][1] == MINE


async def test_a_lost_answer_is_asked_again_and_a_refusal_ends_the_walk(tree: Tree) -> None:
    tree.errors = [unknown("protect", "lost"), unknown("protect", "lost")]
    assert (await tree.protect()).changed == 204
    tree.errors = [unauthorized("protect /fencelog/a", "it is another's")]
    with pytest.raises(FencelogError, match="another's") as caught:
        await tree.protect(wire.OPEN_TO_ALL)
    assert caught.value.code is ErrorCode.METADATA_UNAUTHORIZED
