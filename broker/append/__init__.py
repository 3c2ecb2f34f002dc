"""The append path: batches in flight, conditions, admission, deduplication of producers.

Imports of its package: ``ledger_list``, ``limits``, ``metrics``, ``policy``, ``read``,
``registry``.
"""
