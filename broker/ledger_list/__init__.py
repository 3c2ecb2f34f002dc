"""The list of a partition's ledgers, the open ledger at its end, and the state log.

Imports of its package: ``limits``.
"""
