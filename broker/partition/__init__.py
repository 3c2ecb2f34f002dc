"""A partition in its broker: ownership, opening, serving, transfer and close.

Imports of its package: ``append``, ``cluster``, ``commits``, ``compaction``, ``config``,
``dispatch``, ``ledger_list``, ``limits``, ``log``, ``metrics``, ``names``, ``policy``, ``read``,
``registry``, ``subscriptions``.
"""
