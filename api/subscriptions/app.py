"""The composition of all parts of the application that serve subscriptions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from fencelog.api.http.asgi import Exchange
from fencelog.api.http.bodies import BodyReader
from fencelog.api.http.metrics import ApiMetrics
from fencelog.api.http.targets import Endpoint, Target
from fencelog.api.http.waits import Waits
from fencelog.api.routing.forward import Forwarder
from fencelog.api.routing.owner_proxy import OwnerProxy
from fencelog.api.subscriptions.dead_letters import Appending, DeadLetterTopics, KeyRouting
from fencelog.api.subscriptions.exclusive_lease import ExclusiveLease
from fencelog.api.subscriptions.lifecycle import SubscriptionLifecycle
from fencelog.api.subscriptions.owners import SubscriptionOwners
from fencelog.api.subscriptions.peer import CursorRequests
from fencelog.api.subscriptions.pull import PullService
from fencelog.api.subscriptions.replay import DeadLetterReplay
from fencelog.api.subscriptions.verbs import SubscriptionVerbs
from fencelog.api.subscriptions.views import SubscriptionViews

if TYPE_CHECKING:
    from fencelog.broker.broker import Broker

Handler = Callable[[Exchange, Target], Awaitable[None]]


def build_subscriptions(
    broker: Broker,
    ownership: OwnerProxy,
    forwarder: Forwarder,
    waits: Waits,
    bodies: BodyReader,
    metrics: ApiMetrics,
    once: KeyRouting,
) -> tuple[SubscriptionLifecycle, dict[Endpoint, dict[str, Handler]]]:
    """Build what the framework's routes need, and the endpoints on plain ASGI; have samples of the
    lag taken."""
    broker.lag_history.start()
    appending = Appending(ownership, forwarder)
    letters = DeadLetterTopics(broker, appending, once)
    owners = SubscriptionOwners(broker, ownership, forwarder, letters.of)
    exclusive_lease = ExclusiveLease(owners)
    pull = PullService(broker, owners, exclusive_lease)
    lifecycle = SubscriptionLifecycle(broker, owners)
    verbs = SubscriptionVerbs(broker, owners, pull, exclusive_lease, waits, bodies, metrics)
    views = SubscriptionViews(broker, owners, pull, waits, metrics)
    replay = DeadLetterReplay(broker, lifecycle, pull, verbs, appending, bodies)
    cursors = CursorRequests(broker, owners, bodies)
    return lifecycle, {
        Endpoint.PULL: {"POST": verbs.pull},
        Endpoint.WAIT: {"POST": verbs.wait},
        Endpoint.HOLD: {"POST": verbs.hold},
        Endpoint.ACK: {"POST": verbs.ack},
        Endpoint.NACK: {"POST": verbs.nack},
        Endpoint.EXTEND: {"POST": verbs.extend},
        Endpoint.SEEK: {"POST": verbs.seek},
        Endpoint.REPLAY: {"POST": replay.post},
        Endpoint.OPEN_CURSOR: {"POST": cursors.open},
        Endpoint.DROP_CURSOR: {"POST": cursors.drop},
        Endpoint.SUBSCRIPTION_EVENTS: {"GET": views.events},
        Endpoint.SUBSCRIPTION_STATS: {"GET": views.stats},
        Endpoint.SUBSCRIPTION_LAG: {"GET": views.lag},
    }
