"""The read path: the tail cache, sealed ledgers, offsets by time, and fair shares among readers.

Imports of its package: ``ledger_list``, ``limits``, ``metrics``.
"""
