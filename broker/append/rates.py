"""Rates of appends and reads: token buckets on the event loop's clock.

A bucket saves up to one second of its rate. A request that finds it above zero may take any amount,
and leaves a debt that the next one has to wait for: so a batch that is larger than a second's worth
gets through, and over any time the rate holds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from fencelog.broker.policy import Policy
from fencelog.broker.read.stored import ReadLimits, ReadResult, answered
from fencelog.ledgers.errors import ErrorCode, FencelogError


class TokenBucket:
    """A token bucket with ``rate`` tokens a second. ``clock`` is in seconds."""

    def __init__(self, rate: int, clock: Callable[[], float]) -> None:
        self.rate = rate
        self._clock = clock
        self._tokens = float(rate)
        self._at_s = clock()

    @property
    def tokens(self) -> float:
        """The tokens that may be taken without a debt; the debt if below zero."""
        now_s = self._clock()
        self._tokens = min(float(self.rate), self._tokens + (now_s - self._at_s) * self.rate)
        self._at_s = now_s
        return self._tokens

    def wait_s(self) -> float:
        """Return the seconds until tokens may be taken; 0: now."""
        return max(0.0, -self.tokens / self.rate)

    def take(self, count: int) -> None:
        self._tokens = self.tokens - count


class Rate:
    """A rate of messages and of bytes together; None: no limit."""

    def __init__(
        self, messages_per_s: int | None, bytes_per_s: int | None, clock: Callable[[], float]
    ) -> None:
        self.messages = None if messages_per_s is None else TokenBucket(messages_per_s, clock)
        self.bytes = None if bytes_per_s is None else TokenBucket(bytes_per_s, clock)

    def wait_s(self) -> float:
        buckets = (self.messages, self.bytes)
        return max((bucket.wait_s() for bucket in buckets if bucket is not None), default=0.0)

    def take(self, messages: int, size: int) -> None:
        if self.messages is not None:
            self.messages.take(messages)
        if self.bytes is not None:
            self.bytes.take(size)


class PublishLimits:
    """The limits of an append besides the pipeline's own. ``backlog``: the refusal while a
    subscription is over its quota. A pipeline has one only while there is something to limit."""

    def __init__(self, rate: Rate | None, backlog: FencelogError | None) -> None:
        self._rate = rate
        self._backlog = backlog

    def admit(self, messages: int, size: int) -> None:
        """Admit an append. Raises FencelogError: RATE_LIMITED (with ``retry_after_ms``),
        BACKLOG_QUOTA_EXCEEDED."""
        if self._backlog is not None:
            raise FencelogError(self._backlog.code, self._backlog.detail)
        if self._rate is not None:
            wait_s = self._rate.wait_s()
            if wait_s > 0:
                raise rate_limited("appends", wait_s)
            self._rate.take(messages, size)


class DispatchLimit:
    """Limits the rate of reads of one partition: each waits for the debt of the previous ones, and
    gets no more than there is."""

    def __init__(self, rate: Rate) -> None:
        self._rate = rate

    def wait_s(self) -> float:
        """Return the seconds until a read may begin; 0: now."""
        return self._rate.wait_s()

    async def admit(self, limits: ReadLimits) -> ReadLimits:
        """Return the limits of a read that was requested with these limits, once it may begin.

        Raises FencelogError(RATE_LIMITED) if that is later than it would wait for a message.
        """
        max_messages, max_bytes, wait_ms = limits
        wait_s = self._rate.wait_s()
        if wait_s * 1000 > wait_ms:
            raise rate_limited("reads", wait_s)
        if wait_s > 0:
            await asyncio.sleep(wait_s)
            wait_ms -= int(wait_s * 1000)
        messages, size = self._rate.messages, self._rate.bytes
        if messages is not None:
            max_messages = min(max_messages, max(1, int(messages.tokens)))
        if size is not None:
            max_bytes = min(max_bytes, max(1, int(size.tokens)))
        return ReadLimits(max_messages, max_bytes, wait_ms)

    def charge(self, result: ReadResult, offset: int, max_messages: int | None) -> None:
        """Count what is answered of a read's result, see ``answered``: not what was asked for, and
        not the rest of the batches that had to be read for it."""
        if result.entries:
            self.take(*answered(result.entries, offset, max_messages))

    def take(self, messages: int, size: int) -> None:
        """Count messages and bytes that were delivered."""
        self._rate.take(messages, size)


def publish_rate(policy: Policy, clock: Callable[[], float]) -> Rate | None:
    """Return the rate of appends; None: there is no limit."""
    return _rate(policy.publish_messages_per_s, policy.publish_bytes_per_s, clock)


def dispatch_limit(policy: Policy, clock: Callable[[], float]) -> DispatchLimit | None:
    """Return the limit of reads; None: there is no limit."""
    rate = _rate(policy.dispatch_messages_per_s, policy.dispatch_bytes_per_s, clock)
    return None if rate is None else DispatchLimit(rate)


class DispatchRate:
    """The limit of reads and deliveries of one partition. ``limit``: that of the current policy,
    None where there is no limit."""

    def __init__(self, policy: Policy, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.limit = dispatch_limit(policy, clock)

    def apply_policy(self, policy: Policy) -> None:
        """Apply the policy from now on; a debt is dropped."""
        self.limit = dispatch_limit(policy, self._clock)


def rate_limited(what: str, wait_s: float) -> FencelogError:
    wait_ms = max(1, round(wait_s * 1000))
    return FencelogError(
        ErrorCode.RATE_LIMITED,
        f"more {what} than the partition's settings allow; again in {wait_ms} ms",
        retry_after_ms=wait_ms,
    )


def _rate(
    messages_per_s: int | None, bytes_per_s: int | None, clock: Callable[[], float]
) -> Rate | None:
    if messages_per_s is None and bytes_per_s is None:
        return None
    return Rate(messages_per_s, bytes_per_s, clock)
