"""The metadata store: a port to a tree of versioned nodes, and its three adapters.

Imports of its package: ``errors``, ``host``, ``limits``.
"""
