"""Compaction: the latest message of each key, and the view that readers see of it.

Imports of its package: ``append``, ``ledger_list``, ``limits``, ``read``.
"""
