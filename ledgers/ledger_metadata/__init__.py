"""The metadata of ledgers: its value, the steps that each party may take, and its store.

Imports of its package: ``errors``, ``format``, ``limits``, ``metastore``, ``quorum``.
"""
