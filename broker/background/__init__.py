"""The tasks beside requests: retention, compaction, cursors, balancing, and the sweep.

Imports of its package: ``cluster``, ``ledger_list``, ``limits``, ``partition``, ``registry``,
``subscriptions``.
"""
