"""The choice of bookies for an ensemble, from those that are registered.

Imports of its package: ``errors``, ``host``, ``quorum``, ``rpc``.
"""
