"""The query by which another broker finds the partition of an append, and checks it."""

from __future__ import annotations

import pytest

from fencelog.api.http.asgi import parse_query
from fencelog.api.produce.append_headers import ROUTED_BY, routed_by, routed_query
from fencelog.broker.append.conditions import AppendConditions
from fencelog.broker.limits import MAX_PARTITIONS

PARAMETERS = frozenset(("partition", ROUTED_BY))


@pytest.mark.parametrize("count", [None, 1, MAX_PARTITIONS])
def test_the_owner_is_told_among_how_many_partitions_a_key_has_chosen(count: int | None) -> None:
    """The topic may have grown meanwhile: then the key may be in another partition."""
    query = parse_query(routed_query(3, AppendConditions(routed_by=count)), PARAMETERS)
    assert (query["partition"], routed_by(query)) == ("3", count)
    assert parse_query(routed_query(3, None), PARAMETERS) == {"partition": "3"}
