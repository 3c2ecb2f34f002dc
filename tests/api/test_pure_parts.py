"""Small pure parts: query strings, paths, routing, figures, JSON forms."""

from __future__ import annotations

import json
from base64 import b64decode
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencelog.api.http.asgi import parse_query
from fencelog.api.http.json_render import ValueForm, encode_objects, message_object
from fencelog.api.http.metrics import ApiMetrics
from fencelog.api.http.targets import Endpoint, Targets, parse_path
from fencelog.api.metrics.exposition import exposition, http_metrics
from fencelog.api.routing.partitioner import RoundRobin, group_by_partition, partition_of_key
from fencelog.broker.names import TopicName
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.record_batch import Message

T = TopicName("ns", "t")


class TestQuery:
    def test_values_are_decoded(self) -> None:
        names = frozenset(("a", "b"))
        assert parse_query(b"a=x%20y&b=", names) == {"a": "x y", "b": ""}

    @pytest.mark.parametrize(
        "raw", [b"a", b"a=1&a=2", b"c=1", b"a=1&&", b"=", b"a=1&" * 99, b"\xff=1"]
    )
    def test_everything_else_is_refused(self, raw: bytes) -> None:
        with pytest.raises(FencelogError) as caught:
            parse_query(raw, frozenset("a"))
        assert caught.value.code is ErrorCode.BAD_REQUEST


class TestPaths:
    @pytest.mark.parametrize(
        ("rest", "endpoint", "partition", "offset"),
        [
            ("messages", Endpoint.PRODUCE, -1, -1),
            ("messages:batch", Endpoint.PRODUCE_BATCH, -1, -1),
            ("partitions/3/messages", Endpoint.READ, 3, -1),
            ("partitions/3/segments", Endpoint.SEGMENTS, 3, -1),
            ("partitions/3/messages/99", Endpoint.READ_ONE, 3, 99),
        ],
    )
    def test_targets(self, rest: str, endpoint: Endpoint, partition: int, offset: int) -> None:
        targets = Targets()
        for _ in range(2):  # parsed, then remembered
            target = targets.find(f"/v1/topics/ns/t/{rest}")
            assert target is not None
            assert (target.endpoint, target.topic) == (endpoint, T)
            assert (target.partition, target.offset) == (partition, offset)

    @pytest.mark.parametrize(
        "path",
        ["/", "/v1/topics/ns/t", "/v1/topics/ns/t/owners", "/v1/topics/ns/t/messages/", "/x"],
    )
    def test_other_paths_are_not_ours(self, path: str) -> None:
        assert parse_path(path) is None

    @given(st.text(max_size=30))
    def test_any_path_is_found_refused_or_not_ours(self, tail: str) -> None:
        known = (None, Endpoint.PRODUCE, Endpoint.READ)
        assert _found(f"/v1/topics/{tail}/messages") in (*known, ErrorCode.INVALID_NAME)
        partition = _found(f"/v1/topics/ns/t/partitions/{tail}/messages")
        assert partition in (*known, ErrorCode.BAD_REQUEST)

    def test_an_offset_is_a_number_of_64_bits(self) -> None:
        last = "/v1/topics/ns/t/partitions/0/messages/"
        assert _found(f"{last}{2**63 - 1}") is Endpoint.READ_ONE
        assert _found(f"{last}{2**63}") is ErrorCode.BAD_REQUEST

    def test_the_memory_is_bounded(self) -> None:
        targets = Targets()
        for number in range(10_000):
            targets.find(f"/v1/topics/ns/t{number}/messages")
        assert len(targets._known) <= 4096


def _found(path: str) -> Endpoint | ErrorCode | None:
    try:
        target = parse_path(path)
    except FencelogError as error:
        return error.code
    return None if target is None else target.endpoint


class TestRouting:
    def test_turns_are_fair(self) -> None:
        round_robin = RoundRobin()
        assert [round_robin.next(T, 3) for _ in range(6)] == [0, 1, 2, 0, 1, 2]
        assert round_robin.next(TopicName("ns", "other"), 3) == 0

    @given(st.lists(st.none() | st.binary(max_size=3), max_size=30), st.integers(1, 7))
    def test_groups_split_a_batch_and_keep_its_order(
        self, keys: list[bytes | None], partitions: int
    ) -> None:
        groups = group_by_partition(keys, partitions, unkeyed=0)
        assert sorted(row for rows in groups.values() for row in rows) == list(range(len(keys)))
        for partition, rows in groups.items():
            assert rows == sorted(rows)
            for row in rows:
                key = keys[row]
                assert partition == (0 if key is None else partition_of_key(key, partitions))


class TestJsonForms:
    @given(st.binary(max_size=30), st.sampled_from(ValueForm))
    def test_every_value_comes_back_under_the_member_that_names_it(
        self, value: bytes, form: ValueForm
    ) -> None:
        (line,) = encode_objects([message_object(1, 2, 3, Message(value), form)])
        assert b"\n" not in line
        shown: dict[str, Any] = json.loads(line)
        place = [shown.pop(name) for name in ("partition", "offset", "publish_time")]
        assert place == [1, 2, 3]
        (member,) = shown
        if member == "text":
            assert shown["text"].encode() == value
        elif member == "base64":
            assert b64decode(shown["base64"]) == value
        else:
            assert shown["json"] == json.loads(value)

    @pytest.mark.parametrize("value", [b'{"a":\r\n[1,\n2]}', b" 1 ", b'"\xc3\xa9"', b"null"])
    def test_json_stands_on_one_line(self, value: bytes) -> None:
        (line,) = encode_objects([message_object(0, 0, 0, Message(value), ValueForm.JSON)])
        assert not set(b"\r\n") & set(line)
        assert json.loads(line)["json"] == json.loads(value)

    @pytest.mark.parametrize("value", [b"", b"{", b"1 2", b"NaN", b'"\xff"', b"[" * 99_999])
    def test_what_is_no_json_shows_as_what_it_is(self, value: bytes) -> None:
        shown = message_object(0, 0, 0, Message(value), ValueForm.JSON)
        assert "json" not in shown
        assert ("text" in shown) != ("base64" in shown)


def test_latencies_fall_into_their_buckets() -> None:
    metrics = ApiMetrics()
    for microseconds in (500, 600, 9_000_000):
        metrics.appended(2, 10, microseconds)
    text = exposition(http_metrics(metrics)).decode()
    assert 'fencelog_http_append_seconds_bucket{le="0.0005"} 1.0' in text
    assert 'fencelog_http_append_seconds_bucket{le="0.001"} 2.0' in text
    assert 'fencelog_http_append_seconds_bucket{le="+Inf"} 3.0' in text
    assert "fencelog_http_appended_messages_total 6.0" in text
