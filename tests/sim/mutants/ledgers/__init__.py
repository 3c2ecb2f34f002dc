"""Mutants of the ledger protocol, of bookies and of their storage."""
