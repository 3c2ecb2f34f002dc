"""Histories of ledgers: clients, faults, and the end in which all must converge."""
