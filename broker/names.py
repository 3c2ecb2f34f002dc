"""The names of namespaces and topics. They stand in URLs, metadata paths and file names
unescaped."""

from __future__ import annotations

import re
from typing import NamedTuple

from fencelog.broker.limits import MAX_NAME_BYTES
from fencelog.ledgers.errors import ErrorCode, FencelogError

NAME_PATTERN = rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{MAX_NAME_BYTES - 1}}}"

_NAME = re.compile(NAME_PATTERN)


class TopicName(NamedTuple):
    """A valid name ``namespace/topic``. Made by ``of`` or ``parse``."""

    namespace: str
    topic: str

    @classmethod
    def of(cls, namespace: str, topic: str) -> TopicName:
        """Return the name of these parts. Raises FencelogError(INVALID_NAME)."""
        return cls(check_name("namespace", namespace), check_name("topic", topic))

    @classmethod
    def parse(cls, text: str) -> TopicName:
        """Parse ``namespace/topic``. Raises FencelogError(INVALID_NAME)."""
        namespace, slash, topic = text.partition("/")
        if not slash:
            raise FencelogError(
                ErrorCode.INVALID_NAME, f"a topic is named NAMESPACE/TOPIC, not {text[:200]!r}"
            )
        return cls.of(namespace, topic)

    def __str__(self) -> str:
        return f"{self.namespace}/{self.topic}"


def check_name(what: str, name: str) -> str:
    """Return the name if it is valid. Raises FencelogError(INVALID_NAME) with the rules for
    names."""
    if not _NAME.fullmatch(name):
        raise FencelogError(
            ErrorCode.INVALID_NAME,
            f"{what} {name[:200]!r} is not valid: 1 to {MAX_NAME_BYTES} of A-Z a-z 0-9 . _ - , "
            "beginning with a letter or digit",
        )
    return name
