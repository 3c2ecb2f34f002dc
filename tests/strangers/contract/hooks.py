"""Facts that schemathesis needs beyond the service's OpenAPI document: bodies that are no JSON,
waits that are short, and refusals that no schema can foretell."""

from __future__ import annotations

import atexit
import json
import os
import re
from collections import Counter, deque
from http import HTTPStatus
from typing import Any

import schemathesis
from hypothesis import strategies as st
from schemathesis.core.failures import AcceptedNegativeData, Failure, ServerError
from schemathesis.generation import GenerationMode
from schemathesis.openapi.checks import RejectedPositiveData

from fencelog.api.server.operation import BATCH, NDJSON
from fencelog.broker.limits import MAX_WAIT_MS
from fencelog.ledgers.record_batch import Message, encode_batch

ANSWERS_FILE = "CONTRACT_ANSWERS"
"""The environment variable that names the file for the statuses of each operation."""

BROKER_ID = "CONTRACT_BROKER"
"""The environment variable that names the service's broker."""

MARKED = "CONTRACT_MARKED"
"""The environment variable that names a ledger that is marked, and one of its bookies."""

CLAIMED = "CONTRACT_CLAIMED"
"""The environment variable that names a partition that is claimed, as JSON: its place, and the
epoch."""

HELD = "held"
"""The namespace of that partition, whose topic no other request may end."""

WAITS = (("query", "wait", 1), ("body", "wait", 1), ("body", "wait_ms", 1000))
"""The places of waits, with their units in a second."""

UNFORETOLD = {
    r"from and from_time together": "parameters that exclude each other",
    r"-Key-Base64 cannot both|both Fencelog-Key and \?key=": "three ways to give one key",
    r"need(s|) Producer-(Id|Seq)|Producer-Id and Idempotency-Key": "headers that need each other",
    r"partition and key cannot both choose": "parameters that exclude each other",
    r"before and after cannot both": "parameters that exclude each other",
    r"wait is for the events after": "a parameter that needs another",
    r"at most one of (key|headers) and": "members that exclude each other",
    r"exactly one of ": "members that exclude each other, null among them",
    r"as unused: failed is false|without a name cannot": "members that need each other",
    r"have not failed are delivered again at once": "members that exclude each other",
    r"E >= Qw >= Qa": "a relation of three members, some of which are inherited",
    r"Qa=1 with Qw=": "a relation of two members",
    r"needs \d+ bookies, 4 are registered": "depends on the cluster, so that the status is 503",
    r"backoff_max_ms is less|needs max_deliveries": "a relation of two members",
    r"it cannot have fewer": "depends on the topic's partitions",
    r"the topic has several partitions: ": "depends on the topic's partitions",
    r"epochs above \d+ are given": "depends on the claims",
    r"does not hold the partition with epoch": "depends on the claims",
    r"ledger \d+ is in the log": "depends on the commits",
    r"ledger \d+ was not made for this partition": "depends on the ledger",
    r"a token has 1 to \d+ bytes of printable": "no pattern says printable",
    r"ack id .* (is none|was not given|is of a partition)": "ids come from pulls, with a checksum",
    r"so a pull needs `consumer`": "depends on the subscription's type",
    r"has no part of ledger \d+": "depends on the ledger",
    r"there is no bookie .*: it has no cookie": "depends on the cluster",
    r"bookie .* is registered: stop it": "depends on the cluster",
    r"partition \d+ is given twice|two ack ids are of partition": "unique by a member",
    r"a ledger is named twice": "unique by a member",
}
"""The refusals of requests that are valid by the document, and what it cannot say."""

OF_BROKERS = (
    *("drain", "undrain", "get_troubles"),
    *("subscriptions_of_broker", "rates_of_broker", "lags_of_broker"),
)
"""The operations on a broker, whose id only the cluster knows."""

UNKNOWN_HEADER = "in header - object with unexpected properties"
"""An acceptance that is none of the document's business: every hop may add headers."""

answers: Counter[str] = Counter()
brokers = os.environ.get(BROKER_ID, "").split()
marked = os.environ.get(MARKED, "").split()
pulled: deque[tuple[dict[str, Any], str]] = deque()
"""The ack ids that were pulled, with the places of their subscriptions."""

claimed: deque[tuple[dict[str, Any], int]] = deque(
    (place, epoch) for place, epoch in json.loads(os.environ.get(CLAIMED, "[]"))
)
"""The epochs that were claimed, with the places of their producers. The first one is of a topic
that no other request ends: a claim that a request has made may be void by the time of another."""


@schemathesis.hook
def filter_failure(context: Any, failure: Failure, case: Any, response: Any) -> bool:
    """Keep a failure, unless it is one that no schema can foretell."""
    if isinstance(failure, AcceptedNegativeData):
        return UNKNOWN_HEADER not in failure.message
    if not isinstance(failure, RejectedPositiveData | ServerError):
        return True
    detail = response.json().get("detail", "")
    return not any(re.search(pattern, detail) for pattern in UNFORETOLD)


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: dict[str, Any]) -> None:
    """Shorten waits, of which nothing but time would come; put what only answers tell into requests
    that are to succeed."""
    for place, name, unit in WAITS:
        value = (getattr(case, place) or {}).get(name) if place_is_object(case, place) else None
        if isinstance(value, int | float) and unit / 50 < value <= MAX_WAIT_MS * unit / 1000:
            getattr(case, place)[name] = unit // 50
    name = name_of(case)
    if name != "release_partition" and (case.path_parameters or {}).get("namespace") == HELD:
        case.path_parameters["namespace"] = "spare"  # names in the code are drawn, too
    if case.meta is None or case.meta.generation.mode is not GenerationMode.POSITIVE:
        return
    if name in OF_BROKERS and brokers:
        case.path_parameters["broker_id"] = brokers[0]
    elif name in ("start_decommission", "get_decommission", "cancel_decommission"):
        case.path_parameters["bookie_id"] = "bookie-4"
    elif name == "recover_bookie":
        case.path_parameters["bookie_id"] = "dead"
    elif name in ("replace_bookie", "get_underreplicated") and marked:
        case.path_parameters["ledger_id"] = int(marked[0])
        if place_is_object(case, "body"):
            case.body["bookie_id"] = marked[1]
    elif name == "change_autorecovery" and place_is_object(case, "body"):
        case.body["is_enabled"] = False  # or it would do what the other requests ask for
    elif name == "release_partition" and claimed:
        case.path_parameters, case.query["epoch"] = claimed.popleft()
    elif pulled and place_is_object(case, "body") and isinstance(case.body.get("ack_ids"), list):
        case.path_parameters, ack_id = pulled.popleft()
        case.body["ack_ids"] = [ack_id]


def place_is_object(case: Any, place: str) -> bool:
    return isinstance(getattr(case, place), dict)


def name_of(case: Any) -> str:
    return str(case.operation.definition.raw.get("operationId"))


@schemathesis.hook
def map_body(context: Any, body: Any) -> Any:
    """Write whole numbers without a fraction: the service takes 1, not 1.0."""
    return whole(body)


def whole(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [whole(part) for part in value]
    if isinstance(value, dict):
        return {name: whole(part) for name, part in value.items()}
    return value


@schemathesis.hook
def after_call(context: Any, case: Any, response: Any) -> None:
    """Count the answer, and keep what only answers tell."""
    name = name_of(case)
    answers[f"{name} {response.status_code}"] += 1
    if response.status_code == HTTPStatus.OK and name == "pull":
        for message in response.json()["messages"]:
            pulled.append((case.path_parameters, message["ack_id"]))
    elif response.status_code == HTTPStatus.OK and name == "claim_partition":
        claimed.append((case.path_parameters, response.json()["epoch"]))


def write_answers() -> None:
    with open(os.environ[ANSWERS_FILE], "w", encoding="utf-8") as file:
        json.dump(answers, file)


if ANSWERS_FILE in os.environ:
    atexit.register(write_answers)

TEXTS = st.text(st.characters(codec="utf-8"), max_size=20)
LINES = st.lists(st.builds(lambda text: json.dumps({"text": text}), TEXTS), min_size=1, max_size=4)
MESSAGES = st.builds(Message, st.binary(max_size=20), st.none() | st.binary(max_size=5))
schemathesis.openapi.media_type(NDJSON, LINES.map(lambda lines: "\n".join(lines).encode()))
schemathesis.openapi.media_type(BATCH, st.lists(MESSAGES, min_size=1, max_size=4).map(encode_batch))
