"""A subscription's messages as lines, from a service that loses answers."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import pytest

from fencelog.api.client.subscription import LeasedMessage
from fencelog.api.streams import pull_lines as module
from fencelog.api.streams.pull_lines import PullOptions, pull_lines
from fencelog.ledgers.errors import ErrorCode, FencelogError

LOST = FencelogError(ErrorCode.STATE_UNKNOWN, "no answer")


class Client:
    """A client whose answers are in ``pulls`` and ``acks``."""

    pulls: list[list[bytes] | FencelogError]
    acks: list[list[str] | FencelogError]
    kind = "shared"
    given_back: list[str]

    def __init__(self, server: str) -> None:
        assert server == "http://there"

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def subscription(self, topic: str, subscription: str) -> dict[str, Any]:
        assert (topic, subscription) == ("t", "s")
        return {"type": self.kind, "lease_ms": 30}

    async def pull(self, topic: str, subscription: str, **_: object) -> list[LeasedMessage]:
        answer = self.pulls.pop(0)
        if isinstance(answer, FencelogError):
            raise answer
        return [LeasedMessage(0, 0, 0, value, None, None, (), "id", 1) for value in answer]

    async def ack(self, topic: str, subscription: str, ack_ids: Sequence[str]) -> list[str]:
        answer = self.acks.pop(0)
        if isinstance(answer, FencelogError):
            raise answer
        return answer

    async def give_back(self, topic: str, subscription: str, consumer: str) -> None:
        self.given_back.append(f"{consumer}, before {self.pulls[0]}")


@pytest.mark.parametrize("follow", [False, True])
async def test_lost_answers_are_asked_for_again(
    monkeypatch: pytest.MonkeyPatch, follow: bool
) -> None:
    monkeypatch.setattr(module, "FencelogClient", Client)
    Client.pulls = [LOST, [b"one", b"two"], LOST, [b"three"]]
    Client.acks = [LOST, [], []]
    out = io.BytesIO()
    options = PullOptions(
        topic="t", subscription="s", server="http://there", acknowledge=True, follow=follow, limit=3
    )
    await pull_lines(options, out)
    assert out.getvalue() == b"one\ntwo\nthree\n"
    assert Client.pulls == Client.acks == []


@pytest.mark.parametrize(
    ("kind", "acknowledge", "given_back"),
    [
        ("exclusive", True, ["c, before [b'one']", "c, before [b'two']"]),
        ("failover", True, ["c, before [b'one']", "c, before [b'two']"]),
        ("failover", False, []),
        ("key_shared", True, []),
    ],
)
async def test_nothing_is_written_before_what_a_lost_answer_has_leased(
    monkeypatch: pytest.MonkeyPatch, kind: str, acknowledge: bool, given_back: list[str]
) -> None:
    monkeypatch.setattr(module, "FencelogClient", Client)
    monkeypatch.setattr(Client, "kind", kind)
    Client.pulls, Client.acks, Client.given_back = [LOST, [b"one"], LOST, [b"two"]], [[], []], []
    options = PullOptions(
        topic="t",
        subscription="s",
        server="http://there",
        consumer="c",
        acknowledge=acknowledge,
        limit=2,
    )
    await pull_lines(options, io.BytesIO())
    assert Client.given_back == given_back


async def test_what_does_not_pass_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FencelogClient", Client)
    Client.pulls = [FencelogError(ErrorCode.SUBSCRIPTION_BUSY, "another one")]
    with pytest.raises(FencelogError) as raised:
        await pull_lines(
            PullOptions(topic="t", subscription="s", server="http://there", follow=True),
            io.BytesIO(),
        )
    assert raised.value.code is ErrorCode.SUBSCRIPTION_BUSY
