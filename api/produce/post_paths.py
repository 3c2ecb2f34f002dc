"""The paths of single posts, remembered: a service is asked for few of them, over and over."""

from __future__ import annotations

import contextlib

from fencelog.api.http.asgi import RawHeaders
from fencelog.api.http.targets import MAX_REMEMBERED_PATHS, Endpoint, Targets
from fencelog.api.produce.known_heads import KnownHeads
from fencelog.api.produce.post import Post, read_post
from fencelog.broker.names import TopicName
from fencelog.ledgers.errors import FencelogError


class PostPaths:
    """The paths that were asked for, and the topics of those that are of single posts; also the
    heads of these."""

    def __init__(self, targets: Targets) -> None:
        self._targets = targets
        self.known_heads = KnownHeads(self.single_post)
        self._topics: dict[bytes, TopicName | None] = {}

    def single_post(self, url: bytes, headers: RawHeaders) -> Post | None:
        """Return the content of the head of a POST, if it is that of a single post and valid."""
        path, _, query = url.partition(b"?")
        try:
            topic = self._topics[path]
        except KeyError:
            topic = self._topic(path)
        if topic is None or b"#" in query:
            return None
        try:
            return read_post(headers, query, topic)
        except FencelogError:
            return None

    def _topic(self, path: bytes) -> TopicName | None:
        """Return the topic of the path of single posts, None for any other path, and remember
        it."""
        topic = None
        if path.isascii() and b"%" not in path:
            with contextlib.suppress(FencelogError):
                target = self._targets.find(path.decode("ascii"))
                if target is not None and target.endpoint is Endpoint.PRODUCE:
                    topic = target.topic
        if len(self._topics) >= MAX_REMEMBERED_PATHS:
            self._topics.clear()
        self._topics[path] = topic
        return topic
