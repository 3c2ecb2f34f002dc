"""Re-replication: the ledgers that lack copies, their locks, and the settings of self-healing."""
