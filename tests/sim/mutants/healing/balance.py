"""Wrong balancing: copies that are moved too early, for nothing, or to where they are less safe."""

from __future__ import annotations

from tests.sim.mutants.mutation import Edit, Mutant

BALANCER = "fencelog.bookie.balance.balancer"
CORE = "fencelog.bookie.balance.core"
MOVES = "fencelog.bookie.replication.moves"
PLACEMENT = "fencelog.ledgers.placement.placement"
REPAIR = "fencelog.bookie.replication.repair"
REPAIR_CORE = "fencelog.bookie.replication.core"
TRANSITIONS = "fencelog.ledgers.ledger_metadata.transitions"
WORKER = "fencelog.bookie.replication.worker"

RULE = "PROTOCOL.md rule 11"
_BALANCE = "MAINTENANCE.md: balance"

MUTANTS = (
    Mutant(
        "moved-before-copied",
        RULE,
        "A move drops the bookie that gives before the one that takes has the copies.",
        (
            Edit(
                REPAIR,
                "LedgerRepair._move",
                "        wanted = moved(metadata, step, target)\n",
                "        wanted = moved(metadata, step, target)\n"
                "        if step.target is not None:\n"
                "            await self._commit(step, target)\n",
            ),
        ),
    ),
    Mutant(
        "moved-to-a-member",
        RULE,
        "A bookie takes the place of another one of a fragment in which it is.",
        (
            Edit(
                REPAIR_CORE,
                "_moves",
                "if move.target not in fragment.bookies:",
                "if move.target:",
            ),
            Edit(PLACEMENT, "Placement.moved", "target in ensemble or ", ""),
            Edit(TRANSITIONS, "with_replaced_bookie", " or new in bookies:", ":"),
        ),
    ),
)

RARE = (
    Mutant(
        "moved-although-copies-are-lacking",
        _BALANCE,
        "Moves are planned and made while other ledgers lack copies.",
        (
            Edit(
                BALANCER,
                "BookieBalancer._marked_phase",
                "                    return BalancePhase.WAITING\n",
                "                    continue\n",
            ),
            Edit(
                WORKER,
                "ReplicationWorker.check",
                "if marks or not self._moves.is_on:",
                "if not self._moves.is_on:",
            ),
            Edit(WORKER, "ReplicationWorker.check", "if moves and not marks and", "if moves and"),
        ),
    ),
    Mutant(
        "move-outlives-lost-copies",
        _BALANCE,
        "A move in progress goes on when a ledger is marked as lacking copies.",
        (
            Edit(
                WORKER,
                "ReplicationWorker.check",
                "if marks or not self._moves.is_on:",
                "if not self._moves.is_on:",
            ),
        ),
    ),
    Mutant(
        "dropped-move-stays-marked",
        _BALANCE,
        "The mark of a move that is not possible any more stays, and nothing else is planned.",
        (
            Edit(
                WORKER,
                "ReplicationWorker._repair",
                "            await self._marks.unmark(ledger_id, mark.version)\n"
                "            return\n",
                "            return\n",
            ),
        ),
    ),
    Mutant(
        "moves-without-a-rate",
        _BALANCE,
        "Moves are copied as fast as bookies answer.",
        (
            Edit(
                MOVES,
                "LedgerMoves.set_rate",
                "self._pace.bytes_per_s = min(limits, default=None)",
                "self._pace.bytes_per_s = None",
            ),
        ),
    ),
    Mutant(
        "moves-overshoot",
        _BALANCE,
        "The bookie that takes may end fuller than the one that gives, and gives it back.",
        (
            Edit(
                CORE,
                "Fills.stays_fuller",
                "return given * self._sizes[taker] >= taken * self._sizes[giver]",
                "return given >= 0 and taken > 0",
            ),
        ),
    ),
    Mutant(
        "moves-worsen-the-spread",
        _BALANCE,
        "A write set ends in fewer racks than before.",
        (
            Edit(
                CORE,
                "MovePlanner._is_possible",
                "return is_as_spread(before, after, metadata.write_quorum)",
                "return len(before) == len(after) == metadata.ensemble_size",
            ),
        ),
    ),
    Mutant(
        "moves-without-a-bound",
        _BALANCE,
        "All moves are planned at once.",
        (
            Edit(
                CORE,
                "MovePlanner.is_done",
                "return is_full or self.fills.distance <= self._least_gap",
                "return self.fills.distance <= self._least_gap",
            ),
        ),
    ),
    Mutant(
        "moved-while-a-bookie-is-away",
        _BALANCE,
        "Moves are planned during the restart of a bookie that has copies.",
        (
            Edit(
                CORE,
                "Fills.verdict",
                "if self.stored.keys() - self.bookies.keys():",
                "if not self.bookies:",
            ),
        ),
    ),
)
"""Mutants that cost copies or time: a test of the part has to detect them."""
