"""The writer of one ledger: a pure core, and the shell that sends and replaces bookies.

Imports of its package: ``errors``, ``format``, ``host``, ``ledger_metadata``, ``limits``,
``metastore``, ``metrics``, ``placement``, ``quorum``, ``rpc``.
"""
