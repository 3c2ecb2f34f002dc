"""The admission of appends: rates, and quotas of the backlog that subscriptions have not
acknowledged."""

from __future__ import annotations

import asyncio

from fencelog.broker.append.pipeline import AppendPipeline
from fencelog.broker.append.rates import PublishLimits, Rate, publish_rate
from fencelog.broker.policy import BACKLOG_HOLD, BACKLOG_REFUSE, Policy
from fencelog.ledgers.errors import ErrorCode, FencelogError

HOLD_S = 5.0
"""The longest time that appends wait while a subscription is over its quota: below the time after
which clients consider a request lost."""


class Admission:
    """Applies the limits of one partition. While nothing is limited the pipeline has no limits to
    check."""

    def __init__(self, pipeline: AppendPipeline, policy: Policy) -> None:
        self._pipeline = pipeline
        self._policy = policy
        self._loop = asyncio.get_running_loop()
        self._rate: Rate | None = None
        self._over = False
        self._closed = False
        self._timer: asyncio.TimerHandle | None = None
        self.apply_policy(policy)

    @property
    def is_over_quota(self) -> bool:
        return self._over

    def apply_policy(self, policy: Policy) -> None:
        """Apply the policy from now on; the debt of a rate is dropped if the rate has changed."""
        previous = self._policy
        self._policy = policy
        self._pipeline.pending_limit.limit = policy.max_pending_bytes
        names = ("publish_messages_per_s", "publish_bytes_per_s")
        if self._rate is None or any(getattr(policy, n) != getattr(previous, n) for n in names):
            self._rate = publish_rate(policy, self._loop.time)
        self.over_quota(self._over)

    def over_quota(self, is_over: bool) -> None:
        """Note whether the slowest subscription had a larger backlog than its quota at the last
        check; the policy may have no quota any more."""
        is_over = self._over = is_over and self._policy.has_backlog_quota and not self._closed
        holds = is_over and self._policy.backlog_action == BACKLOG_HOLD
        refuses = is_over and self._policy.backlog_action == BACKLOG_REFUSE
        refusal = self._refusal() if refuses else None
        limited = self._rate is not None or refusal is not None
        self._pipeline.pending_limit.limits = (
            PublishLimits(self._rate, refusal) if limited else None
        )
        if self._pipeline.mode.pause(holds):
            self._pipeline.schedule_pump()
        if not holds and self._timer is not None:
            self._timer.cancel()
            self._timer = None
        elif holds and self._timer is None:
            self._timer = self._loop.call_later(HOLD_S, self._give_up)

    def check_quota(self) -> None:
        """Check that the quota admits messages that are not appended here. Raises
        BACKLOG_QUOTA_EXCEEDED."""
        if self._over and self._policy.backlog_action in (BACKLOG_HOLD, BACKLOG_REFUSE):
            raise self._refusal()

    def close(self) -> None:
        """Release the appends that are held; none is held from now on."""
        self._closed = True
        self.over_quota(False)

    def _give_up(self) -> None:
        self._pipeline.refuse_waiting(self._refusal())
        self._timer = self._loop.call_later(HOLD_S, self._give_up)

    def _refusal(self) -> FencelogError:
        return FencelogError(
            ErrorCode.BACKLOG_QUOTA_EXCEEDED,
            f"a subscription of partition {self._pipeline.partition} has more before it than its "
            "quota",
        )
