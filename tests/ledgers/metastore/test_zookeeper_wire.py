"""ZooKeeper's wire format, compared with kazoo's, which is another implementation of it."""

from __future__ import annotations

import struct
from struct import pack
from typing import Any

import pytest
from kazoo.protocol import serialization as kazoo
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE

from fencelog.ledgers.metastore import zookeeper_wire as wire

PATH, DATA = "/dir/a-node", b"\0some data\xff"


def same(request: wire.Request, expected: Any) -> bool:
    # kazoo has an absent string for an empty one, ZooKeeper's own client has the empty one.
    body = bytes(expected.serialize()).replace(b"auth" + pack(">i", -1), b"auth" + pack(">i", 0))
    return (request.kind, request.body) == (expected.type, body)


@pytest.mark.parametrize("watch", [False, True])
def test_reads(watch: bool) -> None:
    watcher = print if watch else None
    assert same(wire.get(PATH, watch=watch), kazoo.GetData(PATH, watcher))
    assert same(wire.exists(PATH, watch=watch), kazoo.Exists(PATH, watcher))
    assert same(wire.get_children(PATH, watch=watch), kazoo.GetChildren(PATH, watcher))


def test_a_transaction() -> None:
    operations = [
        wire.create(PATH, DATA),
        wire.create(PATH, b"", ephemeral=True),
        wire.create(PATH, b"", access=wire.CREATORS_ALONE),
        wire.set_data(PATH, DATA, 7),
        wire.delete(PATH, 0),
        wire.check(PATH, 3),
    ]
    expected = kazoo.Transaction(
        [
            kazoo.Create(PATH, DATA, OPEN_ACL_UNSAFE, 0),
            kazoo.Create(PATH, b"", OPEN_ACL_UNSAFE, 1),
            kazoo.Create(PATH, b"", CREATOR_ALL_ACL, 0),
            kazoo.SetData(PATH, DATA, 7),
            kazoo.Delete(PATH, 0),
            kazoo.CheckVersion(PATH, 3),
        ]
    )
    assert same(wire.transaction(operations), expected)


def test_access_lists() -> None:
    assert same(wire.get_access(PATH), kazoo.GetACL(PATH))
    assert same(wire.set_access(PATH, wire.OPEN_TO_ALL), kazoo.SetACL(PATH, OPEN_ACL_UNSAFE, -1))
    assert same(wire.set_access(PATH, wire.CREATORS_ALONE), kazoo.SetACL(PATH, CREATOR_ALL_ACL, -1))


def test_an_authentication() -> None:
    expected = kazoo.Auth(0, "digest", "ann:a password")
    packet = wire.encode_authentication(b"ann:a password")
    header = pack(">ii", wire.AUTHENTICATION_XID, expected.type)
    assert packet[4:] == header + bytes(expected.serialize())
    assert packet[:4] == pack(">i", len(packet) - 4)


def test_the_rest() -> None:
    assert same(wire.sync("/"), kazoo.Sync("/"))
    assert (wire.PING.kind, wire.CLOSE.kind) == (kazoo.Ping.type, kazoo.Close.type)
    identity = wire.SessionIdentity(-5, bytes(range(16)))
    packet = wire.encode_connect(identity, timeout_ms=6000, last_zxid=9)
    connect = kazoo.Connect(0, 9, 6000, -5, bytes(range(16)), False)
    assert packet[4:] == bytes(connect.serialize())
    assert packet[:4] == pack(">i", len(packet) - 4)
    packet = wire.encode(wire.get(PATH), 3)
    assert packet == pack(">iii", len(packet) - 4, 3, kazoo.GetData.type) + wire.get(PATH).body


STAT = pack(">qqqqiiiqiiq", 1, 2, 3, 4, 5, 6, 7, -8, 9, 10, 11)
RESULTS = b"".join(
    (
        *(pack(">iBi", 1, 0, 0), pack(">i", 2), b"/a"),
        *(pack(">iBi", 5, 0, 0), STAT),
        pack(">iBi", 2, 0, 0),
        pack(">iBi", 13, 0, 0),
        *(pack(">iBi", -1, 0, -1), pack(">i", 0)),
        *(pack(">iBi", -1, 0, -1), pack(">i", -110)),
        *(pack(">iBi", -1, 0, -1), pack(">i", -2)),
        pack(">iBi", -1, 1, -1),
    )
)
ANSWERS = [
    (wire.get(PATH), pack(">i", 3) + b"abc" + STAT, (b"abc", wire.Stat(5, -8))),
    (wire.get(PATH), pack(">i", -1) + STAT, (b"", wire.Stat(5, -8))),
    (wire.exists(PATH), STAT, wire.Stat(5, -8)),
    (wire.set_access(PATH, wire.OPEN_TO_ALL), STAT, wire.Stat(5, -8)),
    (
        wire.get_access(PATH),
        b"".join((pack(">i", 2), wire.OPEN_TO_ALL[4:], pack(">ii", 5, 1), b"s", pack(">i", 0))),
        frozenset({(31, "world", "anyone"), (5, "s", "")}),
    ),
    (
        wire.get_children(PATH),
        pack(">ii", 2, 1) + b"b" + pack(">i", 2) + "ä".encode(),
        ["b", "ä"],
    ),
]


@pytest.mark.parametrize(("request_", "body", "expected"), ANSWERS)
def test_answers(request_: wire.Request, body: bytes, expected: object) -> None:
    assert request_.decode(memoryview(body)) == expected


def test_the_results_of_a_transaction() -> None:
    results = wire.transaction([]).decode(memoryview(RESULTS))
    assert results[:4] == [None] * 4
    assert [type(error) for error in results[4:]] == [
        wire.RolledBackError,
        wire.NodeExistsError,
        wire.ServerError,
    ]
    assert results[6].code == -2
    with pytest.raises(ValueError, match="kind 4"):
        wire.transaction([]).decode(memoryview(pack(">iBi", 4, 0, 0)))


@pytest.mark.parametrize(
    ("request_", "body"),
    [(request, body) for request, body, _ in ANSWERS] + [(wire.transaction([]), RESULTS)],
)
def test_an_answer_that_is_cut_short_is_refused(request_: wire.Request, body: bytes) -> None:
    for end in range(len(body)):
        with pytest.raises((struct.error, ValueError)):
            request_.decode(memoryview(body[:end]))


def test_the_answer_to_a_connect() -> None:
    password = bytes(range(16))
    packet = pack(">iiqi", 0, 4000, -7, 16) + password + b"\0"
    assert wire.decode_connected(memoryview(packet)) == (wire.SessionIdentity(-7, password), 4000)
    expired = pack(">iiqi", 0, -1, 0, 16) + bytes(16)
    assert wire.decode_connected(memoryview(expired)) == (wire.SessionIdentity(), 0)


def test_events_and_headers() -> None:
    event = pack(">iii", 3, 3, 2) + b"/x"
    assert wire.decode_event(memoryview(event)) == (3, "/x")
    xid, zxid, error, body = wire.decode_header(memoryview(pack(">iqi", 1, 2, -101) + b"rest"))
    assert (xid, zxid, error, bytes(body)) == (1, 2, -101, b"rest")


def test_errors() -> None:
    assert isinstance(wire.error_of(-101), wire.NoNodeError)
    assert isinstance(wire.error_of(-102), wire.NoAuthError)
    other = wire.error_of(-118)
    assert (type(other), other.code) == (wire.ServerError, -118)
    assert "-118" in str(other)
