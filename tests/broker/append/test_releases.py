"""The release of a partition that one producer holds."""

from __future__ import annotations

import pytest

from fencelog.broker.append.producer_access import EXCLUSIVE, FENCING, Access
from fencelog.ledgers.errors import FencelogError


def test_only_the_holder_releases_and_with_its_epoch() -> None:
    access = Access()
    access.apply(access.claim("a", EXCLUSIVE, seen_epoch=-1))
    for producer_id, epoch in (("b", 1), ("a", 0), ("a", 2)):
        with pytest.raises(FencelogError, match="does not hold"):
            access.release(producer_id, epoch)
    access.apply(access.claim("b", FENCING, seen_epoch=-1))
    with pytest.raises(FencelogError, match="does not hold"):
        access.release("a", 1)  # as it asks again, which it could while nobody held it
