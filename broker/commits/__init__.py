"""Commits: ledgers that were written elsewhere join a log, all of a batch or none.

Imports of its package: ``append``, ``ledger_list``, ``limits``, ``log``, ``read``.
"""
