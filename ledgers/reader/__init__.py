"""Readers of ledgers: entries, long-poll tails, and the rules for trusting answers of bookies.

Imports of its package: ``errors``, ``format``, ``ledger_metadata``, ``limits``, ``metastore``,
``metrics``, ``quorum``, ``rpc``.
"""
