"""The ledger protocol and the shared kernel of every other package."""
