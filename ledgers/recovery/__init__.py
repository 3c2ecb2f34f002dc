"""The recovery of a ledger: fence, find the last entry, write it back, close.

Imports of its package: ``errors``, ``format``, ``ledger_metadata``, ``limits``, ``metastore``,
``placement``, ``quorum``, ``reader``, ``rpc``, ``writer``.
"""
