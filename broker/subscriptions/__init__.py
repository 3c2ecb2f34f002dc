"""The subscriptions of an open partition: cursors, pulls, acknowledgements, dead letters.

Imports of its package: ``append``, ``dispatch``, ``ledger_list``, ``metrics``, ``policy``,
``read``, ``registry``.
"""
