"""What the simulated ends of links keep, apart from the histories that play them."""

from __future__ import annotations

from tests.sim.network.broker_links import InOrder


class Link:
    """Something whose hash is its address."""


def test_links_are_kept_in_the_order_in_which_they_came() -> None:
    links = [Link() for _ in range(100)]
    kept = InOrder()
    for link in links:
        kept.add(link)
    kept.discard(links[3])
    kept.discard(links[3])
    kept.add(links[5])
    assert list(kept) == links[:3] + links[4:]
    assert len(kept) == 99
    assert links[5] in kept
    assert links[3] not in kept
