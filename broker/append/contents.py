"""The contents of appends that may be repeated: a repetition has the contents of the original.

Contents are compared by their digest. It is known of the appends under an idempotency key, and of a
producer's appends as far as the owner has seen them itself and they were not joined with others.
Where it is not known, nothing is compared.
"""

from __future__ import annotations

from fencelog.broker.append.conditions import Tracked
from fencelog.broker.append.producer_table import RecentAppend
from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.ledgers.format.entry_header import RANGE_KEY, SequenceRange


def check_contents(sequences: SequenceRange, original: RecentAppend | Tracked) -> None:
    """Check that an append has the contents of the one that it repeats.

    Raises FencelogError: IDEMPOTENCY_KEY_REUSED, SEQUENCE_REUSED.
    """
    if isinstance(original, Tracked):
        sequence, rows, contents = (
            original.sequences.sequence,
            original.sequences.rows,
            original.sequences.contents,
        )
    else:
        sequence, rows = original.sequence, original.rows
        contents = bytes.fromhex(original.contents)
    if not contents or not sequences.contents or contents == sequences.contents:
        return
    if sequences.kind == RANGE_KEY:
        raise FencelogError(
            ErrorCode.IDEMPOTENCY_KEY_REUSED,
            f"the append under this Idempotency-Key ({rows} messages) has other contents: a "
            "repetition repeats all of them, a new append needs a new key",
        )
    if (sequences.sequence, sequences.rows) == (sequence, rows):
        raise FencelogError(
            ErrorCode.SEQUENCE_REUSED,
            f"the producer's messages {sequence} to {sequence + rows - 1} were appended with other "
            "contents: a repetition repeats them, other messages need the numbers after them",
        )
