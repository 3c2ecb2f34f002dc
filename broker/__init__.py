"""Topics: ownership of partitions, and logs that are lists of ledgers."""
