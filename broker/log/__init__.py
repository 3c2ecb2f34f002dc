"""The life of an open log: its writer, the end of its ledgers, rolls, repairs and retention.

Imports of its package: ``append``, ``cluster``, ``config``, ``ledger_list``, ``limits``,
``metrics``, ``policy``, ``read``.
"""
