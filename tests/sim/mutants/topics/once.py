"""Wrong brokers: idempotency keys that find another partition than that of their first append."""

from __future__ import annotations

from tests.sim.mutants.mutation import Edit, Mutant

ONCE = "fencelog.broker.append.once"
ACCESS = "fencelog.broker.append.producer_access"

MUTANTS = (
    Mutant(
        "former-partitions-not-asked",
        "SEMANTICS.md, idempotency keys",
        "A key that was written before the topic grew is written again in its new partition.",
        (
            Edit(
                ONCE,
                "previous_partitions",
                "    return list(found)\n",
                "    return []\n",
            ),
        ),
    ),
    Mutant(
        "former-routes-accepted",
        "SEMANTICS.md, idempotency keys",
        "An owner that has said that a key is not there writes it for a broker that does not know "
        "of the new partitions.",
        (
            Edit(
                ACCESS,
                "Access.check",
                "conditions.routed_by is not None and conditions.routed_by < self.partitions",
                "False",
            ),
        ),
    ),
)
