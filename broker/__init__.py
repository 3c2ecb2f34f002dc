"""Topics: ownership of partitions, and logs that are chains of ledgers."""
