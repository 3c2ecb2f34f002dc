"""The brokers of a cluster: their directory, load and events, and the choice of owners.

Imports of its package: ``config``, ``ledger_list``, ``limits``, ``metrics``, ``names``, ``policy``.
"""
