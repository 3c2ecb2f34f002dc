"""Topics: ownership of partitions, and logs that are list of ledgers."""
