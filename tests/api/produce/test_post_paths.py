"""Which paths are those of single posts."""

from __future__ import annotations

import pytest

from fencelog.api.http.targets import Targets
from fencelog.api.produce.post_paths import PostPaths
from fencelog.broker.names import TopicName

URL = b"/v1/topics/ns/t/messages"


@pytest.mark.parametrize(
    "url",
    [
        URL + b":batch",
        b"/v1/topics/ns/t",
        b"/v1/topics/ns/t/partitions/0/messages",
        b"/v1/topics/ns/%74/messages",
        b"/v1/topics/ns/-/messages",
        URL + b"?key=a#b",
        URL + b"?kye=a",
    ],
)
def test_a_url_of_something_else_is_no_single_post(url: bytes) -> None:
    """Also when its path is remembered."""
    paths = PostPaths(Targets())
    assert [paths.single_post(url, []) for _ in range(2)] == [None, None]
    for _ in range(2):
        post = paths.single_post(URL + b"?key=a", [])
        assert post is not None
        assert (post.topic, post.key) == (TopicName("ns", "t"), b"a")
