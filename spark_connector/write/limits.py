"""The limits of the memory that a task which writes takes, each with its reason."""

from __future__ import annotations

from fencelog.ledgers.limits import KIB, MIB

TARGET_BYTES = 2 * MIB
"""The size of a record batch, at most, unless it is one row: large enough for full speed, and far
below the largest."""

ROW_BYTES = 24
"""The cost of a row or a header beside its bytes, about; large enough for a record batch of empty
rows to have fewer than MAX_BATCH_MESSAGES."""

PART_BYTES = 2 * KIB
"""The cost beside its bytes of a part of a batch that waits, about: Arrow's objects for five
columns. It is most of the memory where a part is a few rows."""

SPARE_BYTES = 16 * MIB
"""The memory that waiting rows may keep beside their own, of batches whose other rows have left; as
much as their own, if that is more. Above it they are copied. As much has come since the last copy,
so that each row is copied about once more."""

MAX_WAITING_BYTES = 32 * MIB
"""The rows of a task that wait for more of their partitions, where a record batch may end anywhere.
Above it the largest leave early: 1024 partitions that fill alike get record batches of 32 KiB or
more. With what they keep beside them, and MAX_PENDING_BYTES, they are about 80 of the 384 MiB that
Spark, unless it is told otherwise, leaves all of an executor beside the heap of its JVM."""

MAX_PENDING_BYTES = 16 * MIB
"""The bytes of a task's ledgers that wait for acknowledgements, all together; above it the task
takes no more rows. It keeps bookies busy, and does not grow with the number of partitions."""
