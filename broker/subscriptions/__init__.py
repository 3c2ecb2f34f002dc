"""The subscriptions of an open partition: cursors, pulls, acknowledgements, dead letters.

Imports of its package: ``append``, ``dispatch``, ``ledger_list``, ``limits``, ``metrics``,
``policy``, ``read``, ``registry``.
"""
