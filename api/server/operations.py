"""The requests on plain ASGI, which FastAPI does not know: what each takes and answers, as types.

The types are those that the endpoints decode and encode, and the names of parameters are the sets
that their parsers accept; ``openapi`` turns both into schemas.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fencelog.api.admin.ledger_view import VIEW_PARAMETERS
from fencelog.api.admin.partition_admin import LogEnd, TopicEnds, TrimAnswer, TrimRequest
from fencelog.api.http import read_request
from fencelog.api.http.json_messages import AnyMessage
from fencelog.api.http.json_render import StoredMessage
from fencelog.api.produce import access, batch, commits, post, single
from fencelog.api.produce.append_headers import CONDITION_HEADERS
from fencelog.api.produce.batch_bodies import AnyBatch
from fencelog.api.read import offsets, read
from fencelog.api.read.answers import MessagePage
from fencelog.api.read.compaction_routes import CompactionState
from fencelog.api.server.event_operations import TIMELINE, TOGETHER
from fencelog.api.server.health import ABOUT_LIVE, ABOUT_READY, LIVE, READY, HealthState
from fencelog.api.server.operation import (
    BATCH,
    BYTES,
    COMMITTER,
    EVENTS,
    JSON,
    LINES,
    NDJSON,
    OCTETS,
    PARTITION,
    PARTITION_EVENTS,
    PRODUCER,
    SUBSCRIPTION,
    SUBSCRIPTION_EVENTS,
    TEXT,
    TOPIC,
    Lines,
    Operation,
)
from fencelog.api.server.parameters import (
    IF_NONE_MATCH,
    LAST_EVENT_ID,
    MESSAGE_HEADERS,
    OWNER,
    PREFER,
    Shape,
)
from fencelog.api.subscriptions import lag_core, parts, requests, views
from fencelog.api.subscriptions.pull import DeliveredMessages
from fencelog.api.subscriptions.requests import Offset
from fencelog.broker.limits import MAX_BODY_BYTES
from fencelog.ledgers.limits import MAX_BATCH_MESSAGES, MAX_MESSAGE_BYTES

MESSAGES = (
    Operation(
        f"POST {TOPIC}/messages",
        "append_message",
        f"Append one message: the body, verbatim. At most {MAX_MESSAGE_BYTES} bytes. Header "
        "`Fencelog-Header-NAME` adds a header `name`. Without a partition a key decides (CRC32C "
        "modulo partitions), else partitions take turns.",
        single.AppendedMessage,
        status=201,
        body={"*/*": BYTES},
        query=post.PARAMETERS,
        headers=CONDITION_HEADERS | MESSAGE_HEADERS | PREFER,
        answer_headers=OWNER,
    ),
    Operation(
        f"POST {TOPIC}/messages:batch",
        "append_batch",
        f"Append many messages, atomically per partition. At most {MAX_BODY_BYTES} bytes and "
        f"{MAX_BATCH_MESSAGES} messages. A mistake in one message (the problem names its `line` "
        "or `index`) refuses all of them.",
        batch.AppendedBatch,
        status=201,
        body={JSON: AnyBatch, NDJSON: Lines(AnyMessage), TEXT: LINES, BATCH: BYTES},
        query=batch.PARAMETERS,
        headers=CONDITION_HEADERS | PREFER,
        answer_headers=OWNER,
    ),
    Operation(
        f"GET {PARTITION}/messages",
        "read_messages",
        "Read from a position on. The form is chosen by Accept. An event stream sends `message`, "
        "`control`, `ping` and `problem` events and resumes after `Last-Event-ID`.",
        {JSON: MessagePage, NDJSON: Lines(StoredMessage), BATCH: BYTES, EVENTS: PARTITION_EVENTS},
        query=read_request.PARAMETERS,
        headers=frozenset((LAST_EVENT_ID,)) | PREFER,
        answer_headers=OWNER
        | dict.fromkeys(("Start-Offset", "Next-Offset", "Tail-Offset"), Offset)
        | dict.fromkeys(("At-Tail", "End-Of-Topic"), bool),
    ),
    Operation(
        f"GET {PARTITION}/messages/{{offset}}",
        "read_message",
        "One message's bytes. Its metadata travels in headers, as in an append.",
        {OCTETS: BYTES},
        headers=PREFER,
        answer_headers={"Fencelog-Key": str, **OWNER}
        | dict.fromkeys(("Fencelog-Event-Time", "Fencelog-Publish-Time"), int),
    ),
    Operation(
        f"GET {PARTITION}/segments",
        "list_segments",
        "The ledgers of a partition, for readers of storage. Up to the end that the owner has "
        "confirmed, with the bookies that hold them.",
        dict[str, Any],
        query=read.SEGMENT_PARAMETERS,
        headers=PREFER,
        answer_headers=OWNER,
    ),
)

_POSITIONS = "The earliest offset, the tail and, with `time`, the offset that belongs to it."
TOPICS = (
    Operation(
        f"POST {PARTITION}:trim",
        "trim_partition",
        "Forget messages. Nothing below `before` is readable any more; its space comes back as "
        "whole ledgers. It stops at what a durable subscription has not acknowledged, unless the "
        "topic's settings say otherwise; `held_back` says so.",
        TrimAnswer,
        body=TrimRequest,
    ),
    Operation(
        f"POST {PARTITION}:terminate",
        "terminate_partition",
        "End a partition's log for good. Appends are refused from now on, reads go on. May be "
        "repeated.",
        LogEnd,
    ),
    Operation(
        f"POST {TOPIC}:terminate",
        "terminate_topic",
        "End a topic for good. All its partitions, one after another. May be repeated.",
        TopicEnds,
    ),
    Operation(
        f"GET {PARTITION}/internal",
        "partition_internals",
        "What a partition's log looks like inside. Its ledgers, sizes and epochs, what is on its "
        "way, its subscriptions. For people: members may change.",
        dict[str, Any],
    ),
    Operation(
        f"GET {PARTITION}/chain",
        "partition_chain",
        "The ledger chain of a partition. A window of its ledgers with bookies and missing copies, "
        "takeovers, what retention cuts next, the slowest subscriptions. With `If-None-Match`, 304 "
        "while it is the same. For people: members may be added.",
        dict[str, Any],
        query=VIEW_PARAMETERS,
        headers=frozenset((IF_NONE_MATCH,)),
        answer_headers={"ETag": str},
    ),
    Operation(
        f"GET {PARTITION}/offsets",
        "partition_offsets",
        f"Positions. {_POSITIONS}",
        offsets.PartitionPositions,
        query=offsets.PARAMETERS,
    ),
    Operation(
        f"GET {TOPIC}/offsets",
        "topic_offsets",
        f"Positions of all partitions. {_POSITIONS}",
        offsets.TopicPositions,
        query=offsets.PARAMETERS,
    ),
    Operation(
        f"POST {PARTITION}:compact",
        "compact_partition",
        "Compact a partition next. Brings its view of the newest message of every key up to date. "
        "May be repeated.",
        CompactionState,
        status=202,
    ),
    Operation(
        f"GET {PARTITION}/compaction",
        "partition_compaction",
        "The state of the compacted view",
        CompactionState,
    ),
)

PRODUCERS = (
    Operation(
        f"POST {PARTITION}:fence", "fence", "Set the fencing token", None, body=access.FenceRequest
    ),
    Operation(f"GET {PARTITION}/producers", "show_access", "Who may append", access.AccessAnswer),
    Operation(
        f"POST {PRODUCER}:claim",
        "claim_partition",
        "Append alone",
        access.ClaimAnswer,
        body=access.ClaimRequest,
        needs_body=False,
    ),
    Operation(f"GET {PRODUCER}", "show_producer", "Where a producer is", access.ProducerAnswer),
    Operation(
        f"DELETE {PRODUCER}",
        "release_partition",
        "Let all append again",
        None,
        query=access.RELEASE_PARAMETERS,
    ),
)

COMMITS = (
    Operation(
        f"POST {COMMITTER}:create-ledger",
        "create_ledger",
        "Have a ledger made, to be written straight to bookies and committed.",
        commits.LentLedger,
        status=201,
    ),
    Operation(
        f"POST {COMMITTER}:commit",
        "commit_ledgers",
        "Add ledgers to the log. All of a batch or none, and once: a batch that comes again, or an "
        "earlier one, changes nothing.",
        commits.CommitAnswer,
        body=commits.CommitRequest,
    ),
    Operation(
        f"POST {COMMITTER}:abort",
        "abort_ledgers",
        "Withdraw ledgers for good. Unless their batch, or a later one, is committed: `commit` "
        "says so.",
        commits.LastCommit,
        body=commits.AbortRequest,
    ),
    Operation(f"GET {COMMITTER}", "show_committer", "The last commit", commits.LastCommit),
)


def _verb(verb: str, about: str, body: Shape, answer: Shape, **rest: Any) -> Operation:
    name = verb.replace("-", "_")
    return Operation(f"POST {SUBSCRIPTION}:{verb}", name, about, answer, body=body, **rest)


def _view(view: str, about: str, answer: Shape, **rest: Any) -> Operation:
    return Operation(f"GET {SUBSCRIPTION}/{view}", f"subscription_{view}", about, answer, **rest)


SUBSCRIPTIONS = (
    _verb(
        "pull",
        "Lease messages. They are delivered again, to any consumer, when the lease ends before "
        "they are acknowledged. `wait`: seconds while there is none.",
        requests.PullRequest,
        DeliveredMessages,
        needs_body=False,
        query=parts.PARAMETERS,
    ),
    _verb(
        "ack",
        "Acknowledge messages. By their ack ids, or everything `through` a message of each "
        "partition. Durable with the answer; may be repeated.",
        requests.AckRequest,
        requests.Acked,
    ),
    _verb(
        "nack",
        "Give messages back. They come again after `delay_ms`, unused ones (`failed`) at once: "
        "those of `ack_ids`, or, unused, all that a `consumer` has.",
        requests.NackRequest,
        requests.Stale,
        query=parts.PARAMETERS,
    ),
    _verb("extend", "Extend leases to `lease_ms` from now", requests.ExtendRequest, requests.Stale),
    _verb(
        "seek",
        "Move to another place. What is leased is forgotten.",
        requests.SeekRequest,
        requests.FoundOffsets,
        query=parts.PARAMETERS,
    ),
    _verb(
        "replay-dead-letters",
        "Send dead letters back. To the partition they came from, for this subscription alone.",
        requests.ReplayRequest,
        requests.Replayed,
        needs_body=False,
    ),
    _view("stats", "Metrics of each partition", views.Stats, query=parts.PARAMETERS),
    _view(
        "lag",
        "The lag of the last hour. Samples of all partitions added up, for as long as their owners "
        "have them: a new owner begins anew.",
        lag_core.Lag,
        query=parts.PARAMETERS,
    ),
    _view(
        "events",
        "Messages as they come, each leased. `message`, `ping` and `problem` events; acknowledge "
        "with `:ack`.",
        {EVENTS: SUBSCRIPTION_EVENTS},
        query=views.EVENT_PARAMETERS,
    ),
)

HEALTH = (
    Operation(f"GET {LIVE}", "healthz", ABOUT_LIVE, HealthState),
    Operation(f"GET {READY}", "readyz", ABOUT_READY, HealthState),
)

OPERATIONS: Mapping[str, tuple[Operation, ...]] = {
    "messages": MESSAGES,
    "subscriptions": SUBSCRIPTIONS,
    "producers": PRODUCERS,
    "commits": COMMITS,
    "topics": TOPICS,
    "cluster": (*TIMELINE, *TOGETHER),
    "health": HEALTH,
}
"""The requests by the tag that heads them in ``/docs``."""
