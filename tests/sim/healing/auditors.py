"""The processes around the marks: auditors, a checker, and the operator who takes a bookie out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from fencelog.bookie.auditor.auditor import Auditor, AuditorConfig
from fencelog.bookie.auditor.cluster_check import CheckConfig, ClusterCheck
from fencelog.bookie.auditor.decommission import Decommissions
from fencelog.bookie.auditor.election import Election
from fencelog.bookie.identity.cookie_registry import CookieRegistry
from fencelog.bookie.recent.check import RecentCheck, RecentCheckConfig
from fencelog.ledgers.errors import FencelogError
from fencelog.ledgers.reader.fan_out import cancel_all
from tests.sim.engine.host import SimHost
from tests.sim.healing.accusations import Accusations
from tests.sim.healing.mark_watch import MarkWatch
from tests.sim.healing.plan import HealingPlan
from tests.sim.ledgers.cluster import Cluster, Session
from tests.sim.oracle.history import History

STEP_MS = 400
RETRY_S = 0.5
CHECK_PAUSE_S = 0.3


class Auditors:
    """The work of these processes, until ``is_over``."""

    def __init__(
        self,
        cluster: Cluster,
        history: History,
        watch: MarkWatch,
        plan: HealingPlan,
        is_over: Callable[[], bool],
    ) -> None:
        self._cluster = cluster
        self._history = history
        self._watch = watch
        self._plan = plan
        self._is_over = is_over
        self.is_retired = plan.decommission is None
        """No bookie is to leave, or it has left."""

    async def audit(self, session: Session) -> None:
        """Stand for election, and audit while elected. One that *believes* audits all the time, as
        one does that was suspended and does not know that its session has ended."""
        machine = session.process.machine
        host = SimHost(self._cluster.engine, machine)
        config = AuditorConfig(
            lost_bookie_grace_ms=self._plan.lost_bookie_grace_ms,
            intervals_ms=self._plan.intervals_ms,
            first_check_delay_ms=0,
            sample_share=self._plan.sample_share,
            decommission_step_ms=STEP_MS,
        )
        auditor = Auditor(session.store, session.directory, host=host, config=config)
        recent = RecentCheck(
            session.store,
            session.directory,
            host=host,
            config=RecentCheckConfig(self._plan.recent_ms),
        )

        async def work() -> None:
            loop = asyncio.get_running_loop()
            tasks = [loop.create_task(part.run()) for part in (auditor, recent)]
            try:
                await asyncio.gather(*tasks)
            finally:
                await cancel_all(tasks)

        self._history.counts["auditors"] += 1
        if machine != self._plan.believer:
            await Election(session.store, machine, host=host).run(work)
        while not self._is_over():
            try:
                await work()
            except FencelogError as error:
                self._history.counts[f"auditor: {error.code.slug}"] += 1
            await asyncio.sleep(RETRY_S)

    async def check(self, session: Session) -> None:
        """Check the cluster's metadata again and again: ``fencelog check``."""
        host = SimHost(self._cluster.engine, session.process.machine)
        config = CheckConfig(
            repeats=self._plan.check_repeats,
            repeat_delay_ms=self._plan.check_delay_ms,
            ledgers_at_once=self._plan.checked_at_once,
        )
        while not self._is_over():
            accusations = Accusations(
                self._history, self._cluster, self._watch.versions, self._plan
            )
            check = ClusterCheck(
                session.store,
                session.directory,
                host=host,
                config=config,
                on_violation=accusations.made,
            )
            try:
                report = await check.run()
                self._history.counts["ledgers checked"] += report.checked
                self._history.counts["checks"] += 1
            except FencelogError as error:
                self._history.counts[f"check: {error.code.slug}"] += 1
            await asyncio.sleep(CHECK_PAUSE_S)

    async def decommission(self, session: Session) -> None:
        """Have a bookie taken out, and ask for it again until it is."""
        await asyncio.sleep(self._plan.decommission_ms / 1000)
        bookie = self._plan.base.victim
        host = SimHost(self._cluster.engine, session.process.machine)
        jobs, cookies = Decommissions(session.store), CookieRegistry(session.store)
        while not self._is_over():
            try:
                held = await cookies.read(bookie)
                if held.registered.cookie is None and await jobs.get(bookie) is None:
                    self._history.counts["bookies taken out"] += 1
                    self.is_retired = True
                    return
                if held.registered.cookie is not None:
                    await jobs.start(bookie, host=host)
            except FencelogError as error:
                self._history.counts[f"decommission: {error.code.slug}"] += 1
            await asyncio.sleep(RETRY_S)
